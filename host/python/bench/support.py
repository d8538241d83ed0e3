"""What the measurements share. `cargo xtask arrive python` sets the variables, and reads the JSON object that each script prints."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import toolbay
from toolbay import Host, Policy, ToolCall, tool

PLUGINS = Path(os.environ["TOOLBAY_BENCH_PLUGINS"])
#: A folder that is empty when the script begins, and one that stays.
WORK = Path(os.environ["TOOLBAY_BENCH_WORK"])
CACHE = Path(os.environ["TOOLBAY_BENCH_CACHE"])

BATCH = 64
ROUNDS = 9
SECONDS = 0.5
TEXT = "Lorem ipsum dolor sit amet, consetetur sadipscing elitr, sed diam nonumy eirmod temp"
ARGUMENTS = json.dumps({"text": TEXT})


@tool
async def echo(text: str) -> str:
    """Say a text again."""
    return text


def host(policy: Mapping[str, Any] | None = None, **options: Any) -> Host:
    """A host with a policy; by default it grants nothing."""
    return Host(Policy.parse({"version": 1, **(policy or {})}, base=WORK), cache_dir=CACHE, **options)


def batch(name: str, size: int) -> list[ToolCall]:
    """Calls of one tool."""
    return [ToolCall(str(n), name, ARGUMENTS) for n in range(size)]


def checked(results: list[toolbay.CallResult]) -> int:
    """The number of results, all of which must have an output."""
    for result in results:
        if result.failure is not None:
            raise SystemExit(f"a call failed: {result.failure}")
    return len(results)


async def rate(work: Callable[[], Awaitable[int]]) -> tuple[float, float]:
    """Calls per second, and microseconds of processor time per call, of work that says how many calls it made."""
    start, used, calls = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - start < SECONDS:
        calls += await work()
    return calls / (time.perf_counter() - start), (time.process_time() - used) / calls * 1e6


async def side_by_side(sides: dict[str, Callable[[], Awaitable[int]]]) -> dict[str, float]:
    """The medians of each side, which take turns: its rate as ``NAME_per_s``, its processor time as ``NAME_cpu_us``."""
    for work in sides.values():
        await work()
    rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, work in sides.items():
            rounds[name].append(await rate(work))
    figures = {}
    for name, measured in rounds.items():
        figures[f"{name}_per_s"] = statistics.median(per_second for per_second, _ in measured)
        figures[f"{name}_cpu_us"] = statistics.median(microseconds for _, microseconds in measured)
    return figures


def recorded(state: Path, *kinds: str) -> list[dict[str, Any]]:
    """The records of some kinds in the audit of a state directory."""
    # A line that is being written has no end.
    lines = (state / "audit.jsonl").read_text().split("\n")[:-1]
    return [record for record in map(json.loads, lines) if record["kind"] in kinds]


def resident_bytes() -> int:
    """The resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def report(**figures: Any) -> None:
    """Prints the figures."""
    print(json.dumps(figures))
