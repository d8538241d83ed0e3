"""A fake host in ordinary Python for tests of tools.

    with FakeHost(files={"a.csv": "1,2"}) as fake:
        assert fake.call("total", {"path": "a.csv"}).value == "3"

``python -m toolbay_sdk.testing`` runs the tests of a project, as ``python -m unittest discover`` does.
"""

import json
import sys
import unittest
from typing import Any, Callable

from . import _fake, _former_name
from ._output import Output
from ._tool import PLUGIN

HttpResponse = _fake.http.HttpResponse
Completed = _fake.process.Completed


class FakeHost:
    """A host for tests. It grants only what it was given."""

    def __init__(
        self, *, files: dict[str, str | bytes] | None = None, kv: dict[str, bytes] | None = None,
        config: dict[str, Any] | None = None, secrets: dict[str, str] | None = None,
        http: Callable[[Any], Any] | None = None, process: Callable[[Any], Any] | None = None,
        tools: dict[str, Callable[[dict[str, Any]], Any]] | None = None, cancel_after: int | None = None, budget_chars: int = 80_000, dry_run: bool = False,
        attributes: dict[str, Any] | None = None,
    ):
        encoded = {path: (data.encode() if isinstance(data, str) else data, 1) for path, data in (files or {}).items()}
        self.files = None if files is None else encoded
        self.kv, self.secrets, self.http, self.process = kv, secrets, http, process
        #: Callable tools: each returns its text, or text and data.
        self.tools = tools
        self.config, self.attributes = config or {}, attributes or {}
        self.cancel_after, self.budget_chars, self.dry_run = cancel_after, budget_chars, dry_run
        #: Reported progress: message, percent, audience.
        self.progress: list[tuple[str, float | None, str]] = []
        #: Log lines: level, message, fields.
        self.log: list[tuple[str, str, dict[str, str]]] = []
        #: Calls of other tools: name, arguments.
        self.invocations: list[tuple[str, dict[str, Any]]] = []
        self._before: list[Any] = []

    def __enter__(self) -> "FakeHost":
        self._before.append(_fake.current)
        _fake.current = self
        return self

    def __exit__(self, *_: object) -> None:
        _fake.current = self._before.pop()

    def call(self, name: str, args: dict[str, Any] | None = None) -> Output:
        """Calls a tool as the host does, without the check against the schema. Raises the tool's exceptions."""
        with self:
            return PLUGIN.call(name, json.dumps(args or {}))


def describe(name: str) -> dict[str, Any]:
    """The definition of a tool, with parsed schemas."""
    tool = PLUGIN.tools[name]
    described = {key: getattr(tool, key) for key in ("name", "title", "description", "toolset", "tags", "traits", "needs")}
    output = None if tool.output_schema is None else json.loads(tool.output_schema)
    return described | {"input_schema": json.loads(tool.input_schema), "output_schema": output}


def main() -> None:
    """Runs the tests of the current folder, and ends the process with their exit code."""
    # Last: a test may import the host, if this Python has it.
    sys.meta_path.append(_former_name.FormerNameFinder())
    unittest.main(module=None, argv=["python -m unittest", "discover"])


if __name__ == "__main__":
    main()
