// What every client has to see, whoever wrote it: the calls, what the person answers, and the text that comes of it.
import assert from 'node:assert/strict';

const accept = content => ({ action: 'accept', content });

const weather = tool => [
    [tool, { location: 'Tokyo' }, accept({ units: 'metric' }), 'Weather in Tokyo: 22°C, partly cloudy.'],
    [tool, { location: 'Oslo' }, accept({ units: 'imperial' }), 'Weather in Oslo: 72°F, partly cloudy.'],
    [tool, { location: 'Tokyo' }, { action: 'decline' }, 'Cancelled (decline).'],
    [tool, { location: 'Tokyo' }, { action: 'cancel' }, 'Cancelled (cancel).']
];

export const calls = [
    ...weather('weather_h'),
    ['deploy', { env: 'prod' }, accept({ confirm: true }), 'deployed to prod'],
    ['deploy', { env: 'prod' }, accept({ confirm: false }), 'deployment to prod cancelled'],
    ['deploy', { env: 'prod' }, { action: 'decline' }, 'deployment to prod cancelled'],
    ['deploy', { env: 'prod' }, { action: 'cancel' }, 'deployment to prod cancelled']
];

export const guarded = weather('weather_e');

/** Plays calls through a client whose person answers with whatever `answers` was last told to. */
export async function play(client, answers, calls) {
    for (const [tool, args, answer, text] of calls) {
        answers.next = answer;
        answers.asked = [];
        const result = await client.callTool({ name: tool, arguments: args });
        assert.equal(result.content[0].text, text, `${tool} answered ${JSON.stringify(answer)}`);
        assert.equal(answers.asked.length, 1, `${tool} asks once`);
        console.log(`  ${tool} ${JSON.stringify(args)}: ${JSON.stringify(answer)} -> ${text}`);
    }
}

/** One audit entry for each call: what stands above the question ran once. */
export async function audited(client, tool, times) {
    const log = await client.callTool({ name: 'audit_log', arguments: {} });
    assert.equal(log.structuredContent[tool], times, `${tool} was audited`);
}

export function person() {
    const answers = { next: undefined, asked: [] };
    answers.answer = async request => {
        answers.asked.push(request.params.message);
        return answers.next;
    };
    return answers;
}
