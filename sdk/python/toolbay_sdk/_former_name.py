"""The former name of this SDK, `toolbay`, is that of the host now. An import of it fails and names the new one."""

import importlib.abc
from typing import Any


class FormerNameFinder(importlib.abc.MetaPathFinder):
    """Finds no module, and refuses to import `toolbay`."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        """Python imports `toolbay` before `toolbay.testing`."""
        if name == "toolbay":
            raise ModuleNotFoundError("the SDK for plugins is `toolbay_sdk`: import it in place of `toolbay`", name=name)
