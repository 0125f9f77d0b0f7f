"""A server with the Python SDK, which seals states by default: one round, two rounds, two questions in one, a page to visit, a
state without a question, and resolvers that ask. What has to come of it is in `servers.json`.

Serves HTTP on a free port, which is the first line on stderr; or `stdio`."""

import json
import socket
import sys
from typing import Annotated, Literal

import uvicorn
from mcp.server.mcpserver import Context, Elicit, ElicitationResult, MCPServer, Resolve
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitRequestURLParams, InputRequiredResult
from pydantic import BaseModel

server = MCPServer("python-server")


def form(message, name, schema):
    requested = {"type": "object", "properties": {name: schema}, "required": [name]}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=requested))


def given(context, key):
    """What was answered under a key in the last round, if anything was."""
    return (context.input_responses or {}).get(key)


def ask(state, **questions):
    return InputRequiredResult(input_requests=questions or None, request_state=json.dumps(state))


@server.tool(structured_output=False)
async def weather(location: str, context: Context) -> str | InputRequiredResult:
    """The weather, in units that are asked for"""
    units = given(context, "units")
    if units is None:
        return ask({}, units=form("Which units?", "units", {"type": "string", "enum": ["metric", "imperial"]}))
    if units.action != "accept":
        return f"Cancelled ({units.action})."
    temperature = "22°C" if units.content["units"] == "metric" else "72°F"
    return f"Weather in {location}: {temperature}, partly cloudy."


@server.tool(structured_output=False)
async def book(to: str, context: Context) -> str | InputRequiredResult:
    """Books a seat, in two rounds"""
    state = json.loads(context.request_state or "{}")
    seat, confirm = given(context, "seat"), given(context, "confirm")
    if seat is None and "seat" not in state:
        return ask({}, seat=form(f"Which seat to {to}?", "seat", {"type": "string"}))
    if confirm is None:
        if seat.action != "accept":
            return "Not booked."
        chosen = seat.content["seat"]
        question = form(f"Book seat {chosen} to {to}?", "confirm", {"type": "boolean"})
        return ask({"seat": chosen}, confirm=question)
    booked = confirm.action == "accept" and confirm.content["confirm"]
    return f"Booked seat {state['seat']} to {to}." if booked else "Not booked."


@server.tool(structured_output=False)
async def introduce(context: Context) -> str | InputRequiredResult:
    """Asks for two things in one round"""
    name, colour = given(context, "name"), given(context, "colour")
    if name is None or colour is None:
        return ask(
            {},
            name=form("What is your name?", "name", {"type": "string"}),
            colour=form("Which colour do you like?", "colour", {"type": "string"}),
        )
    return f"{(name.content or {}).get('name', 'Nobody')} likes {(colour.content or {}).get('colour', 'nothing')}."


@server.tool(structured_output=False)
async def sign_in(context: Context) -> str | InputRequiredResult:
    """Asks to visit a page"""
    page = given(context, "page")
    if page is None:
        params = ElicitRequestURLParams(message="Please sign in", url="https://example.com/sign-in", elicitation_id="1")
        return ask({}, page=ElicitRequest(params=params))
    return "Agreed to sign in." if page.action == "accept" else "Did not agree."


@server.tool(structured_output=False)
async def come_back(context: Context) -> str | InputRequiredResult:
    """Asks nothing, and wants to be called again"""
    return "Came back." if context.request_state else ask({"seen": True})


class Size(BaseModel):
    size: Literal["small", "large"]


class Extra(BaseModel):
    extra: str


async def ask_size(dish: str) -> Elicit[Size]:
    return Elicit(f"What size of {dish}?", Size)


async def ask_extra(dish: str, size: Annotated[Size, Resolve(ask_size)]) -> Elicit[Extra]:
    return Elicit(f"Anything with a {size.size} {dish}?", Extra)


@server.tool(structured_output=False)
async def order(
    dish: str,
    size: Annotated[Size, Resolve(ask_size)],
    extra: Annotated[ElicitationResult[Extra], Resolve(ask_extra)],
) -> str:
    """Orders, with what its resolvers ask for"""
    return f"A {size.size} {dish} with {extra.data.extra if extra.action == 'accept' else 'nothing'}."


if sys.argv[1:] == ["stdio"]:
    server.run()
else:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}/mcp", file=sys.stderr, flush=True)
    # What comes before it serves waits in the socket's queue.
    listener.listen()
    uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="warning")).run(sockets=[listener])
