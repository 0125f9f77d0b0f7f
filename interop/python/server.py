"""A server with the Python SDK, which seals states by default: one round, two rounds, two questions in one, a page to visit, a
state without a question, and resolvers that ask. What has to come of it is in `servers.json`.

Serves HTTP on a free port, which is the first line on stderr; or `stdio`."""

from typing import Annotated, Literal

from mcp.server.mcpserver import Context, Elicit, ElicitationResult, MCPServer, Resolve
from pydantic import BaseModel

from guards import guards
from serve import serve

server = MCPServer("python-server")
guards(server.tool(structured_output=False), Context)


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


serve(server.run, server.streamable_http_app)
