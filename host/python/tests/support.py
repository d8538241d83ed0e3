"""What the tests share: a host with the plugin `text`, and programs in processes of their own."""

from __future__ import annotations

import base64
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

BEGIN = """
    import asyncio, os, signal, sys, threading, time
    from toolbay import Host, HostError, Policy, ToolCall, tool
    # A shell ignores SIGINT for what it runs in the background, and Python then does, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    policy = Policy.deny_all(sys.argv[1])
    state = os.path.join(sys.argv[1], "state")

    @tool
    async def wait() -> None:
        '''Wait.'''
        print("waiting", flush=True)
        await asyncio.Event().wait()
"""
"""What programs in processes of their own begin with. Their first argument is the folder of the test."""

TRAPS = base64.b64decode(
    "AGFzbQ0AAQABSQBhc20BAAAAAQQBYAAAAwUEAAAAAAUDAQABBxEEAW4AAAF0AAEBZAACAW8AAwoaBAIACwMAAAsIAEEBQQBtGgsIAEF4KAIAGg"
    "sCBAEAAAAHBQFAAAEABgcBAAABAAFuCAYBAAAAAAAHBQFAAAEABgcBAAABAAF0CAYBAAABAAEHBQFAAAEABgcBAAABAAFkCAYBAAACAAIHBQFA"
    "AAEABgcBAAABAAFvCAYBAAADAAMLKAQABHJlc3QBAAAABHN0b3ABAQAABmRpdmlkZQECAAAFcmVhY2gBAwA="
)
"""A component with the function ``rest``, which does nothing, and three that trap: ``stop`` is ``unreachable``, ``divide``
divides by zero, ``reach`` loads from outside of its memory."""


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


class ProgramTest(HostTest):
    """A test with programs in processes of their own."""

    def run_in_folder(self, source: str, begin: str = BEGIN) -> tuple[int, str, str]:
        """Runs a program. Returns its exit code, its output and its errors."""
        done = run_program(textwrap.dedent(begin) + textwrap.dedent(source), self.folder, CACHE)
        return done.returncode, done.stdout, done.stderr

    def traps(self) -> Path:
        """A folder with the plugin `traps`."""
        plugins = self.folder / "traps"
        plugins.mkdir()
        (plugins / "traps.wasm").write_bytes(TRAPS)
        return plugins


async def call(host: Host, tool: str, args: dict[str, Any] | str = "{}", **options: Any) -> toolbay.CallResult:
    """Calls one tool."""
    return (await host.call_all(host.view(), [ToolCall("1", tool, args)], **options))[0]


def run_program(source: str, *args: object, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Runs a program in a Python of its own."""
    command = [sys.executable, "-c", textwrap.dedent(source), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)
