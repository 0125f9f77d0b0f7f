// The TypeScript SDK of the modern era, which finds out what the server speaks, with its own loop.
import assert from 'node:assert/strict';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { transport } from './connect.mjs';
import { count, exercised, flows, person, walk } from './gallery.mjs';

const user = person();
const client = new Client(
    { name: 'typescript-modern', version: '1' },
    { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode: 'auto' } }
);
client.setRequestHandler('elicitation/create', user.answer);
await client.connect(transport(StreamableHTTPClientTransport, StdioClientTransport));
assert.equal(client.getNegotiatedProtocolVersion(), '2026-07-28');
const walked = flows('modern');
await walk(client, user, walked);
await count(client, walked);
await client.close();
exercised('its own loop', walked, ['each effect once']);
