"""Lists and calls tools of an MCP server with LangChain's adapters, over stdio or HTTP.

    python client.py --tool text__word_count --args '{"text": "a b a"}' --expect 3 (--url URL | -- toolbay serve)

Prints one JSON object. Exits with 0 only if the tool was listed, called, and gave what was expected.
"""

import argparse
import asyncio
import json
import os
import sys
from importlib.metadata import version

from langchain_mcp_adapters.client import MultiServerMCPClient

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
    name = "langchain-mcp-adapters"
    print(json.dumps({"client": f"{name} {version(name)}", "mcp": version("mcp"), "over": over, **seen}))
    sys.exit(0 if seen["ok"] else 1)


if __name__ == "__main__":
    main()
