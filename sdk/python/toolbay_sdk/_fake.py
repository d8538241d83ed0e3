"""The interfaces of the host in ordinary Python: the active `toolbay_sdk.testing.FakeHost` answers."""

import enum
import json
from dataclasses import dataclass
from typing import Any

from .errors import not_available, of_exception

NO_FAKE = "not granted: this is a native test without `FakeHost`, or without this in the fake"

current: Any = None


@dataclass(frozen=True)
class Err(Exception):
    """The error of an import."""

    value: Any


@dataclass
class Ok:
    """A result in a list of results."""

    value: Any


@dataclass
class Error_Denied:
    value: str


@dataclass
class Error_NotFound:
    pass


@dataclass
class Error_Stale:
    pass


@dataclass
class Error_NotANumber:
    pass


def _given(name: str) -> Any:
    """The functions of an interface that the fake host provides."""
    found = None if current is None else getattr(current, name)
    if found is None:
        raise Err(Error_Denied(NO_FAKE))
    return found


class context:
    class Audience(enum.Enum):
        INTERNAL = 0
        USER = 1
        DASHBOARD = 2

    @staticmethod
    def progress(message: str, percent: float | None, audience: Any) -> None:
        if current is not None:
            current.progress.append((message, percent, audience.name.lower()))

    @staticmethod
    def cancelled() -> bool:
        if current is None or current.cancel_after is None:
            return False
        current.cancel_after -= 1
        return current.cancel_after < 0

    @staticmethod
    def budget_chars() -> int:
        return 0xFFFF_FFFF if current is None else current.budget_chars

    @staticmethod
    def dry_run() -> bool:
        return current is not None and current.dry_run

    @staticmethod
    def call_id() -> str:
        return "fake-call"

    @staticmethod
    def attribute(name: str) -> str | None:
        found = {} if current is None else current.attributes
        return json.dumps(found[name]) if name in found else None

    @staticmethod
    def unknown() -> None:
        return None

    remaining_ms = session_id = session_key = platform = working_dir = agent_id = unknown
    personality_id = team_id = turn = message_count = unknown


class log:
    class Level(enum.Enum):
        TRACE = 0
        DEBUG = 1
        INFO = 2
        WARN = 3
        ERROR = 4

    @staticmethod
    def write(level: Any, message: str, fields: list[tuple[str, str]]) -> None:
        if current is not None:
            current.log.append((level.name.lower(), message, dict(fields)))


class config:
    @staticmethod
    def get(key: str) -> str | None:
        found = {} if current is None else current.config
        return json.dumps(found[key]) if key in found else None

    @staticmethod
    def keys() -> list[str]:
        return [] if current is None else list(current.config)


class kv:
    class Scope(enum.Enum):
        TOOL = 0
        PLUGIN = 1
        SESSION = 2
        AGENT = 3

    @staticmethod
    def get(scope: Any, key: str) -> bytes | None:
        return _given("kv").get(key)

    @staticmethod
    def set(scope: Any, key: str, value: bytes, ttl_seconds: int | None) -> None:
        _given("kv")[key] = value

    @staticmethod
    def remove(scope: Any, key: str) -> None:
        _given("kv").pop(key, None)

    @staticmethod
    def keys(scope: Any, prefix: str, after: str | None, limit: int) -> list[str]:
        found = sorted(key for key in _given("kv") if key.startswith(prefix) and (after is None or key > after))
        return found[:limit]

    @staticmethod
    def increment(scope: Any, key: str, by: int) -> int:
        try:
            total = int(_given("kv").get(key, b"0")) + by
        except ValueError:
            raise Err(Error_NotANumber()) from None
        current.kv[key] = str(total).encode()
        return total

    @staticmethod
    def replace(scope: Any, key: str, expected: bytes | None, value: bytes) -> bool:
        same = _given("kv").get(key) == expected
        if same:
            current.kv[key] = value
        return same


class secrets:
    @dataclass
    class Secret:
        text: str
        revealed: bool

    @staticmethod
    def get(name: str) -> Any:
        found = _given("secrets")
        if name not in found:
            raise Err(Error_NotFound())
        return secrets.Secret(found[name], False)


class http:
    @dataclass
    class HttpRequest:
        method: str
        url: str
        headers: list[tuple[str, str]]
        body: bytes | None
        timeout_ms: int | None
        max_response_bytes: int | None

    @dataclass
    class HttpResponse:
        status: int
        url: str
        headers: list[tuple[str, str]]
        body: bytes
        truncated: bool = False

    @staticmethod
    def fetch(request: Any) -> Any:
        answer = _given("http")(request)
        if isinstance(answer, http.HttpResponse):
            return answer
        status, body = answer if isinstance(answer, tuple) else (200, answer)
        raw = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        return http.HttpResponse(status, request.url, [], raw)


class files:
    class FileKind(enum.Enum):
        FILE = 0
        DIRECTORY = 1

    @dataclass
    class FileStat:
        kind: Any
        size: int
        modified_ms: int
        version: str

    @dataclass
    class FileData:
        data: bytes
        stat: Any

    @dataclass
    class DirEntry:
        name: str
        kind: Any

    @staticmethod
    def read(path: str, offset: int, max_bytes: int | None) -> Any:
        stat = files.stat(path)
        end = None if max_bytes is None else offset + max_bytes
        return files.FileData(current.files[path][0][offset:end], stat)

    @staticmethod
    def write(path: str, data: bytes, expected_version: str | None) -> Any:
        _, version = _given("files").get(path, (b"", 0))
        if expected_version is not None and expected_version != f"v{version}":
            raise Err(Error_Stale())
        current.files[path] = (data, version + 1)
        return files.stat(path)

    @staticmethod
    def stat(path: str) -> Any:
        if path not in _given("files"):
            raise Err(Error_NotFound())
        data, version = current.files[path]
        return files.FileStat(files.FileKind.FILE, len(data), 0, f"v{version}")

    @staticmethod
    def read_dir(path: str) -> list[Any]:
        prefix = "" if path in ("", ".") else f"{path}/"
        found = {}
        for name in _given("files"):
            if name.startswith(prefix):
                first, _, below = name.removeprefix(prefix).partition("/")
                found[first] = files.FileKind.DIRECTORY if below else files.FileKind.FILE
        return [files.DirEntry(name, kind) for name, kind in found.items()]

    @staticmethod
    def make_dir(path: str) -> None:
        _given("files")

    @staticmethod
    def remove(path: str) -> None:
        files.stat(path)
        del current.files[path]


class process:
    @dataclass
    class Command:
        program: str
        args: list[str]
        cwd: str | None
        env: list[tuple[str, str]]
        stdin: bytes | None
        timeout_ms: int | None
        max_output_bytes: int | None

    @dataclass
    class Completed:
        exit_code: int | None
        stdout: bytes
        stderr: bytes
        truncated: bool = False

    @staticmethod
    def run(command: Any) -> Any:
        answer = _given("process")(command)
        if isinstance(answer, process.Completed):
            return answer
        return process.Completed(0, answer.encode() if isinstance(answer, str) else answer, b"")


class attachments:
    @staticmethod
    def all() -> list[Any]:
        return []

    @staticmethod
    def read(id: str) -> bytes:
        raise Err(Error_Denied(NO_FAKE))

    @staticmethod
    def create(name: str, mime_type: str, data: bytes) -> Any:
        raise Err(Error_Denied(NO_FAKE))


class tool_invoke:
    @dataclass
    class Invocation:
        name: str
        args: str

    @dataclass
    class Callable:
        name: str
        description: str
        input_schema: str
        output_schema: str | None

    @dataclass
    class Invoked:
        value: str
        structured: str | None
        truncated: bool = False

    class ErrorCode(enum.Enum):
        INPUT_INVALID = 0
        NOT_AVAILABLE = 1
        EXECUTION_FAILED = 2
        STALE_WRITE = 3

    @dataclass
    class ToolError:
        code: Any
        message: str
        subject: str | None

    @staticmethod
    def tools() -> list[Any]:
        names = sorted((current.tools if current is not None else None) or {})
        return [tool_invoke.Callable(name, "", "{}", None) for name in names]

    @staticmethod
    def invoke(calls: list[Any]) -> list[Any]:
        if current is None or current.tools is None:
            raise Err(tool_invoke.ToolError(tool_invoke.ErrorCode.NOT_AVAILABLE, NO_FAKE, "denied"))
        return [tool_invoke.answer(call.name, json.loads(call.args)) for call in calls]

    @staticmethod
    def answer(name: str, args: dict[str, Any]) -> Any:
        current.invocations.append((name, args))
        try:
            if name not in current.tools:
                raise not_available(f"no tool `{name}`", "unknown-tool")
            answer = current.tools[name](args)
        except Exception as error:
            told = of_exception(error)
            code = tool_invoke.ErrorCode[told.code.replace("-", "_").upper()]
            return Err(tool_invoke.ToolError(code, told.message, told.subject))
        value, data = answer if isinstance(answer, tuple) else (answer, None)
        return Ok(tool_invoke.Invoked(value, None if data is None else json.dumps(data)))
