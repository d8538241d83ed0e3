"""The author's modules in a development build.

A component of a development build is an interpreter that was built before, with the sources of the plugin written into
`SPACE`. Its code is the same for every edit, so that neither componentize-py nor the host compiles it again. Each
instance imports the plugin when it is entered for the first time, and with it what an edit added from the standard
library.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import sys
import zlib
from pathlib import Path
from typing import Any

# The largest compressed sources, in bytes: about 4 MiB of Python.
SIZE = 1 << 20
# Without zeros, which a component's memory leaves out.
MARK = b"toolbay sources "

SPACE = bytearray(SIZE)
for _at in range(0, SIZE, len(MARK)):
    SPACE[_at : _at + len(MARK)] = MARK

# The sources that an interpreter holds for later imports. To import all of them would run their code, and take the memory
# of every instance.
LIBRARY: dict[str, tuple[str, bool, str | bytes]] = {}
# What no plugin can use.
LEFT_OUT = {"ensurepip", "idlelib", "pydoc_data", "site-packages", "test", "tkinter", "turtledemo"}


def library() -> dict[str, tuple[str, bool, str | bytes]]:
    """Reads the sources of the standard library and of the SDK, and compresses them."""
    modules = {}
    for above, root in (((), Path(json.__file__).parents[1]), (("toolbay_sdk",), Path(__file__).parent)):
        for file in root.rglob("*.py"):
            parts = (*above, *file.relative_to(root).with_suffix("").parts)
            package = parts[-1] == "__init__"
            if parts[0] not in LEFT_OUT:
                name = ".".join(parts[:-1] if package else parts)
                modules[name] = (str(file), package, zlib.compress(file.read_bytes()))
    return modules


def packed(document: dict[str, Any]) -> bytes:
    """The bytes that replace the start of `SPACE`."""
    data = zlib.compress(json.dumps(document).encode())
    return len(data).to_bytes(4, "little") + data


def load() -> dict[str, str | None]:
    """Imports the plugin and returns its metadata."""
    end = 4 + int.from_bytes(SPACE[:4], "little")
    document = json.loads(zlib.decompress(SPACE[4:end]))
    finders = sys.meta_path[:]
    # An instance has no files. Without WASI, a look for one would end it.
    others = [finder for finder in finders if finder is not importlib.machinery.PathFinder]
    sys.meta_path[:] = [Sources(document["modules"]), Sources(LIBRARY), *others]
    try:
        importlib.import_module(document["plugin"])
    finally:
        # Imports in functions fail, as they do in a release.
        sys.meta_path[:] = finders
    return document["about"]


class Sources(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports modules from their sources: path, whether it is a package, and text or compressed bytes, by name."""

    def __init__(self, modules: dict[str, tuple[str, bool, str | bytes]]) -> None:
        self.modules = modules

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in self.modules:
            return None
        file, package, _ = self.modules[name]
        spec = importlib.util.spec_from_loader(name, self, origin=file, is_package=package)
        if spec:
            spec.has_location = True
        return spec

    def is_package(self, name: str) -> bool:
        return self.modules[name][1]

    def get_source(self, name: str) -> str:
        text = self.modules[name][2]
        return text if isinstance(text, str) else importlib.util.decode_source(zlib.decompress(text))

    def get_code(self, name: str) -> Any:
        return compile(self.get_source(name), self.modules[name][0], "exec", dont_inherit=True)
