"""What the tests share: a host with the plugin `text`, and programs in processes of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path
from typing import Any

import toolbay
from toolbay import Host, Policy, ToolCall

# `cargo xtask test python` sets both.
PLUGINS = Path(os.environ.get("TOOLBAY_TEST_PLUGINS", "target/plugins"))
CACHE = Path(os.environ.get("TOOLBAY_TEST_CACHE", tempfile.gettempdir())) / "toolbay-cache"


class HostTest(unittest.IsolatedAsyncioTestCase):
    """A test with a folder of its own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def host(self, **options: Any) -> Host:
        """A host that grants nothing."""
        return Host(Policy.deny_all(self.folder), cache_dir=CACHE, **options)

    def text_plugin(self) -> Path:
        """A folder with the plugin `text`."""
        plugins = self.folder / "plugins"
        plugins.mkdir()
        shutil.copy(PLUGINS / "text.wasm", plugins)
        return plugins

    def audit(self) -> str:
        """The audit in the state directory ``state``."""
        return (self.folder / "state" / "audit.jsonl").read_text()


async def call(host: Host, tool: str, args: dict[str, Any] | str = "{}", **options: Any) -> toolbay.CallResult:
    """Calls one tool."""
    return (await host.call_all(host.view(), [ToolCall("1", tool, args)], **options))[0]


def run_program(source: str, *args: object, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Runs a program in a Python of its own."""
    command = [sys.executable, "-c", textwrap.dedent(source), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)
