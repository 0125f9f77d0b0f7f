// What every client has to see, whoever wrote it: the calls, what the person answers to each question, and the text that
// comes of it.
import assert from 'node:assert/strict';

const accept = content => ({ action: 'accept', content });

const weather = tool => [
    [tool, { location: 'Tokyo' }, accept({ units: 'metric' }), 'Weather in Tokyo: 22°C, partly cloudy.'],
    [tool, { location: 'Oslo' }, accept({ units: 'imperial' }), 'Weather in Oslo: 72°F, partly cloudy.'],
    [tool, { location: 'Tokyo' }, { action: 'decline' }, 'Cancelled (decline).'],
    [tool, { location: 'Tokyo' }, { action: 'cancel' }, 'Cancelled (cancel).']
];

/** Ways of writing the tool that ask clients of both eras, and audit each call once. */
export const shapes = ['weather_a', 'weather_c', 'weather_d', 'weather_h', 'weather_i', 'weather_asked'];

const order = { order_id: 'ORD-7002', reason: 'broken' };
const trip = { from: 'LHR', to: 'FCO', date: '2026-12-01' };
const seat = accept({ seat: '12A' });

export const calls = [
    ...shapes.flatMap(weather),
    ['refund_order', order, [accept({ scope: 'mug' }), accept({ restock: true })], 'Refunded 1800 of ORD-7002 (broken), restocked.'],
    ['refund_order', order, [accept({ scope: 'everything' }), { action: 'decline' }], 'Refunded 4800 of ORD-7002 (broken).'],
    ['refund_order', { ...order, order_id: 'ORD-7001' }, [], 'Refunded 1500 of ORD-7001 (broken).'],
    ['deploy', { env: 'prod' }, accept({ confirm: true }), 'deployed to prod'],
    ['deploy', { env: 'prod' }, accept({ confirm: false }), 'deployment to prod cancelled'],
    ['deploy', { env: 'prod' }, { action: 'decline' }, 'deployment to prod cancelled'],
    ['deploy', { env: 'prod' }, { action: 'cancel' }, 'deployment to prod cancelled'],
    ['book_flight', trip, [seat, accept({ confirm: true })], 'Booked LHR to FCO on 2026-12-01, seat 12A: charged 140.'],
    ['book_flight', trip, [seat, accept({ confirm: false })], 'Not booked.'],
    ['book_flight', trip, [seat, { action: 'decline' }], 'Not booked.'],
    ['book_flight', trip, { action: 'decline' }, 'The user declined: LHR to FCO on 2026-12-01 for 140. Which seat?']
];

/** What the airline has counted when all of these calls were made. */
export const ledger = { quotes: 4, charges: 1, duplicates: 0 };

/** Ways of writing it that ask a modern client only. */
export const guards = ['weather_e', 'weather_f', 'weather_g'];
export const guarded = [
    ...guards.flatMap(weather),
    ['resolve_work_item', { work_item_id: 4522 }, accept({ resolution: 'Fixed' }), '#4522 resolved as Fixed.'],
    [
        'resolve_work_item',
        { work_item_id: 4522 },
        [accept({ resolution: 'Duplicate' }), accept({ duplicate_of: 4301 })],
        '#4522 resolved as Duplicate of #4301.'
    ]
];

/** Plays calls through a client whose person answers, in turn, with what `answers` was last told to. */
export async function play(client, answers, calls) {
    for (const [tool, args, answer, text] of calls) {
        answers.next = [answer].flat();
        answers.asked = [];
        const questions = answers.next.length;
        const result = await client.callTool({ name: tool, arguments: args });
        assert.equal(result.content[0].text, text, `${tool} answered ${JSON.stringify(answer)}`);
        assert.equal(answers.asked.length, questions, `${tool} asks ${questions} times`);
        console.log(`  ${tool} ${JSON.stringify(args)}: ${JSON.stringify(answer)} -> ${text}`);
    }
}

/** One audit entry for each call: what stands above the question ran once. */
export async function audited(client, tool, times) {
    const log = await client.callTool({ name: 'audit_log', arguments: {} });
    assert.equal(log.structuredContent[tool], times, `${tool} was audited`);
}

/** What the airline has counted: however many legs a booking has, it is charged once. */
export async function charged(client, expected) {
    const counted = await client.callTool({ name: 'airline_ledger', arguments: {} });
    assert.deepEqual(counted.structuredContent, expected);
    assert.deepEqual(JSON.parse(counted.content[0].text), expected);
}

export function person() {
    const answers = { next: [], asked: [] };
    answers.answer = async request => {
        answers.asked.push(request.params.message);
        return answers.next.shift();
    };
    return answers;
}
