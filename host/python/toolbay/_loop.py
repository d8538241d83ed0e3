"""The mailbox of an event loop: answers for its coroutines, and its native tools, approvers and progress functions."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import os
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from . import _bridge, _json, _native, _threads
from ._results import CallResult, ProgressEvent
from ._tools import CallContext, Definition, reply_with_error, reply_with_result
from .errors import ToolError, check_type, describe

if TYPE_CHECKING:
    from ._host import Host

logger = logging.getLogger("toolbay")

BUSY_WAIT = 1.0
"""Seconds that a call of a plain function waits for a thread."""
MAX_PROGRESS = 1000
"""Most progress events that wait for a stream, as in the mailbox."""


class Batch:
    """Calls in progress."""

    def __init__(self, number: int, host: Host, progress: Callable[[ProgressEvent], object] | None,
                 events: StreamQueue | None) -> None:
        self.number = number
        self.host = host
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.progress = progress
        self.events = events
        self.context = contextvars.copy_context()
        self.timer: asyncio.TimerHandle | None = None


class StreamQueue:
    """The events of a stream that its loop has not taken, and None at the end. Above `MAX_PROGRESS`, the oldest progress is
    dropped: a person wants the newest."""

    def __init__(self) -> None:
        self._events: deque[ProgressEvent | CallResult | None] = deque()
        self._progress = 0
        self._dropped = 0
        self._filled = asyncio.Event()

    def put(self, event: ProgressEvent | CallResult | None) -> None:
        if isinstance(event, ProgressEvent):
            if self._progress >= MAX_PROGRESS:
                oldest = next(n for n, waiting in enumerate(self._events) if isinstance(waiting, ProgressEvent))
                del self._events[oldest]
                self._dropped += 1
            else:
                self._progress += 1
        self._events.append(event)
        self._filled.set()

    async def get(self) -> ProgressEvent | CallResult | None:
        while not self._events:
            self._filled.clear()
            await self._filled.wait()
        if self._dropped:
            logger.warning("%s progress events were dropped: the loop of a stream is too slow", self._dropped)
            self._dropped = 0
        event = self._events.popleft()
        self._progress -= isinstance(event, ProgressEvent)
        return event


class ThreadLoop(asyncio.SelectorEventLoop):
    """The loop of a thread without one. Its runner closes it. If Python ends before, because the thread is a daemon, asyncio
    would close it when parts of it are gone, and print an error."""

    def __del__(self) -> None:
        pass


def mailbox_of_running_loop() -> LoopMailbox:
    """The mailbox of the loop that runs here."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise TypeError("a `Host` works in an asyncio event loop, and none runs here; `with Host(…)` and "
                        "`call_all_sync` work without one") from None
    mailbox = _mailboxes.get(loop)
    if mailbox is None or mailbox.process != os.getpid():
        mailbox = _mailboxes[loop] = LoopMailbox(loop)
    return mailbox


_mailboxes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopMailbox] = weakref.WeakKeyDictionary()


class _Reader:
    """What the loop calls when there are events. Only the loop holds it, so it ends when the loop is closed."""

    def __init__(self, mailbox: LoopMailbox) -> None:
        self._mailbox = mailbox

    def __call__(self) -> None:
        self._mailbox.drain()


def _close(number: int, socket: int, process: int) -> None:
    """Cancels the calls of a loop that has ended."""
    if process != os.getpid():
        return
    try:
        _native.close_mailbox(number)
    except RuntimeError:
        # A fork has no calls.
        pass
    os.close(socket)


def _release_unclaimed(value: Any) -> None:
    """Closes an open host whose number nobody will get. No other answer is a number."""
    if isinstance(value, int):
        _bridge.release(value)


class LoopMailbox:
    """The events of one loop. Everything but the plain functions runs in the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.number, socket = _bridge.open_mailbox()
        self.process = os.getpid()
        self._loop = weakref.ref(loop)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._batches: dict[int, Batch] = {}
        #: What ends a question that is withdrawn.
        self._running: dict[int, Callable[[], object]] = {}
        reader = _Reader(self)
        finalizer = weakref.finalize(reader, _close, self.number, socket, self.process)
        # At the end of the process all hosts are closed.
        finalizer.atexit = False
        loop.add_reader(socket, reader)

    async def request(self, request: dict[str, Any], payload: bytes = b"") -> Any:
        """Submits a request, and returns its answer."""
        future = asyncio.get_running_loop().create_future()
        number = _bridge.submit(self.number, request, payload)
        self._answers[number] = future
        try:
            return await future
        except BaseException:
            self._cancel(number)
            if future.done() and not future.cancelled() and future.exception() is None:
                _release_unclaimed(future.result())
            raise
        finally:
            self._answers.pop(number, None)

    def begin(self, host: Host, request: dict[str, Any], timeout: float | None, *,
              progress: Callable[[ProgressEvent], object] | None = None, events: StreamQueue | None = None) -> Batch:
        """Begins calls, and cancels those that still run after `timeout` seconds. `end` must follow."""
        # Before the calls begin: without a batch, nothing would cancel them.
        if timeout is not None:
            check_type(timeout, (int, float), "`timeout` is a number of seconds")
            if not float(timeout) >= 0:
                raise ValueError(f"`timeout` cannot be {timeout}")
        number = _bridge.submit(self.number, request)
        batch = self._batches[number] = Batch(number, host, progress, events)
        if timeout is not None:
            batch.timer = batch.future.get_loop().call_later(timeout, self._cancel, number)
        return batch

    def end(self, batch: Batch) -> None:
        """Ends calls, and cancels those that still run."""
        del self._batches[batch.number]
        if batch.timer is not None:
            batch.timer.cancel()
        if not (batch.future.done() and not batch.future.cancelled()):
            self._cancel(batch.number)

    def _cancel(self, number: int) -> None:
        try:
            _native.cancel(self.number, number)
        except RuntimeError:
            # The loop is gone, and its calls with it.
            pass

    def drain(self) -> None:
        """Handles all events."""
        try:
            delivery = _json.parse(_native.drain(self.number))
        except RuntimeError as error:
            self._fail_all(_bridge.error_of(_json.parse(str(error))))
            return
        if delivery["dropped"]:
            logger.warning("%s progress events were dropped: the event loop is too slow", delivery["dropped"])
        exits: BaseException | None = None
        for event in delivery["events"]:
            try:
                self._handle(event)
            except Exception:
                logger.exception("an event of the host was not handled")
            except BaseException as error:
                exits = error
        if exits is not None:
            raise exits

    def _fail_all(self, error: Exception) -> None:
        """In the child of a fork, nothing will ever come."""
        for number in [*self._answers, *self._batches]:
            self._answer(number, None, error)

    def _handle(self, event: dict[str, Any]) -> None:
        number: int = event.get("id", 0)
        match event["event"]:
            case "done":
                self._answer(number, event["value"], None)
            case "failed":
                self._answer(number, None, _bridge.error_of(event["error"]))
            case "results":
                self._end_batch(number, event["results"])
            case "result":
                batch = self._batches.get(number)
                if batch is not None and batch.events is not None:
                    batch.events.put(CallResult(event["result"]))
            case "progress":
                self._progress(number, event)
            case "call":
                self._call(number, event)
            case "approval":
                self._approve(number, event)
            case "log":
                logger.log(logging.ERROR if event["level"] == "error" else logging.WARNING, "%s", event["message"])
            case "withdrawn":
                end = self._running.pop(number, None)
                if end is not None:
                    end()
            case kind:
                raise ValueError(f"an unknown event {kind!r}")

    def _answer(self, number: int, value: Any, error: Exception | None) -> None:
        batch = self._batches.get(number)
        future = self._answers.get(number) or (batch.future if batch else None)
        if future is None or future.done():
            _release_unclaimed(value)
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
            if batch is not None and batch.events is not None:
                batch.events.put(None)

    def _end_batch(self, number: int, results: list[dict[str, Any]]) -> None:
        batch = self._batches.get(number)
        if batch is None or batch.future.done():
            return
        batch.future.set_result([CallResult(result) for result in results])
        if batch.events is not None:
            batch.events.put(None)

    def _progress(self, number: int, event: dict[str, Any]) -> None:
        batch = self._batches.get(number)
        if batch is None:
            return
        progress = ProgressEvent(event["call_id"], event["tool"], event["message"], event["percent"], event["audience"])
        if batch.events is not None:
            batch.events.put(progress)
        elif batch.progress is not None:
            batch.context.run(batch.progress, progress)

    def _call(self, number: int, event: dict[str, Any]) -> None:
        batch = self._batches.get(event["batch"])
        if batch is None:
            # Its calls are being cancelled.
            return
        found = batch.host._tools.get(event["tool"])
        if found is None:
            message = f"the tool `{event['tool']}` was unregistered"
            reply_with_error(self.number, number, ToolError("not_available", message))
            return
        function, definition = found
        context = CallContext(self.number, number, event["context"])
        call = _NativeCall(self, number, function, definition, context, event["args"])
        self._start(number, call, batch, definition.is_async)

    def _approve(self, number: int, event: dict[str, Any]) -> None:
        batch = self._batches.get(event["batch"])
        approver = batch.host._approver if batch is not None else None
        if batch is None or approver is None:
            return
        approval = _Approval(self, number, approver, event["request"])
        self._start(number, approval, batch, inspect.iscoroutinefunction(approver))

    def _start(self, number: int, question: _Question, batch: Batch, is_async: bool) -> None:
        """Answers a question: a coroutine in the loop, a plain function in a thread, both in the context of the caller."""
        loop = self._loop()
        if loop is None:
            return
        context = batch.context.copy()
        if is_async:
            self._start_task(loop, question, context)
            return
        work: Callable[[], None] = lambda: context.run(question.run)  # noqa: E731
        threads = _threads.pool()
        if threads.submit(work):
            self._running[number] = question.cancelled
            return

        def give_up() -> None:
            if threads.withdraw(work):
                self._running.pop(number, None)
                question.busy()

        timer = loop.call_later(BUSY_WAIT, give_up)

        def withdraw() -> None:
            timer.cancel()
            question.cancelled()
            threads.withdraw(work)

        self._running[number] = withdraw

    def _start_task(self, loop: asyncio.AbstractEventLoop, question: _Question, context: contextvars.Context,
                    begun: Awaitable[Any] | None = None) -> None:
        number = question.number
        task = loop.create_task(question.run_async(begun), context=context)

        def cancel() -> None:
            question.cancelled()
            task.cancel()

        def end(task: asyncio.Task[None]) -> None:
            self._running.pop(number, None)
            if not task.cancelled():
                # The question has reported it, and the loop has raised it.
                task.exception()

        self._running[number] = cancel
        task.add_done_callback(end)

    def go_on(self, question: _Question, begun: Awaitable[Any]) -> None:
        """Awaits in the loop what a plain function returned in its thread."""
        loop, context = self._loop(), contextvars.copy_context()

        def discard() -> None:
            if inspect.iscoroutine(begun):
                begun.close()

        def start() -> None:
            if loop is not None and question.number in self._running:
                self._start_task(loop, question, context, begun)
            else:
                # The question was withdrawn.
                discard()

        try:
            if loop is not None:
                loop.call_soon_threadsafe(start)
                return
        except RuntimeError:
            # The loop was closed in the meantime.
            pass
        discard()

    def finished(self, number: int, error: BaseException | None) -> None:
        """Ends a question that a thread has answered. `KeyboardInterrupt` and `SystemExit` are raised in the loop."""
        loop = self._loop()
        if loop is None or loop.is_closed():
            return

        def end() -> None:
            self._running.pop(number, None)
            if error is not None:
                raise error

        try:
            loop.call_soon_threadsafe(end)
        except RuntimeError:
            # The loop was closed in the meantime.
            pass


class _Question:
    """What a function of the program answers."""

    def __init__(self, mailbox: LoopMailbox, number: int) -> None:
        self.mailbox = mailbox
        self.number = number

    def call(self) -> Any:
        raise NotImplementedError

    def succeed(self, value: Any) -> None:
        raise NotImplementedError

    def fail(self, error: BaseException) -> None:
        raise NotImplementedError

    def fail_unread(self) -> None:
        """Fails without a look at the error."""
        raise NotImplementedError

    def busy(self) -> None:
        """No thread is free."""
        raise NotImplementedError

    def abandon(self) -> None:
        """The task was cancelled."""
        raise NotImplementedError

    def cancelled(self) -> None:
        """The answer would come too late."""

    def run(self) -> None:
        """Calls a plain function, in a thread."""
        exits = None
        try:
            value = self.call()
            if inspect.isawaitable(value):
                # A lambda or an object can have the type of a coroutine function and be none.
                self.mailbox.go_on(self, value)
                return
            self.succeed(value)
        except BaseException as error:
            exits = self.report(error)
        self.mailbox.finished(self.number, exits)

    async def run_async(self, begun: Awaitable[Any] | None = None) -> None:
        """Calls a coroutine function, in the loop, or awaits what a plain function has `begun`."""
        try:
            self.succeed(await (self.call() if begun is None else begun))
        except (asyncio.CancelledError, GeneratorExit):
            # Mostly the call was cancelled, or the loop ends.
            self.abandon()
            raise
        except BaseException as error:
            exits = self.report(error)
            if exits is not None:
                raise exits

    def report(self, error: BaseException) -> BaseException | None:
        """Answers with an error. Returns it if the loop must raise it."""
        exits = (KeyboardInterrupt, SystemExit)
        try:
            self.fail(error)
        except BaseException as another:
            # Code of the program runs here, too: the error's `__str__`, handlers of the logger.
            self.fail_unread()
            error = another if isinstance(another, exits) else error
        return error if isinstance(error, exits) else None


class _NativeCall(_Question):
    """A call of a native tool."""

    def __init__(self, mailbox: LoopMailbox, number: int, function: Callable[..., Any], definition: Definition,
                 context: CallContext, args: str) -> None:
        super().__init__(mailbox, number)
        self.function = function
        self.definition = definition
        self.context = context
        self.args = args

    def call(self) -> Any:
        return self.function(**self.definition.arguments(self.args, self.context))

    def succeed(self, value: Any) -> None:
        reply_with_result(self.mailbox.number, self.number, self.definition.name, value)

    def fail(self, error: BaseException) -> None:
        if not isinstance(error, ToolError):
            if not self.context.cancelled:
                logger.error("the tool `%s` failed", self.definition.name, exc_info=error)
            error = ToolError("execution_failed", describe(error))
        reply_with_error(self.mailbox.number, self.number, error)

    def fail_unread(self) -> None:
        error = ToolError("execution_failed", "the tool failed with an error that cannot be shown")
        reply_with_error(self.mailbox.number, self.number, error)

    def busy(self) -> None:
        message = f"all {_threads.MOST} threads for tools are busy"
        _bridge.reply(self.mailbox.number, self.number, "busy", message=message)

    def abandon(self) -> None:
        _bridge.reply(self.mailbox.number, self.number, "cancelled", message="the task of the tool was cancelled")

    def cancelled(self) -> None:
        self.context.cancelled = True


class _Approval(_Question):
    """A request for approval."""

    def __init__(self, mailbox: LoopMailbox, number: int, approver: Callable[[Any], Any], document: dict[str, Any]) -> None:
        super().__init__(mailbox, number)
        self.approver = approver
        self.document = document
        self.is_over = False

    def call(self) -> Any:
        from ._approval import ApprovalRequest

        return self.approver(ApprovalRequest._of(self.document))

    def succeed(self, value: Any) -> None:
        from ._approval import answer_of

        answer, comment = answer_of(value)
        self._reply(answer, comment)

    def fail(self, error: BaseException) -> None:
        if not self.is_over:
            logger.error("the approver failed; the call of `%s` is refused", self.document["tool"], exc_info=error)
        self._reply("no", None)

    def fail_unread(self) -> None:
        self._reply("no", None)

    def busy(self) -> None:
        self._reply("unanswered", "nobody was asked: all threads of the program are busy")

    def abandon(self) -> None:
        self._reply("unanswered", "the task of the approver was cancelled")

    def cancelled(self) -> None:
        self.is_over = True

    def _reply(self, answer: str, comment: str | None) -> None:
        _bridge.reply(self.mailbox.number, self.number, "approval", answer=answer, comment=comment)
