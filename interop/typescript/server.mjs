// A server with the TypeScript SDK, whose states are sealed by its codec: one round, two rounds, two questions in one, a
// page to visit, and a state without a question. What has to come of it is in `servers.json`.
//
// Serves HTTP on a free port, which is the first line on stderr; or `stdio`.
import { randomBytes } from 'node:crypto';
import { serve } from '@hono/node-server';
import { McpServer, createMcpHandler, createRequestStateCodec, fromJsonSchema, inputRequired, inputResponse } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';

// One key for all of the servers that are made, as every request makes one.
const codec = createRequestStateCodec({ key: randomBytes(32), bind: ctx => ctx.mcpReq.method });

const text = text => ({ content: [{ type: 'text', text }] });
const form = (message, name, schema) =>
    inputRequired.elicit({ message, requestedSchema: { type: 'object', properties: { [name]: schema }, required: [name] } });
const takes = (...names) =>
    fromJsonSchema({
        type: 'object',
        properties: Object.fromEntries(names.map(name => [name, { type: 'string' }])),
        required: names
    });
const string = { type: 'string' };

function build() {
    const server = new McpServer(
        { name: 'typescript-server', version: '1' },
        { capabilities: { tools: {} }, requestState: { verify: codec.verify } }
    );
    /** A tool that gets what was answered under a key, and asks with a state that it gets back. */
    const tool = (name, inputSchema, handler) =>
        server.registerTool(name, { description: `The tool ${name}`, inputSchema }, async (args, ctx) => {
            const given = key => inputResponse(ctx.mcpReq.inputResponses, key);
            const ask = async (inputRequests, state) =>
                inputRequired({ inputRequests, requestState: await codec.mint(state, ctx) });
            return handler(args, given, ask, ctx.mcpReq.requestState());
        });

    tool('weather', takes('location'), async ({ location }, given, ask) => {
        const units = given('units');
        if (units.kind === 'missing') {
            return ask({ units: form('Which units?', 'units', { type: 'string', enum: ['metric', 'imperial'] }) }, {});
        }
        if (units.action !== 'accept') return text(`Cancelled (${units.action}).`);
        return text(`Weather in ${location}: ${units.content.units === 'metric' ? '22°C' : '72°F'}, partly cloudy.`);
    });

    tool('book', takes('to'), async ({ to }, given, ask, state) => {
        const [seat, confirm] = [given('seat'), given('confirm')];
        if (seat.kind === 'missing' && !state?.seat) return ask({ seat: form(`Which seat to ${to}?`, 'seat', string) }, {});
        if (confirm.kind === 'missing') {
            const chosen = seat.content?.seat;
            if (!chosen) return text('Not booked.');
            return ask({ confirm: form(`Book seat ${chosen} to ${to}?`, 'confirm', { type: 'boolean' }) }, { seat: chosen });
        }
        return text(confirm.content?.confirm ? `Booked seat ${state.seat} to ${to}.` : 'Not booked.');
    });

    tool('introduce', takes(), async (_, given, ask) => {
        const [name, colour] = [given('name'), given('colour')];
        if (name.kind === 'missing' || colour.kind === 'missing') {
            const questions = {
                name: form('What is your name?', 'name', string),
                colour: form('Which colour do you like?', 'colour', string)
            };
            return ask(questions, {});
        }
        return text(`${name.content?.name ?? 'Nobody'} likes ${colour.content?.colour ?? 'nothing'}.`);
    });

    tool('sign_in', takes(), async (_, given, ask) => {
        const page = given('page');
        if (page.kind === 'missing') {
            const url = 'https://example.com/sign-in';
            return ask({ page: inputRequired.elicitUrl({ message: 'Please sign in', url }) }, {});
        }
        return text(page.action === 'accept' ? 'Agreed to sign in.' : 'Did not agree.');
    });

    tool('come_back', takes(), async (_, _given, ask, state) => (state ? text('Came back.') : ask(undefined, { seen: true })));
    return server;
}

if (process.argv[2] === 'stdio') {
    serveStdio(build);
} else {
    const { fetch } = createMcpHandler(build);
    serve({ fetch, hostname: '127.0.0.1', port: 0 }, ({ port }) => console.error(`listening on http://127.0.0.1:${port}/mcp`));
}
