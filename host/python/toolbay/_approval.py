"""Approval of calls by a person."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, TypeAlias

from . import _json

ApprovalReply: TypeAlias = (
    Literal["yes", "always", "deferred", "no"] | tuple[Literal["no"], str]
)
"""The answer of an approver: ``yes``, ``always`` (for the rest of the session), ``deferred`` (the answer comes with the next
attempt), ``no``, or ``("no", comment)``."""


@dataclasses.dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A call that needs approval. A model wrote `args`."""

    call_id: str
    tool: str
    source: str
    #: Who asks: `client`, `agent`, `platform`, `session`, `profile`, as far as they are known.
    caller: dict[str, str]
    args: Any
    #: The beginning of the arguments as JSON, for people.
    preview: str
    #: SHA-256 of all arguments.
    args_sha256: str
    reason: str

    @classmethod
    def _of(cls, document: dict[str, Any]) -> ApprovalRequest:
        return cls(**{**document, "args": _json.parse(document["args"])})


def answer_of(value: Any) -> tuple[str, str | None]:
    """The answer and the comment of what an approver returned."""
    answer, comment = value if isinstance(value, tuple) and len(value) == 2 else (value, None)
    if answer not in ("yes", "always", "deferred", "no") or not (comment is None or isinstance(comment, str)):
        raise TypeError(f"an approver returns \"yes\", \"always\", \"deferred\", \"no\" or (\"no\", comment), not {value!r}")
    if comment is not None and answer != "no":
        raise TypeError(f"only \"no\" has a comment, not {value!r}")
    return str(answer), comment
