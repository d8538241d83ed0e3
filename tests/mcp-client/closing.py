"""Leaves an MCP server over stdio, when it is idle and in the middle of calls, and fails if the client reports an error.

    python closing.py --library mcp|fastmcp --tool text__word_count --args '{"text": "a"}' \
        --slow-tool mcp__s__sleep --slow-args '{"ms": 1000}' -- toolbay serve

Works with the MCP Python SDK 1 and 2 and with FastMCP. What a server writes after the end of its input reaches a client
whose streams are closed, which some of them do not survive. Prints one JSON object a step.
"""

import argparse
import asyncio
import json
import logging
import os
import sys
from contextlib import asynccontextmanager
from importlib.metadata import version

TIMEOUT_SECONDS = 60.0
ROUNDS = 3
failures = 0


def report(step, ok, **seen):
    global failures
    failures += not ok
    print(json.dumps({"step": step, "ok": bool(ok), **seen}, ensure_ascii=False), flush=True)


class Errors(logging.Handler):
    """What the client logs as an error, or leaves to the event loop."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.seen = []

    def emit(self, record):
        self.seen.append(record.getMessage()[:300])

    def of_loop(self, loop, context):
        self.seen.append(f"{context.get('message')}: {context.get('exception')!r}"[:300])


@asynccontextmanager
async def connected(library, command):
    """Yields the functions that list and call."""
    program, *args = command
    if library == "fastmcp":
        from fastmcp import Client
        from fastmcp.client.transports import StdioTransport

        transport = StdioTransport(command=program, args=args, env=dict(os.environ), keep_alive=False)
        async with Client(transport) as client:
            yield client.list_tools, client.call_tool
        return
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    async with stdio_client(StdioServerParameters(command=program, args=args, env=dict(os.environ))) as streams:
        async with ClientSession(*streams) as session:
            await session.initialize()
            yield session.list_tools, session.call_tool


async def leave(asked, calls):
    """Connects, starts calls, and leaves without waiting for them."""
    async with connected(asked.library, asked.command) as (list_tools, call_tool):
        await list_tools()
        await call_tool(asked.tool, asked.args)
        running = [asyncio.create_task(call_tool(asked.slow_tool, asked.slow_args)) for _ in range(calls)]
        # Messages keep their order, so the slow calls have arrived.
        await call_tool(asked.tool, asked.args)
    for task in running:
        task.cancel()
    # A call that was left may end in any way, but it ends.
    await asyncio.gather(*running, return_exceptions=True)


async def run(asked):
    errors = Errors()
    logging.getLogger().addHandler(errors)
    asyncio.get_running_loop().set_exception_handler(errors.of_loop)
    name = f"{asked.library} {version(asked.library)}"
    for step, calls in [("leave when it is idle", 0), ("leave during calls", 5)]:
        for _ in range(ROUNDS):
            failed = None
            try:
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    await leave(asked, calls)
            except BaseExceptionGroup as group:
                failed = [repr(error) for error in group.exceptions]
            except Exception as error:
                failed = [repr(error)]
            report(step, failed is None and not errors.seen, client=name, error=failed, logged=errors.seen[:5])
            errors.seen.clear()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", choices=["mcp", "fastmcp"], required=True)
    parser.add_argument("--tool", required=True)
    parser.add_argument("--args", type=json.loads, default={})
    parser.add_argument("--slow-tool", required=True, help="a tool that is still running when the client leaves")
    parser.add_argument("--slow-args", type=json.loads, default={})
    parser.add_argument("command", nargs="+")
    asked = parser.parse_args()
    asyncio.run(run(asked))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
