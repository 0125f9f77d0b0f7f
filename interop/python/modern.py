"""The Python SDK of the modern era, with its own loop. To be told what to speak and where the server is: `modern`, to find
out what the server speaks, or `legacy`, and then `http URL`, or `stdio PROGRAM ARGUMENT...`, which starts one."""

import sys

import anyio
from mcp import Client, StdioServerParameters
from mcp_types import ElicitResult

from gallery import Person, count, exercised, expect, flows, walk


async def main(era, kind, first, *rest):
    server = first if kind == "http" else StdioServerParameters(command=first, args=list(rest))
    person = Person(ElicitResult)
    walked = flows(era)
    mode = "auto" if era == "modern" else "legacy"
    async with Client(server, mode=mode, elicitation_callback=person.answer) as client:
        revision = {"modern": "2026-07-28", "legacy": "2025-11-25"}[era]
        expect(client.session.protocol_version, revision, "the protocol")
        await walk(client, person, walked)
        await count(client, walked)
    exercised("its own loop" if era == "modern" else "pushed questions", walked, "each effect once")


anyio.run(main, *sys.argv[1:])
