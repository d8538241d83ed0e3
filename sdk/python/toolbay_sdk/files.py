"""Files under the operator's globs, with a guard against blind overwrites."""

from typing import Any

from . import _host
from .errors import failed


def read(path: str, offset: int = 0, max_bytes: int | None = None) -> bytes:
    """Reads a file, or `max_bytes` of it from `offset` on."""
    return _ask(path, lambda: _host.files.read(path, offset, max_bytes)).data


def read_with_stat(path: str, offset: int = 0, max_bytes: int | None = None) -> Any:
    """Reads a file and its metadata: ``.data`` and ``.stat``."""
    return _ask(path, lambda: _host.files.read(path, offset, max_bytes))


def read_text(path: str) -> str:
    """Reads a whole file that must be UTF-8."""
    try:
        return read(path).decode()
    except UnicodeDecodeError:
        raise failed(f"`{path}` is not UTF-8 text", "not-text") from None


def write(path: str, data: str | bytes, expected_version: str | None = None) -> Any:
    """Writes a whole file atomically and returns its new metadata.

    With `expected_version`, refused as stale unless the file is at that version; without, refused if it changed since
    this session last read it.
    """
    raw = data.encode() if isinstance(data, str) else bytes(data)
    return _ask(path, lambda: _host.files.write(path, raw, expected_version))


def stat(path: str) -> Any:
    """Returns the metadata of a path: ``.kind``, ``.size``, ``.modified_ms``, ``.version``."""
    return _ask(path, lambda: _host.files.stat(path))


def read_dir(path: str) -> list[Any]:
    """Lists a directory: ``.name`` and ``.kind`` of each entry."""
    return _ask(path, lambda: _host.files.read_dir(path))


def make_dir(path: str) -> None:
    """Creates a directory."""
    _ask(path, lambda: _host.files.make_dir(path))


def remove(path: str) -> None:
    """Removes a file or an empty directory."""
    _ask(path, lambda: _host.files.remove(path))


def _ask(path: str, question: Any) -> Any:
    return _host.asked("files", path, question)
