"""Bar 8: the cancellation of 64 spinning calls, and Ctrl-C during a synchronous call."""

from __future__ import annotations

import asyncio
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from support import BATCH, PLUGINS, WORK, host, recorded, report

from toolbay import ToolCall, tool

ROUNDS = 9
POLL_SECONDS = 0.001
MOST_SECONDS = 60
# By default fewer calls of one plugin run at the same time, and fewer that call tools.
LIMITS = {"concurrency": BATCH, "fuel": "none", "memory": "32MiB"}
POLICY = {"host": {"parallel_calls": 8 * BATCH}, "plugins": {"script": {"grant": {"invoke": ["begin"]}, "limits": LIMITS}}}

# `spin` computes in a guest, `wait` waits in a coroutine. A shell ignores SIGINT for what it runs in the background.
INTERRUPTED = """
import asyncio, signal, sys, time
from support import *
from interruption import POLICY, spinning

@tool
async def wait() -> None:
    '''Wait.'''
    print("begun", flush=True)
    await asyncio.Event().wait()

@tool
async def begin() -> None:
    '''Say that a call has begun.'''
    print("begun", flush=True)

signal.signal(signal.SIGINT, signal.default_int_handler)
with host(POLICY, plugins=WORK / "plugins") as opened:
    opened.register(wait, begin)
    call = ToolCall("1", "wait") if sys.argv[1] == "wait" else spinning(1)
    try:
        opened.call_all_sync(opened.view(), [call])
    except KeyboardInterrupt:
        print(time.monotonic(), flush=True)
"""


def spinning(number: int) -> ToolCall:
    """A call of a plugin that calls the tool `begin`, and then never ends."""
    return ToolCall(str(number), "script__run", {"code": "await tools.begin({}); while (true) {}"})


async def cancel(state: Path) -> tuple[float, float]:
    """The milliseconds until a cancelled task has ended, and until all its calls are recorded."""
    begun, all_begun = 0, asyncio.Event()

    @tool(read_only=True)
    async def begin() -> None:
        """Count a call that spins."""
        nonlocal begun
        begun += 1
        if begun == BATCH:
            all_begun.set()

    async with host(POLICY, plugins=WORK / "plugins", state_dir=state) as opened:
        opened.register(begin)
        task = asyncio.create_task(opened.call_all(opened.view(), [spinning(n) for n in range(BATCH)]))
        await asyncio.wait_for(all_begun.wait(), MOST_SECONDS)
        start = time.perf_counter()
        task.cancel()
        try:
            raise SystemExit(f"the calls ended: {(await task)[0]}")
        except asyncio.CancelledError:
            returned = time.perf_counter() - start
        # Those that spin, and those of `begin`.
        while (count := (state / "audit.jsonl").read_text().count('"kind":"call"')) < 2 * BATCH:
            if time.perf_counter() - start > MOST_SECONDS:
                raise SystemExit(f"{count} of {2 * BATCH} calls are recorded")
            await asyncio.sleep(POLL_SECONDS)
        complete = time.perf_counter() - start
    outcomes = {record["outcome"] for record in recorded(state, "call") if record["tool"] == "script__run"}
    if outcomes != {"cancelled"}:
        raise SystemExit(f"the calls are recorded as {outcomes}")
    return returned * 1000, complete * 1000


def interrupt(kind: str) -> float:
    """The milliseconds from Ctrl-C to `KeyboardInterrupt`."""
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED, kind], stdout=subprocess.PIPE, text=True) as child:
        if child.stdout is None or child.stdout.readline() != "begun\n":
            raise SystemExit("no call began")
        sent = time.monotonic()
        child.send_signal(signal.SIGINT)
        return (float(child.stdout.readline()) - sent) * 1000


def main() -> None:
    (WORK / "plugins").mkdir()
    shutil.copy(PLUGINS / "script.wasm", WORK / "plugins")
    cancelled = [asyncio.run(cancel(WORK / f"state-{n}")) for n in range(ROUNDS)]
    report(
        returned_ms=statistics.median(returned for returned, _ in cancelled),
        recorded_ms=statistics.median(complete for _, complete in cancelled),
        wait_ms=statistics.median(interrupt("wait") for _ in range(ROUNDS)),
        spin_ms=statistics.median(interrupt("spin") for _ in range(ROUNDS)),
    )


if __name__ == "__main__":
    main()
