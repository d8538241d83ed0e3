"""Creates JSON Schemas from type hints, and arguments from JSON.

| hint | schema | what the function gets |
|---|---|---|
| ``str``, ``int``, ``float``, ``bool``, ``None`` | its type | the same |
| ``list[T]``, ``tuple[T, ...]``, ``set[T]`` | array of ``T`` | list, tuple, set |
| ``dict[str, T]`` | object of ``T`` | dict |
| ``Literal["a", "b"]``, ``Enum`` | ``enum`` | the value; the member |
| dataclass, ``TypedDict`` | object with its fields | an instance; a dict |
| ``T | None`` | ``T`` or null | |
| ``Annotated[T, "text"]``, ``Annotated[T, Arg(…)]`` | ``T`` with a description, bounds | |
| ``Any`` | anything | the parsed JSON |
"""

import dataclasses
import enum
import inspect
import types
import typing
from typing import Any, Callable

from ._json import plain
from .errors import input_error

PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


@dataclasses.dataclass(frozen=True)
class Arg:
    """Constraints of an argument beyond its type, with pydantic's names. `schema` is merged into the schema unchanged."""

    description: str | None = None
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    schema: dict[str, Any] | None = None

    def keys(self, kind: str | None) -> dict[str, Any]:
        """The schema keys for that type."""
        size = {"array": "Items", "object": "Properties"}.get(kind or "", "Length")
        pairs = {
            "description": self.description, "minimum": self.ge, "exclusiveMinimum": self.gt, "maximum": self.le,
            "exclusiveMaximum": self.lt, f"min{size}": self.min_length, f"max{size}": self.max_length,
            "pattern": self.pattern,
        }
        return {key: value for key, value in pairs.items() if value is not None} | (self.schema or {})


class Unsupported(TypeError):
    """A type hint without a schema."""


def schema_of(hint: Any, seen: tuple[Any, ...] = ()) -> dict[str, Any]:
    """The schema of a hint."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _annotated(args[0], args[1:], seen)
    if hint is Any:
        return {}
    if hint in PLAIN:
        return {"type": PLAIN[hint]}
    if origin is typing.Literal:
        return _enumeration(list(args))
    if origin in (typing.Union, types.UnionType):
        return _union(args, seen)
    if hint in (list, tuple, set, dict) or origin in (list, tuple, set, frozenset, dict):
        return _container(origin or hint, args, seen)
    if hint in seen:
        raise Unsupported(f"`{hint.__name__}` holds itself: use `Any`, or `Arg(schema=…)`")
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _described(hint, _enumeration([member.value for member in hint]))
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or typing.is_typeddict(hint)):
        return _described(hint, _fields(hint, (*seen, hint)))
    raise Unsupported(
        f"no schema can be made of `{getattr(hint, '__name__', hint)}`: use str, int, float, bool, list, dict, Literal, "
        "an Enum, a dataclass, a TypedDict or Any"
    )


def _annotated(hint: Any, notes: tuple[Any, ...], seen: tuple[Any, ...]) -> dict[str, Any]:
    schema = schema_of(hint, seen)
    kind = schema.get("type")
    kind = next((one for one in kind if one != "null"), None) if isinstance(kind, list) else kind
    for note in notes:
        if isinstance(note, str):
            schema["description"] = note
        elif isinstance(note, Arg):
            schema.update(note.keys(kind))
    return schema


def _enumeration(values: list[Any]) -> dict[str, Any]:
    kinds = {PLAIN.get(type(value)) for value in values}
    if None in kinds:
        raise Unsupported(f"an enumeration holds {values!r}: only texts, numbers and bool are JSON")
    if len(values) == 1:
        return {"type": kinds.pop(), "const": values[0]}
    return ({"type": kinds.pop()} if len(kinds) == 1 else {}) | {"enum": values}


def _union(members: tuple[Any, ...], seen: tuple[Any, ...]) -> dict[str, Any]:
    schemas = [schema_of(member, seen) for member in members]
    rest = [schema for schema in schemas if schema != {"type": "null"}]
    if len(rest) == 1 and len(schemas) == 2 and isinstance(rest[0].get("type"), str) and "const" not in rest[0]:
        # The shortest form. With `enum`, null must be among the values.
        enumeration = {"enum": [*rest[0]["enum"], None]} if "enum" in rest[0] else {}
        return rest[0] | {"type": [rest[0]["type"], "null"]} | enumeration
    return {"anyOf": schemas}


def _container(origin: Any, args: tuple[Any, ...], seen: tuple[Any, ...]) -> dict[str, Any]:
    if origin is dict:
        if args and args[0] is not str:
            raise Unsupported("keys of JSON are texts: write `dict[str, …]`")
        inner = schema_of(args[1], seen) if args else {}
        return {"type": "object"} | ({"additionalProperties": inner} if inner else {})
    if origin is tuple and args and args[-1] is not Ellipsis:
        items = [schema_of(arg, seen) for arg in args]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    schema: dict[str, Any] = {"type": "array"}
    if args:
        schema["items"] = schema_of(args[0], seen)
    if origin in (set, frozenset):
        schema["uniqueItems"] = True
    return schema


def _described(hint: type, schema: dict[str, Any]) -> dict[str, Any]:
    """Adds the docstring of the class, unless `dataclass` generated it from the signature."""
    text = hint.__dict__.get("__doc__")
    if text and not (dataclasses.is_dataclass(hint) and text.startswith(f"{hint.__name__}(")) and text != "An enumeration.":
        schema["description"] = inspect.cleandoc(text)
    return schema


def _fields(hint: Any, seen: tuple[Any, ...]) -> dict[str, Any]:
    hints = typing.get_type_hints(hint, include_extras=True)
    properties, required = {}, []
    if dataclasses.is_dataclass(hint):
        for field in dataclasses.fields(hint):
            properties[field.name] = schema_of(hints[field.name], seen)
            if field.default is not dataclasses.MISSING:
                if field.default is not None:
                    properties[field.name]["default"] = plain(field.default)
            elif field.default_factory is dataclasses.MISSING:
                required.append(field.name)
    else:
        for name, inner in hints.items():
            if typing.get_origin(inner) in (typing.Required, typing.NotRequired):
                inner = typing.get_args(inner)[0]
            properties[name] = schema_of(inner, seen)
        required = [name for name in hints if name in hint.__required_keys__]
    return {"type": "object", "properties": properties} | ({"required": required} if required else {})


def output_schema_of(hint: Any) -> dict[str, Any]:
    """The schema of a result. Values that are not objects are wrapped under `result`."""
    schema = schema_of(hint)
    return schema if schema.get("type") == "object" else _wrapped(schema)


def written_output_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a result that an author wrote. Without `type`, it may be one of objects."""
    return schema if schema.get("type", "object") == "object" else _wrapped(schema)


def _wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"result": schema}, "required": ["result"]}


def reader_of(hint: Any) -> Callable[[Any, str], Any]:
    """A function that converts a JSON value to the hinted type. Its second argument is the JSON pointer."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Annotated, typing.Required, typing.NotRequired):
        return reader_of(args[0])
    if origin in (typing.Union, types.UnionType):
        return _one_of([reader_of(arg) for arg in args])
    if origin is typing.Literal:
        return _checked(lambda value: value in args, f"one of {', '.join(map(repr, args))}")
    if hint is float:
        return lambda value, at: float(_checked(_is_number, "a number")(value, at))
    if hint is int:
        return lambda value, at: int(_checked(_is_integer, "an integer")(value, at))
    if hint in PLAIN:
        return _checked(lambda value: isinstance(value, hint), f"of type {PLAIN[hint]}")
    if hint in (list, tuple, set) or origin in (list, tuple, set, frozenset):
        return _array(origin or hint, args)
    if hint is dict or origin is dict:
        return _object(reader_of(args[1]) if args else lambda value, at: value)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return lambda value, at: _member(hint, value, at)
    if dataclasses.is_dataclass(hint) or typing.is_typeddict(hint):
        return _record(hint)
    return lambda value, at: value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_integer(value: Any) -> bool:
    return _is_number(value) and value == int(value)


def _checked(fits: Callable[[Any], bool], what: str) -> Callable[[Any, str], Any]:
    def read(value: Any, at: str) -> Any:
        if fits(value):
            return value
        raise input_error(f"{value!r} is not {what}", at)

    return read


def _one_of(readers: list[Callable[[Any, str], Any]]) -> Callable[[Any, str], Any]:
    def read(value: Any, at: str) -> Any:
        for reader in readers[:-1]:
            try:
                return reader(value, at)
            except Exception:
                continue
        return readers[-1](value, at)

    return read


def _array(origin: Any, args: tuple[Any, ...]) -> Callable[[Any, str], Any]:
    each = args and (origin is not tuple or args[-1] is Ellipsis)
    readers = [reader_of(arg) for arg in args if arg is not Ellipsis]

    def read(value: Any, at: str) -> Any:
        _checked(lambda value: isinstance(value, list), "an array")(value, at)
        of = (lambda _: readers[0]) if each else (lambda index: readers[index]) if readers else None
        return origin(value if of is None else (of(index)(inner, f"{at}/{index}") for index, inner in enumerate(value)))

    return read


def _object(inner: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    def read(value: Any, at: str) -> Any:
        _checked(lambda value: isinstance(value, dict), "an object")(value, at)
        return {key: inner(item, f"{at}/{key}") for key, item in value.items()}

    return read


def _member(hint: Any, value: Any, at: str) -> Any:
    try:
        return hint(value)
    except ValueError:
        raise input_error(f"{value!r} is not one of {', '.join(repr(member.value) for member in hint)}", at) from None


def _record(hint: Any) -> Callable[[Any, str], Any]:
    readers = {name: reader_of(inner) for name, inner in typing.get_type_hints(hint, include_extras=True).items()}

    def read(value: Any, at: str) -> Any:
        _checked(lambda value: isinstance(value, dict), "an object")(value, at)
        fields = {key: readers[key](inner, f"{at}/{key}") for key, inner in value.items() if key in readers}
        try:
            return hint(**fields)
        except TypeError as error:
            raise input_error(str(error), at) from None

    return read
