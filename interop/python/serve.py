"""Serves a server of the modern era: over `stdio`, or over HTTP on a free port, which is the first line on stderr."""

import socket
import sys

import uvicorn


def serve(run, app):
    if sys.argv[1:] == ["stdio"]:
        run()
        return
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}/mcp", file=sys.stderr, flush=True)
    # What comes before it serves waits in the socket's queue.
    listener.listen()
    uvicorn.Server(uvicorn.Config(app(), log_level="warning")).run(sockets=[listener])
