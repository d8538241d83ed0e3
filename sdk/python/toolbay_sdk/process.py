"""Programs on the operator's list. No shell is involved."""

from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from . import _host


@dataclass
class Completed:
    """A finished program; `exit_code` is None if a signal ended it."""

    exit_code: int | None
    stdout: str
    stderr: str
    truncated: bool

    def success(self) -> bool:
        """Returns whether the exit code is 0."""
        return self.exit_code == 0


def run(
    program: str, args: Sequence[str] = (), *, cwd: str | None = None, env: Mapping[str, str] | None = None,
    stdin: str | bytes | None = None, timeout_ms: int | None = None, max_output_bytes: int | None = None,
) -> Completed:
    """Runs a program to its end. A failing exit code is not an error."""
    raw = stdin.encode() if isinstance(stdin, str) else stdin
    pairs = list((env or {}).items())
    command = _host.process.Command(program, list(args), cwd, pairs, raw, timeout_ms, max_output_bytes)
    done = _host.asked("process", program, lambda: _host.process.run(command))
    texts = (done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
    return Completed(done.exit_code, *texts, done.truncated)
