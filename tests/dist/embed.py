"""What somebody does who installed the packages: opens a host with plugins and a tool of the program, and calls both.

`embed.py PLUGINS STATE`
"""

import asyncio
import sys

from toolbay import Host, Policy, Session, ToolCall, tool


@tool(read_only=True)
async def twice(number: int) -> str:
    """Double a number."""
    return f"twice: {2 * number}"


async def main(plugins: str, state: str) -> None:
    # Compilation is slow in an emulator.
    policy = Policy.parse('version = 1\n[host]\ncompile_timeout = "20m"', base=".")
    async with Host(policy, plugins=plugins, state_dir=state) as host:
        assert not host.problems, host.problems
        host.register(twice)
        calls = [ToolCall("1", "text__word_count", {"text": "a b a"}), ToolCall("2", "twice", {"number": 3})]
        for result in await host.call_all(host.view(), calls, session=Session()):
            assert result.output is not None, result.failure
            print(result.output.value)


asyncio.run(main(*sys.argv[1:]))
