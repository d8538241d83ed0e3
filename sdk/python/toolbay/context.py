"""The call that is running: what may be known about it, and the two things it may always do."""

from typing import Any

from . import _host, _json
from .errors import failed


def progress(message: str, percent: float | None = None, audience: str = "user") -> None:
    """Reports progress; `percent` is 0 to 100, `audience` is ``user``, ``internal`` or ``dashboard``."""
    _host.context.progress(str(message), percent, _host.context.Audience[audience.upper()])


def cancelled() -> bool:
    """True once the caller gave up. Poll it in long loops."""
    return _host.context.cancelled()


def check_cancelled() -> None:
    """Raises once the caller gave up; for long loops."""
    if cancelled():
        raise failed("the call was cancelled", "cancelled")


def budget_chars() -> int:
    """Characters the result's text may have before the host cuts it."""
    return _host.context.budget_chars()


def remaining_ms() -> int | None:
    """Milliseconds left before the host ends the call."""
    return _host.context.remaining_ms()


def dry_run() -> bool:
    """True: say what would be done, do nothing."""
    return _host.context.dry_run()


def call_id() -> str:
    """Id of this call."""
    return _host.context.call_id()


def session_id() -> str | None:
    """Id of the session."""
    return _host.context.session_id()


def session_key() -> str | None:
    """The session's key for people, such as ``cli:my-repo``."""
    return _host.context.session_key()


def platform() -> str | None:
    """Where the conversation takes place: ``cli``, ``mcp``, …"""
    return _host.context.platform()


def working_dir() -> str | None:
    """Directory that relative paths are meant against."""
    return _host.context.working_dir()


def agent_id() -> str | None:
    """Id of the acting agent."""
    return _host.context.agent_id()


def personality_id() -> str | None:
    """Id of the agent's personality."""
    return _host.context.personality_id()


def team_id() -> str | None:
    """Id of the agent's team."""
    return _host.context.team_id()


def turn() -> int | None:
    """Turn of the session, counted from 1."""
    return _host.context.turn()


def message_count() -> int | None:
    """How many messages the session has."""
    return _host.context.message_count()


def attribute(name: str) -> Any:
    """An attribute that the host defined (``memory-scope``, ``traceparent``, …), or None."""
    text = _host.context.attribute(name)
    return None if text is None else _json.parse(text)
