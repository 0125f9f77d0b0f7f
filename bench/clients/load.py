"""FastMCP's client as a program that calls a tool as often as it can.

`load.py URL TOOL`: for each line on its standard input, a number of milliseconds, it calls the tool over and over for as long, and prints how many
calls it has made."""

import asyncio
import sys
import time

from fastmcp import Client

CLIENTS = 8


async def answer(message, response_type, params, context):
    return {"units": "metric"}


async def drive(client, tool, until):
    calls = 0
    while time.monotonic() < until:
        await client.call_tool(tool, {"location": "Tokyo"})
        calls += 1
    return calls


async def main(url, tool):
    clients = [Client(url, elicitation_handler=answer) for _ in range(CLIENTS)]
    for client in clients:
        await client.__aenter__()
    while line := await asyncio.to_thread(sys.stdin.readline):
        until = time.monotonic() + int(line) / 1000
        calls = await asyncio.gather(*(drive(client, tool, until) for client in clients))
        print(sum(calls), flush=True)


asyncio.run(main(*sys.argv[1:]))
