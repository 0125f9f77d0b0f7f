"""The Python SDK's client with the server that `SERVER` names. Of `python`, which is written with the same SDK, it shows that
what our client is held to, theirs can do. `lowlevel` is ours, written by hand."""

import os
import sys

import anyio
from mcp import Client, StdioServerParameters
from mcp_types import ElicitResult

from gallery import Person, exercised, theirs, walk


async def main(_era, kind, first, *rest):
    server = first if kind == "http" else StdioServerParameters(command=first, args=list(rest))
    person = Person(ElicitResult)
    walked = theirs(os.environ["SERVER"])
    async with Client(server, mode="2026-07-28", elicitation_callback=person.answer) as client:
        await walk(client, person, walked)
    exercised("a server written by hand" if os.environ["SERVER"] == "lowlevel" else "its own server", walked)


anyio.run(main, *sys.argv[1:])
