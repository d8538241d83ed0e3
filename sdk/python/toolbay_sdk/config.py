"""The operator's settings for this plugin. They are never secret; secrets come from `toolbay_sdk.secrets`."""

from typing import Any

from . import _host, _json
from .errors import not_available


def get(key: str, otherwise: Any = None) -> Any:
    """Returns a setting, or `otherwise` if the operator did not set it."""
    text = _host.config.get(key)
    return otherwise if text is None else _json.parse(text)


def require(key: str) -> Any:
    """Returns a required setting."""
    value = get(key)
    if value is None:
        raise not_available(f"the setting `{key}` is missing", "config")
    return value


def keys() -> list[str]:
    """Returns the names of the settings."""
    return _host.config.keys()
