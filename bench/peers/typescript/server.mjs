// The benchmark's weather tool, served by the TypeScript SDK.
//
// Its codec signs, and binds to what the request's context contains: the method and the authenticated client, as in its
// documentation. The context has neither the tool nor its arguments, so the place travels in the state and is read from
// there.
import { randomBytes } from 'node:crypto';
import { createRequire } from 'node:module';

// Uses the packages that the interop tests have installed.
const require = createRequire(new URL('../../../interop/', import.meta.url));
const { serve } = require('@hono/node-server');
const sdk = require('@modelcontextprotocol/server');
const { McpServer, createMcpHandler, createRequestStateCodec, fromJsonSchema, inputRequired, inputResponse } = sdk;

const codec = createRequestStateCodec({
    key: randomBytes(32),
    bind: ctx => `${ctx.mcpReq.method}\0${ctx.http?.authInfo?.clientId ?? ''}`
});

const string = { type: 'string' };
const inputSchema = fromJsonSchema({ type: 'object', properties: { location: string }, required: ['location'] });
const requestedSchema = {
    type: 'object',
    properties: { units: { ...string, enum: ['metric', 'imperial'] } },
    required: ['units']
};

async function weather({ location }, ctx) {
    const state = ctx.mcpReq.requestState();
    if (!state) {
        const units = inputRequired.elicit({ message: 'Which units?', requestedSchema });
        return inputRequired({ inputRequests: { units }, requestState: await codec.mint({ location }, ctx) });
    }
    const answer = inputResponse(ctx.mcpReq.inputResponses, 'units');
    if (answer.action !== 'accept') return text('Cancelled.');
    return text(`Weather in ${state.location}: ${answer.content.units === 'metric' ? '22°C' : '72°F'}, partly cloudy.`);
}

const text = text => ({ content: [{ type: 'text', text }] });

// Every request gets a new server, which is how the SDK serves requests without a session.
const { fetch } = createMcpHandler(() => {
    const server = new McpServer(
        { name: 'typescript', version: '2.4.0' },
        { capabilities: { tools: {} }, requestState: { verify: codec.verify } }
    );
    server.registerTool('weather', { description: 'Weather for a place', inputSchema }, weather);
    return server;
});
serve({ fetch, hostname: '127.0.0.1', port: 0 }, ({ port }) => console.log(`listening on http://127.0.0.1:${port}/mcp`));
