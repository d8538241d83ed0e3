"""Credentials by name.

What `get` returns is usually not the value but a token good for one call, which the host swaps for the value in the
headers of requests to the hosts the operator bound it to.
"""

from typing import Any

from . import _host


def get(name: str) -> Any:
    """Returns a secret, or its placeholder: ``.text`` and ``.revealed``."""
    return _host.asked("secrets", name, lambda: _host.secrets.get(name))
