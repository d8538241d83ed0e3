"""Lists and calls tools of an MCP server with OpenAI's Agents SDK, over stdio or HTTP.

    python agents_sdk.py --tool text__word_count --args '{"text": "a b a"}' --expect 3 (--url URL | -- toolbay serve)

Prints one JSON object. Exits with 0 only if the tool was listed, called, and gave what was expected.
"""

import asyncio
import os

from agents.mcp import MCPServerStdio, MCPServerStreamableHttp

from command_line import main

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


if __name__ == "__main__":
    main(__doc__, "openai-agents", run)
