"""JSON with exact integers and without values that JSON cannot express."""

import dataclasses
import enum
import json
import math
from typing import Any


def parse(text: str) -> Any:
    """Reads a JSON text; integers of any size are exact."""
    return json.loads(text)


def dump(value: Any) -> str:
    """Writes a value, or raises a `TypeError` that names the member that JSON cannot express."""
    return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def plain(value: Any, where: str = "") -> Any:
    """Converts data classes and enumerations to plain values."""
    if value is None or isinstance(value, (bool, str)) and not isinstance(value, enum.Enum):
        return value
    if isinstance(value, enum.Enum):
        return plain(value.value, where)
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        raise TypeError(f"the result holds {value}{_at(where)}, which JSON has not")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name), f"{where}/{f.name}") for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"the result holds the key {key!r}{_at(where)}; keys of JSON are texts")
        return {key: plain(inner, f"{where}/{key}") for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner, f"{where}/{index}") for index, inner in enumerate(value)]
    raise TypeError(f"the result holds a {type(value).__name__}{_at(where)}, which JSON has not")


def _at(where: str) -> str:
    return f" at `{where}`" if where else ""
