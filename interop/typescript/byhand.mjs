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

const mapped = (object, change) => Object.fromEntries(Object.entries(object).map(([key, value]) => [key, change(value)]));
const isEmpty = object => Object.keys(object).length === 0;
const otherwise = ({ action }) => ({ action: action === 'cancel' ? 'decline' : 'cancel' });
const changed = state => state.slice(0, -1) + (state.endsWith('A') ? 'B' : 'A');

const walked = flows(era);
for (const flow of walked) {
    let reply = await leg(flow);
    const legs = [];
    for (const round of flow.rounds) {
        assert.equal(reply.resultType, 'input_required');
        const asked = mapped(reply.inputRequests ?? {}, request => request.params.message);
        assert.deepEqual(asked, mapped(round, ({ asks }) => asks));
        const answers = mapped(round, ({ answer }) => answer);
        const answered = { ...(isEmpty(answers) ? {} : { inputResponses: answers }), requestState: reply.requestState };
        await refused(flow, { ...answered, requestState: changed(reply.requestState) });
        reply = await leg(flow, answered);
        legs.push({ answered, reply });
    }
    check(flow, reply);
    // Every leg again, the first ones too: the same answers get the same reply, and nothing runs.
    for (const { answered, reply } of legs) {
        assert.deepEqual(timeless(await leg(flow, answered)), timeless(reply));
        const others = mapped(answered.inputResponses ?? {}, otherwise);
        if (!isEmpty(others)) await refused(flow, { ...answered, inputResponses: others });
    }
    tell(flow);
}
await count(client, walked);
await client.close();

// Nothing that asks can be had by a client that declares nothing.
const mute = await connect({});
for (const flow of new Map(walked.filter(({ rounds }) => rounds.some(round => !isEmpty(round))).map(flow => [flow.tool ?? flow.prompt ?? flow.resource, flow])).values()) {
    const error = await send(mute, flow).then(() => assert.fail('it was asked'), error => error);
    // A handler that asks through its peer gets rmcp's error, and makes of it what it likes.
    assert.equal(error.code, flow.own_error ?? -32021);
    if (!flow.own_error) assert.deepEqual(error.data, { requiredCapabilities: { elicitation: {} } });
}
await mute.close();
exercised('the loop by hand', walked, [
    'changed states and other answers refused',
    'every leg sent twice, each effect once',
    'without the capability -32021'
]);
