"""The Python SDK of the modern era, with the loop written out: every leg is looked at, and some are sent twice. To be told
where the server is: `modern http URL`, or `modern stdio PROGRAM ARGUMENT...`, which starts one."""

import sys

import anyio
from mcp import Client, MCPError, StdioServerParameters
from mcp_types import ElicitResult

from gallery import check, count, exercised, expect, flows, name, send, tell


async def behind_our_back(_context, _params):
    """Without a callback there is nothing to declare; it is never called."""
    raise AssertionError("asked behind our back")


def leg(client, flow, answered):
    return send(client.session, flow, allow_input_required=True, **answered)


async def refused(client, flow, answered):
    try:
        await leg(client, flow, answered)
    except MCPError as error:
        expect(error.error.code, -32602, "the code of a refusal")
        expect(error.error.message, "Invalid or expired requestState", "a refusal")
        expect(error.error.data, {"reason": "invalid_request_state"}, "the data of a refusal")
    else:
        raise AssertionError("it was taken")


async def play(client, flow):
    reply = await leg(client, flow, {})
    legs = []
    for questions in flow["rounds"]:
        expect(reply.result_type, "input_required", "a question")
        asked = {key: request.params.message for key, request in (reply.input_requests or {}).items()}
        expect(asked, {key: question["asks"] for key, question in questions.items()}, "what is asked")
        answers = {key: ElicitResult(**question["answer"]) for key, question in questions.items()}
        state = reply.request_state
        changed = state[:-1] + ("B" if state.endswith("A") else "A")
        answered = {"input_responses": answers or None, "request_state": state}
        await refused(client, flow, {**answered, "request_state": changed})
        reply = await leg(client, flow, answered)
        legs.append((answered, reply))
    check(flow, reply)
    # Every leg again, the first ones too: the same answers get the same reply, and nothing runs.
    for answered, reply in legs:
        expect(timeless(await leg(client, flow, answered)), timeless(reply), "a leg that was sent again")
        others = {key: otherwise(answer) for key, answer in (answered["input_responses"] or {}).items()}
        if others:
            await refused(client, flow, {**answered, "input_responses": others})


def otherwise(answer):
    return ElicitResult(action="decline" if answer.action == "cancel" else "cancel")


def timeless(reply):
    """A reply without how much time is left for it."""
    return reply.model_dump(exclude={"meta"})


async def cannot_be_asked(client, flow):
    try:
        await send(client, flow)
    except MCPError as error:
        # A handler that asks through its peer gets rmcp's error, and makes of it what it likes.
        expect(error.error.code, flow.get("own_error", -32021), "the code of a missing capability")
        if "own_error" not in flow:
            expect(error.error.data, {"requiredCapabilities": {"elicitation": {}}}, "the data of a missing capability")
    else:
        raise AssertionError("it was asked")


async def main(era, kind, first, *rest):
    server = first if kind == "http" else StdioServerParameters(command=first, args=list(rest))
    walked = flows(era)
    async with Client(server, mode="2026-07-28", elicitation_callback=behind_our_back) as client:
        for flow in walked:
            await play(client, flow)
            tell(flow)
        await count(client, walked)
    # Nothing that asks can be had by a client that declares nothing.
    async with Client(server, mode="2026-07-28") as mute:
        for flow in {name(flow): flow for flow in walked if any(flow["rounds"])}.values():
            await cannot_be_asked(mute, flow)
    exercised(
        "the loop by hand",
        walked,
        "changed states and other answers refused",
        "every leg sent twice, each effect once",
        "without the capability -32021",
    )


anyio.run(main, *sys.argv[1:])
