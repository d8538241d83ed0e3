"""The arguments of a tool from the signature and docstring of its function."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable
from typing import Any

from . import _json
from ._schema import Unsupported, output_schema_of, reader_of, schema_of, written_output_schema

Reader = Callable[[Any, str], Any]

MAX_SECONDS = (2**32 - 1) / 1000
"""Longest time of an option: the contract has milliseconds with 32 bits."""


def arguments(function: Callable[..., Any], described: dict[str, str], context: type | None = None) -> tuple[
        dict[str, Any], dict[str, Reader], str | None]:
    """The schema of the arguments, how each is read, and the name of the argument that gets the context. Programs have such
    a `context`, and methods as tools."""
    hints = typing.get_type_hints(function, include_extras=True)
    properties: dict[str, Any] = {}
    required: list[str] = []
    readers: dict[str, Reader] = {}
    context_name = None
    for parameter in inspect.signature(function).parameters.values():
        name = parameter.name
        hint = hints.get(name)
        if context is not None and hint is None and name == "self":
            continue
        if context is not None and hint is context:
            context_name = name
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise Unsupported(f"`{name}` has no name by which a model could give it: write plain arguments")
        if name not in hints:
            raise Unsupported(f"the argument `{name}` has no type hint")
        schema = schema_of(hint)
        if name in described:
            schema.setdefault("description", described[name])
        if parameter.default is parameter.empty:
            required.append(name)
        elif parameter.default is not None:
            schema["default"] = _json.plain(parameter.default)
        properties[name], readers[name] = schema, reader_of(hint)
    for name in described:
        if name not in properties and name != context_name:
            raise Unsupported(f"its docstring describes `{name}`, which is none of its arguments")
    schema = {"type": "object", "additionalProperties": False, "properties": properties}
    return schema | ({"required": required} if required else {}), readers, context_name


def result(function: Callable[..., Any], output: type, written: dict[str, Any] | None = None) -> dict[str, Any] | None:
    """The schema of the structured result: as written, or from the hint; None if it says nothing about it."""
    if written is not None:
        return dict(written_output_schema(written))
    hint = typing.get_type_hints(function, include_extras=True).get("return")
    if hint in (None, type(None), str, dict, list, Any, output):
        return None
    schema: dict[str, Any] = output_schema_of(hint)
    return schema


def docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The text of a docstring, and the descriptions in its section `Args:`."""
    text = inspect.cleandoc(function.__doc__ or "")
    head, found, section = text.partition("\nArgs:\n")
    if not found:
        return text, {}
    described: dict[str, str] = {}
    last, rest = None, ""
    lines = section.split("\n")
    for index, line in enumerate(lines):
        if line and not line[0].isspace():
            rest = "\n".join(lines[index:])
            break
        begins = re.match(r"\s{2,4}(\w+)(?:\s*\([^)]*\))?:\s*(.*)", line)
        if begins:
            last = begins[1]
            described[last] = begins[2]
        elif last and line.strip():
            described[last] = f"{described[last]} {line.strip()}".strip()
    return f"{head.strip()}\n\n{rest.strip()}".strip(), described


def milliseconds(option: str, seconds: float | None) -> int | None:
    """The milliseconds of an option in seconds."""
    if seconds is None:
        return None
    if not 0 < seconds <= MAX_SECONDS:
        raise Unsupported(f"`{option}` must be seconds above 0 and at most {MAX_SECONDS}, not {seconds}")
    return max(1, round(seconds * 1000))
