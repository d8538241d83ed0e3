"""Tools, calls and results in the formats of model vendors: ``openai-chat``, ``openai-responses``, ``anthropic``, ``gemini``
and ``mcp``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import _bridge, _json
from ._host import View
from ._results import CallResult, ToolCall
from .errors import check_type

__all__ = ["parse_calls", "result_messages", "view_definitions"]


def view_definitions(vendor: str, view: View, *, strict: bool = False) -> list[Any]:
    """The tools of a view, for the field `tools` of a request. With `strict`, the vendor constrains the arguments of each
    tool whose schema it can express."""
    check_type(view, View, "a view is made by `host.view()`")
    definitions = _bridge.query("definitions", vendor=vendor, view=view._number, strict=strict)
    tools: list[Any] = definitions["tools"]
    return tools


def parse_calls(vendor: str, message: Any) -> list[ToolCall]:
    """The calls in a response, message or list of calls: plain data, or an object of the vendor's library."""
    try:
        plain = _plain(message)
    except RecursionError:
        raise ValueError("the message is nested too deeply, or contains itself") from None
    calls = _bridge.query("parse_calls", _json.encode(plain), vendor=vendor)
    return [ToolCall(call["id"], call["tool"], call["args"]) for call in calls]


def result_messages(vendor: str, results: Sequence[CallResult]) -> list[Any]:
    """The messages that follow the model's message: one result for each call."""
    documents = _json.encode([_document_of(result) for result in results])
    messages: list[Any] = _bridge.query("result_messages", documents, vendor=vendor)
    return messages


def _document_of(result: CallResult) -> dict[str, Any]:
    check_type(result, CallResult, "a result is made by `host.call_all` or `host.stream`")
    return result._document


def _plain(message: Any) -> Any:
    """Plain data of an object of a vendor's library, which is a model of pydantic."""
    if hasattr(message, "model_dump"):
        return message.model_dump(mode="json")
    if isinstance(message, Mapping):
        return {key: _plain(value) for key, value in message.items()}
    if isinstance(message, (list, tuple)):
        return [_plain(item) for item in message]
    return message
