"""Lists and calls tools of an MCP server with OpenAI's Agents SDK, over stdio or HTTP.

    python agents_sdk.py --tool text__word_count --args '{"text": "a b a"}' --expect 3 (--url URL | -- toolbay serve)

Prints one JSON object. Exits with 0 only if the tool was listed, called, and gave what was expected.
"""

import argparse
import asyncio
import json
import os
import sys
from importlib.metadata import version

from agents.mcp import MCPServerStdio, MCPServerStreamableHttp

TIMEOUT_SECONDS = 60.0


def server(asked):
    if asked.url:
        return MCPServerStreamableHttp(params={"url": asked.url}, client_session_timeout_seconds=30)
    command, *args = asked.command
    params = {"command": command, "args": args, "env": dict(os.environ)}
    return MCPServerStdio(params=params, client_session_timeout_seconds=30)


async def run(asked):
    async with asyncio.timeout(TIMEOUT_SECONDS):
        async with server(asked) as connected:
            names = [tool.name for tool in await connected.list_tools()]
            result = await connected.call_tool(asked.tool, asked.args)
            text = "\n".join(block.text for block in result.content if block.type == "text")
    return {"tools": names, "text": text[:500], "ok": asked.tool in names and asked.expect in text}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", required=True)
    parser.add_argument("--args", type=json.loads, default={})
    parser.add_argument("--expect", default="")
    parser.add_argument("--url")
    parser.add_argument("command", nargs="*")
    asked = parser.parse_args()
    seen = asyncio.run(run(asked))
    over = "http" if asked.url else "stdio"
    print(json.dumps({"client": f"openai-agents {version('openai-agents')}", "mcp": version("mcp"), "over": over, **seen}))
    sys.exit(0 if seen["ok"] else 1)


if __name__ == "__main__":
    main()
