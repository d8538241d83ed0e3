"""The errors of the library, and the error of a tool."""

from __future__ import annotations

import math
from typing import Any

CODES = ("input_invalid", "not_available", "execution_failed", "STALE_WRITE")
# What plugins write for it.
_OTHER_NAMES = {"input-invalid": CODES[0], "not-available": CODES[1], "execution-failed": CODES[2],
                "stale-write": CODES[3], "stale_write": CODES[3]}


class HostError(Exception):
    """The host failed. `kind` is ``policy`` (with `file`, `line` and `key`), ``load``, ``state``, ``executable``, ``fork``,
    ``closed`` or ``internal``."""

    def __init__(self, kind: str, message: str, *, file: str | None = None, line: int | None = None,
                 key: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.file = file
        self.line = line
        self.key = key

    def __reduce__(self) -> Any:
        return _host_error, (self.kind, self.message, self.file, self.line, self.key)


def _host_error(kind: str, message: str, file: str | None, line: int | None, key: str | None) -> HostError:
    return HostError(kind, message, file=file, line=line, key=key)


class ToolError(Exception):
    """An error of a native tool. The model reads its message unchanged. `code` is ``input_invalid``, ``not_available``,
    ``execution_failed`` or ``STALE_WRITE``; `subject` is a JSON pointer to an argument, or a short reason."""

    def __init__(self, code: str, message: str, subject: str | None = None, *, cost_usd: float | None = None) -> None:
        code = _OTHER_NAMES.get(code, code)
        if code not in CODES:
            raise ValueError(f"unknown error code {code!r}; known are {', '.join(CODES)}")
        if cost_usd is not None and not math.isfinite(cost_usd):
            raise ValueError(f"the cost {cost_usd} is no finite number of US dollars")
        super().__init__(message)
        self.code = code
        self.message: str = str(message)
        self.subject = subject
        self.cost_usd = cost_usd


def input_error(message: str, subject: str | None = None, *, cost_usd: float | None = None) -> ToolError:
    """The error of a tool that cannot accept its arguments."""
    return ToolError("input_invalid", message, subject, cost_usd=cost_usd)


def check_type(value: object, expected: type[Any] | tuple[type[Any], ...], rule: str) -> None:
    """Raises `TypeError` with the rule if a value has another type."""
    if not isinstance(value, expected):
        raise TypeError(f"{rule}, not {value!r:.80}")


def describe(error: BaseException) -> str:
    """The message of an exception with its causes, as for plugins."""
    message, cause, depth = _message(error), error.__cause__, 0
    while cause is not None and depth < 8:
        # Many errors already print their cause.
        if _message(cause) not in message:
            message += f": {_message(cause)}"
        cause, depth = cause.__cause__, depth + 1
    return message


def _message(error: BaseException) -> str:
    # The text of a KeyError is only the key.
    if isinstance(error, LookupError) and not isinstance(error, UnicodeError):
        return f"{type(error).__name__}: {error}"
    return str(error) or type(error).__name__
