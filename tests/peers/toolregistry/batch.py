"""Batches of 64 trivial calls through ToolRegistry, in threads of one process; prints calls a second.

The first line of stdin begins a round, each further line another one: so the sides of a benchmark take turns.
"""

import sys
import time

from toolregistry import ToolRegistry

SPAN = 0.5
BATCH = 64


def echo(text: str) -> str:
    """Says the text again."""
    return text


def main() -> None:
    registry = ToolRegistry()
    registry.register(echo)
    registry.set_default_execution_mode("thread")
    arguments = '{"text": "Lorem ipsum dolor sit amet, consetetur sadipscing elitr, sed diam nonumy eirmod temp"}'
    calls = [
        {"id": f"call_{n}", "type": "function", "function": {"name": "echo", "arguments": arguments}}
        for n in range(BATCH)
    ]
    for _ in sys.stdin:
        start, done = time.perf_counter(), 0
        while time.perf_counter() - start < SPAN:
            results = registry.execute_tool_calls(calls)
            assert len(results) == BATCH
            done += BATCH
        print(done / (time.perf_counter() - start), flush=True)


if __name__ == "__main__":
    main()
