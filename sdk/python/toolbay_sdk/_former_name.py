"""The former name of this SDK. `toolbay` is the host now: a plugin that still imports it is told the new name."""

import importlib.abc
from typing import Any


class FormerNameFinder(importlib.abc.MetaPathFinder):
    """Finds no module, and refuses to import `toolbay`."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        """Python imports `toolbay` before `toolbay.testing`."""
        if name == "toolbay":
            raise ModuleNotFoundError("the SDK for plugins is `toolbay_sdk`: import it in place of `toolbay`", name=name)
