"""The author's modules in a development build.

A component of a development build is an interpreter that was built before, with the sources of the plugin written into
`SPACE`. Its code is the same for every edit, so that neither componentize-py nor the host compiles it again. Each
instance imports the plugin when it is entered for the first time.
"""

import importlib
import importlib.abc
import importlib.util
import json
import sys
import zlib
from typing import Any

# The largest compressed sources, in bytes: about 4 MiB of Python.
SIZE = 1 << 20
# Without zeros, which a component's memory leaves out.
MARK = b"toolbay sources "

SPACE = bytearray(SIZE)
for _at in range(0, SIZE, len(MARK)):
    SPACE[_at : _at + len(MARK)] = MARK


def packed(document: dict[str, Any]) -> bytes:
    """The bytes that replace the start of `SPACE`."""
    data = zlib.compress(json.dumps(document).encode())
    return len(data).to_bytes(4, "little") + data


def load() -> dict[str, str | None]:
    """Imports the plugin and returns its metadata."""
    end = 4 + int.from_bytes(SPACE[:4], "little")
    document = json.loads(zlib.decompress(SPACE[4:end]))
    sys.meta_path.insert(0, Sources(document["modules"]))
    importlib.import_module(document["plugin"])
    return document["about"]


class Sources(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports modules from their sources: path, whether it is a package, and text, by name."""

    def __init__(self, modules: dict[str, tuple[str, bool, str]]) -> None:
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
        return self.modules[name][2]

    def get_code(self, name: str) -> Any:
        file, _, text = self.modules[name]
        return compile(text, file, "exec", dont_inherit=True)
