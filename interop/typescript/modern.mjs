// The TypeScript SDK of the modern era, with its own loop. It finds out what the server speaks if it is told to, and speaks as
// the legacy era did if it is not.
import assert from 'node:assert/strict';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { era, revision, transport } from './connect.mjs';
import { count, exercised, flows, person, walk } from './gallery.mjs';

const user = person();
const client = new Client(
    { name: 'typescript-modern', version: '1' },
    { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode: era === 'modern' ? 'auto' : 'legacy' } }
);
client.setRequestHandler('elicitation/create', user.answer);
await client.connect(transport(StreamableHTTPClientTransport, StdioClientTransport));
assert.equal(client.getNegotiatedProtocolVersion(), revision);
const walked = flows(era);
await walk(client, user, walked);
await count(client, walked);
await client.close();
exercised(era === 'modern' ? 'its own loop' : 'pushed questions', walked, ['each effect once']);
