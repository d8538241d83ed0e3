"""The programs of the documentation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support import HostTest


class Page(HostTest):
    def test_the_program_of_the_page_runs_and_has_the_right_types(self) -> None:
        page = Path(os.environ["TOOLBAY_TEST_PAGE"]).read_text()
        _, *blocks = page.split("\n```python\n")
        self.assertEqual(len(blocks), 1)
        program = self.folder / "program.py"
        program.write_text(blocks[0].partition("\n```")[0] + "\n")
        self.text_plugin()
        for command in ([program], ["-m", "mypy", "--strict", "--cache-dir", "/dev/null", program]):
            done = subprocess.run([sys.executable, *command], cwd=self.folder, capture_output=True, text=True, timeout=120)
            self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
            if command == [program]:
                self.assertIn('"count":3', done.stdout)
                self.assertIn("refused", done.stdout)
