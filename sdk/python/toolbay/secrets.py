"""Credentials by name.

What `get` returns is usually not the value but a token good for one call, which the host swaps for the value in the
headers of requests to the hosts the operator bound it to.
"""

from typing import Any

from . import _host
from .errors import ToolError, failed, not_available


def get(name: str) -> Any:
    """Returns a secret, or its placeholder: ``.text`` and ``.revealed``."""
    return _host.asked(lambda: _host.secrets.get(name), lambda case, value: _describe(name, case, value))


def _describe(name: str, case: str, value: Any) -> ToolError:
    match case:
        case "Denied":
            return not_available(f"no access to the secret `{name}`: {value}", "denied")
        case "NotFound":
            return not_available(f"the secret `{name}` is not set", "missing-secret")
        case _:
            return failed(f"the secret `{name}`: {value}")
