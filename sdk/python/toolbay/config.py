"""Settings the operator wrote for this plugin. Never secret; secrets come from `toolbay.secrets`."""

from typing import Any

from . import _host, _json
from .errors import not_available


def get(key: str, otherwise: Any = None) -> Any:
    """Returns a setting, or `otherwise` if the operator did not write it."""
    text = _host.config.get(key)
    return otherwise if text is None else _json.parse(text)


def require(key: str) -> Any:
    """Returns a setting the tool cannot do without."""
    value = get(key)
    if value is None:
        raise not_available(f"the setting `{key}` is missing", "config")
    return value


def keys() -> list[str]:
    """Returns the names of the settings."""
    return _host.config.keys()
