"""Builds the component of a plugin: ``python -m toolbay.build plugin.py -o plugin.wasm``.

The module is run once here, so that what is wrong with it is said now; then it is put into a CPython that has already
imported it when a call comes.
"""

import argparse
import importlib
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from ._tool import PLUGIN

SDK = Path(__file__).resolve().parent
COMPONENTIZE = "componentize-py==0.25.1"

# The package has no `__main__`; its command may not be on the path.
RUN = "import sys, componentize_py; sys.exit(componentize_py.script())"

ENTRY = """\
import toolbay._preload
import {module}
from toolbay._exports import {classes}

About.info = {info!r}
"""


def main() -> int:
    """Runs the command line and returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m toolbay.build", description="Make a component of a plugin.")
    parser.add_argument("plugin", type=Path, help="the plugin's module, PLUGIN.py")
    parser.add_argument("-o", "--output", type=Path, required=True, help="where to put the component")
    parser.add_argument("-p", "--path", type=Path, action="append", default=[], help="a folder with packages it imports")
    options = parser.parse_args()
    try:
        build(options.plugin.resolve(), options.output.resolve(), [path.resolve() for path in options.path])
    except Failed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{options.output}: {-(-options.output.stat().st_size // 1024)} KiB", file=sys.stderr)
    return 0


class Failed(Exception):
    """A mistake of the author."""


def build(plugin: Path, output: Path, paths: list[Path]) -> None:
    """Builds one component."""
    if not plugin.is_file():
        raise Failed(f"`{plugin}` does not exist")
    if not plugin.stem.isidentifier():
        raise Failed(f"`{plugin.name}` cannot be imported: let its name be letters, digits and `_`")
    made = evaluated(plugin, paths)
    names = ["about"]
    names += ["tools"] if made.tools else []
    names += ["reducers"] if made.reducers else []
    names += ["availability"] if made.available and made.tools else []
    if len(names) == 1:
        raise Failed(f"`{plugin.name}` has no tools: decorate a function with `@tool`")
    with tempfile.TemporaryDirectory(prefix="toolbay-py-") as folder:
        componentize(Path(folder), plugin, output, paths, sorted(names), about_of(plugin))


def evaluated(plugin: Path, paths: list[Path]) -> Any:
    """Loads the plugin in this Python, with a host that grants nothing."""
    sys.path[:0] = [str(plugin.parent), *map(str, paths)]
    from toolbay import _tool

    try:
        importlib.import_module(plugin.stem)
    except Exception as error:
        at = next((frame for frame in reversed(traceback.extract_tb(error.__traceback__))
                   if Path(frame.filename).resolve() == plugin), None)
        where = f"{plugin.name}:{at.lineno}: " if at else ""
        raise Failed(f"{where}{type(error).__name__}: {error}") from error
    return _tool.PLUGIN


def componentize(
    folder: Path, plugin: Path, output: Path, paths: list[Path], names: list[str], info: dict[str, str | None]
) -> None:
    """Runs componentize-py on an entry module, in a world with exactly the exports of the plugin."""
    if not has_componentize():
        raise Failed(f"componentize-py is missing: install it with `{Path(sys.executable).name} -m pip install {COMPONENTIZE}`")
    sealed = "tools" not in names
    calls = any(need.kind == "invoke" for tool in PLUGIN.tools.values() for need in tool.needs)
    wit = folder / "wit"
    shutil.copytree(SDK / "wit", wit / "deps/toolbay")
    (wit / "built.wit").write_text(world(names, sealed, calls))
    classes = ", ".join(name.capitalize() for name in names)
    code = folder / "code"
    code.mkdir()
    (code / "toolbay_entry.py").write_text(ENTRY.format(module=plugin.stem, classes=classes, info=info))
    command = [sys.executable, "-c", RUN, "--quiet", "--features", "tool-invoke", "--wit-path", str(wit), "--world", "built", "componentize"]
    command += ["--stub-wasi"] if sealed else []
    for path in (code, plugin.parent, SDK.parent, *paths):
        command += ["--python-path", str(path)]
    output.parent.mkdir(parents=True, exist_ok=True)
    run([*command, "toolbay_entry", "--output", str(output)])


def run(command: list[str]) -> None:
    """Runs componentize-py and shows its output if it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"componentize-py: {done.stderr.strip() or done.stdout.strip()}")


def has_componentize() -> bool:
    """Whether this Python has componentize-py."""
    return importlib.util.find_spec("componentize_py") is not None


def world(names: list[str], sealed: bool, calls: bool = False) -> str:
    """A world with the exports of a plugin. A plugin with reducers only must not import anything; one whose tools call no
    tools should load in hosts without `tool-invoke`."""
    lines = [] if sealed else [f"  include toolbay:plugin/imports{'-of-callers' if calls else ''}@0.1.0;"]
    lines += [f"  export toolbay:plugin/{name}@0.1.0;" for name in names]
    return "package toolbay:built;\n\nworld built {\n" + "\n".join(lines) + "\n}\n"


def about_of(plugin: Path) -> dict[str, str | None]:
    """The metadata of the nearest `pyproject.toml`."""
    project: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for folder in plugin.parents:
        if (folder / "pyproject.toml").is_file():
            project, own = read_project(folder / "pyproject.toml")
            break
    urls = {key.lower(): value for key, value in project.get("urls", {}).items()}
    licence = project.get("license")
    return {
        "name": project.get("name", plugin.stem), "version": project.get("version", "0.0.0"),
        "description": project.get("description"),
        "authors": ", ".join(author.get("name", "") for author in project.get("authors", [])) or None,
        "license": licence.get("text") if isinstance(licence, dict) else licence,
        "homepage": urls.get("homepage"), "source": urls.get("source") or urls.get("repository"),
        "config_schema": json.dumps(own["config"]) if "config" in own else None,
        "meta": json.dumps({"reusable": True}) if own.get("reusable") is True else None,
    }


def read_project(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tables `project` and `tool.toolbay` of a `pyproject.toml`. In the latter: `config`, a schema of the operator's
    settings, and `reusable`, whether one instance may answer several calls."""
    try:
        import tomllib
    except ImportError:
        raise Failed("Python 3.11 or later is needed") from None
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise Failed(f"`{path}`: {error}") from error
    return document.get("project", {}), document.get("tool", {}).get("toolbay", {})


if __name__ == "__main__":
    sys.exit(main())
