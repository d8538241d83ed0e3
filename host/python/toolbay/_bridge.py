"""The native functions, with the errors that a program sees."""

from __future__ import annotations

from typing import Any

from . import _json, _native
from .errors import HostError


def error_of(document: dict[str, Any]) -> Exception:
    """The exception for an error of the bridge."""
    kind = document["kind"]
    if kind == "argument":
        return ValueError(document["message"])
    return HostError(kind, document["message"], file=document.get("file"), line=document.get("line"),
                     key=document.get("key"))


def query(op: str, payload: str = "", /, **request: Any) -> Any:
    """Asks the bridge a question that it answers at once."""
    try:
        return _json.parse(_native.query(_json.encode({"op": op, **request}), payload))
    except RuntimeError as error:
        failure = error_of(_json.parse(str(error)))
    raise failure


def open_mailbox() -> tuple[int, int]:
    """Opens a mailbox. Returns its number and its socket."""
    try:
        return _native.open_mailbox()
    except RuntimeError as error:
        failure = error_of(_json.parse(str(error)))
    raise failure


def submit(mailbox: int, request: dict[str, Any], payload: bytes = b"") -> int:
    """Begins a request; its answer comes through the mailbox."""
    try:
        return _native.submit(mailbox, _json.write(request), payload)
    except RuntimeError as error:
        failure = error_of(_json.parse(str(error)))
    raise failure


def reply(mailbox: int, question: int, kind: str, /, **answer: Any) -> None:
    """Replies to a question. Once the loop or the host is gone, nobody waits for it. Raises `ValueError` for an answer that
    the host cannot read."""
    text = _json.write({"reply": kind, **answer})
    try:
        _native.reply(mailbox, question, text)
    except RuntimeError as error:
        failure = error_of(_json.parse(str(error)))
    else:
        return
    if isinstance(failure, ValueError):
        raise failure


def release(number: int) -> None:
    """Forgets a view or a session."""
    try:
        _native.release(number)
    except RuntimeError:
        # In a fork, it belongs to the parent.
        pass
