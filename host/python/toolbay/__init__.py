"""Run the tools of LLM agents in a sandbox: plugins in WebAssembly, and functions of your program."""

from . import vendor
from ._approval import ApprovalReply, ApprovalRequest
from ._host import Host, View
from ._policy import Policy
from ._results import CallResult, Failure, ProgressEvent, ToolCall, ToolOutput
from ._schema import Arg
from ._session import Session
from ._tools import CallContext, tool
from .errors import HostError, ToolError

__all__ = [
    "ApprovalReply", "ApprovalRequest", "Arg", "CallContext", "CallResult", "Failure", "Host", "HostError", "Policy",
    "ProgressEvent", "Session", "ToolCall", "ToolError", "ToolOutput", "View", "tool", "vendor",
]
