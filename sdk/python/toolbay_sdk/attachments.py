"""Files of the conversation turn, and files that the tool returns."""

from typing import Any

from . import _host


def all() -> list[Any]:
    """Lists the attachments of the turn: ``.id``, ``.name``, ``.mime_type``, ``.size``."""
    return _host.attachments.all()


def read(id: str) -> bytes:
    """Reads an attachment."""
    return _host.asked("attachments", id, lambda: _host.attachments.read(id))


def create(name: str, mime_type: str, data: str | bytes) -> Any:
    """Stores a new attachment; link to it with ``attachment:<id>``."""
    raw = data.encode() if isinstance(data, str) else bytes(data)
    return _host.asked("attachments", name, lambda: _host.attachments.create(name, mime_type, raw))
