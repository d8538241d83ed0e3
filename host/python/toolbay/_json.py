"""JSON with exact integers. What JSON cannot express is refused, with a JSON pointer to it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
MAX_DEPTH = 127
"""Deepest nesting. The host's parser stops at 128."""


def parse(text: str) -> Any:
    """Reads a JSON text; integers are exact."""
    return json.loads(text)


def encode(value: Any) -> str:
    """Writes a value. Raises `TypeError` for what has another type than JSON has, and `ValueError` for a value that
    JSON lacks; both name its JSON pointer."""
    return _ENCODER.encode(plain(value))


def write(document: dict[str, Any]) -> str:
    """Writes a document of this package, whose keys are texts. Only a document that cannot be written is looked through, for
    the error of `encode`."""
    try:
        text = _ENCODER.encode(document)
        if text.isascii() or text.encode():
            return text
    except (TypeError, ValueError, RecursionError):
        pass
    return encode(document)


def plain(value: Any) -> Any:
    """Converts data classes and enumerations to plain values, and checks all values."""
    try:
        return _plain(value, 0)
    except _Invalid as invalid:
        pointer = "".join(f"/{_step(step)}" for step in reversed(invalid.steps))
        what = invalid.what
        if invalid.too_deep and len(set(invalid.containers)) < len(invalid.containers):
            # The pointer would repeat the cycle.
            what, pointer = "a container that contains itself", _cycle(invalid)
        kind = invalid.kind
    raise kind(f"{what} at `{pointer}`" if pointer else what.removesuffix(","))


class _Invalid(Exception):
    """A value that JSON cannot express, with the way to it from inside."""

    def __init__(self, kind: type[Exception], what: str, *, too_deep: bool = False) -> None:
        self.kind = kind
        self.what = what
        self.too_deep = too_deep
        self.steps: list[Any] = []
        self.containers: list[int] = []


def _cycle(invalid: _Invalid) -> str:
    """The pointer to the first container that is inside of itself."""
    seen: set[int] = set()
    pointer = ""
    for container, step in zip(reversed(invalid.containers), reversed(invalid.steps)):
        if container in seen:
            break
        seen.add(container)
        pointer += f"/{_step(step)}"
    return pointer


def _step(step: Any) -> str:
    return str(step).replace("~", "~0").replace("/", "~1").encode("utf-8", "backslashreplace").decode()


def _plain(value: Any, depth: int) -> Any:
    kind = type(value)
    if value is None or kind is bool or kind is int:
        return value
    if kind is str:
        return _text(value)
    if kind is float:
        return _number(value)
    if depth >= MAX_DEPTH and (kind in (dict, list, tuple) or isinstance(value, (Mapping, list, tuple))):
        raise _Invalid(ValueError, f"nested deeper than {MAX_DEPTH} levels", too_deep=True)
    if kind is dict or isinstance(value, Mapping):
        return _object(value, value.items(), depth)
    if isinstance(value, (list, tuple)):
        return _array(value, depth)
    return _converted(value, depth)


def _text(text: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise _Invalid(ValueError, "a text with a lone surrogate, which is not Unicode,") from None
    return text


def _number(number: float) -> float:
    if math.isfinite(number):
        return number
    raise _Invalid(ValueError, f"{number}, which JSON cannot express,")


def _object(container: Any, items: Any, depth: int) -> dict[str, Any]:
    converted = {}
    key: Any = None
    try:
        for key, item in items:
            if not isinstance(key, str):
                raise _Invalid(TypeError, f"the key {key!r}, which is not a text,")
            converted[_text(str.__str__(key))] = _plain(item, depth + 1)
    except _Invalid as invalid:
        invalid.steps.append(key)
        invalid.containers.append(id(container))
        raise
    return converted


def _array(container: Any, depth: int) -> list[Any]:
    converted: list[Any] = []
    try:
        for item in container:
            converted.append(_plain(item, depth + 1))
    except _Invalid as invalid:
        invalid.steps.append(len(converted))
        invalid.containers.append(id(container))
        raise
    return converted


def _converted(value: Any, depth: int) -> Any:
    """What is no plain value, but has one."""
    import dataclasses
    import enum

    if isinstance(value, enum.Enum):
        return _plain(value.value, depth)
    if isinstance(value, str):
        return _text(str.__str__(value))
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _number(float(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        if depth >= MAX_DEPTH:
            raise _Invalid(ValueError, f"nested deeper than {MAX_DEPTH} levels", too_deep=True)
        return _object(value, ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value)), depth)
    raise _Invalid(TypeError, f"a value of type `{type(value).__name__}`, which JSON cannot express,")
