// The TypeScript SDK 2.4.0 over HTTP, in the modern era: its own loop, and the loop by hand.
import assert from 'node:assert/strict';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { audited, calls, guarded, person, play } from './expect.mjs';

const url = new URL(process.argv[2]);
const negotiation = { mode: { pin: '2026-07-28' } };
const capabilities = { elicitation: { form: {} } };
const info = { name: 'typescript-modern', version: '2.4.0' };

const answers = person();
const client = new Client(info, { capabilities, versionNegotiation: negotiation });
client.setRequestHandler('elicitation/create', answers.answer);
await client.connect(new StreamableHTTPClientTransport(url));
await play(client, answers, [...calls, ...guarded]);
await audited(client, 'weather_h', 4);
await audited(client, 'weather_e', 4);
await client.close();

const manual = new Client(info, { capabilities, versionNegotiation: negotiation, inputRequired: { autoFulfill: false } });
manual.setRequestHandler('elicitation/create', answers.answer);
await manual.connect(new StreamableHTTPClientTransport(url));
const call = { name: 'weather_h', arguments: { location: 'Lima' } };
const asked = await manual.callTool(call, { allowInputRequired: true });
assert.equal(asked.resultType, 'input_required');
assert.equal(asked.inputRequests.units.params.message, 'Which units?');
const inputResponses = { units: { action: 'accept', content: { units: 'metric' } } };
const flipped = asked.requestState.slice(0, -1) + (asked.requestState.endsWith('A') ? 'B' : 'A');
const frozen = await manual
    .callTool({ ...call, inputResponses, requestState: flipped }, { allowInputRequired: true })
    .then(() => assert.fail('a changed state was taken'), error => error);
assert.equal(frozen.code, -32602);
assert.match(frozen.message, /Invalid or expired requestState$/);
assert.deepEqual(frozen.data, { reason: 'invalid_request_state' });
const retry = { ...call, inputResponses, requestState: asked.requestState };
for (const _ of [1, 2]) {
    const done = await manual.callTool(retry, { allowInputRequired: true });
    assert.equal(done.content[0].text, 'Weather in Lima: 22°C, partly cloudy.');
}
await audited(manual, 'weather_h', 5);
await manual.close();
console.log('  by hand: asked, changed state refused, completed, completed again');
