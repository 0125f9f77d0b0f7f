// The TypeScript SDK 1.32.2 over HTTP, in the legacy era: questions are pushed over the session's stream.
import { Client } from 'sdk-legacy/client/index.js';
import { StreamableHTTPClientTransport } from 'sdk-legacy/client/streamableHttp.js';
import { ElicitRequestSchema } from 'sdk-legacy/types.js';
import assert from 'node:assert/strict';
import { audited, calls, charged, guards, ledger, person, play, shapes } from './expect.mjs';

const answers = person();
const client = new Client({ name: 'typescript-legacy', version: '1.32.2' }, { capabilities: { elicitation: {} } });
client.setRequestHandler(ElicitRequestSchema, answers.answer);
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
await play(client, answers, calls);
for (const tool of shapes) await audited(client, tool, 4);
await charged(client, ledger);

for (const tool of guards) {
    answers.asked = [];
    const guarded = await client.callTool({ name: tool, arguments: { location: 'Tokyo' } });
    assert.equal(guarded.content[0].text, 'Weather in Tokyo: 22°C, partly cloudy.');
    assert.deepEqual(answers.asked, [], 'a guard does not ask a legacy client');
    await audited(client, tool, 1);
    console.log(`  ${tool}: metric, without a question`);
}
await client.close();
