"""The first-party plugins of Toolbay: `toolbay serve "$(toolbay-plugins)"`."""

from pathlib import Path

DIRECTORY: Path = Path(__file__).resolve().parent / "plugins"
"""The directory with the plugins, one `.wasm` file each."""


def main() -> None:
    """Prints the directory."""
    print(DIRECTORY)
