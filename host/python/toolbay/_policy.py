"""Policies."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from . import _bridge, _options
from .errors import check_type


class Policy:
    """What an operator grants. `Policy.read`, `Policy.parse` and `Policy.deny_all` make one; a mistake is a `HostError` of
    the kind ``policy`` with file, line and key."""

    def __init__(self, source: dict[str, Any]) -> None:
        self._source = source

    @classmethod
    def read(cls, file: str | os.PathLike[str]) -> Policy:
        """Reads a file. Relative paths in it mean the folder of the file."""
        path = _options.required_path("file", file)
        text = _bridge.query("policy", policy={"file": path})
        return cls({"file": path, "text": text, "base": os.path.dirname(os.path.realpath(path))})

    @classmethod
    def parse(cls, policy: str | Mapping[str, Any], *, base: str | os.PathLike[str]) -> Policy:
        """Parses a text in TOML, or a mapping of its tables. Relative paths mean the folder `base`."""
        check_type(policy, (str, Mapping), "a policy is a text or a mapping of its tables")
        source = {"text" if isinstance(policy, str) else "table": policy, "base": _options.required_path("base", base)}
        _bridge.query("policy", policy=source)
        return cls(source)

    @classmethod
    def deny_all(cls, base: str | os.PathLike[str]) -> Policy:
        """A policy that grants nothing. `base` is the workspace."""
        return cls({"base": _options.required_path("base", base)})
