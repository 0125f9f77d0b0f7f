// The TypeScript SDK's client against the server that is written with it: what our client is held to, theirs can do.
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
const walked = theirs('typescript');
await walk(client, user, walked);
await client.close();
exercised('its own server', walked);
