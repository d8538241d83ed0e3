"""Vendors packages from PyPI: ``python -m toolbay_sdk.packages pyproject.toml target/packages``.

pip resolves for the Python inside a component, and installs wheels only, so that no package runs code here. A component
holds no native code: a package without a wheel of pure Python is refused by name.
"""

import argparse
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from .build import Failed, read_project

# The Python that componentize-py puts into a component, for the environment markers of packages.
GUEST = {
    "implementation_name": "cpython", "implementation_version": "3.14.0", "os_name": "posix",
    "platform_machine": "wasm32", "platform_python_implementation": "CPython", "platform_release": "0.0.0",
    "platform_system": "wasi", "platform_version": "0.0.0", "python_full_version": "3.14.0",
    "python_version": "3.14", "sys_platform": "wasi",
}

# pip evaluates markers for the Python that runs it; it has an option for the tags of wheels only.
RUN = f"""\
import runpy, sys
from pip._vendor.packaging import markers
markers.default_environment = lambda: dict({GUEST!r})
sys.argv[0] = "pip"
runpy.run_module("pip", run_name="__main__")
"""

# `--only-binary` keeps pip from running the build of a package.
WHEELS = ["--only-binary=:all:", f"--python-version={GUEST['python_version']}", "--ignore-installed", "--no-compile"]
PURE = [*WHEELS, "--implementation=py", "--abi=none", "--platform=any"]
# The wheels of a common platform: with them pip finds the versions that the author means, and native ones are named.
NATIVE = [*WHEELS, "--implementation=cp", "--abi=cp314", "--abi=abi3", "--abi=none", "--platform=any"]
NATIVE += [f"--platform=manylinux{age}_x86_64" for age in ("1", "2014", "_2_17", "_2_28", "_2_34")]

# Options of a requirements file that say where packages come from.
SOURCES = ("-i", "-f", "--index-url", "--extra-index-url", "--find-links", "--no-index", "--trusted-host", "--pre")
BINARY = {".so", ".pyd", ".dylib", ".dll"}


def main() -> int:
    """Runs the command line and returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m toolbay_sdk.packages", description="Vendor the packages of a plugin.")
    parser.add_argument("manifest", type=Path, help="a requirements.txt, or a pyproject.toml")
    parser.add_argument("folder", type=Path, help="where to put the packages")
    options = parser.parse_args()
    try:
        vendor(options.manifest.resolve(), options.folder.resolve())
    except Failed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def vendor(manifest: Path, folder: Path) -> None:
    """Makes the folder hold the packages of the manifest. Does nothing if it holds them already."""
    lines = requirements(manifest)
    wanted = "\n".join([GUEST["python_version"], *lines, ""])
    stamp = folder / "wanted.txt"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return
    shutil.rmtree(folder, ignore_errors=True)
    if not lines:
        return
    with tempfile.TemporaryDirectory(prefix="toolbay-packages-") as temporary:
        scratch = Path(temporary)
        listed = scratch / "requirements.txt"
        listed.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        found = resolve(scratch, listed, manifest)
        refuse_native(scratch, found, [line for line in lines if line.startswith(SOURCES)], manifest)
        locked = scratch / "locked.txt"
        # Required hashes already fix every version, and a constraint would need them as well.
        hashed = any("--hash" in line for line in lines)
        locked.write_text("" if hashed else "".join(f"{one.pin}\n" for one in found), encoding="utf-8")
        new = scratch / "new"
        new.mkdir()
        pip("install", *PURE, "--target", str(new), "-r", str(listed), "-c", str(locked), folder=manifest.parent)
        refuse_binaries(new)
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(new, folder)
    print(f"packages: {', '.join(one.pin for one in found)}", file=sys.stderr)
    stamp.write_text(wanted, encoding="utf-8")


def requirements(manifest: Path) -> list[str]:
    """The requirements of a manifest, without comments. The SDK is no package of PyPI."""
    if manifest.suffix == ".toml":
        lines = read_project(manifest)[0].get("dependencies", [])
    else:
        lines = included(manifest)
    for line in lines:
        # Only a wheel has no build that would run.
        path = line.split(" --hash")[0].split(";")[0].strip()
        tree = line.startswith(("-e", "--editable")) or path.startswith((".", "/")) or (" @ " in path or "://" in path)
        if tree and not line.startswith(SOURCES) and not path.split("#")[0].endswith(".whl"):
            raise Failed(f"`{manifest.name}`: `{line}` names sources, whose build would run their code; name a wheel or a version")
        if re.match(r"toolbay(?![\w.-])", line, re.IGNORECASE):
            raise Failed(
                f"`{manifest.name}`: `{line}` is the host, which no plugin contains; the SDK for plugins is `toolbay-sdk`, "
                "with `import toolbay_sdk`"
            )
    return [line for line in lines if not re.match(r"toolbay[-_.]+sdk(?![\w.-])", line, re.IGNORECASE)]


def included(path: Path) -> list[str]:
    """The lines of a requirements file and of those that it includes, each with its continuation."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Failed(f"`{path}` cannot be read: {error.strerror}") from error
    lines: list[str] = []
    for line in text.replace("\\\n", " ").splitlines():
        line = re.sub(r"(^|\s)#.*", "", line).strip()
        if other := re.match(r"(-r|--requirement|-c|--constraint)[ =]*(.+)", line):
            file = (path.parent / other[2]).resolve()
            lines += included(file) if other[1] in ("-r", "--requirement") else [f"-c {file}"]
        elif line:
            lines.append(" ".join(line.split()))
    return lines


class Package:
    """A package that pip chose."""

    def __init__(self, chosen: dict[str, Any]) -> None:
        metadata = chosen["metadata"]
        self.name = re.sub(r"[-_.]+", "-", metadata["name"]).lower()
        self.pin = f"{self.name}=={metadata['version']}"
        self.pure = chosen["download_info"]["url"].split("#")[0].endswith("-none-any.whl")
        needs = (re.match(r"[\w.-]+", need) for need in metadata.get("requires_dist", []))
        self.needs = {re.sub(r"[-_.]+", "-", need[0]).lower() for need in needs if need}


def resolve(scratch: Path, listed: Path, manifest: Path) -> list[Package]:
    """The packages that the requirements and their dependencies need, native ones included."""
    report = scratch / "report.json"
    target = ["--dry-run", "--target", str(scratch / "none"), "--report", str(report)]
    pip("install", *NATIVE, *target, "-r", str(listed), folder=manifest.parent)
    chosen = json.loads(report.read_text(encoding="utf-8"))["install"]
    return sorted(map(Package, chosen), key=lambda one: one.name)


def refuse_native(scratch: Path, found: list[Package], sources: list[str], manifest: Path) -> None:
    """Refuses the packages whose version has no wheel of pure Python, all at once."""
    options = scratch / "sources.txt"
    options.write_text("".join(f"{line}\n" for line in sources), encoding="utf-8")
    native = []
    for one in found:
        target = ["--dry-run", "--no-deps", "--target", str(scratch / "none"), "-r", str(options), one.pin]
        if one.pure or run_pip("install", *PURE, *target, folder=manifest.parent).returncode == 0:
            continue
        users = ", ".join(other.name for other in found if one.name in other.needs)
        native.append(f"{one.pin}{f' (for {users})' if users else ''}")
    if native:
        raise Failed(native_error(native))


def refuse_binaries(folder: Path) -> None:
    """Refuses packages whose wheel claims to be pure and has compiled modules."""
    native = []
    for record in sorted(folder.glob("*.dist-info/RECORD")):
        files = (line.split(",")[0] for line in record.read_text(encoding="utf-8").splitlines())
        if any(Path(file).suffix in BINARY for file in files):
            native.append("==".join(record.parent.name.removesuffix(".dist-info").split("-", 1)))
    if native:
        raise Failed(native_error(native))


def native_error(packages: list[str]) -> str:
    """The error for packages with native code."""
    lines = "".join(f"\n  {one}" for one in packages)
    return (
        f"a component runs pure Python only, and these packages have compiled modules:{lines}\n"
        "Replace each with a package of pure Python, or pin a version that has a wheel `py3-none-any`"
    )


def pip(*arguments: str, folder: Path) -> None:
    """Runs pip and refuses with its errors."""
    done = run_pip(*arguments, folder=folder)
    if done.returncode == 0:
        return
    if missing := re.search(r"No matching distribution found for (\S+)", done.stderr):
        raise Failed(
            f"`{missing[1]}` has no wheel for Python {GUEST['python_version']}: no such version exists, or only its sources are "
            "published, whose build would run their code; pin a version with a wheel `py3-none-any`"
        )
    raise Failed(f"pip: {done.stderr.replace('ERROR: ', '').strip()}")


def run_pip(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs the pip of this Python, with the settings of its user."""
    if importlib.util.find_spec("pip") is None:
        python = Path(sys.executable).name
        raise Failed(f"pip is missing, which fetches the packages of the plugin: install it with `{python} -m ensurepip`")
    command = [sys.executable, "-I", "-c", RUN, *arguments, "--quiet", "--disable-pip-version-check", "--no-input"]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


if __name__ == "__main__":
    sys.exit(main())
