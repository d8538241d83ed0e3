"""Bar 6: `text__word_count` from asyncio, beside the MCP library over stdio against `toolbay serve` with the same plugin."""

from __future__ import annotations

import asyncio
import json
import os
import shutil

from support import ARGUMENTS, BATCH, CACHE, PLUGINS, WORK, batch, checked, host, report, side_by_side

from mcp import Client, StdioServerParameters

TOOL = "text__word_count"
# The limit of requests of a client must not be what is measured.
POLICY = "version = 1\n[serve.limits]\nrequests_per_second = 1_000_000\nrequests_per_client = 1024\nrequests = 1024\n"


async def main() -> None:
    plugins, policy = WORK / "plugins", WORK / "toolbay.toml"
    plugins.mkdir()
    shutil.copy(PLUGINS / "text.wasm", plugins)
    policy.write_text(POLICY)
    words = ["serve", plugins, "--config", policy, "--cache-dir", CACHE, "--state-dir", WORK / "served"]
    server = StdioServerParameters(command=os.environ["TOOLBAY_BIN"], args=[str(word) for word in words])
    arguments = json.loads(ARGUMENTS)
    async with host(plugins=plugins, state_dir=WORK / "state") as opened, Client(server) as client:
        view = opened.view()

        async def ours(size: int) -> int:
            return checked(await opened.call_all(view, batch(TOOL, size)))

        async def apart() -> int:
            return sum(await asyncio.gather(*(ours(1) for _ in range(BATCH))))

        async def through_mcp(size: int) -> int:
            results = await asyncio.gather(*(client.call_tool(TOOL, arguments) for _ in range(size)))
            if any(result.is_error for result in results):
                raise SystemExit(f"the server answered {results}")
            return size

        report(**await side_by_side({
            "one": lambda: ours(1), "mcp_one": lambda: through_mcp(1),
            "apart": apart, "many": lambda: ours(BATCH), "mcp_many": lambda: through_mcp(BATCH),
        }))


asyncio.run(main())
