"""Other event loops."""

from __future__ import annotations

import asyncio

import trio
import uvloop
from support import HostTest, call
from test_sync import echo

from toolbay import ToolCall


class Loops(HostTest):
    def test_uvloop_runs_calls(self) -> None:
        async def main() -> str:
            async with self.host() as host:
                host.register(echo)
                return (await call(host, "echo", {"text": "x"})).output.value

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            self.assertEqual(runner.run(main()), "x")

    def test_trio_gets_an_error_that_names_asyncio(self) -> None:
        async def main() -> None:
            with self.assertRaisesRegex(TypeError, "asyncio"):
                await self.host()
            with self.host() as host, self.assertRaisesRegex(TypeError, "asyncio"):
                await host.call_all(host.view(), [ToolCall("1", "echo")])

        trio.run(main)
