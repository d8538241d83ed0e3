"""Tools, calls and results in the formats of model vendors: ``openai-chat``, ``openai-responses``, ``anthropic``, ``gemini``
and ``mcp``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from . import _bridge, _json
from ._host import View
from ._results import CallResult, ToolCall
from .errors import check_type

__all__ = ["parse_calls", "result_messages", "view_definitions"]

# The members that hold the arguments of a call: `input` of Anthropic, `args` of Gemini, `arguments` of the others.
_ARGUMENTS = ("input", "args", "arguments")
# Begins arguments that cannot be written. The reason follows, and the host refuses the call with it.
_UNREADABLE = "\0"


def view_definitions(vendor: str, view: View, *, strict: bool = False) -> list[Any]:
    """The tools of a view, for the field `tools` of a request. With `strict`, the vendor constrains the arguments of each
    tool whose schema it can express."""
    check_type(view, View, "a view is made by `host.view()`")
    definitions = _bridge.query("definitions", vendor=vendor, view=view._number, strict=strict)
    tools: list[Any] = definitions["tools"]
    return tools


def parse_calls(vendor: str, message: Any) -> list[ToolCall]:
    """The calls in a response, message or list of calls: plain data, an object of the vendor's library, or JSON text. If the
    model wrote arguments that JSON cannot express, their call fails with ``input_invalid``; the others run."""
    try:
        plain = _plain(_json.parse(message) if isinstance(message, str) else message)
    except RecursionError:
        raise ValueError("the message is nested too deeply, or contains itself") from None
    calls = _bridge.query("parse_calls", _json.encode(plain), vendor=vendor)
    return [ToolCall(call["id"], call["tool"], call["args"]) for call in calls]


def result_messages(vendor: str, results: Sequence[CallResult]) -> list[Any]:
    """The messages that follow the model's message: one result for each call."""
    documents = [_document_of(result) for result in results]
    messages: list[Any] = _bridge.query("result_messages", _json.encode(documents), vendor=vendor)
    if vendor == "mcp":
        # The host has integers of 64 bits there.
        for message, document in zip(messages, documents):
            structured = (document["output"] or document["failure"])["structured"]
            if structured is not None:
                message["result"]["structuredContent"] = _json.parse(structured)
    return messages


def _document_of(result: CallResult) -> dict[str, Any]:
    check_type(result, CallResult, "a result is made by `host.call_all` or `host.stream`")
    return result._document


def _plain(message: Any) -> Any:
    """Plain data of an object of a vendor's library, which is a model of pydantic, with the arguments of calls as texts. A
    model wrote the values: what JSON lacks costs one call at most, and never the others."""
    if hasattr(message, "model_dump"):
        return _plain(message.model_dump(mode="json"))
    if isinstance(message, Mapping):
        return {key: _member(key, value) for key, value in message.items()}
    if isinstance(message, (list, tuple)):
        return [_plain(item) for item in message]
    if isinstance(message, str):
        return message if message.isascii() else message.encode("utf-8", "replace").decode()
    if isinstance(message, float) and not math.isfinite(message):
        return None
    return message


def _member(key: Any, value: Any) -> Any:
    return _plain(value) if value is None or key not in _ARGUMENTS else _argument_text(value)


def _argument_text(args: Any) -> str:
    """Arguments as JSON text. Models of OpenAI write them as a text."""
    try:
        text = _json.encode(args)
    except (TypeError, ValueError) as error:
        return f"{_UNREADABLE}{error}"
    return args if isinstance(args, str) else text
