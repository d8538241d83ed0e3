"""Builds the component of a plugin: ``python -m toolbay_sdk.build plugin.py -o plugin.wasm``.

The module is run once here, so that what is wrong with it is said now; then it is put into a CPython that has already
imported it when a call comes. With ``--dev FOLDER``, the CPython is built once, with the packages that the plugin
imports; the plugin's own modules are written into it and are imported in each instance.
"""

import argparse
import ast
import hashlib
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

SDK = Path(__file__).resolve().parent
COMPONENTIZE = "componentize-py==0.25.1"

# The package has no `__main__`; its command may not be on the path.
RUN = "import sys, componentize_py; sys.exit(componentize_py.script())"

ENTRY = """\
import toolbay_sdk._preload
import {module}
from toolbay_sdk._exports import {classes}

About.info = {info!r}
"""

# A development build: an import that fails here fails again in the plugin, which says where.
INTERPRETER = """\
import importlib
import toolbay_sdk._preload
import toolbay_sdk._bundle
from toolbay_sdk._exports import {classes}, LOAD

for name in {imports!r}:
    try:
        importlib.import_module(name)
    except Exception:
        pass
toolbay_sdk._bundle.LIBRARY.update(toolbay_sdk._bundle.library())
LOAD.append(toolbay_sdk._bundle.load)
"""


def main() -> int:
    """Runs the command line and returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m toolbay_sdk.build", description="Make a component of a plugin.")
    parser.add_argument("plugin", type=Path, help="the plugin's module, PLUGIN.py")
    parser.add_argument("-o", "--output", type=Path, required=True, help="where to put the component")
    parser.add_argument("-p", "--path", type=Path, action="append", default=[], help="a folder with packages it imports")
    parser.add_argument("--dev", type=Path, help="build quickly, with the interpreter in this folder")
    options = parser.parse_args()
    try:
        dev = options.dev.resolve() if options.dev else None
        build(options.plugin.resolve(), options.output.resolve(), [path.resolve() for path in options.path], dev)
    except Failed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{options.output}: {-(-options.output.stat().st_size // 1024)} KiB", file=sys.stderr)
    return 0


class Failed(Exception):
    """A mistake of the author."""


def build(plugin: Path, output: Path, paths: list[Path], dev: Path | None = None) -> None:
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
    names, about = sorted(names), about_of(plugin)
    calls = any(need.kind == "invoke" for tool in made.tools.values() for need in tool.needs)
    wit = world(names, "tools" not in names, calls)
    if dev:
        build_dev(dev, plugin, output, paths, names, about, wit)
        return
    entry = ENTRY.format(module=plugin.stem, classes=classes(names), info=about)
    componentize(entry, wit, output, [plugin.parent, *paths])


def build_dev(
    dev: Path, plugin: Path, output: Path, paths: list[Path], names: list[str], about: dict[str, str | None], wit: str
) -> None:
    """Writes the plugin's modules into an interpreter, which is built if the plugin needs another one than before."""
    from toolbay_sdk import _bundle

    loaded = list(sys.modules.items())
    own = {name: module for name, module in loaded if is_own(module, plugin.parent, [SDK, *paths])}
    texts = {name: Path(module.__spec__.origin).read_text(encoding="utf-8") for name, module in own.items()}
    statements = (name for text in texts.values() for name in imported(ast.parse(text).body))
    others = {name for name in statements if name not in own and is_module(name)}
    # A new import of these needs no other interpreter, which holds their sources.
    library = {name for name in others if name.partition(".")[0] in {*sys.stdlib_module_names, SDK.name}}
    # A package may import modules by other means than statements, which this Python has done, too.
    packages = others - library | {name for name, module in loaded if is_below(module, paths)}
    entry = INTERPRETER.format(classes=classes(names), imports=sorted(packages | library))
    stamp, interpreter = dev / "made-of.txt", dev / "interpreter.wasm"
    made_of = digest("\n".join([wit, *sorted(packages)]), [SDK, *paths])
    if not interpreter.is_file() or not stamp.is_file() or stamp.read_text() != made_of:
        # Without a stamp, a half-written interpreter is built again.
        stamp.unlink(missing_ok=True)
        componentize(entry, wit, interpreter, paths)
        stamp.write_text(made_of)
    modules = bundled(own, texts, plugin.parent)
    data = _bundle.packed({"plugin": plugin.stem, "about": about, "modules": modules})
    component = bytearray(interpreter.read_bytes())
    at = component.find(_bundle.MARK * (_bundle.SIZE // len(_bundle.MARK)))
    if at < 0:
        raise Failed(f"`{interpreter}` has no place for the plugin: remove the file")
    if len(data) > _bundle.SIZE:
        raise Failed(f"the sources have {len(data)} bytes, compressed, and a development build holds {_bundle.SIZE}: build the release")
    component[at : at + len(data)] = data
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(component)


def source(module: Any) -> Path:
    """The file of a module in Python; `/` for others."""
    origin = Path(getattr(getattr(module, "__spec__", None), "origin", None) or "/")
    return origin if origin.suffix == ".py" else Path("/")


def is_below(module: Any, folders: list[Path]) -> bool:
    """Whether a module is in one of the folders, even by a link to it."""
    files = (source(module), source(module).resolve())
    return any(file.is_relative_to(folder) for file in files for folder in folders)


def is_own(module: Any, folder: Path, others: list[Path]) -> bool:
    """Whether a module is the author's: in the plugin's folder, and not in one of the others."""
    file = source(module)
    return file.is_relative_to(folder) and "site-packages" not in file.parts and not is_below(module, others)


def is_module(name: str) -> bool:
    """Whether an imported name is a module, which this Python may lack, and not a part of one."""
    parent, _, part = name.rpartition(".")
    return name in sys.modules or not hasattr(sys.modules.get(parent), part)


def bundled(own: dict[str, Any], texts: dict[str, str], folder: Path) -> dict[str, tuple[str, bool, str]]:
    """The path of each module, whether it is a package, and its text, by name."""
    parents = {name.rsplit(".", depth)[0] for name in own for depth in range(1, name.count(".") + 1)}
    # A folder without `__init__.py` is a package, too.
    modules = {name: (name.replace(".", "/"), True, "") for name in parents - set(own)}
    for name, module in own.items():
        path = Path(module.__spec__.origin).relative_to(folder).as_posix()
        modules[name] = (path, hasattr(module, "__path__"), texts[name])
    return modules


def imported(body: list[ast.AST]) -> set[str]:
    """The modules that statements import when they run, not those in functions."""
    names: set[str] = set()
    for statement in body:
        if isinstance(statement, ast.Import):
            names |= {alias.name for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            names |= {statement.module, *(f"{statement.module}.{alias.name}" for alias in statement.names)}
        elif not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            # The branches of `if`, `try`, `with`, `for`, `match` and classes.
            inner = [one for part in ("body", "orelse", "handlers", "finalbody", "cases") for one in getattr(statement, part, [])]
            names |= imported(inner)
    return names


def digest(text: str, folders: list[Path]) -> str:
    """A digest of everything that an interpreter is made of: a text, and files."""
    sums = hashlib.sha256(f"{COMPONENTIZE}\n{text}".encode())
    files = (file for folder in folders for file in folder.rglob("*") if file.is_file())
    for file in sorted(file for file in files if file.suffix != ".pyc"):
        sums.update(f"{file}\0".encode() + file.read_bytes())
    return sums.hexdigest()


def classes(names: list[str]) -> str:
    """The classes with the exports."""
    return ", ".join(name.capitalize() for name in names)


def evaluated(plugin: Path, paths: list[Path]) -> Any:
    """Loads the plugin in this Python, with a host that grants nothing."""
    sys.path[:0] = [str(plugin.parent), *map(str, paths)]
    from toolbay_sdk import _former_name, _tool

    # First: this Python may have the host as a package, which no component holds.
    sys.meta_path.insert(0, _former_name.FormerNameFinder())
    try:
        importlib.import_module(plugin.stem)
    except Exception as error:
        at = next((frame for frame in reversed(traceback.extract_tb(error.__traceback__))
                   if Path(frame.filename).resolve() == plugin), None)
        where = f"{plugin.name}:{at.lineno}: " if at else ""
        raise Failed(f"{where}{type(error).__name__}: {error}") from error
    return _tool.PLUGIN


def componentize(entry: str, wit: str, output: Path, paths: list[Path]) -> None:
    """Runs componentize-py on an entry module, in this world."""
    if not has_componentize():
        raise Failed(f"componentize-py is missing: install it with `{Path(sys.executable).name} -m pip install {COMPONENTIZE}`")
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="toolbay-py-") as temporary:
        folder = Path(temporary)
        shutil.copytree(SDK / "wit", folder / "wit/deps/toolbay")
        (folder / "wit/built.wit").write_text(wit)
        code = folder / "code"
        code.mkdir()
        (code / "toolbay_entry.py").write_text(entry)
        command = [sys.executable, "-c", RUN, "--quiet", "--features", "tool-invoke", "--wit-path", str(folder / "wit")]
        command += ["--world", "built", "componentize"]
        # A world without imports has none of WASI either.
        command += [] if " include " in wit else ["--stub-wasi"]
        for path in (code, SDK.parent, *paths):
            command += ["--python-path", str(path)]
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
