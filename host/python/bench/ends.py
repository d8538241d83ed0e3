"""Bar 9: programs that end in different ways while their calls run.

    ends.py PROGRAMS
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support import PLUGINS, WORK, recorded, report

#: Programs that run at the same time.
PARALLEL = 4
MOST_SECONDS = 60

# Each call writes its number as it begins. Calls of the plugin `text` compute meanwhile.
PROGRAM = """
import asyncio, itertools, os, random, sys, threading, time
from support import *

way, seed, state = sys.argv[1], int(sys.argv[2]), sys.argv[3]
delay = random.Random(seed).random() * 0.05
numbers = itertools.count(1)
begun = threading.Event()

def say(number):
    os.write(1, b"%d\\n" % number)
    begun.set()

@tool
async def wait(number: int) -> None:
    '''Wait in the loop.'''
    say(number)
    await asyncio.sleep(random.random() * 0.02)

@tool
def block(number: int) -> None:
    '''Wait in a thread.'''
    say(number)
    time.sleep(random.random() * 0.02)

@tool
async def leave() -> None:
    '''End the program.'''
    end()

def end():
    os.write(1, b"end %f\\n" % time.monotonic())
    if way == "kill":
        os._exit(7)
    raise SystemExit(7)

async def caller(opened, view):
    while True:
        number = next(numbers)
        name = ("wait", "block", "text__word_count")[number % 3]
        args = {"text": "a b " * 2000} if number % 3 == 2 else {"number": number}
        await opened.call_all(view, [ToolCall(str(number), name, args)])

async def main():
    opened = await host(plugins=WORK / "plugins", state_dir=state)
    opened.register(wait, block, leave)
    view = opened.view()
    async with asyncio.TaskGroup() as group:
        for _ in range(BATCH):
            group.create_task(caller(opened, view))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        await asyncio.sleep(delay)
        if way == "tool":
            await opened.call_all(view, [ToolCall("leave", "leave")])
        elif way != "thread":
            end()

if way == "thread":
    threading.Thread(target=lambda: asyncio.run(main()), daemon=True).start()
    begun.wait()
    time.sleep(delay)
    end()
asyncio.run(main())
"""
WAYS = ("exit", "tool", "thread", "kill")


def run(number: int) -> tuple[bool, float, int, int]:
    """Runs a program. Returns whether it ended as it should, the seconds that its end took, and how many calls it began
    and how many of them are not recorded."""
    way, state = WAYS[number % len(WAYS)], WORK / f"state-{number}"
    command = [sys.executable, "-c", PROGRAM, way, str(number), str(state)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        try:
            output, errors = program.communicate(timeout=MOST_SECONDS)
        except subprocess.TimeoutExpired:
            program.kill()
            output, errors = program.communicate()
        ended = time.monotonic()
    lines = output.splitlines()
    said = [float(line.split()[1]) for line in lines if line.startswith("end")]
    begun = {line for line in lines if not line.startswith("end")}
    is_right = program.returncode == 7 and len(said) == 1
    if not is_right:
        print(f"{way} {number}: {program.returncode} {errors[-2000:]}", file=sys.stderr)
    # A killed program leaves the lines that it wrote when its calls began.
    kinds = ("call", "start") if way == "kill" else ("call",)
    missing = begun - {record["call_id"] for record in recorded(state, *kinds)}
    shutil.rmtree(state)
    return is_right, ended - (said or [ended - MOST_SECONDS])[0], len(begun), len(missing)


def main(programs: int) -> None:
    (WORK / "plugins").mkdir()
    shutil.copy(PLUGINS / "text.wasm", WORK / "plugins")
    with ThreadPoolExecutor(PARALLEL) as pool:
        ends = list(pool.map(run, range(programs)))
    report(
        programs=programs, wrong=sum(not is_right for is_right, *_ in ends), slowest_s=max(seconds for _, seconds, *_ in ends),
        begun=sum(begun for *_, begun, _ in ends), unrecorded=sum(missing for *_, missing in ends),
    )


main(int(sys.argv[1]))
