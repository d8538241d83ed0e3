"""Programs on the operator's list. No shell is involved."""

from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from . import _host
from .errors import ToolError, failed, not_available


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
    done = _host.asked(lambda: _host.process.run(command), lambda case, value: _describe(program, case, value))
    texts = (done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
    return Completed(done.exit_code, *texts, done.truncated)


def _describe(program: str, case: str, value: Any) -> ToolError:
    match case:
        case "Denied":
            return not_available(f"`{program}` may not be run: {value}", "denied")
        case "NotFound":
            return not_available(f"no program `{value}` here", "missing-binary")
        case "Timeout":
            return failed(f"`{program}` did not end in time", "timeout")
        case "Cancelled":
            return failed("the call was cancelled", "cancelled")
        case _:
            return failed(f"`{program}`: {value}")
