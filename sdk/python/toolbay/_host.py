"""The host's interfaces: the component's imports, or what `toolbay.testing` plays."""

try:
    from componentize_py_types import Err
    from wit_world.imports import attachments, config, context, files, kv, log, process, secrets
    from wit_world.imports import http_client as http

    IS_COMPONENT = True
except ImportError:
    from ._fake import Err, attachments, config, context, files, http, kv, log, process, secrets

    IS_COMPONENT = False

__all__ = [
    "Err", "IS_COMPONENT", "asked", "attachments", "config", "context", "files", "http", "kv", "log", "process",
    "secrets",
]


def asked(question, describe):
    """Asks the host; `describe` makes an error of the tool out of the interface's own: its case and its value."""
    try:
        return question()
    except Err as error:
        case = type(error.value).__name__.rpartition("_")[2]
        raise describe(case, getattr(error.value, "value", None)) from None
