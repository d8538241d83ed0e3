"""Where the program `toolbay` is, which compiles plugins and guards their programs."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import HostError


def find() -> str:
    """The path of the program: ``TOOLBAY_BIN``, or the file in the RECORD of this package's own distribution."""
    named = os.environ.get("TOOLBAY_BIN")
    if named:
        return os.path.abspath(named)
    from importlib.metadata import Distribution

    # Another folder of `sys.path` can have another version.
    for distribution in Distribution.discover(name="toolbay", path=[str(Path(__file__).parent.parent)]):
        for file in distribution.files or ():
            if file.name == "toolbay" and file.parent.name in ("bin", "scripts"):
                return os.path.abspath(str(distribution.locate_file(file)))
    raise HostError(
        "executable",
        f"the package in `{Path(__file__).parent}` was installed without the program `toolbay`; TOOLBAY_BIN names one",
    )
