"""Native tools: functions of the program with ``@tool``."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

from . import _bridge, _json, _options
from ._results import ToolOutput
from .errors import ToolError, input_error

Function = TypeVar("Function", bound=Callable[..., Any])

TRAITS = ("read_only", "additive", "idempotent", "closed_world", "always_include", "untrusted_output", "needs_approval",
          "deferred")
_NAME = "[a-zA-Z0-9_-]{1,48}"
_ATTRIBUTE = "__toolbay_tool__"


class CallContext:
    """A running call of a native tool. A tool gets it in an argument with this type."""

    def __init__(self, mailbox: int, question: int, document: dict[str, Any]) -> None:
        self._mailbox = mailbox
        self._question = question
        #: Whether the caller has cancelled the call. A coroutine is cancelled; a function in a thread looks here.
        self.cancelled = False
        self.call_id: str = document["call_id"]
        self.tool: str = document["tool"]
        #: How many characters the text of the result may have before it is cut.
        self.budget_chars: int = document["budget_chars"]
        #: Whether to describe the effect and do nothing.
        self.dry_run: bool = document["dry_run"]
        self.profile: str | None = document["profile"]
        self.session_id: str | None = document["session_id"]
        self.session_key: str | None = document["session_key"]
        self.platform: str | None = document["platform"]
        self.agent_id: str | None = document["agent_id"]
        self.personality_id: str | None = document["personality_id"]
        self.team_id: str | None = document["team_id"]
        self.turn: int | None = document["turn"]
        self.message_count: int | None = document["message_count"]
        self.attributes: dict[str, Any] = document["attributes"]

    def progress(self, message: str, percent: float | None = None, audience: str = "user") -> None:
        """Reports progress; `percent` is 0 to 100, `audience` is ``user``, ``internal`` or ``dashboard``."""
        if audience not in ("user", "internal", "dashboard"):
            raise ValueError(f"unknown audience {audience!r}; known are user, internal and dashboard")
        _bridge.reply(self._mailbox, self._question, "progress", message=_readable(message), percent=percent,
                      audience=audience)


@dataclasses.dataclass(frozen=True)
class Definition:
    """What the host knows of a native tool, and how its function is called."""

    request: dict[str, Any]
    readers: dict[str, Callable[[Any, str], Any]]
    context_name: str | None
    is_async: bool

    @property
    def name(self) -> str:
        return str(self.request["name"])

    def arguments(self, text: str, context: CallContext) -> dict[str, Any]:
        """The arguments of the function from those of the call."""
        given = _json.parse(text)
        values = {name: self.readers[name](value, f"/{name}") for name, value in given.items() if name in self.readers}
        unknown = next((name for name in given if name not in self.readers), None)
        if unknown is not None:
            raise input_error(f"invalid arguments: unknown field `{unknown}`", f"/{unknown}")
        if self.context_name is not None:
            values[self.context_name] = context
        return values


@overload
def tool(function: Function, /) -> Function: ...


@overload
def tool(
    *, name: str | None = ..., title: str | None = ..., description: str | None = ..., namespace: str | None = ...,
    toolset: str | None = ..., tags: Sequence[str] = ..., search_hint: str | None = ..., timeout: float | None = ...,
    max_result_chars: int | None = ..., serial: bool | str = ..., cache: float | None = ...,
    output: dict[str, Any] | None = ..., read_only: bool = ..., additive: bool = ..., idempotent: bool = ...,
    closed_world: bool = ..., always_include: bool = ..., untrusted_output: bool = ..., needs_approval: bool = ...,
    deferred: bool = ...,
) -> Callable[[Function], Function]: ...


def tool(
    function: Callable[..., Any] | None = None, /, *, name: str | None = None, title: str | None = None,
    description: str | None = None, namespace: str | None = None, toolset: str | None = None, tags: Sequence[str] = (),
    search_hint: str | None = None, timeout: float | None = None, max_result_chars: int | None = None,
    serial: bool | str = False, cache: float | None = None, output: dict[str, Any] | None = None, **traits: bool,
) -> Any:
    """Makes a function a tool of the program. The function is unchanged; `Host.register` adds the tool.

    The name, the description and the schemas come from the function. `timeout` and `cache` are seconds. `serial` runs the
    calls one after the other, with those of other tools of the same queue if it is a text. The other options are claims
    about the behaviour, such as ``read_only=True``.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        called = name if name is not None else str(getattr(function, "__name__", ""))
        options = {
            "title": title, "namespace": namespace, "toolset": toolset, "search_hint": search_hint,
            "max_result_chars": max_result_chars, "serial": serial,
        }
        times = {"timeout": timeout, "cache": cache}
        setattr(function, _ATTRIBUTE, _define(function, called, description, tags, output, traits, options, times))
        return function

    return decorate if function is None else decorate(function)


def definition_of(function: Any) -> Definition:
    """The definition of a decorated function."""
    definition = getattr(function, _ATTRIBUTE, None)
    if isinstance(definition, Definition):
        return definition
    raise TypeError(f"`{getattr(function, '__name__', function)!s}` is no tool: write @tool above it")


def _define(
    function: Callable[..., Any], called: str, description: str | None, tags: Sequence[str],
    output: dict[str, Any] | None, traits: dict[str, bool], options: dict[str, Any], times: dict[str, float | None],
) -> Definition:
    import inspect

    from . import _signature
    from ._schema import Unsupported

    def fail(what: str) -> typing.NoReturn:
        raise TypeError(f"tool `{called}`: {what}")

    try:
        _check_options(called, description, tags, output, traits, options, times)
    except (TypeError, ValueError) as error:
        fail(str(error))
    if not re.fullmatch(_NAME, called):
        fail("its name must be 1 to 48 letters, digits, `_` or `-`")
    for trait in traits:
        if trait not in TRAITS:
            fail(f"unknown option `{trait}`; the traits are `{'`, `'.join(TRAITS)}`")
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        fail("it must not `yield`: a call has one result; `CallContext.progress` reports what happens before")
    text, described = _signature.docstring(function)
    if not (description or text):
        fail("it needs a docstring: a model cannot choose what it cannot read about")
    try:
        schema, readers, context_name = _signature.arguments(function, described, CallContext)
        result = _signature.result(function, ToolOutput, output)
        options["serial"] = called if options["serial"] is True else options["serial"] or None
        options |= {f"{name}_ms": _signature.milliseconds(name, seconds) for name, seconds in times.items()}
    except Unsupported as error:
        fail(str(error))
    request = {
        "name": called, "description": description or text, "input_schema": schema, "output_schema": result,
        "tags": list(tags), "traits": [trait for trait, is_set in traits.items() if is_set],
        **{option: value for option, value in options.items() if value is not None},
    }
    return Definition(request, readers, context_name, inspect.iscoroutinefunction(function))


def _check_options(
    called: str, description: str | None, tags: Sequence[str], output: dict[str, Any] | None, traits: dict[str, bool],
    options: dict[str, Any], times: dict[str, float | None],
) -> None:
    """Checks the types of the options. A claim such as ``needs_approval=1`` would not count."""
    given: dict[str, Any] = {"name": called, "description": description, **options}
    for name, value in given.items():
        if name == "max_result_chars":
            _options.small_count(name, value)
        elif name == "serial":
            _options.queue(name, value)
        else:
            _options.text(name, value)
    _options.texts("tags", tags)
    _options.mapping("output", output)
    for name, is_set in traits.items():
        _options.flag(name, is_set)
    for name, seconds in times.items():
        _options.number(name, seconds, "seconds")


def reply_with_result(mailbox: int, question: int, name: str, value: Any) -> None:
    """Ends a call with what its function returned."""
    try:
        output = value if isinstance(value, ToolOutput) else _output_of(value)
        _bridge.reply(mailbox, question, "output", **output._reply())
    except (TypeError, ValueError, KeyError) as error:
        reply_with_error(mailbox, question, ToolError("execution_failed", f"the tool `{name}` returned {error}"))


def reply_with_error(mailbox: int, question: int, error: ToolError) -> None:
    """Ends a call with an error."""
    subject = None if error.subject is None else _readable(error.subject)
    _bridge.reply(mailbox, question, "error", code=error.code, message=_readable(error.message), subject=subject,
                  cost_usd=error.cost_usd)


def _readable(text: str) -> str:
    """The text without lone surrogates."""
    return str(text).encode("utf-8", "replace").decode()


def _output_of(value: Any) -> ToolOutput:
    if value is None:
        return ToolOutput()
    if isinstance(value, str):
        return ToolOutput(_json.plain(value))
    output = ToolOutput(_json.encode(value))
    output._structured = output.value
    return output
