// The task client of the extension, `@modelcontextprotocol/ext-tasks`, over HTTP: every call of the gallery becomes a task, and
// its questions are answered through it. The package leaves the requests to the host, which is this script.
import assert from 'node:assert/strict';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { createTaskSessionFromClient, resultFromTaskOutcome } from '@modelcontextprotocol/ext-tasks/client';
import { first as url, revision } from './connect.mjs';
import { check, count, exercised, flows, person, tell } from './gallery.mjs';

const info = { name: 'typescript-tasks', version: '1' };
// The SDK's own client declares no tasks: it cannot read them. The package adds them to what it sends.
const capabilities = { elicitation: { form: {} } };
const client = new Client(info, { capabilities, versionNegotiation: { mode: 'auto' } });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));

let id = 0;
let polled = 0;

/** Sends one request as it is. */
async function dispatch({ method, params }) {
    polled += method === 'tasks/get';
    const headers = {
        'Content-Type': 'application/json',
        Accept: 'application/json, text/event-stream',
        'MCP-Protocol-Version': revision,
        'Mcp-Method': method,
        'Mcp-Name': params.taskId ?? params.name
    };
    const body = JSON.stringify({ jsonrpc: '2.0', id: ++id, method, params });
    const { result, error } = await (await fetch(url, { method: 'POST', headers, body })).json();
    return error ? { kind: 'error', error } : { kind: 'result', result };
}

const user = person();
const session = createTaskSessionFromClient(client, {
    endpointId: 'gallery',
    rawDispatch: dispatch,
    v2RequestFraming: { protocolVersion: revision, clientInfo: info, clientCapabilities: capabilities },
    onInputRequest: ({ params }) => user.answer({ params })
});
// What is not answered in a task stays asked, so a flow that sends nothing is one of rounds only.
const walked = flows('modern').filter(flow => flow.tool && flow.rounds.every(round => Object.keys(round).length > 0));
for (const flow of walked) {
    user.meets(flow);
    const execution = await session.callTool(flow.tool, flow.arguments);
    assert.equal(execution.kind, 'task', flow.tool);
    check(flow, resultFromTaskOutcome((await execution.settle()).outcome));
    user.wasAskedEverything();
    tell(flow);
}
assert.ok(polled > walked.length);
await count(client, walked);
await session.close();
await client.close();
exercised('tasks', walked, ['each effect once']);
