"""Bar 5: a coroutine function as a tool, one call at a time and 64 in flight, beside ToolRegistry, which runs calls of a model
fastest if the function is a plain one and runs in a thread."""

from __future__ import annotations

import asyncio

from support import ARGUMENTS, BATCH, TEXT, batch, checked, echo, host, report, side_by_side

from toolregistry import ToolRegistry


async def main() -> None:
    registry = ToolRegistry()
    registry.set_default_execution_mode("thread")

    def echo_again(text: str) -> str:
        """Say a text again."""
        return text

    registry.register(echo_again, name="echo")

    def calls_of_registry(size: int) -> list[dict[str, object]]:
        function = {"name": "echo", "arguments": ARGUMENTS}
        return [{"id": f"call_{n}", "type": "function", "function": function} for n in range(size)]

    async def registry_batch(size: int) -> int:
        results = registry.execute_tool_calls(calls_of_registry(size))
        if [result.result for result in results] != [TEXT] * size:
            raise SystemExit(f"ToolRegistry answered {results}")
        return size

    async with host() as opened:
        opened.register(echo)
        view = opened.view()

        async def ours(size: int) -> int:
            return checked(await opened.call_all(view, batch("echo", size)))

        async def apart() -> int:
            return sum(await asyncio.gather(*(ours(1) for _ in range(BATCH))))

        report(**await side_by_side({
            "one": lambda: ours(1), "registry_one": lambda: registry_batch(1),
            "apart": apart, "many": lambda: ours(BATCH), "registry_many": lambda: registry_batch(BATCH),
        }))


asyncio.run(main())
