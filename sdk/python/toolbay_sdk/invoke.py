"""Calls of other tools during a call. Each passes the same gates as a call of a model."""

from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from . import _host, _json
from .errors import ToolError, failed, not_available


@dataclass
class Callable:
    """A callable tool, with its schemas as dicts."""

    name: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None


@dataclass
class Invoked:
    """The result of a call: the text that a model would read, and data for programs."""

    value: str
    structured: Any
    truncated: bool


def tools() -> list[Callable]:
    """Lists the callable tools by name. Empty without a grant."""
    found = [] if _host.tool_invoke is None else _host.tool_invoke.tools()
    schema = lambda text: None if text is None else _json.parse(text)  # noqa: E731
    return [Callable(one.name, one.description, schema(one.input_schema), schema(one.output_schema)) for one in found]


def call(tool: str, args: Mapping[str, Any] | None = None) -> Invoked:
    """Calls a tool, or raises its error."""
    answer = next(iter(call_all([(tool, args or {})])), failed("the host gave no answer"))
    if isinstance(answer, ToolError):
        raise answer
    return answer


def call_all(calls: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Invoked | ToolError]:
    """Makes calls concurrently. Returns the result or the error of each, in order; an error of the batch is raised."""
    if _host.tool_invoke is None:
        raise not_available("no tool of this plugin declares `invoke`", "denied")
    invocations = [_host.tool_invoke.Invocation(name, _json.dump(dict(args))) for name, args in calls]
    try:
        return [_answer(answer) for answer in _host.tool_invoke.invoke(invocations)]
    except _host.Err as error:
        raise _error(error.value) from None


def _answer(answer: Any) -> Invoked | ToolError:
    if isinstance(answer, _host.Err):
        return _error(answer.value)
    record = answer.value
    data = None if record.structured is None else _json.parse(record.structured)
    return Invoked(record.value, data, record.truncated)


def _error(record: Any) -> ToolError:
    # The cost of a nested call belongs to that call.
    return ToolError(record.code.name.lower().replace("_", "-"), record.message, record.subject)
