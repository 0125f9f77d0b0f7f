"""A server with the Python SDK of the legacy era, which asks in the middle of a call, over the connection. What has to come of
it is in `servers.json`.

Serves HTTP on a free port, which is the first line on stderr; or `stdio`."""

import socket
import sys

import uvicorn
from mcp.server.fastmcp import Context, FastMCP

server = FastMCP("python-legacy-server", log_level="WARNING")


async def ask(context, message, name, schema):
    requested = {"type": "object", "properties": {name: schema}, "required": [name]}
    return await context.session.elicit_form(message, requested, related_request_id=context.request_id)


@server.tool(structured_output=False)
async def weather(location: str, context: Context) -> str:
    """The weather, in units that are asked for"""
    units = await ask(context, "Which units?", "units", {"type": "string", "enum": ["metric", "imperial"]})
    if units.action != "accept":
        return f"Cancelled ({units.action})."
    temperature = "22°C" if units.content["units"] == "metric" else "72°F"
    return f"Weather in {location}: {temperature}, partly cloudy."


@server.tool(structured_output=False)
async def book(to: str, context: Context) -> str:
    """Books a seat, with two questions"""
    seat = await ask(context, f"Which seat to {to}?", "seat", {"type": "string"})
    if seat.action != "accept":
        return "Not booked."
    chosen = seat.content["seat"]
    confirm = await ask(context, f"Book seat {chosen} to {to}?", "confirm", {"type": "boolean"})
    booked = confirm.action == "accept" and confirm.content["confirm"]
    return f"Booked seat {chosen} to {to}." if booked else "Not booked."


@server.tool(structured_output=False)
async def introduce(context: Context) -> str:
    """Asks for two things"""
    name = await ask(context, "What is your name?", "name", {"type": "string"})
    colour = await ask(context, "Which colour do you like?", "colour", {"type": "string"})
    return f"{(name.content or {}).get('name', 'Nobody')} likes {(colour.content or {}).get('colour', 'nothing')}."


@server.tool(structured_output=False)
async def sign_in(context: Context) -> str:
    """Asks to visit a page"""
    page = await context.elicit_url("Please sign in", "https://example.com/sign-in", "1")
    return "Agreed to sign in." if page.action == "accept" else "Did not agree."


if sys.argv[1:] == ["stdio"]:
    server.run()
else:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}/mcp", file=sys.stderr, flush=True)
    # What comes before it serves waits in the socket's queue.
    listener.listen()
    uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="warning")).run(sockets=[listener])
