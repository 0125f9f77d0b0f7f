"""FastMCP's client with `fastmcp-tasks`: every call of the gallery becomes a task, and the client polls it and answers its
questions by itself. To be told where the server is: `modern http URL`, or `modern stdio PROGRAM ARGUMENT...`."""

import sys

import anyio
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport
from fastmcp_tasks import call_tool_task, client_models
from mcp.shared.exceptions import MCPError

from gallery import Person, check, count, exercised, expect, flows, tell

NAMED = [client_models.GetTaskRequest, client_models.UpdateTaskRequest, client_models.CancelTaskRequest]


async def add_the_header(client):
    """The extension wants the task's id in the header `Mcp-Name`. This version leaves it out, so a server has to refuse its
    first poll. One attribute, which its own SDK reads, adds it."""
    task = await call_tool_task(client, "get_weather", {"location": "Tokyo"})
    try:
        await task.status()
    except MCPError as refused:
        expect(refused.error.code, -32020, "a poll without the header")
    else:
        raise AssertionError("a poll without the header Mcp-Name was answered")
    for request in NAMED:
        request.name_param = "taskId"
    await task.cancel()


class Tasked:
    """Calls each tool as a task, and takes what comes of it for its result."""

    def __init__(self, client):
        self.client = client

    async def call_tool(self, name, arguments):
        task = await call_tool_task(self.client, name, arguments, raise_on_error=False)
        return await task.result()


async def main(era, kind, first, *rest):
    server = first if kind == "http" else StdioTransport(command=first, args=list(rest))
    person = Person(ElicitResult)

    async def answer(_message, _type, params, context):
        return await person.answer(context, params)

    # What is not answered in a task stays asked, so a flow that sends nothing is one of rounds only.
    walked = [flow for flow in flows(era) if "tool" in flow and all(flow["rounds"])]
    async with Client(server, elicitation_handler=answer) as client:
        if kind == "http":
            await add_the_header(client)
        tasks = Tasked(client)
        for flow in walked:
            person.meets(flow)
            check(flow, await tasks.call_tool(flow["tool"], flow["arguments"]))
            person.was_asked_everything()
            tell(flow)
        await count(tasks, walked)
    header = ["the header `Mcp-Name` added, without which the server refuses"] if kind == "http" else []
    exercised("tasks", walked, "each effect once", *header)


anyio.run(main, *sys.argv[1:])
