"""The Python SDK of the legacy era: questions are pushed to it in the middle of a call. To be told where the server is:
`legacy http URL`, or `legacy stdio PROGRAM ARGUMENT...`, which starts one."""

import sys

import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitResult

from gallery import Person, count, exercised, flows, walk


async def main(era, kind, first, *rest):
    if kind == "http":
        transport = streamable_http_client(first)
    else:
        transport = stdio_client(StdioServerParameters(command=first, args=list(rest)))
    person = Person(ElicitResult)
    walked = flows(era)
    async with transport as (read, write, *_), ClientSession(read, write, elicitation_callback=person.answer) as client:
        await client.initialize()
        await walk(client, person, walked)
        await count(client, walked)
    exercised("pushed questions", walked, "each effect once")


anyio.run(main, *sys.argv[1:])
