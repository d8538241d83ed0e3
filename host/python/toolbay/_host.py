"""The host."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from . import _bridge, _executable, _json, _options
from ._policy import Policy
from ._results import CallResult, ProgressEvent, ToolCall
from ._session import Session
from ._tools import Definition, definition_of
from .errors import HostError, check_type

if TYPE_CHECKING:
    from ._approval import ApprovalReply, ApprovalRequest


_POLICY = "a policy is made by `Policy.read`, `Policy.parse` or `Policy.deny_all`"
END_WAIT = 1.0
"""Seconds that the end of a thread waits for cancelled tools of its loop."""


class View:
    """The tools that a model sees and may call: a snapshot, made by `Host.view`."""

    def __init__(self, number: int) -> None:
        self._number = number

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The listed tools: `name`, `title`, `description`, `input_schema`, `output_schema`, `source`."""
        tools: list[dict[str, Any]] = _bridge.query("tools", view=self._number)
        return tools

    def __del__(self, release: Callable[[int], None] = _bridge.release) -> None:
        number = getattr(self, "_number", None)
        if number is not None:
            release(number)


class Host:
    """A host of plugins and native tools.

    ``async with Host(policy) as host`` opens and closes it, as does ``with`` in programs without asyncio. ``host = await
    Host(policy)`` opens one that lives until `close`. `cache_dir` has compiled plugins; by default it is in the cache of the user.
    """

    def __init__(
        self, policy: Policy, *, plugins: str | os.PathLike[str] | None = None,
        state_dir: str | os.PathLike[str] | None = None, cache_dir: str | os.PathLike[str] | None = None,
        approver: Callable[[ApprovalRequest], ApprovalReply | Awaitable[ApprovalReply]] | None = None,
        state_wait: float | None = None, source_wait: float | None = None, call_log: int | None = None,
    ) -> None:
        check_type(policy, Policy, _POLICY)
        self._request = {
            "op": "open", "policy": policy._source, "plugins": _options.path("plugins", plugins),
            "state_dir": _options.path("state_dir", state_dir), "cache_dir": _options.path("cache_dir", cache_dir),
            "approver": approver is not None, "state_wait_ms": _options.milliseconds("state_wait", state_wait),
            "source_wait_ms": _options.milliseconds("source_wait", source_wait),
            "call_log": _options.count("call_log", call_log),
        }
        self._approver = _options.function("approver", approver)
        self._tools: dict[str, tuple[Callable[..., Any], Definition]] = {}
        self._number: int | None = None
        self._process = 0

    async def __aenter__(self) -> Host:
        await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __await__(self) -> Generator[Any, None, Host]:
        return self.__aenter__().__await__()

    def __enter__(self) -> Host:
        self._run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self.close())

    def __del__(self, release: Callable[[int], None] = _bridge.release) -> None:
        number = getattr(self, "_number", None)
        if number is not None:
            release(number)

    async def _open(self) -> None:
        if self._number is not None:
            raise ValueError("the host is open already")
        mailbox = _mailbox()
        _close_at_exit()
        _check_faulthandler()
        self._process = os.getpid()
        self._number = await mailbox.request({**self._request, "executable": _executable.find()})

    async def close(self) -> None:
        """Cancels the calls and ends the servers, and waits for them for at most five seconds. A second call does nothing."""
        if self._number is None:
            return
        number = self._open_number()
        self._number = None
        try:
            await _mailbox().request({"op": "close", "host": number})
        except HostError as error:
            # The end of Python closes all hosts, also those of threads that still run.
            if error.kind != "closed":
                raise
        self._tools.clear()

    async def call_all(
        self, view: View, calls: Iterable[ToolCall], *, session: Session | None = None,
        progress: Callable[[ProgressEvent], object] | None = None, budget_chars: int | None = None, dry_run: bool = False,
        identity: Mapping[str, Any] | None = None, timeout: float | None = None,
    ) -> list[CallResult]:
        """Runs calls in parallel. Returns one result for each, in their order; a call that fails raises nothing.

        `identity` has the fields that plugins can ask for, such as `agent_id` and `platform`. Calls that still run after
        `timeout` seconds are cancelled, and their results say so. A cancelled task cancels its calls.
        """
        request = self._calls(view, calls, session, budget_chars, dry_run, identity)
        request["progress"] = progress is not None
        mailbox = _mailbox()
        batch = mailbox.begin(self, request, timeout, progress=_checked(progress))
        try:
            results: list[CallResult] = await batch.future
            return results
        finally:
            mailbox.end(batch)

    def call_all_sync(
        self, view: View, calls: Iterable[ToolCall], *, session: Session | None = None,
        progress: Callable[[ProgressEvent], object] | None = None, budget_chars: int | None = None, dry_run: bool = False,
        identity: Mapping[str, Any] | None = None, timeout: float | None = None,
    ) -> list[CallResult]:
        """Does the same as `call_all` in programs without asyncio. It runs in an event loop of its thread."""
        results: list[CallResult] = self._run(self.call_all(
            view, calls, session=session, progress=progress, budget_chars=budget_chars, dry_run=dry_run, identity=identity,
            timeout=timeout,
        ))
        return results

    async def stream(
        self, view: View, calls: Iterable[ToolCall], *, session: Session | None = None, budget_chars: int | None = None,
        dry_run: bool = False, identity: Mapping[str, Any] | None = None, timeout: float | None = None,
    ) -> AsyncIterator[ProgressEvent | CallResult]:
        """Runs calls in parallel, and yields their progress and results as they come. Leaving the loop cancels the rest."""
        from ._loop import StreamQueue

        request = self._calls(view, calls, session, budget_chars, dry_run, identity)
        request |= {"progress": True, "stream": True}
        mailbox, events = _mailbox(), StreamQueue()
        batch = mailbox.begin(self, request, timeout, events=events)
        try:
            while (event := await events.get()) is not None:
                yield event
            await batch.future
        finally:
            mailbox.end(batch)

    def view(
        self, *, profile: str | None = None, allowed_tools: Iterable[str] | None = None,
        allowed_plugins: Iterable[str] | None = None, allowed_toolsets: Iterable[str] | None = None,
        allowed_tags: Iterable[str] | None = None, allowed_mcp_servers: Iterable[str] | None = None,
        allowed_mcp_tools: Mapping[str, Iterable[str]] | None = None, exclude_tools: Iterable[str] = (),
        exclude_tags: Iterable[str] = (), lazy: bool = False, toolcall_reason: bool | None = None,
    ) -> View:
        """A view of the current tools. An absent list allows all, an empty one none. Make a view for each turn."""
        lists: dict[str, Iterable[str] | None] = {
            "allowed_tools": allowed_tools, "allowed_plugins": allowed_plugins, "allowed_toolsets": allowed_toolsets,
            "allowed_tags": allowed_tags, "allowed_mcp_servers": allowed_mcp_servers, "exclude_tools": exclude_tools,
            "exclude_tags": exclude_tags,
        }
        filter: dict[str, Any] = {
            "profile": _options.text("profile", profile), "lazy": _options.flag("lazy", lazy),
            "toolcall_reason": _options.flag("toolcall_reason", toolcall_reason),
            "allowed_mcp_tools": _options.texts_by_name("allowed_mcp_tools", allowed_mcp_tools),
            **{name: _options.texts(name, values) for name, values in lists.items() if values is not None},
        }
        return View(_bridge.query("view", host=self._open_number(), filter=filter))

    def register(self, *tools: Callable[..., Any]) -> None:
        """Registers functions with ``@tool``: all of them, or none if a name is taken."""
        definitions = [(function, definition_of(function)) for function in tools]
        requests = [definition.request for _, definition in definitions]
        names = _bridge.query("register", host=self._open_number(), tools=requests)
        self._tools.update(zip(names, definitions))

    def unregister(self, tool: str | Callable[..., Any]) -> bool:
        """Unregisters a tool. Returns False if it was not registered. Calls in progress end as usual."""
        name = tool if isinstance(tool, str) else next(
            (name for name, (function, _) in self._tools.items() if function == tool), "")
        return bool(_bridge.query("unregister", host=self._open_number(), tool=name))

    async def load_file(self, plugin: str, file: str | os.PathLike[str]) -> list[str]:
        """Loads a plugin from a file, and replaces the one with this id. Returns warnings."""
        name, path = _options.required_text("plugin", plugin), _options.required_path("file", file)
        return await self._load({"op": "load_file", "plugin": name, "file": path})

    async def load_bytes(self, plugin: str, component: bytes) -> list[str]:
        """Loads a plugin from memory, and replaces the one with this id. Returns warnings."""
        check_type(component, (bytes, bytearray, memoryview), "`component` is bytes")
        return await self._load({"op": "load_bytes", "plugin": _options.required_text("plugin", plugin)}, bytes(component))

    def unload(self, plugin: str) -> bool:
        """Unloads a plugin. Returns False if it was not loaded. Calls in progress end as usual."""
        return bool(_bridge.query("unload", host=self._open_number(), plugin=_options.required_text("plugin", plugin)))

    async def reload_policy(self, policy: Policy) -> dict[str, Any]:
        """Replaces the policy, as a whole or not at all. Returns its `changes`, its `warnings`, and the keys that apply
        after a `restart`."""
        check_type(policy, Policy, _POLICY)
        request = {"op": "reload_policy", "host": self._open_number(), "policy": policy._source}
        report: dict[str, Any] = await _mailbox().request(request)
        return report

    @property
    def problems(self) -> list[dict[str, Any]]:
        """The files that are not loaded: `file`, `plugin`, `message`, and in `kept` whether an older version stays."""
        problems: list[dict[str, Any]] = _bridge.query("problems", host=self._open_number())
        return problems

    def calls(self, *, limit: int | None = None, tool: str | None = None, outcome: str | None = None,
              session_id: str | None = None) -> list[dict[str, Any]]:
        """The most recent calls, the newest first. This log is in memory; the audit is permanent."""
        texts = {"tool": tool, "outcome": outcome, "session_id": session_id}
        query: dict[str, Any] = {name: _options.text(name, value) for name, value in texts.items()}
        query["limit"] = _options.count("limit", limit)
        calls: list[dict[str, Any]] = _bridge.query("calls", host=self._open_number(), query=query)
        return calls

    async def _load(self, request: dict[str, Any], component: bytes = b"") -> list[str]:
        _check_faulthandler()
        warnings: list[str] = await _mailbox().request({**request, "host": self._open_number()}, component)
        return warnings

    def _calls(
        self, view: View, calls: Iterable[ToolCall], session: Session | None, budget_chars: int | None, dry_run: bool,
        identity: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        _check_faulthandler()
        check_type(view, View, "a view is made by `host.view()`")
        if session is not None:
            check_type(session, Session, "`session` is made by `Session()`")
        return {
            "op": "call_all", "host": self._open_number(), "view": view._number,
            "calls": [_request_of(call) for call in calls], "session": None if session is None else session._number,
            "budget_chars": _options.count("budget_chars", budget_chars), "dry_run": _options.flag("dry_run", dry_run),
            **_json.plain({"identity": _options.identity(identity)}),
        }

    def _open_number(self) -> int:
        if self._number is None:
            raise HostError("closed", "the host is not open: write `async with Host(…) as host`")
        if self._process != os.getpid():
            raise HostError("fork", "the host was opened in the parent of this process, and does not work after `fork`: "
                                    "open hosts in the child only")
        return self._number

    def _run(self, work: Any) -> Any:
        """Runs a coroutine in an event loop of this thread."""
        try:
            return _runner().run(work)
        finally:
            work.close()


class _ThreadRunner:
    """The event loop of a thread without one. It ends with its thread."""

    #: The process that has the loop; 0 if there is none. Ctrl-C can come before the loop is made.
    process = 0

    def __init__(self) -> None:
        import asyncio

        from ._loop import ThreadLoop

        self._runner = asyncio.Runner(loop_factory=ThreadLoop)
        self._was_left = False
        self.process = os.getpid()

    def run(self, work: Any) -> Any:
        self._settle()
        try:
            return self._runner.run(work)
        except BaseException:
            self._was_left = True
            self._end(work)
            raise

    def _settle(self) -> None:
        """Lets the loop end its last run. An exception can have come before, and the next run would be ended instead."""
        if self._was_left:
            loop = self._runner.get_loop()
            loop.call_soon(loop.stop)
            loop.run_forever()
            self._was_left = False

    def _end(self, work: Any) -> None:
        """Ends the task of a coroutine that an exception of the loop left behind: a second Ctrl-C, or an exit in a tool."""
        import asyncio

        loop = self._runner.get_loop()
        for task in asyncio.all_tasks(loop):
            if task.get_coro() is work:
                task.cancel()
                loop.run_until_complete(asyncio.wait([task]))

    def close(self) -> None:
        """Cancels the tasks of tools and closes the loop. A tool that ignores it is left behind."""
        import asyncio

        if self.process != os.getpid():
            return
        self.process = 0
        self._settle()
        loop = self._runner.get_loop()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks and loop.run_until_complete(asyncio.wait(tasks, timeout=END_WAIT))[1]:
            return
        self._runner.close()

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # When Python ends, parts of the loop are gone.
        if not is_finalizing():
            self.close()


_thread = threading.local()


def _runner() -> _ThreadRunner:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise TypeError("an event loop runs in this thread: write `await host.call_all(…)` and `async with`")
    runner: _ThreadRunner | None = getattr(_thread, "runner", None)
    if runner is None or runner.process != os.getpid():
        runner = _thread.runner = _ThreadRunner()
    return runner


def _mailbox() -> Any:
    from ._loop import mailbox_of_running_loop

    return mailbox_of_running_loop()


_closes_at_exit = 0


def _close_at_exit() -> None:
    """Has the hosts closed when Python ends, so that each call is recorded."""
    global _closes_at_exit
    if _closes_at_exit != os.getpid():
        import atexit

        _closes_at_exit = os.getpid()
        atexit.register(_shut_down)


def _shut_down() -> None:
    from . import _native

    try:
        _native.shut_down()
    except RuntimeError:
        # In a fork, the hosts belong to the parent.
        pass
    runner: _ThreadRunner | None = getattr(_thread, "runner", None)
    if runner is not None:
        runner.close()


_had_faulthandler: bool | None = None


def _check_faulthandler() -> None:
    """Checks that `faulthandler` is as it was when the first host of the process was opened.

    The traps of plugins are signals, for which the first host has installed handlers. If `faulthandler` was enabled before,
    those pass on to it what is no trap. Enabled or disabled later, it replaces them, and a trap would end the process.
    """
    import faulthandler

    global _had_faulthandler
    has = faulthandler.is_enabled()
    if _had_faulthandler is None:
        _had_faulthandler = has
    if has != _had_faulthandler:
        done, remedy = (
            "enabled", "call `faulthandler.enable()` before, or start Python with `-X faulthandler`; `faulthandler.disable()` "
                       "lets this process go on",
        ) if has else ("disabled", "leave it enabled, and start the program again")
        raise ValueError(f"`faulthandler` was {done} after the first host was opened, so a trap of a plugin would end the "
                         f"process: {remedy}")


def _request_of(call: ToolCall) -> dict[str, Any]:
    check_type(call, ToolCall, "a call is a `ToolCall`")
    return call._request()


def _checked(progress: Callable[[ProgressEvent], object] | None) -> Callable[[ProgressEvent], object] | None:
    import inspect

    _options.function("progress", progress)
    if inspect.iscoroutinefunction(progress):
        raise TypeError("`progress` is a plain function: it is called for each event and must not wait")
    return progress
