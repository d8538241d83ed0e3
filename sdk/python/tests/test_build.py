"""Errors of the build for bad input."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from toolbay import build

GOOD = '''
from toolbay import tool

@tool
def hello(name: str) -> str:
    """Say hello."""
    return f"hello {name}"
'''


class Build(unittest.TestCase):
    def build(self, text: str | None, name: str = "plugin.py") -> str:
        """The output of the command, which must fail without a traceback."""
        with tempfile.TemporaryDirectory(prefix="toolbay größe ") as folder:
            plugin = Path(folder) / name
            if text is not None:
                plugin.write_text(text)
            command = [sys.executable, "-m", "toolbay.build", str(plugin), "-o", str(Path(folder) / "x.wasm")]
            done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        return done.stderr

    def test_what_is_wrong_is_said(self) -> None:
        undescribed = GOOD.replace('"""Say hello."""', "")
        cases = [
            (None, "does not exist"), ("x = 1", "has no tools: decorate a function with `@tool`"), ("x = = 1", "SyntaxError"),
            ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
            ("x = 1 / 0", "plugin.py:1: ZeroDivisionError"), (undescribed, "plugin.py:4: TypeError: tool `hello`: it needs a docstring"),
            (GOOD + GOOD, "two tools have this name"), (GOOD.replace("name: str", "name"), "the argument `name` has no type hint"),
        ]
        for text, expected in cases:
            self.assertIn(expected, self.build(text))

    def test_a_name_that_is_no_module_is_refused(self) -> None:
        self.assertIn("let its name be letters, digits and `_`", self.build(GOOD, "my-plugin.py"))

    def test_a_missing_toolchain_is_named(self) -> None:
        found = build.has_componentize
        try:
            build.has_componentize = lambda: False
            with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(build.Failed, "pip install componentize-py=="):
                build.componentize(Path(folder), Path("plugin.py"), Path("x.wasm"), [], ["tools"], {})
        finally:
            build.has_componentize = found

    def test_what_only_reduces_imports_nothing(self) -> None:
        self.assertNotIn("imports", build.world(["about", "reducers"], True))
        self.assertIn("include toolbay:plugin/imports@0.1.0;", build.world(["about", "tools"], False))
        self.assertIn("include toolbay:plugin/imports-of-callers@0.1.0;", build.world(["about", "tools"], False, True))

    def test_the_manifest_says_who_made_it(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "pyproject.toml"
            path.write_text('[project]\nname = "n"\nversion = "2"\nauthors = [{name = "A"}, {name = "B"}]\n[tool.toolbay]\nreusable = true\n[tool.toolbay.config]\ntype = "object"\n')
            about = build.about_of(Path(folder) / "src/plugin.py")
            self.assertEqual((about["name"], about["version"], about["authors"], about["config_schema"]), ("n", "2", "A, B", '{"type": "object"}'))
            self.assertEqual(about["meta"], '{"reusable": true}')
            path.write_text("not toml")
            with self.assertRaises(build.Failed):
                build.about_of(Path(folder) / "plugin.py")


if __name__ == "__main__":
    unittest.main()
