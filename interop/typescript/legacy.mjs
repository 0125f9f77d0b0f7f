// The TypeScript SDK of the legacy era: questions are pushed to it in the middle of a call.
import { Client } from 'sdk-legacy/client/index.js';
import { StdioClientTransport } from 'sdk-legacy/client/stdio.js';
import { StreamableHTTPClientTransport } from 'sdk-legacy/client/streamableHttp.js';
import { ElicitRequestSchema } from 'sdk-legacy/types.js';
import { era, transport } from './connect.mjs';
import { count, exercised, flows, person, walk } from './gallery.mjs';

const user = person();
const client = new Client({ name: 'typescript-legacy', version: '1' }, { capabilities: { elicitation: {} } });
client.setRequestHandler(ElicitRequestSchema, user.answer);
await client.connect(transport(StreamableHTTPClientTransport, StdioClientTransport));
const walked = flows(era);
await walk(client, user, walked);
await count(client, walked);
await client.close();
exercised('pushed questions', walked, ['each effect once']);
