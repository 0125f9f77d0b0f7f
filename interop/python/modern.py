"""The Python SDK of the modern era, which finds out what the server speaks, with its own loop. To be told where the server
is: `http URL`, or `stdio PROGRAM ARGUMENT...`, which starts one."""

import sys

import anyio
from mcp import Client, StdioServerParameters
from mcp_types import ElicitResult

from gallery import Person, count, exercised, expect, flows, walk


async def main(kind, first, *rest):
    server = first if kind == "http" else StdioServerParameters(command=first, args=list(rest))
    person = Person(ElicitResult)
    walked = flows("modern")
    async with Client(server, elicitation_callback=person.answer) as client:
        expect(client.session.protocol_version, "2026-07-28", "the protocol")
        await walk(client, person, walked)
        await count(client, walked)
    exercised("its own loop", walked, "each effect once")


anyio.run(main, *sys.argv[1:])
