"""The benchmark's weather tool, served by the Python SDK.

It encrypts and binds by itself, and answers with JSON if told to. uvicorn is what it brings along, without the event loop and the
HTTP parser in C that can be installed beside it."""

import socket

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

server = MCPServer("python", version="2.3.0")

SCHEMA = {
    "type": "object",
    "properties": {"units": {"type": "string", "enum": ["metric", "imperial"]}},
    "required": ["units"],
}


@server.tool(structured_output=False)
async def weather(location: str, context: Context) -> str | InputRequiredResult:
    """Weather for a place"""
    # Present only if a state arrived that could be opened.
    if context.request_state is None:
        question = ElicitRequest(params=ElicitRequestFormParams(message="Which units?", requested_schema=SCHEMA))
        return InputRequiredResult(input_requests={"units": question}, request_state="asked")
    answer = context.input_responses["units"]
    if answer.action != "accept":
        return "Cancelled."
    temperature = "22°C" if answer.content["units"] == "metric" else "72°F"
    return f"Weather in {location}: {temperature}, partly cloudy."


app = server.streamable_http_app(json_response=True, stateless_http=True)
# For a socket that asyncio has not created, it sets TCP_NODELAY only if the protocol is named.
listener = socket.socket(proto=socket.IPPROTO_TCP)
listener.bind(("127.0.0.1", 0))
listener.listen()
# Connections that arrive before it serves wait in the socket's queue.
print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listener])
