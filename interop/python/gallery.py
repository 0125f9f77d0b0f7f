"""The walk through the gallery that every client takes, whoever wrote it: what it calls, what the person answers and what
comes of it is in `flows.json`. Both versions of the SDK use this."""

import json
from pathlib import Path

INTEROP = Path(__file__).parent.parent
GALLERY = json.loads((INTEROP / "flows.json").read_text())


def flows(era):
    """The flows of an era, one for each tool that they name."""
    return each(flow for flow in GALLERY["flows"] if flow.get("era", era) == era)


def theirs(server):
    """The flows of a server that is written with an SDK, or by hand."""
    known = json.loads((INTEROP / "servers.json").read_text())["flows"]
    return each(flow for flow in known if server in flow["servers"])


def each(chosen):
    return [{**flow, "tool": tool} if tool else flow for flow in chosen for tool in flow.get("tools", [None])]


def send(client, flow, **further):
    """Sends what a flow sends. The two versions call it the same."""
    if "tool" in flow:
        return client.call_tool(flow["tool"], flow["arguments"], **further)
    if "prompt" in flow:
        return client.get_prompt(flow["prompt"], flow.get("arguments"), **further)
    return client.read_resource(flow["resource"], **further)


def check(flow, result):
    """What a flow has to come to."""
    if "tool" in flow:
        first = result.content[0]
        is_error = result.is_error if hasattr(result, "is_error") else result.isError
        expect(is_error or False, flow.get("is_error", False), name(flow))
    elif "prompt" in flow:
        first = result.messages[0].content
    else:
        first = result.contents[0]
    expect(first.text, flow["text"], name(flow))


class Person:
    """Is asked what the flow says, and answers what it says, one round after the other."""

    def __init__(self, elicit_result):
        self.elicit_result = elicit_result
        self.rounds = []

    def meets(self, flow):
        self.rounds = [list(questions.values()) for questions in flow["rounds"]]

    async def answer(self, _context, params):
        pending = next((questions for questions in self.rounds if questions), [])
        asked = [question for question in pending if question["asks"] == params.message]
        if not asked:
            raise AssertionError(f"asked {params.message!r}, and not {pending}")
        pending.remove(asked[0])
        return self.elicit_result(**asked[0]["answer"])

    def was_asked_everything(self):
        expect([question for questions in self.rounds for question in questions], [], "questions")


async def walk(client, person, walked):
    """Takes the walk with a client that asks the person by itself."""
    for flow in walked:
        person.meets(flow)
        check(flow, await send(client, flow))
        person.was_asked_everything()
        tell(flow)


async def count(client, walked):
    """What ran once for each call, and no more often."""
    audit = structured(await client.call_tool("audit_log", {}))
    for tool in GALLERY["audited_once"]:
        succeed = [flow for flow in walked if flow.get("tool") == tool and not flow.get("is_error")]
        expect(audit[tool], len(succeed), f"audits of {tool}")
    for tool, counted in GALLERY["counted"].items():
        result = await client.call_tool(tool, {})
        expect(structured(result), counted, tool)
        expect(json.loads(result.content[0].text), counted, tool)


def structured(result):
    return result.structured_content if hasattr(result, "structured_content") else result.structuredContent


def tell(flow):
    answers = [question["answer"] for questions in flow["rounds"] for question in questions.values()]
    said = ", ".join(json.dumps(answer.get("content", answer["action"])) for answer in answers)
    print(f"  {name(flow)}: {said} -> {flow['text']}")


def exercised(how, walked, *further):
    """The last line of a script: what it has done, for the table."""
    handlers = len({name(flow) for flow in walked})
    flows = f"{len(walked)} flows through {handlers} tools, prompts and resources"
    print("exercised: " + "; ".join([f"{how}, {flows}", *further]))


def name(flow):
    return flow.get("tool") or flow.get("prompt") or flow["resource"]


def expect(actual, expected, of):
    if actual != expected:
        raise AssertionError(f"{of}: {actual!r}, and not {expected!r}")
