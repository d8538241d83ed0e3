"""Bar 4: what `import toolbay` costs beyond a bare interpreter, and what it opens and starts."""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys

ROUNDS = 21

# The module runs code when the system loads it, so what it opened and started is read from the kernel, too.
WATCH = """
import os, sys, sysconfig

def seen():
    open_files = {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")}
    return open_files, len(os.listdir("/proc/self/task"))

def hook(event, args):
    if event == "open" and isinstance(args[0], (str, bytes)):
        opened.append(os.path.realpath(os.fsdecode(args[0])))
    elif event.startswith(("socket.", "subprocess.", "os.fork", "os.exec", "os.posix_spawn", "os.system")):
        started.append(event)

opened, started = [], []
before = seen()
sys.addaudithook(hook)
import toolbay
after = seen()
package = os.path.realpath(os.path.dirname(toolbay.__file__))
own = (package, *(os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")))
outside = [file for file in opened if not file.startswith(own)]
children = open(f"/proc/self/task/{os.getpid()}/children").read().split()
if after != before:
    started.append(f"{before} became {after}")
import json
print(json.dumps(outside + started + children))
"""


def processor_ms(program: str) -> float:
    """The processor time of a Python program."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", program], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def main() -> None:
    bare, toolbay = [], []
    # The first import writes the compiled files.
    processor_ms("import toolbay")
    for _ in range(ROUNDS):
        bare.append(processor_ms("pass"))
        toolbay.append(processor_ms("import toolbay"))
    watched = subprocess.run([sys.executable, "-c", WATCH], check=True, capture_output=True, text=True).stdout.strip()
    milliseconds = statistics.median(toolbay) - statistics.median(bare)
    print(json.dumps({"import_ms": milliseconds, "side_effects": json.loads(watched)}))


main()
