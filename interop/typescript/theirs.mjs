// The TypeScript SDK's client with the server that `SERVER` names. Of `typescript`, which is written with the same SDK, it
// shows that what our client is held to, theirs can do. `lowlevel` is ours, written by hand.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { transport } from './connect.mjs';
import { exercised, person, theirs, walk } from './gallery.mjs';

const user = person();
const client = new Client(
    { name: 'typescript-modern', version: '1' },
    { capabilities: { elicitation: { form: {}, url: {} } }, versionNegotiation: { mode: { pin: '2026-07-28' } } }
);
client.setRequestHandler('elicitation/create', user.answer);
await client.connect(transport(StreamableHTTPClientTransport, StdioClientTransport));
const walked = theirs(process.env.SERVER);
await walk(client, user, walked);
await client.close();
exercised(process.env.SERVER === 'lowlevel' ? 'a server written by hand' : 'its own server', walked);
