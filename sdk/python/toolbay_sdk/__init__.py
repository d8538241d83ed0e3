"""Write Toolbay plugins in Python: tools are functions with type hints and a docstring."""

from . import attachments, config, context, files, http, invoke, kv, log, process, secrets
from ._output import Output, rendered
from ._schema import Arg
from ._tool import available, reducer, tool
from .errors import ToolError, failed, input_error, not_available, stale

__all__ = [
    "Arg", "Output", "ToolError", "attachments", "available", "config", "context", "failed", "files", "http",
    "input_error", "invoke", "kv", "log", "not_available", "process", "reducer", "rendered", "secrets", "stale", "tool",
]
