"""The host's interfaces: the component's imports, or the fake host of `toolbay_sdk.testing`."""

from .errors import of_host

try:
    from componentize_py_types import Err
    from wit_world.imports import attachments, config, context, files, kv, log, process, secrets
    from wit_world.imports import http_client as http

    IS_COMPONENT = True
    try:
        from wit_world.imports import tool_invoke
    except ImportError:
        # No tool declares `invoke`.
        tool_invoke = None
except ImportError:
    from ._fake import Err, attachments, config, context, files, http, kv, log, process, secrets, tool_invoke

    IS_COMPONENT = False

__all__ = [
    "Err", "IS_COMPONENT", "asked", "attachments", "config", "context", "files", "http", "kv", "log", "process",
    "secrets", "tool_invoke",
]


def asked(interface, name, question):
    """Calls a function of an interface. `name` is what the author asked for: errors name it."""
    try:
        return question()
    except Err as error:
        case = type(error.value).__name__.rpartition("_")[2]
        raise of_host(interface, name, case, getattr(error.value, "value", None)) from None
