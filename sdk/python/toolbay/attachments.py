"""Files of the conversation turn, and files that the tool returns."""

from typing import Any

from . import _host
from .errors import ToolError, failed, not_available


def all() -> list[Any]:
    """Lists the attachments of the turn: ``.id``, ``.name``, ``.mime_type``, ``.size``."""
    return _host.attachments.all()


def read(id: str) -> bytes:
    """Reads an attachment."""
    return _host.asked(lambda: _host.attachments.read(id), lambda case, value: _describe(id, case, value))


def create(name: str, mime_type: str, data: str | bytes) -> Any:
    """Stores a new attachment; link to it with ``attachment:<id>``."""
    raw = data.encode() if isinstance(data, str) else bytes(data)
    ask = lambda: _host.attachments.create(name, mime_type, raw)  # noqa: E731
    return _host.asked(ask, lambda case, value: _describe(name, case, value))


def _describe(name: str, case: str, value: Any) -> ToolError:
    match case:
        case "Denied":
            return not_available(f"no access to the attachment `{name}`: {value}", "denied")
        case "NotFound":
            return failed(f"no attachment `{name}`", "not-found")
        case "TooLarge":
            return failed(f"the attachment `{name}` is too large: {value} bytes", "too-large")
        case _:
            return failed(f"the attachment `{name}`: {value}")
