"""Loads all tools of an MCP server into Semantic Kernel, over stdio or HTTP, and calls one.

    python semantic_kernel_client.py --tool text__word_count --args '{"text": "a b a"}' --expect 3 (--url URL | -- toolbay serve)

Prints one JSON object. Exits with 0 only if every tool that the server lists is a function of the kernel with its
parameters, and the call gave what was expected. One schema that it cannot read costs this client all tools.
"""

import asyncio
import os

from semantic_kernel import Kernel
from semantic_kernel.connectors.mcp import MCPStdioPlugin, MCPStreamableHttpPlugin

from command_line import main

TIMEOUT_SECONDS = 120.0
# Without a cache, the first list has the tools that are compiled within five seconds; the others follow.
LISTED_WITHIN_SECONDS = 60.0


def plugin_of(asked, name):
    if asked.url:
        return MCPStreamableHttpPlugin(name=name, url=asked.url, load_prompts=False)
    command, *args = asked.command
    return MCPStdioPlugin(name=name, command=command, args=args, env=dict(os.environ), load_prompts=False)


async def listed(session, name):
    """All tools, once the named one is among them."""
    end = asyncio.get_running_loop().time() + LISTED_WITHIN_SECONDS
    while True:
        tools = (await session.list_tools()).tools
        if any(tool.name == name for tool in tools) or asyncio.get_running_loop().time() > end:
            return tools
        await asyncio.sleep(0.2)


async def run(asked):
    async with asyncio.timeout(TIMEOUT_SECONDS):
        async with plugin_of(asked, "toolbay") as plugin:
            tools = await listed(plugin.session, asked.tool)
            await plugin.load_tools()
            kernel = Kernel()
            functions = kernel.add_plugin(plugin).functions
            missing = sorted({tool.name for tool in tools} - set(functions))
            lost = {
                tool.name: sorted(lost)
                for tool in tools
                if tool.name in functions
                and (lost := set(tool.inputSchema.get("properties", {})) - {one.name for one in functions[tool.name].parameters})
            }
            answer = await kernel.invoke(plugin_name="toolbay", function_name=asked.tool, **asked.args)
            text = "\n".join(str(part) for part in answer.value)
    ok = len(tools) > 0 and not missing and not lost and asked.expect in text
    return {"tools": len(tools), "functions": len(functions), "missing": missing, "lost": lost, "text": text[:500], "ok": ok}


if __name__ == "__main__":
    main(__doc__, "semantic-kernel", run)
