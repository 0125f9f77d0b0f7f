// The TypeScript SDK 2.4.0 over HTTP, in the modern era: its own loop, and the loop by hand.
import assert from 'node:assert/strict';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { audited, calls, charged, guarded, guards, ledger, person, play, shapes } from './expect.mjs';

const url = new URL(process.argv[2]);
const negotiation = { mode: { pin: '2026-07-28' } };
const capabilities = { elicitation: { form: {} } };
const info = { name: 'typescript-modern', version: '2.4.0' };

const answers = person();
const client = new Client(info, { capabilities, versionNegotiation: negotiation });
client.setRequestHandler('elicitation/create', answers.answer);
await client.connect(new StreamableHTTPClientTransport(url));
await play(client, answers, [...calls, ...guarded]);
for (const tool of [...shapes, ...guards]) await audited(client, tool, 4);
await charged(client, ledger);
await client.close();

const manual = new Client(info, { capabilities, versionNegotiation: negotiation, inputRequired: { autoFulfill: false } });
manual.setRequestHandler('elicitation/create', answers.answer);
await manual.connect(new StreamableHTTPClientTransport(url));
const byHand = { allowInputRequired: true };
const inputResponses = { units: { action: 'accept', content: { units: 'metric' } } };
for (const tool of [...shapes, ...guards]) {
    const call = { name: tool, arguments: { location: 'Lima' } };
    const asked = await manual.callTool(call, byHand);
    assert.equal(asked.resultType, 'input_required');
    assert.equal(asked.inputRequests.units.params.message, 'Which units?');
    const flipped = asked.requestState.slice(0, -1) + (asked.requestState.endsWith('A') ? 'B' : 'A');
    const frozen = await manual
        .callTool({ ...call, inputResponses, requestState: flipped }, byHand)
        .then(() => assert.fail('a changed state was taken'), error => error);
    assert.equal(frozen.code, -32602);
    assert.match(frozen.message, /Invalid or expired requestState$/);
    assert.deepEqual(frozen.data, { reason: 'invalid_request_state' });
    const retry = { ...call, inputResponses, requestState: asked.requestState };
    for (const _ of [1, 2]) {
        const done = await manual.callTool(retry, byHand);
        assert.equal(done.content[0].text, 'Weather in Lima: 22°C, partly cloudy.');
    }
    await audited(manual, tool, 5);
    console.log(`  ${tool} by hand: asked, changed state refused, completed, completed again`);
}

const booking = { name: 'book_flight', arguments: { from: 'LHR', to: 'FCO', date: '2026-12-01' } };
const { requestState: first } = await manual.callTool(booking, byHand);
const seated = { ...booking, inputResponses: { seat: { action: 'accept', content: { seat: '12A' } } }, requestState: first };
const { requestState: second } = await manual.callTool(seated, byHand);
const paid = { ...booking, inputResponses: { confirm: { action: 'accept', content: { confirm: true } } }, requestState: second };
for (const _ of [1, 2]) {
    const booked = await manual.callTool(paid, byHand);
    assert.equal(booked.content[0].text, 'Booked LHR to FCO on 2026-12-01, seat 12A: charged 140.');
}
const again = await manual.callTool(seated, byHand);
assert.equal(again.requestState, second, 'an older token gives the reply it gave');
await charged(manual, { quotes: ledger.quotes + 1, charges: ledger.charges + 1, duplicates: 0 });
console.log('  book_flight by hand: booked, booked again, an older token sent again, charged once');
await manual.close();
