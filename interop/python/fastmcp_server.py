"""A server with FastMCP and `fastmcp-tasks`: each tool is a task for a client that declares the extension. What has to come of it
is in `servers.json`.

Serves HTTP on a free port, which is the first line on stderr; or `stdio`."""

from datetime import timedelta

from fastmcp import Context, FastMCP
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension

from guards import guards
from serve import serve

server = FastMCP("fastmcp-server")
server.add_extension(TasksExtension())
# Its default is five seconds, and a client keeps to it.
tasks = TaskConfig(mode="optional", poll_interval=timedelta(milliseconds=100))
guards(server.tool(task=tasks, output_schema=None), Context)
serve(lambda: server.run(show_banner=False), server.http_app)
