// The TypeScript SDK of the modern era, with the loop written out: every leg is looked at, and some are sent twice.
import assert from 'node:assert/strict';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { era, transport } from './connect.mjs';
import { check, count, exercised, flows, send, tell } from './gallery.mjs';

async function connect(capabilities) {
    const client = new Client(
        { name: 'typescript-by-hand', version: '1' },
        { capabilities, versionNegotiation: { mode: { pin: '2026-07-28' } }, inputRequired: { autoFulfill: false } }
    );
    await client.connect(transport(StreamableHTTPClientTransport, StdioClientTransport));
    return client;
}

const client = await connect({ elicitation: { form: {} } });

const leg = (flow, params) => send(client, flow, params, [{ allowInputRequired: true }]);

async function refused(flow, params) {
    const error = await leg(flow, params).then(() => assert.fail('it was taken'), error => error);
    assert.equal(error.code, -32602);
    assert.match(error.message, /Invalid or expired requestState$/);
    assert.deepEqual(error.data, { reason: 'invalid_request_state' });
}

/** A reply without how much time is left for it. */
const timeless = ({ _meta, ...reply }) => reply;

const changed = state => state.slice(0, -1) + (state.endsWith('A') ? 'B' : 'A');

const walked = flows(era);
for (const flow of walked) {
    let reply = await leg(flow);
    let answered = {};
    let replies = [];
    for (const round of flow.rounds) {
        assert.equal(reply.resultType, 'input_required');
        assert.deepEqual(Object.keys(reply.inputRequests), Object.keys(round));
        for (const [key, { asks }] of Object.entries(round)) assert.equal(reply.inputRequests[key].params.message, asks);
        const inputResponses = Object.fromEntries(Object.entries(round).map(([key, { answer }]) => [key, answer]));
        await refused(flow, { inputResponses, requestState: changed(reply.requestState) });
        answered = { inputResponses, requestState: reply.requestState };
        reply = await leg(flow, answered);
        replies.push([answered, reply]);
    }
    check(flow, reply);
    // Every leg again, the first ones too: the same answers get the same reply, and nothing runs.
    for (const [answered, reply] of replies) assert.deepEqual(timeless(await leg(flow, answered)), timeless(reply));
    const none = Object.fromEntries(Object.keys(answered.inputResponses).map(key => [key, { action: 'cancel' }]));
    const last = Object.values(flow.rounds.at(-1))[0].answer;
    if (last.action !== 'cancel') await refused(flow, { ...answered, inputResponses: none });
    tell(flow);
}
await count(client, walked);
await client.close();

// Nothing that asks can be had by a client that declares nothing.
const mute = await connect({});
for (const flow of new Map(walked.map(flow => [flow.tool ?? flow.prompt ?? flow.resource, flow])).values()) {
    const error = await send(mute, flow).then(() => assert.fail('it was asked'), error => error);
    assert.equal(error.code, -32021);
    assert.deepEqual(error.data, { requiredCapabilities: { elicitation: {} } });
}
await mute.close();
exercised('the loop by hand', walked, [
    'changed states and other answers refused',
    'every leg sent twice, each effect once',
    'without the capability -32021'
]);
