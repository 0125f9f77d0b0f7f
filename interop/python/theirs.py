"""The Python SDK's client against the server that is written with it: what our client is held to, theirs can do."""

import sys

import anyio
from mcp import Client, StdioServerParameters
from mcp_types import ElicitResult

from gallery import Person, exercised, theirs, walk


async def main(_era, kind, first, *rest):
    server = first if kind == "http" else StdioServerParameters(command=first, args=list(rest))
    person = Person(ElicitResult)
    walked = theirs("python")
    async with Client(server, mode="2026-07-28", elicitation_callback=person.answer) as client:
        await walk(client, person, walked)
    exercised("its own server", walked)


anyio.run(main, *sys.argv[1:])
