"""State that outlives a call. Instances do not. `scope` is ``tool``, ``plugin``, ``session`` or ``agent``.

Calls run concurrently. Use `increment` or `replace` for values that several calls change.
"""

from typing import Any

from . import _host, _json
from ._contract import KV_SCOPES


def get(scope: str, key: str) -> bytes | None:
    """Returns the bytes under a key."""
    return _ask(key, lambda: _host.kv.get(_scope(scope), key))


def get_text(scope: str, key: str) -> str | None:
    """Returns the text under a key."""
    data = get(scope, key)
    return None if data is None else data.decode()


def get_json(scope: str, key: str) -> Any:
    """Returns the JSON under a key, or None."""
    text = get_text(scope, key)
    return None if text is None else _json.parse(text)


def set(scope: str, key: str, value: str | bytes, ttl_seconds: int | None = None) -> None:
    """Sets a key to text or bytes, with or without an expiry."""
    _ask(key, lambda: _host.kv.set(_scope(scope), key, _bytes(value), ttl_seconds))


def set_json(scope: str, key: str, value: Any, ttl_seconds: int | None = None) -> None:
    """Sets a key to JSON, with or without an expiry."""
    set(scope, key, _json.dump(value), ttl_seconds)


def remove(scope: str, key: str) -> None:
    """Removes a key."""
    _ask(key, lambda: _host.kv.remove(_scope(scope), key))


def keys(scope: str, prefix: str = "", after: str | None = None, limit: int = 1000) -> list[str]:
    """Returns the sorted keys with a prefix that follow `after`."""
    return _ask(prefix, lambda: _host.kv.keys(_scope(scope), prefix, after, limit))


def increment(scope: str, key: str, by: int = 1) -> int:
    """Adds atomically to a number and returns the sum. An absent key counts as 0."""
    return _ask(key, lambda: _host.kv.increment(_scope(scope), key, by))


def replace(scope: str, key: str, expected: str | bytes | None, value: str | bytes) -> bool:
    """Sets a key only if it holds `expected` (None: no value). Returns whether it did."""
    before = None if expected is None else _bytes(expected)
    return _ask(key, lambda: _host.kv.replace(_scope(scope), key, before, _bytes(value)))


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _scope(name: str) -> Any:
    try:
        return _host.kv.Scope[name.upper()]
    except KeyError:
        raise ValueError(f"unknown kv scope `{name}`; known are `{'`, `'.join(KV_SCOPES)}`") from None


def _ask(key: str, question: Any) -> Any:
    return _host.asked("kv", key, question)
