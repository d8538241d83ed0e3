"""The running call: its context, progress and cancellation."""

from typing import Any

from . import _host, _json
from .errors import failed


def progress(message: str, percent: float | None = None, audience: str = "user") -> None:
    """Reports progress; `percent` is 0 to 100, `audience` is ``user``, ``internal`` or ``dashboard``."""
    _host.context.progress(str(message), percent, _host.context.Audience[audience.upper()])


def cancelled() -> bool:
    """True once the caller has cancelled the call. Poll it in long loops."""
    return _host.context.cancelled()


def check_cancelled() -> None:
    """Raises once the caller has cancelled the call. Use it in long loops."""
    if cancelled():
        raise failed("the call was cancelled", "cancelled")


def budget_chars() -> int:
    """How many characters the result's text may have before the host truncates it."""
    return _host.context.budget_chars()


def remaining_ms() -> int | None:
    """Milliseconds until the deadline of the call."""
    return _host.context.remaining_ms()


def dry_run() -> bool:
    """True for a dry run: describe the effect and do nothing."""
    return _host.context.dry_run()


def call_id() -> str:
    """Id of this call."""
    return _host.context.call_id()


def session_id() -> str | None:
    """Id of the session."""
    return _host.context.session_id()


def session_key() -> str | None:
    """The readable key of the session, such as ``cli:my-repo``."""
    return _host.context.session_key()


def platform() -> str | None:
    """The channel of the conversation: ``cli``, ``mcp``, …"""
    return _host.context.platform()


def working_dir() -> str | None:
    """The directory to which relative paths refer."""
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
    """The number of messages in the session."""
    return _host.context.message_count()


def attribute(name: str) -> Any:
    """An attribute that the host defined (``memory-scope``, ``traceparent``, …), or None."""
    text = _host.context.attribute(name)
    return None if text is None else _json.parse(text)
