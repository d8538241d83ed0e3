"""The host's interfaces: the component's imports, or the fake host of `toolbay.testing`."""

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


def asked(question, describe):
    """Calls the host. `describe` converts the interface's error, given as case and value, to an error of the tool."""
    try:
        return question()
    except Err as error:
        case = type(error.value).__name__.rpartition("_")[2]
        raise describe(case, getattr(error.value, "value", None)) from None
