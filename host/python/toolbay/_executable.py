"""Where the program `toolbay` is, which compiles plugins and guards their programs."""

from __future__ import annotations

import functools
import os

from .errors import HostError


def find() -> str:
    """The path of the program: ``TOOLBAY_BIN``, or the file in the RECORD of this package's own distribution."""
    named = os.environ.get("TOOLBAY_BIN")
    if named:
        return os.path.abspath(named)
    import csv
    from importlib.metadata import Distribution
    from pathlib import Path, PurePosixPath

    # Another folder of `sys.path` can have another version.
    folder = Path(__file__).parent.parent
    for distribution in Distribution.discover(name="toolbay", path=[str(folder)]):
        # `Distribution.files` leaves out what is not where RECORD says.
        for row in csv.reader((distribution.read_text("RECORD") or "").splitlines()):
            name, digest, size = (*row, "", "", "")[:3]
            path = PurePosixPath(name)
            if path.name != "toolbay" or path.parent.name not in ("bin", "scripts"):
                continue
            # `pip install --target` moves the programs into the folder, and RECORD still names their place before.
            inside = folder / "bin" / "toolbay"
            if name in ("bin/toolbay", "../../bin/toolbay") and inside.is_file():
                return os.path.abspath(inside)
            # Others may write where this path leads.
            listed = os.path.abspath(folder / name)
            if os.path.isfile(listed) and _is_recorded(listed, digest, size):
                return listed
    raise HostError(
        "executable",
        f"the package in `{Path(__file__).parent}` has no program `toolbay` as its installer recorded it; TOOLBAY_BIN names "
        "one",
    )


def _is_recorded(file: str, digest: str, size: str) -> bool:
    """Whether a file has the size and the digest of its RECORD."""
    found = os.stat(file)
    return str(found.st_size) == size and _digest(file, found.st_ino, found.st_mtime_ns) == digest


@functools.cache
def _digest(file: str, _inode: int, _modified: int) -> str:
    """The digest of a file as RECORD has it."""
    import base64
    import hashlib

    with open(file, "rb") as content:
        digest = hashlib.file_digest(content, "sha256").digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).decode().rstrip("=")
