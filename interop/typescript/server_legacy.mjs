// A server with the TypeScript SDK of the legacy era, which asks in the middle of a call, over the connection. What has to
// come of it is in `servers.json`.
//
// Serves HTTP on a free port, which is the first line on stderr; or `stdio`.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { Server } from 'sdk-legacy/server/index.js';
import { StdioServerTransport } from 'sdk-legacy/server/stdio.js';
import { StreamableHTTPServerTransport } from 'sdk-legacy/server/streamableHttp.js';
import { CallToolRequestSchema, ListToolsRequestSchema, isInitializeRequest } from 'sdk-legacy/types.js';

const form = (message, name, schema) =>
    ({ message, requestedSchema: { type: 'object', properties: { [name]: schema }, required: [name] } });
const string = { type: 'string' };

const tools = {
    async weather({ location }, ask) {
        const units = await ask(form('Which units?', 'units', { type: 'string', enum: ['metric', 'imperial'] }));
        if (units.action !== 'accept') return `Cancelled (${units.action}).`;
        return `Weather in ${location}: ${units.content.units === 'metric' ? '22°C' : '72°F'}, partly cloudy.`;
    },
    async book({ to }, ask) {
        const { content: { seat } = {} } = await ask(form(`Which seat to ${to}?`, 'seat', string));
        if (!seat) return 'Not booked.';
        const confirm = await ask(form(`Book seat ${seat} to ${to}?`, 'confirm', { type: 'boolean' }));
        return confirm.content?.confirm ? `Booked seat ${seat} to ${to}.` : 'Not booked.';
    },
    async introduce(_, ask) {
        // Both are on their way before either is answered.
        const [name, colour] = await Promise.all([
            ask(form('What is your name?', 'name', string)),
            ask(form('Which colour do you like?', 'colour', string))
        ]);
        return `${name.content?.name ?? 'Nobody'} likes ${colour.content?.colour ?? 'nothing'}.`;
    },
    async sign_in(_, ask) {
        const url = 'https://example.com/sign-in';
        const { action } = await ask({ mode: 'url', message: 'Please sign in', url, elicitationId: randomUUID() });
        return action === 'accept' ? 'Agreed to sign in.' : 'Did not agree.';
    }
};

function build() {
    const server = new Server({ name: 'typescript-legacy-server', version: '1' }, { capabilities: { tools: {} } });
    server.setRequestHandler(ListToolsRequestSchema, async () => ({
        tools: Object.keys(tools).map(name => ({ name, inputSchema: { type: 'object' } }))
    }));
    server.setRequestHandler(CallToolRequestSchema, async ({ params }, { requestId }) => {
        // On the stream of the call itself: another may not be open yet.
        const ask = question => server.elicitInput(question, { relatedRequestId: requestId });
        return { content: [{ type: 'text', text: await tools[params.name](params.arguments, ask) }] };
    });
    return server;
}

/** One transport for each session. */
const sessions = new Map();

async function handle(request, response) {
    const id = request.headers['mcp-session-id'];
    if (sessions.has(id)) return sessions.get(id).handleRequest(request, response);
    const body = JSON.parse(await request.reduce((text, chunk) => text + chunk, ''));
    if (!isInitializeRequest(body)) return response.writeHead(400).end('no session');
    const transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: id => sessions.set(id, transport)
    });
    await build().connect(transport);
    return transport.handleRequest(request, response, body);
}

if (process.argv[2] === 'stdio') {
    await build().connect(new StdioServerTransport());
} else {
    const server = createServer(handle);
    server.listen(0, '127.0.0.1', () => console.error(`listening on http://127.0.0.1:${server.address().port}/mcp`));
}
