"""Options of the program: an error names the option and what is allowed. None is no value."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

MAX_U32 = 2**32 - 1
MAX_U64 = 2**64 - 1


def text(name: str, value: Any) -> str | None:
    """A text."""
    if value is not None and not isinstance(value, str):
        raise _wrong_type(name, "a text", value)
    return value


def required_text(name: str, value: Any) -> str:
    """A text that is there."""
    checked = text(name, value)
    if checked is None:
        raise _wrong_type(name, "a text", value)
    return checked


def flag(name: str, value: Any) -> bool | None:
    """True or False."""
    if value is not None and not isinstance(value, bool):
        raise _wrong_type(name, "True or False", value)
    return value


def queue(name: str, value: Any) -> bool | str | None:
    """The name of a queue, or whether a tool has one of its own."""
    if value is not None and not isinstance(value, (bool, str)):
        raise _wrong_type(name, "True, False or the name of a queue", value)
    return value


def count(name: str, value: Any, most: int = MAX_U64) -> int | None:
    """An integer from 0 to `most`."""
    allowed = f"an integer from 0 to {most}"
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong_type(name, allowed, value)
    if not 0 <= value <= most:
        raise ValueError(f"`{name}` is {allowed}, not {value}")
    return value


def small_count(name: str, value: Any) -> int | None:
    """A count that the host has with 32 bits."""
    return count(name, value, MAX_U32)


def number(name: str, value: Any, unit: str) -> float | None:
    """A number."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong_type(name, f"a number of {unit}", value)
    return value


def amount(name: str, value: Any, unit: str = "US dollars") -> float | None:
    """A finite number from 0."""
    checked = number(name, value, unit)
    if checked is not None and not (math.isfinite(checked) and checked >= 0):
        raise ValueError(f"`{name}` is a finite number of {unit} from 0, not {checked}")
    return checked


def milliseconds(name: str, seconds: Any) -> int | None:
    """The milliseconds of an option in seconds."""
    checked = amount(name, seconds, "seconds")
    return None if checked is None else round(checked * 1000)


def path(name: str, value: Any) -> str | None:
    """An absolute path."""
    if value is None:
        return None
    plain = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(plain, str):
        raise _wrong_type(name, "a path", value)
    return os.path.abspath(plain)


def required_path(name: str, value: Any) -> str:
    """An absolute path that is there."""
    checked = path(name, value)
    if checked is None:
        raise _wrong_type(name, "a path", value)
    return checked


def function(name: str, value: Any) -> Any:
    """What can be called."""
    if value is not None and not callable(value):
        raise _wrong_type(name, "a function", value)
    return value


def texts(name: str, values: Any) -> list[str] | None:
    """Texts in an order that does not depend on the one of a set."""
    if values is None:
        return None
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise _wrong_type(name, "a list of texts", values)
    items = list(values)
    for item in items:
        if not isinstance(item, str):
            raise _wrong_type(name, "a list of texts", items)
    return sorted(items)


def texts_by_name(name: str, lists: Any) -> dict[str, Any] | None:
    """Texts of several names."""
    given = mapping(name, lists)
    return None if given is None else {str(key): texts(f"{name}[{key!r}]", given[key]) for key in given}


def mapping(name: str, value: Any) -> Mapping[str, Any] | None:
    """Members by name."""
    if value is not None and not isinstance(value, Mapping):
        raise _wrong_type(name, "a mapping", value)
    return value


IDENTITY: dict[str, Callable[[str, Any], Any]] = {
    "session_key": text, "platform": text, "client": text, "agent_id": text, "personality_id": text, "team_id": text,
    "turn": small_count, "message_count": small_count, "traceparent": text, "attributes": mapping,
}


def identity(members: Any) -> dict[str, Any]:
    """The fields that plugins can ask for."""
    checked = {}
    for name, value in (mapping("identity", members) or {}).items():
        if name not in IDENTITY:
            raise ValueError(f"`identity` has no field {name!r}; known are `{'`, `'.join(IDENTITY)}`")
        if value is not None:
            checked[name] = IDENTITY[name](f"identity[{name!r}]", value)
    return checked


def _wrong_type(name: str, allowed: str, value: object) -> TypeError:
    return TypeError(f"`{name}` is {allowed}, not {value!r:.80}")
