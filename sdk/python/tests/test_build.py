"""Errors of the build for bad input."""

import ast
import importlib
import json
import os
import subprocess
import sys
import tempfile
import unittest
import zlib
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from toolbay_sdk import _bundle, build

GOOD = '''
from toolbay_sdk import tool

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
            command = [sys.executable, "-m", "toolbay_sdk.build", str(plugin), "-o", str(Path(folder) / "x.wasm")]
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

    def test_the_former_name_of_the_sdk_is_refused(self) -> None:
        for text in ("from toolbay import tool", "import toolbay.kv"):
            said = self.build(text)
            self.assertTrue("plugin.py:1:" in said and "`toolbay_sdk`" in said, said)

    def test_the_host_is_refused_where_it_is_installed(self) -> None:
        with tempfile.TemporaryDirectory() as packages:
            (Path(packages) / "toolbay.py").write_text("def tool(function): return function")
            with mock.patch.dict(os.environ, {"PYTHONPATH": os.pathsep.join([str(build.SDK.parent), packages])}):
                self.assertIn("`toolbay_sdk`", self.build(GOOD.replace("toolbay_sdk", "toolbay")))

    def test_tests_learn_the_new_name_and_can_use_the_host(self) -> None:
        test = "import unittest, toolbay.host\nclass Test(unittest.TestCase):\n    def test(self): toolbay.host"
        with tempfile.TemporaryDirectory(prefix="toolbay größe ") as folder:
            (Path(folder) / "test_plugin.py").write_text(test)
            command = [sys.executable, "-m", "toolbay_sdk.testing"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("`toolbay_sdk`", done.stderr)
            (Path(folder) / "toolbay").mkdir()
            (Path(folder) / "toolbay/host.py").touch()
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_name_that_is_no_module_is_refused(self) -> None:
        self.assertIn("let its name be letters, digits and `_`", self.build(GOOD, "my-plugin.py"))

    def test_a_missing_toolchain_is_named(self) -> None:
        found = build.has_componentize
        try:
            build.has_componentize = lambda: False
            with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(build.Failed, "pip install componentize-py=="):
                build.componentize("", "", Path(folder) / "x.wasm", [])
        finally:
            build.has_componentize = found

    def test_imports_outside_of_functions_belong_to_the_interpreter(self) -> None:
        text = """
import one, two.three as three
from four import five
from . import own
try:
    import six
except ImportError:
    import seven
class Of:
    if True:
        import eight
def late():
    import nine
"""
        expected = {"one", "two.three", "four", "four.five", "six", "seven", "eight"}
        self.assertEqual(build.imported(ast.parse(text).body), expected)

    def test_a_development_build_imports_the_plugin_from_memory(self) -> None:
        modules = {"bundled": ("bundled/__init__.py", True, "from .inner import answer"),
                   "bundled.inner": ("bundled/inner.py", False, "answer = 42\ndef fail(): raise ValueError")}
        data = _bundle.packed({"plugin": "bundled", "about": {"name": "n"}, "modules": modules})
        before, finders = bytes(_bundle.SPACE), list(sys.meta_path)
        _bundle.SPACE[: len(data)] = data
        try:
            self.assertEqual(_bundle.load(), {"name": "n"})
            module = sys.modules["bundled"]
            self.assertEqual((module.answer, module.inner.__file__), (42, "bundled/inner.py"))
        finally:
            _bundle.SPACE[:] = before
        self.assertEqual(sys.meta_path, finders)
        self.assertEqual(before, _bundle.MARK * (_bundle.SIZE // len(_bundle.MARK)), "the build finds the place")

    def test_an_edit_can_import_the_standard_library_at_the_top_and_nothing_later(self) -> None:
        text = "import only_held\ntry:\n    import nowhere_held\nexcept ImportError:\n    missing = True"
        data = _bundle.packed({"plugin": "edited", "about": {}, "modules": {"edited": ("edited.py", False, text)}})
        before = bytes(_bundle.SPACE)
        _bundle.SPACE[: len(data)] = data
        held = {"only_held": ("only_held.py", False, zlib.compress(b"x = 1")),
                "late_held": ("late_held.py", False, zlib.compress(b""))}
        try:
            with mock.patch.dict(_bundle.LIBRARY, held):
                _bundle.load()
                self.assertEqual((sys.modules["edited"].only_held.x, sys.modules["edited"].missing), (1, True))
                with self.assertRaises(ModuleNotFoundError):
                    importlib.import_module("late_held")
        finally:
            _bundle.SPACE[:] = before

    def test_an_interpreter_holds_the_standard_library(self) -> None:
        library = _bundle.library()
        self.assertTrue(library["json"][1])
        self.assertEqual(zlib.decompress(library["json.decoder"][2]), Path(json.decoder.__file__).read_bytes())
        self.assertIn("toolbay_sdk.testing", library)
        self.assertFalse(any(name.startswith("test.") for name in library))

    def test_an_interpreter_is_built_again_only_for_packages_and_another_world(self) -> None:
        entries = []

        def componentize(entry: str, wit: str, output: Path, paths: list[Path]) -> None:
            entries.append(entry)
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_bytes(b"code" + bytes(_bundle.SPACE))

        def edit(text: str, wit: str) -> int:
            plugin.write_text(text)
            build.build_dev(folder / "dev", plugin, folder / "x.wasm", [], ["tools"], {}, wit)
            self.assertTrue((folder / "x.wasm").read_bytes().startswith(b"code"))
            return len(entries)

        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary).resolve()
            plugin = folder / "edited_plugin.py"
            module = SimpleNamespace(__spec__=SimpleNamespace(origin=str(plugin)))
            with mock.patch.dict(sys.modules, {"edited_plugin": module}), mock.patch.object(build, "componentize", componentize):
                self.assertEqual(edit("import csv", "a"), 1)
                self.assertEqual(edit("import csv, graphlib\nfrom toolbay_sdk import kv, tool", "a"), 1)
                self.assertEqual(edit("import csv, absent", "a"), 2)
                self.assertEqual(edit("import csv, absent", "b"), 3)
        self.assertIn("['absent', 'csv']", entries[1])

    def test_names_in_modules_are_not_modules(self) -> None:
        names = {"json": True, "json.decoder": True, "json.loads": False, "toolbay_sdk.tool": False, "absent": True, "json.absent": True}
        self.assertEqual({name: build.is_module(name) for name in names}, names)

    def test_a_module_of_the_sdk_behind_a_link_is_not_the_authors(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            project = Path(folder).resolve()
            (project / "vendor").mkdir()
            (project / "vendor/toolbay_sdk").symlink_to(build.SDK)
            found = {}
            for file in ("vendor/toolbay_sdk/kv.py", "helper.py"):
                module = SimpleNamespace(__spec__=SimpleNamespace(origin=str(project / file)))
                found[file] = build.is_own(module, project, [build.SDK])
        self.assertEqual(found, {"vendor/toolbay_sdk/kv.py": False, "helper.py": True})

    def test_a_folder_without_init_is_a_package(self) -> None:
        module = SimpleNamespace(__spec__=SimpleNamespace(origin="/project/parts/deep/one.py"))
        expected = {"parts": ("parts", True, ""), "parts.deep": ("parts/deep", True, ""),
                    "parts.deep.one": ("parts/deep/one.py", False, "x = 1")}
        name = "parts.deep.one"
        self.assertEqual(build.bundled({name: module}, {name: "x = 1"}, Path("/project")), expected)

    def test_a_changed_source_changes_what_an_interpreter_is_made_of(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "package.py"
            source.write_text("x = 1")
            before = build.digest("entry", [Path(folder)])
            self.assertEqual(build.digest("entry", [Path(folder)]), before)
            self.assertNotEqual(build.digest("other", [Path(folder)]), before)
            source.write_text("x = 2")
            self.assertNotEqual(build.digest("entry", [Path(folder)]), before)

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
