// mcpdo, the Inspector's command line, which keeps a call waiting in a daemon while its person thinks. To be told where the
// server is: `modern http URL`.
//
// Every command is a process of its own and takes a second, so it takes a shorter walk than others: one tool of each kind.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { check, exercised, flows, tell } from '../typescript/gallery.mjs';

const program = fileURLToPath(
    new URL('../node_modules/@modelcontextprotocol/inspector/clients/mcpdo/build/mcp-bin.js', import.meta.url)
);
const home = mkdtempSync(join(tmpdir(), 'mcpdo-'));
const environment = {
    HOME: home,
    MCP_INSPECTOR_SECRET_STORE: 'file',
    // It starts its daemon with whichever Node.js is first.
    PATH: `${dirname(process.execPath)}:${process.env.PATH}`
};
const deadline = Date.now() + 60_000;

/** Runs one command. It is not waited for longer than the time that is left for all of them. */
const mcpdo = (...args) => within(Math.max(1, Math.min(20_000, deadline - Date.now())), ...args);

async function within(timeout, ...args) {
    const options = { env: environment, timeout, killSignal: 'SIGKILL' };
    const running = promisify(execFile)(process.execPath, [program, ...args], options);
    running.child.stdin.end();
    // A tool that says it failed is a failure of the command as well, with a code of its own.
    const { stdout } = await running.catch(error => (error.code === 5 ? error : Promise.reject(error)));
    return stdout;
}

const json = async (...args) => JSON.parse(await mcpdo(...args, '--format', 'json'));
const fields = values => Object.entries(values ?? {}).map(([name, value]) => `${name}:=${JSON.stringify(value)}`);
const answered = ({ action, content }) => (action === 'accept' ? fields(content) : [`--${action}`]);

async function play(flow) {
    let reply = await json('@c', 'tools/call', flow.tool, ...fields(flow.arguments));
    for (const [question, ...others] of flow.rounds.map(Object.values)) {
        assert.deepEqual(others, []);
        const { elicitationId, message } = reply.elicitationPending ?? assert.fail(JSON.stringify(reply));
        assert.equal(message, question.asks);
        reply = await json('elicitation/respond', elicitationId, ...answered(question.answer));
    }
    check(flow, reply.result ?? reply);
    tell(flow);
}

const [era, , url] = process.argv.slice(2);
const walked = flows(era).filter(({ tool }) => ['weather_e', 'weather_h', 'book_flight', 'delete_all'].includes(tool));
try {
    const connected = await json('connect', url, '--transport', 'http', '--era', era, '--elicit', 'form', '--connection', 'c');
    assert.equal(connected.protocolEra, era);
    for (const flow of walked) await play(flow);
    exercised('its daemon', walked, ['a process for each leg']);
} finally {
    await within(20_000, 'daemon', 'stop');
    rmSync(home, { recursive: true, force: true, maxRetries: 5 });
}
