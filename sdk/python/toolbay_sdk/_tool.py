"""``@tool`` and ``@reducer``: the metadata of functions."""

import inspect
import re
import typing
from dataclasses import dataclass
from typing import Any, Callable

from . import _json, _signature
from ._contract import KINDS, KV_SCOPES, NAME, SWITCHES, TRAITS
from ._output import Output, output_of
from ._schema import Unsupported
from .errors import input_error, not_available


@dataclass(frozen=True)
class Need:
    """A capability that a tool requests."""

    kind: str
    target: str
    optional: bool
    reason: str | None


@dataclass(frozen=True)
class Definition:
    """The definition of a tool, and its function."""

    name: str
    title: str | None
    description: str
    input_schema: str
    output_schema: str | None
    toolset: str | None
    tags: tuple[str, ...]
    traits: tuple[str, ...]
    max_result_chars: int | None
    timeout_ms: int | None
    needs: tuple[Need, ...]
    meta: str | None
    function: Callable[..., Any]
    readers: dict[str, Callable[[Any, str], Any]]

    def call(self, args: str) -> Output:
        """Calls the function with arguments as JSON."""
        try:
            given = _json.parse(args)
        except ValueError as error:
            raise input_error(f"invalid arguments: {error}") from None
        for name in given:
            if name not in self.readers:
                raise input_error(f"invalid arguments: unknown field `{name}`", f"/{name}")
        values = {name: self.readers[name](value, f"/{name}") for name, value in given.items()}
        try:
            bound = inspect.signature(self.function).bind(**values)
        except TypeError as error:
            raise input_error(f"invalid arguments: {error}") from None
        return output_of(self.function(*bound.args, **bound.kwargs))


@dataclass(frozen=True)
class ReducerDefinition:
    """The definition of a reducer, and its function."""

    tool_name: str
    description: str | None
    function: Callable[..., Any]


class Plugin:
    """All decorated functions, in order."""

    def __init__(self) -> None:
        self.tools: dict[str, Definition] = {}
        self.reducers: dict[str, ReducerDefinition] = {}
        self.available: Callable[[str], str | None] | None = None

    def call(self, name: str, args: str) -> Output:
        """Calls a tool by its name."""
        found = self.tools.get(name)
        if found is None:
            raise not_available(f"no tool `{name}` in this plugin", "unknown-tool")
        return found.call(args)


PLUGIN = Plugin()


def tool(
    function: Callable[..., Any] | None = None, *, name: str | None = None, title: str | None = None,
    description: str | None = None, toolset: str | None = None, tags: typing.Sequence[str] = (),
    max_result_chars: int | None = None, timeout: float | None = None, timeout_ms: int | None = None,
    needs: dict[str, Any] | typing.Sequence[dict[str, Any]] = (), output: dict[str, Any] | None = None,
    examples: typing.Sequence[dict[str, Any]] = (), meta: dict[str, Any] | None = None, **traits: bool,
) -> Any:
    """Makes a function a tool. The function is unchanged.

    The name, the description and the schemas come from the function. `timeout` is seconds. Options beside the named ones are
    traits of `types.wit`, such as `read_only`. `needs` is ``{"fs_read": "$workspace/**", "reason": "…", "optional": False}``, or a list of such. `examples` are
    calls that `toolbay test` tries: ``{"args": {…}, "value": "…"}``, or `contains`, `structured`, `error` in place of `value`.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        called = name or function.__name__

        def fail(what: str) -> typing.NoReturn:
            raise TypeError(f"tool `{called}`: {what}")

        if not re.fullmatch(NAME, called):
            fail("its name must be 1 to 48 letters, digits, `_` or `-`")
        if called in PLUGIN.tools:
            fail("two tools have this name")
        for trait in traits:
            if trait not in TRAITS:
                fail(f"unknown option `{trait}`; the traits are `{'`, `'.join(TRAITS)}`")
        if isinstance(tags, str):
            fail("`tags` is a list, not a text")
        if inspect.iscoroutinefunction(function):
            fail("it must not be `async`: calls of the host are not asynchronous here, so write them without `await`")
        if timeout is not None and timeout_ms is not None:
            fail("it has both `timeout` and `timeout_ms`")
        text, described = _signature.docstring(function)
        if not (description or text):
            fail("it needs a docstring: a model cannot choose what it cannot read about")
        try:
            schema, readers, _ = _signature.arguments(function, described)
            result = _signature.result(function, Output, output)
            time = timeout_ms if timeout is None else _signature.milliseconds("timeout", timeout)
        except Unsupported as error:
            fail(str(error))
        more = (meta or {}) | ({"examples": list(examples)} if examples else {})
        PLUGIN.tools[called] = Definition(
            called, title, description or text, _json.dump(schema), None if result is None else _json.dump(result),
            toolset, tuple(tags), tuple(trait for trait in TRAITS if traits.get(trait)), max_result_chars, time,
            tuple(_needs(needs, fail)), _json.dump(more) if more else None, function, readers,
        )
        return function

    return decorate if function is None else decorate(function)


def reducer(tool_name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes ``function(result, context)`` a reducer of the results of a tool.

    `result` is an `Output` or a `ToolError`. It returns an `Output`, a text or None, which leaves the result as it is.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        PLUGIN.reducers[tool_name] = ReducerDefinition(tool_name, _signature.docstring(function)[0] or None, function)
        return function

    return decorate


def available(function: Callable[[str], str | None]) -> Callable[[str], str | None]:
    """Calls ``function(tool)`` for the availability of a tool. A returned text is the reason why it is unavailable."""
    PLUGIN.available = function
    return function


def _needs(needs: Any, fail: Callable[[str], typing.NoReturn]) -> typing.Iterator[Need]:
    for need in [needs] if isinstance(needs, dict) else needs:
        optional, reason = bool(need.get("optional", False)), need.get("reason")
        for key, targets in need.items():
            if key in ("optional", "reason"):
                continue
            if key not in KINDS:
                fail(f"unknown need `{key}`; known are `{'`, `'.join(KINDS)}`")
            kind = key.replace("_", "-")
            if key in SWITCHES:
                if targets is not True:
                    fail(f"`{key}` has no target: write `\"{key}\": True`")
                targets = SWITCHES[key]
            for target in [targets] if isinstance(targets, str) else targets:
                if key == "kv" and target not in KV_SCOPES:
                    fail(f"unknown kv scope `{target}`; known are `{'`, `'.join(KV_SCOPES)}`")
                yield Need(kind, target, optional, reason)
