// The walk through the gallery that every client takes, whoever wrote it: what it calls, what the person answers and what
// comes of it is in `flows.json`.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';

const read = file => JSON.parse(readFileSync(new URL(file, import.meta.url)));
const gallery = read('../flows.json');

/** The flows of an era, one for each tool that they name. */
export const flows = era => each(gallery.flows.filter(flow => (flow.era ?? era) === era));

/** The flows of a server that is written with an SDK, or by hand. */
export const theirs = server => each(read('../servers.json').flows.filter(flow => flow.servers.includes(server)));

function each(flows) {
    return flows.flatMap(({ tools, ...flow }) => (tools ? tools.map(tool => ({ ...flow, tool })) : [flow]));
}

/** How to send what a flow sends, with a client of either SDK, and further params in the loop by hand. */
export function send(client, { tool, prompt, resource, arguments: args }, params = {}, options = undefined) {
    if (tool) return client.callTool({ name: tool, arguments: args, ...params }, ...options ?? []);
    if (prompt) return client.getPrompt({ name: prompt, arguments: args, ...params }, ...options ?? []);
    return client.readResource({ uri: resource, ...params }, ...options ?? []);
}

/** What a flow has to come to. */
export function check(flow, result) {
    const [first] = result.content ?? result.contents ?? result.messages.map(message => message.content);
    assert.equal(first.text, flow.text, name(flow));
    if (flow.tool) assert.equal(result.isError ?? false, flow.is_error ?? false, name(flow));
}

/** A person who is asked what the flow says, and answers what it says, one round after the other. */
export function person() {
    let rounds = [];
    return {
        meets(flow) {
            rounds = flow.rounds.map(round => Object.values(round));
        },
        answer: async ({ params: { message } }) => {
            const open = rounds.find(round => round.length > 0) ?? [];
            const at = open.findIndex(({ asks }) => asks === message);
            assert.notEqual(at, -1, `asked ${JSON.stringify(message)}, and not ${JSON.stringify(open)}`);
            return open.splice(at, 1)[0].answer;
        },
        wasAskedEverything() {
            assert.deepEqual(rounds.flat(), []);
        }
    };
}

/** Takes the walk with a client that asks the person by itself. */
export async function walk(client, person, flows) {
    for (const flow of flows) {
        person.meets(flow);
        check(flow, await send(client, flow));
        person.wasAskedEverything();
        tell(flow);
    }
}

/** What ran once for each call, and no more often. */
export async function count(client, flows) {
    const audit = (await client.callTool({ name: 'audit_log', arguments: {} })).structuredContent;
    for (const tool of gallery.audited_once) {
        assert.equal(audit[tool], flows.filter(flow => flow.tool === tool && !flow.is_error).length, `audits of ${tool}`);
    }
    for (const [tool, expected] of Object.entries(gallery.counted)) {
        const counted = await client.callTool({ name: tool, arguments: {} });
        assert.deepEqual(counted.structuredContent, expected);
        assert.deepEqual(JSON.parse(counted.content[0].text), expected);
    }
}

export function tell(flow) {
    const answers = flow.rounds.flatMap(round => Object.values(round)).map(({ answer }) => JSON.stringify(answer.content ?? answer.action));
    console.log(`  ${name(flow)}: ${answers.join(', ')} -> ${flow.text}`);
}

/** The last line of a script: what it has done, for the table. */
export function exercised(how, flows, further = []) {
    const handlers = new Set(flows.map(({ tool, prompt, resource }) => tool ?? prompt ?? resource)).size;
    const walked = `${flows.length} flows through ${handlers} tools, prompts and resources`;
    console.log(`exercised: ${[`${how}, ${walked}`, ...further].join('; ')}`);
}

function name({ tool, prompt, resource, arguments: args }) {
    return `${tool ?? prompt ?? resource} ${JSON.stringify(args ?? {})}`;
}
