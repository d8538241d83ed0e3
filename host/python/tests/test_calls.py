"""Calls of plugins and native tools from asyncio."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import json
import threading
import unittest.mock
from typing import Annotated, Any

from support import HostTest, call

import toolbay
from toolbay import (
    ApprovalReply, ApprovalRequest, CallContext, CallResult, Failure, Policy, ProgressEvent, Session, ToolCall, ToolError,
    ToolOutput, _native, tool, vendor,
)
from toolbay._loop import mailbox_of_running_loop

user: contextvars.ContextVar[str] = contextvars.ContextVar("user")


@dataclasses.dataclass
class Row:
    """A row of a table."""

    number: int
    names: list[str]


@tool(read_only=True, timeout=10)
async def order(number: Annotated[str, "The number on the invoice."], context: CallContext) -> dict[str, Any]:
    """Look up an order."""
    context.progress("asking the warehouse", 50)
    await asyncio.sleep(0)
    if number == "0":
        raise ToolError("input_invalid", f"there is no order {number}", subject="/number")
    return {"number": number, "user": user.get("nobody"), "call": context.call_id}


@tool
def double(n: int) -> Row:
    """Double a number.

    Args:
        n: The number.
    """
    return Row(2 * n, [threading.current_thread().name])


class Plugins(HostTest):
    async def test_a_plugin_is_called_and_its_result_becomes_a_message(self) -> None:
        async with self.host(plugins=self.text_plugin(), state_dir=self.folder / "state") as host:
            self.assertEqual(host.problems, [])
            view = host.view(allowed_plugins=["text"])
            self.assertIn("text__word_count", [tool["name"] for tool in view.tools])
            tools = vendor.view_definitions("anthropic", view)
            self.assertIn("text__word_count", [tool["name"] for tool in tools])
            message = {"role": "assistant", "content": [
                {"type": "tool_use", "id": "toolu_1", "name": "text__word_count", "input": {"text": "a b a"}},
            ]}
            results = await host.call_all(view, vendor.parse_calls("anthropic", message))
            self.assertIsNone(results[0].failure)
            self.assertEqual((results[0].call_id, results[0].source), ("toolu_1", "plugin:text"))
            [reply] = vendor.result_messages("anthropic", results)
            self.assertEqual(reply["content"][0]["tool_use_id"], "toolu_1")
            self.assertIn(results[0].output.value, reply["content"][0]["content"][0]["text"])
            [entry] = host.calls(limit=1)
            self.assertEqual((entry["tool"], entry["outcome"]), ("text__word_count", "ok"))
            self.assertTrue(host.unload("text"))
            self.assertIsNotNone((await call(host, "text__word_count", {"text": "a"})).failure)
        self.assertIn("text__word_count", self.audit())

    async def test_a_plugin_is_loaded_from_a_file_and_from_memory(self) -> None:
        component = (self.text_plugin() / "text.wasm")
        async with self.host() as host:
            await host.load_file("one", component)
            await host.load_bytes("two", component.read_bytes())
            for plugin in ("one", "two"):
                self.assertIsNone((await call(host, f"{plugin}__word_count", {"text": "a"})).failure)

    async def test_a_policy_is_replaced(self) -> None:
        async with self.host() as host:
            with self.assertRaises(ValueError):
                host.view(profile="few")
            await host.reload_policy(Policy.parse({"version": 1, "profile": {"few": {"tools": []}}}, base=self.folder))
            self.assertEqual(host.view(profile="few").tools, [])


class NativeTools(HostTest):
    async def test_a_coroutine_runs_in_the_context_of_its_caller(self) -> None:
        seen: list[ProgressEvent] = []
        async with self.host() as host:
            host.register(order)
            user.set("Ada")
            result = await call(host, "order", {"number": "7"}, progress=seen.append)
            self.assertEqual(result.output.structured, {"number": "7", "user": "Ada", "call": "1"})
            self.assertEqual([(event.tool, event.message, event.percent) for event in seen],
                             [("order", "asking the warehouse", 50)])
            failure = (await call(host, "order", {"number": "0"})).failure
            self.assertEqual(failure, Failure("refused", "input_invalid", "there is no order 0", "/number"))
            self.assertTrue(host.unregister(order))
            self.assertFalse(host.unregister("order"))

    async def test_a_function_runs_in_a_thread(self) -> None:
        async with self.host() as host:
            host.register(double)
            number = 10**99
            result = await call(host, "double", {"n": number})
            self.assertEqual(result.output.structured["number"], 2 * number)
            self.assertTrue(result.output.structured["names"][0].startswith("toolbay-tool"))

    async def test_a_model_finds_and_calls_what_a_lazy_view_does_not_list(self) -> None:
        async with self.host() as host:
            host.register(double)
            view = host.view(lazy=True)
            self.assertNotIn("double", [tool["name"] for tool in view.tools])
            search = ToolCall("1", "tool_search", {"query": "double"})
            forward = ToolCall("2", "tool_call", {"name": "double", "arguments": {"n": 2}})
            found, called = await host.call_all(view, [search, forward])
            self.assertEqual([tool["name"] for tool in json.loads(found.output.value)["tools"]], ["double"])
            self.assertEqual(called.output.structured["number"], 4)

    async def test_calls_run_side_by_side(self) -> None:
        both = asyncio.Barrier(2)

        @tool
        async def meet() -> str:
            """Meet another call."""
            await both.wait()
            return "met"

        async with self.host() as host:
            host.register(meet)
            results = await host.call_all(host.view(), [ToolCall("1", "meet"), ToolCall("2", "meet")])
            self.assertEqual([result.output.value for result in results], ["met", "met"])

    async def test_an_output_has_all_its_parts(self) -> None:
        pixel = {"type": "image", "data": b"\x89PNG", "mimeType": "image/png"}
        link = {"type": "resource_link", "uri": "a:b", "name": "b", "annotations": {"priority": 0.5}}
        embedded = {"type": "resource", "resource": {"uri": "a:c", "mimeType": "text/plain", "text": "c"}}

        @tool
        async def draw() -> ToolOutput:
            """Draw a picture."""
            content: list[dict[str, Any]] = [pixel, link, embedded, {"type": "text", "text": "t"}]
            return ToolOutput("a picture", structured=[1, 2], content=content, cost_usd=0.25)

        async with self.host() as host:
            host.register(draw)
            session = Session(max_cost_usd=0.5)
            result = await call(host, "draw", session=session)
            output = result.output
            self.assertEqual((output.value, output.structured, output.cost_usd), ("a picture", {"result": [1, 2]}, 0.25))
            self.assertEqual(output.content[0], {"type": "image", "data": "iVBORw==", "mimeType": "image/png"})
            self.assertEqual([block["type"] for block in output.content], ["image", "resource_link", "resource", "text"])
            self.assertEqual(output.content[2], embedded)
            self.assertEqual((session.calls, session.cost_usd), (1, 0.25))

    async def test_budgets_of_a_session_hold(self) -> None:
        async with self.host() as host:
            host.register(double)
            session = Session(max_calls=1)
            self.assertIsNone((await call(host, "double", {"n": 1}, session=session)).failure)
            failure = (await call(host, "double", {"n": 1}, session=session)).failure
            assert failure is not None
            self.assertEqual((failure.kind, failure.code), ("refused", "not_available"))

    async def test_a_stream_has_progress_and_results_as_they_come(self) -> None:
        async with self.host() as host:
            host.register(order)
            calls = [ToolCall("1", "order", {"number": "1"}), ToolCall("2", "order", {"number": "0"})]
            seen: list[tuple[str, bool | None]] = []
            async for event in host.stream(host.view(), calls):
                match event:
                    case ProgressEvent():
                        seen.append((event.call_id, None))
                    case CallResult(failure=None):
                        seen.append((event.call_id, True))
                    case CallResult(failure=_):
                        seen.append((event.call_id, False))
            self.assertEqual(sorted(seen, key=str), sorted([("1", None), ("1", True), ("2", None), ("2", False)], key=str))

    async def test_a_stream_drops_the_oldest_progress_and_no_result(self) -> None:
        @tool
        async def report(context: CallContext) -> str:
            """Report."""
            for percent in range(20):
                context.progress(str(percent))
            return "done"

        @tool
        async def finish() -> None:
            """Finish."""

        with unittest.mock.patch("toolbay._loop.MAX_PROGRESS", 5):
            async with self.host() as host:
                host.register(report, finish)
                with self.assertLogs("toolbay", "WARNING"):
                    stream = host.stream(host.view(), [ToolCall("1", "report")])
                    seen: list[Any] = [await anext(stream)]
                    # The rest of the events arrives meanwhile, before this other call.
                    await call(host, "finish")
                    seen += [event async for event in stream]
                messages = [event.message for event in seen if isinstance(event, ProgressEvent)]
                self.assertEqual(messages[-5:], [str(percent) for percent in range(15, 20)])
                self.assertLess(len(messages), 20)
                self.assertIsInstance(seen[-1], CallResult)

    async def test_leaving_a_stream_cancels_the_rest(self) -> None:
        started, ended = asyncio.Event(), asyncio.Event()

        @tool
        async def wait() -> None:
            """Wait."""
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        @tool
        async def first() -> None:
            """End when the other call has begun."""
            await started.wait()

        async with self.host() as host:
            host.register(first, wait)
            stream = host.stream(host.view(), [ToolCall("1", "first"), ToolCall("2", "wait")])
            async for _ in stream:
                break
            await stream.aclose()  # type: ignore[attr-defined]
            await ended.wait()


class Cancellation(HostTest):
    async def test_after_a_timeout_the_results_say_what_was_cancelled(self) -> None:
        @tool
        async def wait() -> None:
            """Wait."""
            await asyncio.Event().wait()

        async with self.host() as host:
            host.register(wait, double)
            view = host.view()
            results = await host.call_all(view, [ToolCall("1", "wait"), ToolCall("2", "wait")], timeout=0.1)
            self.assertEqual([result.failure and result.failure.code for result in results], ["cancelled", "cancelled"])
            [event] = [event async for event in host.stream(view, [ToolCall("3", "wait")], timeout=0.1)]
            assert isinstance(event, CallResult) and event.failure is not None
            self.assertEqual(event.failure.code, "cancelled")
            [result] = await host.call_all(view, [ToolCall("4", "double", {"n": 1})], timeout=60)
            self.assertIsNone(result.failure)

    async def test_a_wrong_timeout_is_refused_before_a_call_begins(self) -> None:
        ran: list[str] = []

        @tool
        async def run(name: str) -> None:
            """Run."""
            ran.append(name)

        async with self.host() as host:
            host.register(run)
            for timeout in (float("nan"), -1.0, "1", 10**400):
                with self.assertRaises((TypeError, ValueError, OverflowError)):
                    await call(host, "run", {"name": "wrong"}, timeout=timeout)
            # A time that is over or never comes is right.
            for timeout in (0, float("inf")):
                await call(host, "run", {"name": "right"}, timeout=timeout)
        self.assertNotIn("wrong", ran)

    async def test_a_bridge_that_fails_ends_calls_and_streams(self) -> None:
        @tool
        async def wait() -> None:
            """Wait."""
            begun.release()
            await asyncio.Event().wait()

        async def stream() -> list[object]:
            return [event async for event in host.stream(host.view(), [ToolCall("2", "wait")])]

        begun = asyncio.Semaphore(0)
        async with self.host() as host:
            host.register(wait)
            tasks = [asyncio.create_task(work) for work in (call(host, "wait"), stream())]
            for _ in tasks:
                await begun.acquire()
            error = RuntimeError(json.dumps({"kind": "internal", "message": "lost"}))
            with unittest.mock.patch.object(_native, "drain", side_effect=error):
                mailbox_of_running_loop().drain()
            for failed in await asyncio.gather(*tasks, return_exceptions=True):
                self.assertRegex(str(failed), "lost")

    async def test_a_cancelled_task_cancels_its_calls(self) -> None:
        started, ended = asyncio.Event(), asyncio.Event()

        @tool
        async def wait() -> None:
            """Wait."""
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        async with self.host(state_dir=self.folder / "state") as host:
            host.register(wait)
            task = asyncio.create_task(call(host, "wait"))
            await started.wait()
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            await ended.wait()
        self.assertIn('"cancelled"', self.audit())

    async def test_a_tool_that_never_returns_ends_at_its_timeout(self) -> None:
        gate = threading.Event()
        self.addCleanup(gate.set)

        @tool(timeout=0.05)
        async def wait() -> None:
            """Wait."""
            await asyncio.Event().wait()

        @tool(timeout=0.05)
        def block(context: CallContext) -> bool:
            """Block."""
            gate.wait()
            return context.cancelled

        async with self.host() as host:
            host.register(wait, block)
            for name in ("wait", "block"):
                failure = (await call(host, name)).failure
                assert failure is not None
                self.assertEqual((failure.kind, failure.code), ("fault", "deadline"))


class Approvals(HostTest):
    async def test_an_approver_decides(self) -> None:
        @tool(needs_approval=True)
        async def send(text: str) -> str:
            """Send a note."""
            return text

        asked: list[ApprovalRequest] = []
        answers: list[Any] = ["yes", "no", ("no", "not today"), "deferred", "perhaps", ("yes", "x"), ValueError("x"), "always"]

        async def approve(request: ApprovalRequest) -> ApprovalReply:
            asked.append(request)
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            reply: ApprovalReply = answer
            return reply

        async with self.host(approver=approve) as host:
            host.register(send)
            session = Session()
            outcomes = []
            with self.assertLogs("toolbay", "ERROR"):
                for n in range(9):
                    result = await call(host, "send", {"text": str(n)}, session=session)
                    outcomes.append(result.failure is None)
            self.assertEqual(outcomes, [True] + 6 * [False] + [True, True])
            self.assertEqual((asked[0].tool, asked[0].args), ("send", {"text": "0"}))
            self.assertEqual(len(asked), 8)

    async def test_a_plain_function_can_approve(self) -> None:
        @tool(needs_approval=True)
        def send() -> str:
            """Send a note."""
            return "sent"

        def approve(request: ApprovalRequest) -> ApprovalReply:
            return "yes" if threading.current_thread() is not threading.main_thread() else "no"

        async with self.host(approver=approve) as host:
            host.register(send)
            self.assertEqual((await call(host, "send")).output.value, "sent")

    async def test_what_returns_an_awaitable_is_awaited_in_the_loop(self) -> None:
        async def answer(request: ApprovalRequest) -> ApprovalReply:
            await asyncio.sleep(0)
            return "yes" if threading.current_thread() is threading.main_thread() else "no"

        class Approver:
            async def __call__(self, request: ApprovalRequest) -> ApprovalReply:
                return await answer(request)

        async def work() -> str:
            await asyncio.sleep(0)
            return user.get("nobody")

        @tool(needs_approval=True)
        def send() -> Any:
            """Send a note."""
            return work()

        user.set("Ada")
        for approver in (lambda request: answer(request), Approver()):
            async with self.host(approver=approver) as host:
                host.register(send)
                self.assertEqual((await call(host, "send")).output.value, "Ada")

    async def test_without_an_approver_the_call_is_refused(self) -> None:
        @tool(needs_approval=True)
        async def send() -> str:
            """Send a note."""
            return "sent"

        async with self.host() as host:
            host.register(send)
            self.assertIsNotNone((await call(host, "send")).failure)

    async def test_closing_withdraws_the_question(self) -> None:
        started, ended = asyncio.Event(), asyncio.Event()

        @tool(needs_approval=True)
        async def send() -> str:
            """Send a note."""
            return "sent"

        async def approve(request: ApprovalRequest) -> ApprovalReply:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return "yes"

        host = await self.host(approver=approve, state_dir=self.folder / "state")
        host.register(send)
        task = asyncio.create_task(call(host, "send"))
        await started.wait()
        await host.close()
        await ended.wait()
        failure = (await task).failure
        assert failure is not None
        self.assertEqual(failure.code, "cancelled")
        self.assertIn("cancelled", self.audit())


class Names(HostTest):
    def test_the_public_names_are_those_of_the_documentation(self) -> None:
        self.assertEqual(len(toolbay.__all__), 17, "15 names, `Arg`, and the alias `ApprovalReply`")
