// The TypeScript SDK's client as a program that calls a tool as often as it can.
//
// `load.mjs URL TOOL`: for each line on its standard input, a number of milliseconds, it calls the tool over and over for as long, and prints how
// many calls it has made. It shows progress, as hosts do, and so each request has a progress token.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

// The packages are those that the interop tests have installed.
const require = createRequire(new URL('../../interop/', import.meta.url));
const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');

const CLIENTS = 8;
const [url, name] = process.argv.slice(2);

async function connect() {
    const client = new Client(
        { name: 'load', version: '1' },
        { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode: 'auto' } }
    );
    client.setRequestHandler('elicitation/create', async () => ({ action: 'accept', content: { units: 'metric' } }));
    await client.connect(new StreamableHTTPClientTransport(new URL(url)));
    return client;
}

async function drive(client, until) {
    let calls = 0;
    for (; performance.now() < until; calls++) {
        const result = await client.callTool({ name, arguments: { location: 'Tokyo' } }, { onprogress: () => {} });
        if (result.isError) throw new Error(JSON.stringify(result));
    }
    return calls;
}

const clients = await Promise.all(Array.from({ length: CLIENTS }, connect));
for await (const line of createInterface({ input: process.stdin })) {
    const until = performance.now() + Number(line);
    const calls = await Promise.all(clients.map(client => drive(client, until)));
    console.log(calls.reduce((sum, calls) => sum + calls, 0));
}
