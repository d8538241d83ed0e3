"""Bar 7: calls with 64 in flight, of a native tool and of a plugin: none is lost or doubled, and memory does not grow.

    volume.py CALLS
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import sys
import time

from support import BATCH, PLUGINS, WORK, checked, host, recorded, report, resident_bytes

from toolbay import ToolCall, tool

WARM_UP = 1_000
#: With more calls, the audit has more files, and then fewer records.
AUDITED = 10_000

#: How often each call ran, at most 255 times. A dictionary would grow more than what is measured.
ran = bytearray()


@tool
async def record(number: int) -> int:
    """Record a call."""
    ran[number] = min(ran[number] + 1, 255)
    return number


async def main(calls: int) -> None:
    plugins = WORK / "plugins"
    plugins.mkdir()
    shutil.copy(PLUGINS / "text.wasm", plugins)
    audit = {"bytes": "128MiB"}
    ran.extend(bytes(calls + 1))
    numbers = itertools.count(1)
    done = after_warm_up = lost = 0

    async def call(number: int) -> int:
        """A call of a native tool or of a plugin. Returns the number of results that are not its own."""
        if number % 2:
            wanted = ToolCall(str(number), "record", f'{{"number": {number}}}')
        else:
            wanted = ToolCall(str(number), "text__word_count", f'{{"text": "{"a " * (number % 100)}"}}')
        [result] = results = await opened.call_all(view, [wanted])
        checked(results)
        if number % 2:
            is_own = result.output.structured == {"result": number}
        else:
            is_own = result.output.structured["words"] == number % 100
        return not (is_own and result.call_id == str(number))

    async def worker() -> None:
        nonlocal done, lost, after_warm_up
        while (number := next(numbers)) <= calls:
            lost += await call(number)
            done += 1
            if done == WARM_UP:
                after_warm_up = resident_bytes()

    async with host({"audit": audit}, plugins=plugins, state_dir=WORK / "state") as opened:
        opened.register(record)
        view = opened.view()
        start = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(BATCH)))
        seconds = time.perf_counter() - start
        memory = resident_bytes()
    # Calls with odd numbers are of the native tool.
    not_once = sum(times != 1 for times in ran[1::2]) + sum(times != 0 for times in ran[::2])
    figures = {"calls": done, "per_s": done / seconds, "grown_mb": (memory - after_warm_up) / 1e6}
    wrong = lost + not_once
    if calls <= AUDITED:
        wrong += abs(len(recorded(WORK / "state", "call")) - calls)
    report(wrong=wrong, **figures)


asyncio.run(main(int(sys.argv[1])))
