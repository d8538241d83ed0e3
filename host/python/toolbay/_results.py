"""Calls, their results, and what happens in between."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from . import _json, _options
from .errors import check_type

_NOTHING: Any = object()


class ToolCall:
    """A call of a tool: your id, the tool's name, and the arguments, a mapping or a JSON text."""

    __slots__ = ("args", "id", "idempotency_key", "tool")
    __match_args__ = ("id", "tool", "args")

    def __init__(self, id: str, tool: str, args: Mapping[str, Any] | str = "{}", *,
                 idempotency_key: str | None = None) -> None:
        check_type(id, str, "the id of a call is a text")
        check_type(tool, str, "the name of a tool is a text")
        self.id: str = id
        self.tool: str = tool
        #: The arguments as JSON text, which reaches the tool as it is.
        self.args: str = args if isinstance(args, str) else _json.encode(args)
        self.idempotency_key: str | None = _options.text("idempotency_key", idempotency_key)

    def __repr__(self) -> str:
        return f"ToolCall({self.id!r}, {self.tool!r}, {self.args!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ToolCall) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def _fields(self) -> tuple[Any, ...]:
        return (self.id, self.tool, self.args, self.idempotency_key)

    def _request(self) -> dict[str, Any]:
        return {"id": self.id, "tool": self.tool, "args": self.args, "idempotency_key": self.idempotency_key}


class ToolOutput:
    """An output: text for the model, data for programs, content blocks as in MCP, and the cost in US dollars."""

    __slots__ = ("_meta", "_structured", "content", "cost_usd", "value")
    __match_args__ = ("value", "structured")

    def __init__(self, value: str = "", *, structured: Any = _NOTHING, content: Sequence[Mapping[str, Any]] = (),
                 cost_usd: float | None = None, meta: Mapping[str, Any] | None = None) -> None:
        self.value: str = value
        self._structured = None if structured is _NOTHING else _json.encode(structured)
        self._meta = None if meta is None else _json.encode(meta)
        self.content: list[dict[str, Any]] = [dict(block) for block in content]
        self.cost_usd: float | None = cost_usd

    @property
    def structured(self) -> Any:
        """The data for programs, parsed; None if there are none."""
        return None if self._structured is None else _json.parse(self._structured)

    @property
    def meta(self) -> Any:
        """The metadata for the host, parsed; None if there are none."""
        return None if self._meta is None else _json.parse(self._meta)

    def __repr__(self) -> str:
        return f"ToolOutput({self.value!r}, structured={self._structured})"

    @classmethod
    def _of(cls, document: Mapping[str, Any], cost_usd: float | None) -> ToolOutput:
        output = cls(document["value"], content=[_block(block) for block in document["content"]], cost_usd=cost_usd)
        output._structured, output._meta = document["structured"], document["meta"]
        return output

    def _reply(self) -> dict[str, Any]:
        reply: dict[str, Any] = {
            "value": self.value, "structured": self._structured, "meta": self._meta, "cost_usd": self.cost_usd,
        }
        if self.content:
            reply |= _json.plain({"content": [_contract_block(block) for block in self.content]})
        return reply


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """Why a call has no output. `kind` is ``refused`` (the tool or a gate said no), ``fault`` (the plugin misbehaved or hit
    `limit`) or ``host``. `hints` are for the operator; models do not read them."""

    kind: str
    code: str
    message: str
    subject: str | None = None
    limit: str | None = None
    #: Seconds after which another attempt may succeed.
    retry_after: float | None = None
    hints: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class ProgressEvent:
    """The progress of a running call. The tool wrote the message."""

    call_id: str
    tool: str
    message: str
    percent: float | None
    audience: str


class CallResult:
    """The result of a call: an output or a failure."""

    __slots__ = ("_document", "_output", "failure")
    __match_args__ = ("failure",)

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document
        self._output: ToolOutput | None = None
        failed = document["failure"]
        self.failure: Failure | None = None
        if failed is not None:
            retry = failed["retry_after_ms"]
            self.failure = Failure(
                failed["kind"], failed["code"], failed["message"], failed["subject"], failed["limit"],
                None if retry is None else retry / 1000, tuple(document["hints"]),
            )

    @property
    def output(self) -> ToolOutput:
        """The output. Raises `ValueError` if the call failed: look at `failure` first."""
        if self.failure is not None:
            raise ValueError(f"the call of `{self.tool}` failed: {self.failure.message}")
        if self._output is None:
            self._output = ToolOutput._of(self._document["output"], self.cost_usd)
        return self._output

    @property
    def call_id(self) -> str:
        """Your id of the call."""
        return str(self._document["call_id"])

    @property
    def tool(self) -> str:
        """The name of the tool."""
        return str(self._document["tool"])

    @property
    def cost_usd(self) -> float | None:
        """What the call cost, in US dollars. A failed call may have a cost as well."""
        cost: float | None = self._document["cost_usd"]
        return cost

    @property
    def duration(self) -> float:
        """Seconds from the arrival of the call to its result."""
        return float(self._document["duration_us"]) / 1e6

    @property
    def source(self) -> str | None:
        """Where the tool comes from: ``plugin:ID``, ``mcp:NAME``, ``openapi:NAME`` or ``builtin``."""
        source: str | None = self._document["source"]
        return source

    @property
    def cached(self) -> float | None:
        """The age of the result in seconds, if an earlier call computed it."""
        cached = self._document["cached_ms"]
        return None if cached is None else cached / 1000

    @property
    def call_sha256(self) -> str | None:
        """SHA-256 of the call: equal calls have equal digests."""
        digest: str | None = self._document["call_sha256"]
        return digest

    @property
    def cut_from_chars(self) -> int | None:
        """The characters of the text before it was cut; None if it was not cut."""
        chars: int | None = self._document["cut_from_chars"]
        return chars

    @property
    def saved(self) -> list[str]:
        """The ids of texts that were saved because they were cut."""
        return list(self._document["saved"])

    @property
    def untrusted(self) -> bool:
        """Whether the text is from third parties, and marked so."""
        return bool(self._document["untrusted"])

    @property
    def usage(self) -> dict[str, Any]:
        """What the plugin used: ``fuel``, ``wall_us``, ``peak_memory_bytes`` and others."""
        return dict(self._document["usage"])

    @property
    def hints(self) -> tuple[str, ...]:
        """Policy lines that would allow what was refused, for the operator."""
        return tuple(self._document["hints"])

    def __repr__(self) -> str:
        outcome = self.failure if self.failure is not None else self.output
        return f"CallResult({self.call_id!r}, {self.tool!r}, {outcome!r})"


_MEDIA = {"image": "Image", "audio": "Audio"}


def _contract_block(block: Mapping[str, Any]) -> dict[str, Any]:
    """A content block of MCP as the host has it."""
    kind = block.get("type")
    if kind == "text":
        body: dict[str, Any] = {"Text": block["text"]}
    elif kind in _MEDIA:
        body = {_MEDIA[kind]: {"data": _encoded(block["data"]), "mime_type": block["mimeType"]}}
    elif kind == "resource_link":
        names = ("uri", "name", "title", "description", "size")
        body = {"Link": {**{name: block.get(name) for name in names}, "mime_type": block.get("mimeType")}}
    elif kind == "resource":
        resource = block["resource"]
        inner = {"Text": resource["text"]} if "text" in resource else {"Blob": _encoded(resource["blob"])}
        body = {"Embedded": {"uri": resource["uri"], "mime_type": resource.get("mimeType"), "body": inner}}
    else:
        raise ValueError(f"a content block of the unknown type {kind!r}")
    notes = block.get("annotations")
    if notes is None:
        return {"body": body, "annotations": None}
    return {"body": body, "annotations": {
        "audience": list(notes.get("audience") or ()), "priority": notes.get("priority"),
        "last_modified": notes.get("lastModified"),
    }}


def _encoded(data: bytes | str) -> str:
    return data if isinstance(data, str) else base64.b64encode(data).decode()


def _block(block: Mapping[str, Any]) -> dict[str, Any]:
    """A content block of the host as in MCP."""
    (kind, value), = block["body"].items()
    if kind == "Text":
        shown: dict[str, Any] = {"type": "text", "text": value}
    elif kind in ("Image", "Audio"):
        shown = {"type": kind.lower(), "data": value["data"], "mimeType": value["mime_type"]}
    elif kind == "Link":
        shown = {"type": "resource_link", **_present(value)}
    else:
        (inner, content), = value["body"].items()
        resource = _present({"uri": value["uri"], "mime_type": value["mime_type"]})
        shown = {"type": "resource", "resource": {**resource, "text" if inner == "Text" else "blob": content}}
    if block["annotations"] is not None:
        shown["annotations"] = _present(block["annotations"])
    return shown


def _present(members: Mapping[str, Any]) -> dict[str, Any]:
    names = {"mime_type": "mimeType", "last_modified": "lastModified"}
    return {names.get(name, name): value for name, value in members.items() if value is not None}
