"""The four error classes of a tool. Any other exception becomes ``execution-failed`` with its message.

`cost_usd` is the cost of the failed attempt in US dollars.
"""

from ._contract import CODES, ERRORS


class ToolError(Exception):
    """An error of a tool. The model reads its message unchanged."""

    def __init__(self, code: str, message: str, subject: str | None = None, *, cost_usd: float | None = None):
        # A program writes `execution_failed` and `STALE_WRITE`.
        code = code.lower().replace("_", "-")
        if code not in CODES:
            raise ValueError(f"unknown error code {code!r}; known are {', '.join(CODES)}")
        super().__init__(message)
        self.code = code
        self.message = str(message)
        self.subject = subject
        self.cost_usd = cost_usd


def input_error(message: str, subject: str | None = None, *, cost_usd: float | None = None) -> ToolError:
    """The tool cannot accept the arguments of the model; `subject` is a JSON pointer to the argument."""
    return ToolError("input-invalid", message, subject, cost_usd=cost_usd)


def not_available(message: str, subject: str | None = None, *, cost_usd: float | None = None) -> ToolError:
    """The tool cannot run now; `subject` is a short machine-readable reason."""
    return ToolError("not-available", message, subject, cost_usd=cost_usd)


def failed(message: str, subject: str | None = None, *, cost_usd: float | None = None) -> ToolError:
    """The tool ran and failed; `subject` is a cause, if known."""
    return ToolError("execution-failed", message, subject, cost_usd=cost_usd)


def stale(message: str, subject: str | None = None, *, cost_usd: float | None = None) -> ToolError:
    """The target of a write changed since it was read; `subject` is the path or key."""
    return ToolError("stale-write", message, subject, cost_usd=cost_usd)


def of_host(interface: str, name: str, case: str, value: object) -> ToolError:
    """The error of a tool for an error of an interface. `name` is what the author asked for."""
    code, subject, message = ERRORS[interface][case]
    filled = message.format(name=name, value=value)
    return ToolError(code, filled, None if subject is None else subject.format(name=name))


def of_exception(error: BaseException) -> ToolError:
    """Converts an exception to the error of the contract."""
    if isinstance(error, ToolError):
        return error
    if isinstance(error, SystemExit):
        return failed(f"the tool ended itself (`sys.exit({error.code!r})`)")
    message, cause, depth = _message(error), error.__cause__, 0
    while cause is not None and depth < 8:
        # Many errors already print their cause.
        if _message(cause) not in message:
            message += f": {_message(cause)}"
        cause, depth = cause.__cause__, depth + 1
    return failed(message)


def _message(error: BaseException) -> str:
    # The text of a KeyError is only the key.
    if isinstance(error, LookupError) and not isinstance(error, UnicodeError):
        return f"{type(error).__name__}: {error}"
    return str(error) or type(error).__name__
