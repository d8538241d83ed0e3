"""Drives an MCP server over stdio with the official Python SDK, and says what it saw.

    python client.py --tool text__word_count --args '{"text": "a b a"}' --expect 3 -- toolbay serve

Prints one JSON object a step, in each era of the protocol that was asked for. Exits with 0 only if every step went
as it must: the tool is listed, the call succeeds, an unknown tool is the protocol error -32602, an argument of the
wrong type is a result with isError, nothing but protocol came on stdout, and the server left by itself.
"""

import argparse
import asyncio
import atexit
import json
import os
import shutil
import sys
import tempfile
import time

from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError

VERSIONS = {"legacy": "2025-11-25", "modern": "2026-07-28"}
TIMEOUT_SECONDS = 60.0
# Without a cache, the first list has the tools that are compiled within five seconds; the others follow.
LISTED_WITHIN_SECONDS = 40.0
# The SDK kills a server that is still there this long after its stdin was closed.
LEAVES_WITHIN_SECONDS = 1.8

failures = 0


def report(era, step, ok, **seen):
    global failures
    failures += not ok
    print(json.dumps({"era": era, "step": step, "ok": bool(ok), **seen}, ensure_ascii=False), flush=True)


def text_of(result):
    return "\n".join(block.text for block in result.content if block.type == "text")


def wrong(schema, args):
    """The arguments with one of them of a type its schema does not allow."""
    for name, rule in schema.get("properties", {}).items():
        kind = rule.get("type")
        if isinstance(kind, str):
            return {**args, name: 5 if kind == "string" else "not of this type"}
    return None


async def all_tools(client):
    tools, cursor = [], None
    while True:
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            return tools


async def tools_with(client, name):
    """All tools, once the named one is among them."""
    end = time.monotonic() + LISTED_WITHIN_SECONDS
    while True:
        tools = await all_tools(client)
        if any(tool.name == name for tool in tools) or time.monotonic() > end:
            return tools
        await asyncio.sleep(0.2)


async def steps(era, client, asked):
    info = client.server_info
    report(
        era,
        "connect",
        client.protocol_version == VERSIONS[era] and info is not None and info.name == "toolbay",
        version=client.protocol_version,
        server=info and f"{info.name} {info.version}",
        instructions=client.instructions,
    )

    tools = await tools_with(client, asked.tool)
    names = [tool.name for tool in tools]
    report(era, "list", asked.tool in names and names == sorted(names), tools=names)
    tool = next((tool for tool in tools if tool.name == asked.tool), None)

    progress = []

    async def on_progress(done, total, message):
        progress.append([done, total, message])

    start = time.perf_counter()
    result = await client.call_tool(asked.tool, asked.args, progress_callback=on_progress)
    text = text_of(result)
    report(
        era,
        "call",
        not result.is_error and (asked.expect is None or asked.expect in text),
        text=text[:500],
        structured=result.structured_content,
        meta=result.meta,
        progress=progress,
        milliseconds=round(1000 * (time.perf_counter() - start), 1),
    )

    unknown = "no_such_tool"
    try:
        result = await client.call_tool(unknown, {})
        report(era, "unknown tool", False, text=text_of(result))
    except MCPError as error:
        good = error.code == -32602 and error.message == f"Unknown tool: {unknown}"
        report(era, "unknown tool", good, code=error.code, message=error.message)

    args = asked.bad_args if asked.bad_args is not None else wrong(tool.input_schema if tool else {}, asked.args)
    if args is None:
        report(era, "wrong argument", False, message="the schema gives no typed property: use --bad-args")
    else:
        result = await client.call_tool(asked.tool, args)
        # Clients show `_meta` to the model, so that it has nothing of the server's own.
        own = [key for key in result.meta or {} if key.startswith("toolbay/")]
        good = result.is_error and not own
        report(era, "wrong argument", good, args=args, own_meta=own, text=text_of(result)[:500])

    # Afterwards the connection is as good as before.
    result = await asyncio.gather(*(client.call_tool(asked.tool, asked.args) for _ in range(8)))
    report(era, "eight at once", all(not one.is_error for one in result))


async def run(era, asked):
    junk = []

    async def on_message(message):
        if isinstance(message, Exception):
            junk.append(str(message)[:300])

    command, *args = asked.command
    # What the server keeps is not to reach the user's own files.
    state = tempfile.mkdtemp(prefix="toolbay-state-")
    atexit.register(shutil.rmtree, state, ignore_errors=True)
    server = StdioServerParameters(command=command, args=args, env=dict(os.environ, TOOLBAY_STATE=state))
    mode = "legacy" if era == "legacy" else "auto"
    async with asyncio.timeout(TIMEOUT_SECONDS):
        async with Client(
            server, mode=mode, message_handler=on_message, read_timeout_seconds=TIMEOUT_SECONDS
        ) as client:
            await steps(era, client, asked)
            start = time.perf_counter()
    took = time.perf_counter() - start
    report(era, "leave", not junk and took < LEAVES_WITHIN_SECONDS, junk=junk, seconds=round(took, 2))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", required=True, help="the tool to call")
    parser.add_argument("--args", type=json.loads, default={}, help="its arguments, a JSON object")
    parser.add_argument("--expect", help="what the text of the result must contain")
    parser.add_argument("--bad-args", type=json.loads, help="arguments to be refused; made from the schema if absent")
    parser.add_argument("--era", choices=["legacy", "modern", "both"], default="both")
    parser.add_argument("command", nargs="+", help="the server's command line, after --")
    asked = parser.parse_args()
    for era in ["legacy", "modern"] if asked.era == "both" else [asked.era]:
        try:
            asyncio.run(run(era, asked))
        except BaseExceptionGroup as group:
            report(era, "failed", False, error=[repr(error) for error in group.exceptions])
        except Exception as error:
            report(era, "failed", False, error=repr(error))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
