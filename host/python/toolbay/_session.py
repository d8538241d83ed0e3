"""Sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _bridge, _options


class Session:
    """A conversation: its budgets, approvals and saved outputs. A `name` continues one after a restart."""

    def __init__(
        self, name: str | None = None, *, id: str | None = None, max_calls: int | None = None,
        max_identical_calls: int | None = None, max_calls_per_turn: int | None = None,
        max_identical_calls_per_turn: int | None = None, max_cost_usd: float | None = None,
    ) -> None:
        texts = {"name": name, "id": id}
        counts = {
            "max_calls": max_calls, "max_identical_calls": max_identical_calls, "max_calls_per_turn": max_calls_per_turn,
            "max_identical_calls_per_turn": max_identical_calls_per_turn,
        }
        self._number: int = _bridge.query(
            "session", **{option: _options.text(option, value) for option, value in texts.items()},
            **{option: _options.count(option, value) for option, value in counts.items()},
            max_cost_usd=_options.amount("max_cost_usd", max_cost_usd),
        )

    @property
    def id(self) -> str:
        """The id, which plugins get and the audit names."""
        return str(self._usage()["id"])

    @property
    def calls(self) -> int:
        """The calls so far."""
        return int(self._usage()["calls"])

    @property
    def cost_usd(self) -> float:
        """What the calls cost so far, in US dollars."""
        return float(self._usage()["cost_usd"])

    def _usage(self) -> dict[str, Any]:
        usage: dict[str, Any] = _bridge.query("session_usage", session=self._number)
        return usage

    def __del__(self, release: Callable[[int], None] = _bridge.release) -> None:
        number = getattr(self, "_number", None)
        if number is not None:
            release(number)
