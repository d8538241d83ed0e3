"""Lists and calls tools of an MCP server with LangChain's adapters, over stdio or HTTP.

    python langchain_client.py --tool text__word_count --args '{"text": "a b a"}' --expect 3 (--url URL | -- toolbay serve)

Prints one JSON object. Exits with 0 only if the tool was listed, called, and gave what was expected.
"""

import asyncio
import os

from langchain_mcp_adapters.client import MultiServerMCPClient

from command_line import main

TIMEOUT_SECONDS = 60.0


def connection(asked):
    if asked.url:
        return {"transport": "streamable_http", "url": asked.url}
    command, *args = asked.command
    return {"transport": "stdio", "command": command, "args": args, "env": dict(os.environ)}


def text_of(result):
    if isinstance(result, str):
        return result
    return "\n".join(block.get("text", "") if isinstance(block, dict) else str(block) for block in result)


async def run(asked):
    client = MultiServerMCPClient({"toolbay": connection(asked)})
    async with asyncio.timeout(TIMEOUT_SECONDS):
        tools = await client.get_tools()
        names = [tool.name for tool in tools]
        tool = next((tool for tool in tools if tool.name == asked.tool), None)
        text = text_of(await tool.ainvoke(asked.args)) if tool else ""
    return {"tools": names, "text": text[:500], "ok": bool(tool) and asked.expect in text}


if __name__ == "__main__":
    main(__doc__, "langchain-mcp-adapters", run)
