"""What a program or its tools do wrong, and what is missing on its machine."""

from __future__ import annotations

import base64
import enum
import hashlib
import json
import os
import threading
import unittest.mock
from collections.abc import Callable
from typing import Annotated, Any

from support import TRAPS, HostTest, call

from toolbay import (
    ApprovalReply, ApprovalRequest, Arg, Host, HostError, Policy, ProgressEvent, Session, ToolCall, ToolError, _executable,
    tool, vendor,
)
from toolbay._threads import ThreadPool

CYCLE: list[Any] = []
CYCLE.append({"x": CYCLE})


class Color(str, enum.Enum):
    RED = "red"


def nested(depth: int) -> Any:
    value: Any = None
    for _ in range(depth):
        value = [value]
    return value


# A value, its error, and the pointer to it.
NO_JSON: list[tuple[Any, type[Exception], str]] = [
    ({"a": [float("nan")]}, ValueError, "/a/0"), ({"a": float("inf")}, ValueError, "/a"), ({"a": b"x"}, TypeError, "/a"),
    ({"a/b": {1}}, TypeError, "/a~1b"), ({"a": CYCLE}, ValueError, "/a/0/x"), ({"a": "\ud800"}, ValueError, "/a"),
    ({"a": {1: 2}}, TypeError, "/a/1"), ({"a": object()}, TypeError, "/a"), ({"a": nested(127)}, ValueError, "/a/0"),
]


class Arguments(HostTest):
    def test_what_json_cannot_express_is_refused_with_its_pointer(self) -> None:
        for value, error, pointer in NO_JSON:
            with self.assertRaisesRegex(error, f"at `{pointer}"):
                ToolCall("1", "t", value)
        ToolCall("1", "t", {"a": nested(126)})
        self.assertEqual(ToolCall("1", "t", {Color.RED: 1}).args, '{"red":1}')
        with self.assertRaises(ValueError):
            vendor.parse_calls("anthropic", CYCLE)

    async def test_no_call_of_the_batch_runs(self) -> None:
        runs: list[int] = []

        @tool
        async def run() -> None:
            """Run."""
            runs.append(1)

        async with self.host() as host:
            host.register(run)
            with self.assertRaises(ValueError):
                await host.call_all(host.view(), [ToolCall("1", "run"), ToolCall("2", "run", '"\ud800"')])
            self.assertEqual(runs, [])

    async def test_what_a_model_writes_wrongly_is_a_refusal(self) -> None:
        @tool
        async def add(n: Annotated[int, Arg("A small number.", le=9)]) -> int:
            """Add one."""
            return n + 1

        async with self.host() as host:
            host.register(add)
            for args in ("{", "[]", '{"n": "x"}', '{"n": 10}', '{"n": 1, "m": 2}', '{"n": 1, "n": 2}', "{}"):
                failure = (await call(host, "add", args)).failure
                assert failure is not None
                self.assertEqual((failure.kind, failure.code), ("refused", "input_invalid"), args)
            self.assertIsNotNone((await call(host, "no_such_tool")).failure)

    async def test_arguments_of_a_model_that_json_lacks_cost_one_call(self) -> None:
        @tool
        async def repeat(text: str) -> str:
            """Repeat a text."""
            return text

        inputs: list[Any] = [
            {"text": "\ud800"}, {"text": "a"}, {"text": float("nan")}, {"text": "b", "more": nested(130)}, float("inf"),
        ]
        message = {"content": [
            {"type": "text", "text": "\ud800", "score": float("nan")},
            *({"type": "tool_use", "id": str(n), "name": "repeat", "input": value} for n, value in enumerate(inputs)),
        ]}
        async with self.host() as host:
            host.register(repeat)
            calls = vendor.parse_calls("anthropic", message)
            results = await host.call_all(host.view(), calls)
            self.assertEqual([result.failure is None for result in results], [False, True, False, False, False])
            for result in results:
                self.assertTrue(result.failure is None or result.failure.code == "input_invalid", result)
            assert results[0].failure is not None
            self.assertIn("surrogate", results[0].failure.message)
            self.assertIn("`/text`", results[0].failure.message)
            texts = ('{"text": "\ud800"}', '{"text": "c"}')
            listed = [{"function": {"name": "repeat", "arguments": text}} for text in texts]
            results = await host.call_all(host.view(), vendor.parse_calls("openai-chat", listed))
            self.assertEqual([result.failure is None for result in results], [False, True])

    async def test_a_value_of_another_type_says_how_to_make_one(self) -> None:
        wrong: Any = "wrong"
        number: Any = 1
        nothing: Any = None
        async with self.host() as host:
            view = host.view()
            uses: list[Callable[[], Any]] = [
                lambda: Host(wrong), lambda: ToolCall(number, "t"), lambda: ToolCall("1", number),
                lambda: vendor.view_definitions("mcp", wrong), lambda: vendor.result_messages("mcp", [wrong]),
                lambda: host.call_all(wrong, []), lambda: host.call_all(view, [wrong]),
                lambda: host.call_all(view, [], session=wrong), lambda: host.call_all(view, [], timeout=wrong),
            ]
            for use in uses:
                with self.assertRaisesRegex(TypeError, "not "):
                    await use()
            with self.assertRaisesRegex(TypeError, "a policy is"):
                Policy.parse(nothing, base=".")
            for timeout in (-1, float("nan")):
                with self.assertRaises(ValueError):
                    await host.call_all(view, [], timeout=timeout)

    async def test_an_option_of_another_type_or_value_is_named(self) -> None:
        wrong: Any = object()
        policy = Policy.deny_all(self.folder)

        def define(**options: Any) -> None:
            def work() -> None:
                """Work."""

            tool(**options)(work)

        async with self.host() as host:
            view = host.view()
            options = "name description title namespace toolset search_hint max_result_chars serial timeout cache output tags"
            uses: list[tuple[str, Callable[..., Any]]] = [
                ("name id max_calls max_identical_calls max_calls_per_turn max_identical_calls_per_turn max_cost_usd", Session),
                ("plugins state_dir cache_dir approver state_wait source_wait call_log", lambda **o: Host(policy, **o)),
                ("profile allowed_tools allowed_plugins allowed_toolsets allowed_tags allowed_mcp_servers allowed_mcp_tools "
                 "exclude_tools exclude_tags lazy toolcall_reason", host.view),
                ("limit tool outcome session_id", host.calls),
                (f"{options} read_only needs_approval", define),
                ("base", Policy.deny_all), ("file", Policy.read), ("base", lambda **o: Policy.parse("", **o)),
                ("idempotency_key", lambda **o: ToolCall("1", "t", **o)), ("plugin", host.unload),
            ]
            for names, use in uses:
                for name in names.split():
                    with self.assertRaisesRegex(TypeError, f"`{name}` is "):
                        use(**{name: wrong})
            for name in ("budget_chars", "dry_run", "identity", "progress"):
                with self.assertRaisesRegex(TypeError, f"`{name}` is "):
                    await host.call_all(view, [], **{name: wrong})
            with self.assertRaisesRegex(TypeError, "'turn'"):
                await host.call_all(view, [], identity={"turn": "1"})
            values: list[tuple[str, Callable[[], Any]]] = [
                ("max_calls", lambda: Session(max_calls=-3)), ("max_cost_usd", lambda: Session(max_cost_usd=float("nan"))),
                ("call_log", lambda: Host(policy, call_log=-1)), ("state_wait", lambda: Host(policy, state_wait=-1)),
                ("max_result_chars", lambda: define(max_result_chars=2**32)), ("timeout", lambda: define(timeout=0)),
            ]
            for name, use in values:
                with self.assertRaisesRegex((TypeError, ValueError), f"`{name}` (is|must be) "):
                    use()

    async def test_integers_are_exact_both_ways(self) -> None:
        asked: list[int] = []

        @tool(needs_approval=True)
        async def echo(n: int) -> dict[str, Any]:
            """Repeat a number."""
            return {"n": n}

        async def approve(request: ApprovalRequest) -> ApprovalReply:
            asked.append(request.args["n"])
            return "yes" if str(asked[-1]) in request.preview else "no"

        async with self.host(approver=approve) as host:
            host.register(echo)
            for n in (2**53 + 1, -(2**63), 2**64, 10**99 + 7):
                self.assertEqual((await call(host, "echo", {"n": n})).output.structured, {"n": n})
                message = {"content": [{"type": "tool_use", "id": "1", "name": "echo", "input": {"n": n}}]}
                for form in (message, json.dumps(message)):
                    results = await host.call_all(host.view(), vendor.parse_calls("anthropic", form))
                    self.assertEqual(results[0].output.structured, {"n": n})
                self.assertEqual(asked[-3:], [n, n, n])
                [reply] = vendor.result_messages("mcp", results)
                self.assertEqual(reply["result"]["structuredContent"], {"n": n})


class Tools(HostTest):
    async def test_a_result_that_is_no_json_names_tool_and_pointer(self) -> None:
        async with self.host() as host:
            for number, (value, _, pointer) in enumerate(NO_JSON):
                def give(value: Any = value) -> Any:
                    return value

                async def answer() -> Any:
                    return give()

                answer.__doc__ = "Answer."
                host.register(tool(name=f"t{number}")(answer))
                failure = (await call(host, f"t{number}")).failure
                assert failure is not None
                self.assertEqual(failure.code, "execution_failed")
                self.assertIn(f"`t{number}`", failure.message)
                self.assertIn(f"`{pointer}", failure.message)

    async def test_a_result_that_does_not_match_its_schema_says_so(self) -> None:
        integer, keyed = {"type": "integer"}, {"type": "object", "required": ["k"]}
        cases: list[tuple[dict[str, Any], Any, bool]] = [
            (integer, 5, True), (integer, [5], False), (keyed, {"k": 1}, True), (keyed, {"n": 1}, False),
            ({"anyOf": [keyed]}, {"k": 1}, True),
        ]
        async with self.host() as host:
            for number, (output, value, matches) in enumerate(cases):
                def answer(value: Any = value) -> Any:
                    """Answer."""
                    return value

                name = f"t{number}"
                host.register(tool(name=name, output=output)(answer))
                result = await call(host, name)
                [message] = vendor.result_messages("openai-chat", [result])
                self.assertEqual("does not match its schema" not in message["content"], matches, message)

    async def test_an_exception_is_a_failure_and_its_traceback_is_logged(self) -> None:
        @tool
        async def fail() -> None:
            """Fail."""
            try:
                raise OSError("status 404")
            except OSError as error:
                raise RuntimeError("no page") from error

        @tool
        def fail_in_thread() -> None:
            """Fail."""
            raise KeyError("k")

        @tool
        async def refuse() -> None:
            """Refuse."""
            raise ToolError("not-available", "closed \ud800", "later", cost_usd=0.5)

        async with self.host() as host:
            host.register(fail, fail_in_thread, refuse)
            for name, message in (("fail", "no page: status 404"), ("fail_in_thread", "KeyError: 'k'")):
                with self.assertLogs("toolbay", "ERROR") as logged:
                    failure = (await call(host, name)).failure
                self.assertEqual(failure and (failure.code, failure.message), ("execution_failed", message))
                self.assertIn("Traceback", logged.output[0])
            result = await call(host, "refuse")
            assert result.failure is not None
            self.assertEqual((result.failure.code, result.failure.subject, result.cost_usd), ("not_available", "later", 0.5))
            with self.assertRaises(ValueError):
                ToolError("no_such_code", "x")

    async def test_an_exception_that_cannot_be_shown_is_a_failure(self) -> None:
        class Unreadable(Exception):
            def __str__(self) -> str:
                raise ValueError("no text")

        @tool
        def fail() -> None:
            """Fail."""
            raise Unreadable

        @tool
        async def fail_in_loop() -> None:
            """Fail."""
            raise Unreadable

        @tool
        def work() -> str:
            """Work."""
            return "done"

        async with self.host() as host:
            host.register(fail, fail_in_loop, work)
            for name in ("fail", "fail_in_loop"):
                # More than there are threads.
                with self.assertLogs("toolbay", "ERROR"):
                    results = await host.call_all(host.view(), [ToolCall(str(n), name) for n in range(40)])
                for result in results:
                    self.assertEqual(result.failure and result.failure.code, "execution_failed")
            self.assertEqual((await call(host, "work")).output.value, "done")
        with self.assertRaises(ValueError):
            ToolError("execution_failed", "x", cost_usd=float("nan"))

    async def test_without_a_thread_a_call_is_busy(self) -> None:
        @tool
        def work() -> str:
            """Work."""
            return "done"

        async with self.host() as host:
            host.register(work)
            with (
                unittest.mock.patch("toolbay._loop.BUSY_WAIT", 0),
                unittest.mock.patch("toolbay._threads._pool", ThreadPool()),
            ):
                with unittest.mock.patch("toolbay._threads.threading.Thread.start", side_effect=RuntimeError("no thread")):
                    failure = (await call(host, "work")).failure
                self.assertEqual(failure and failure.code, "busy")
                self.assertEqual((await call(host, "work")).output.value, "done")

    async def test_a_progress_function_that_fails_costs_its_event_only(self) -> None:
        @tool
        async def work(context: Any = None) -> str:
            """Work."""
            return "done"

        def show(_: ProgressEvent) -> None:
            raise ValueError("no terminal")

        async def show_later(_: ProgressEvent) -> None: ...

        from test_calls import order

        async with self.host() as host:
            host.register(order)
            with self.assertLogs("toolbay", "ERROR"):
                self.assertIsNone((await call(host, "order", {"number": "1"}, progress=show)).failure)
            with self.assertRaises(TypeError):
                await call(host, "order", {"number": "1"}, progress=show_later)

    async def test_functions_have_at_most_32_threads(self) -> None:
        gate = threading.Event()
        self.addCleanup(gate.set)

        @tool
        def block() -> str:
            """Block."""
            gate.wait()
            return "done"

        @tool
        async def open_gate() -> None:
            """Let the others go on."""
            gate.set()

        async with self.host() as host:
            host.register(block, open_gate)
            with unittest.mock.patch("toolbay._loop.BUSY_WAIT", 0):
                outcomes: list[str] = []
                async for event in host.stream(host.view(), [ToolCall(str(n), "block") for n in range(33)]):
                    assert not isinstance(event, ProgressEvent)
                    outcomes.append(event.failure.code if event.failure else event.output.value)
                    # Once one is refused, the others may end.
                    gate.set()
            self.assertEqual(sorted(outcomes), ["busy"] + 32 * ["done"])

    async def test_a_wrong_definition_says_what_is_wrong(self) -> None:
        def bare(a) -> str:  # type: ignore[no-untyped-def]
            """D."""
            return ""

        untyped: Any = bare

        def undescribed() -> str:
            return ""

        def many(*args: int) -> str:
            """D."""
            return ""

        def steps() -> Any:
            """D."""
            yield 1

        from test_calls import double, order

        cases: list[tuple[Callable[[], object], str]] = [
            (lambda: tool(untyped), "has no type hint"), (lambda: tool(undescribed), "needs a docstring"),
            (lambda: tool(many), "has no name"), (lambda: tool(steps), "must not `yield`"),
            (lambda: tool(readonly=True)(untyped), "unknown option `readonly`"),  # type: ignore[call-overload]
            (lambda: tool(name="a b")(undescribed), "must be 1 to 48"),
            (lambda: tool(tags="destructive")(undescribed), "`tags` is a list"),
            (lambda: tool(timeout=0)(order), "`timeout` must be seconds"),
            (lambda: tool(cache=float("nan"))(order), "`cache` must be seconds"),
        ]
        for make, expected in cases:
            with self.assertRaisesRegex(TypeError, expected):
                make()
        async with self.host() as host:
            with self.assertRaisesRegex(TypeError, "write @tool above it"):
                host.register(untyped)
            host.register(double)
            with self.assertRaisesRegex(ValueError, "already registered"):
                host.register(double)


class Machine(HostTest):
    async def test_a_missing_program_or_one_of_another_version_is_named(self) -> None:
        other = self.folder / "other"
        other.write_text("#!/bin/sh\necho toolbay 0.0.1\n")
        other.chmod(0o700)
        for program in (self.folder / "none", other):
            with unittest.mock.patch.dict(os.environ, {"TOOLBAY_BIN": str(program)}):
                with self.assertRaises(HostError) as raised:
                    await self.host()
            self.assertEqual(raised.exception.kind, "executable")
            self.assertIn(str(program), str(raised.exception))
            self.assertIn("TOOLBAY_BIN", str(raised.exception))

    async def test_a_program_that_was_deleted_is_named_when_it_is_needed(self) -> None:
        link = self.folder / "toolbay"
        link.symlink_to(_executable.find())
        with unittest.mock.patch.dict(os.environ, {"TOOLBAY_BIN": str(link)}):
            async with Host(Policy.deny_all(self.folder), cache_dir=self.folder / "cache") as host:
                link.unlink()
                with self.assertRaises(HostError) as raised:
                    await host.load_bytes("traps", TRAPS)
        self.assertEqual(raised.exception.kind, "executable")
        self.assertIn(str(link), str(raised.exception))

    def test_only_the_program_of_the_installation_is_found(self) -> None:
        package = self.folder / "lib" / "python" / "toolbay"
        (package.parent / "toolbay-0.1.0.dist-info").mkdir(parents=True)
        record = package.parent / "toolbay-0.1.0.dist-info" / "RECORD"
        (package.parent / "toolbay-0.1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: toolbay\n")
        outside, inside = self.folder / "bin" / "toolbay", package.parent / "bin" / "toolbay"
        digest = base64.urlsafe_b64encode(hashlib.sha256(b"program").digest()).decode().rstrip("=")
        record.write_text(f"toolbay/__init__.py,,\n../../bin/toolbay,sha256={digest},7\n")
        environment = unittest.mock.patch.dict(os.environ)
        with environment, unittest.mock.patch("toolbay._executable.__file__", str(package / "_executable.py")):
            del os.environ["TOOLBAY_BIN"]

            def refuse() -> None:
                with self.assertRaises(HostError) as raised:
                    _executable.find()
                self.assertEqual(raised.exception.kind, "executable")

            refuse()
            outside.parent.mkdir()
            outside.write_text("another")
            refuse()
            outside.write_text("program")
            self.assertEqual(_executable.find(), str(outside))
            inside.parent.mkdir()
            inside.write_text("moved by `pip install --target`")
            self.assertEqual(_executable.find(), str(inside))
            record.write_text("toolbay/__init__.py,,\n../../bin/toolbay,,\n")
            inside.unlink()
            refuse()

    async def test_what_cannot_be_opened_is_a_host_error(self) -> None:
        (self.folder / "file").write_text("")
        for options, kind in [({"plugins": self.folder / "none"}, "load"), ({"state_dir": self.folder / "file"}, "state")]:
            with self.assertRaises(HostError) as raised:
                await self.host(**options)
            self.assertEqual(raised.exception.kind, kind)

    async def test_a_file_that_does_not_load_is_a_problem(self) -> None:
        (self.folder / "plugins").mkdir()
        (self.folder / "plugins" / "broken.wasm").write_text("no component")
        async with self.host(plugins=self.folder / "plugins") as host:
            self.assertEqual([problem["plugin"] for problem in host.problems], ["broken"])
            none = self.folder / "none"
            for load, subject in ((host.load_bytes("x", b"no component"), "`x`"), (host.load_file("x", none), str(none))):
                with self.assertRaises(HostError) as raised:
                    await load
                self.assertEqual(raised.exception.kind, "load")
                self.assertIn(subject, str(raised.exception))

    def test_a_wrong_policy_names_file_line_and_key(self) -> None:
        file = self.folder / "toolbay.toml"
        file.write_text("version = 1\n[plugins.text.grant]\nfs_red = ['a']\n")
        with self.assertRaises(HostError) as raised:
            Policy.read(file)
        error = raised.exception
        self.assertEqual((error.kind, error.file, error.line), ("policy", str(file), 3))
        self.assertIn("fs_red", error.key or "")
        makers: list[Callable[[], Policy]] = [
            lambda: Policy.read(self.folder / "none.toml"), lambda: Policy.parse("version = 2", base=self.folder),
            lambda: Policy.parse({"version": 1, "x": 1}, base=self.folder),
        ]
        for make in makers:
            with self.assertRaises(HostError) as raised:
                make()
            self.assertEqual(raised.exception.kind, "policy")
        file.write_text("version = 1\n")
        Policy.read(file)
        with self.assertRaises(TypeError):
            Policy.parse({"version": {1}}, base=self.folder)

    async def test_two_hosts_share_a_state_directory(self) -> None:
        async with self.host(state_dir=self.folder / "state") as one, self.host(state_dir=self.folder / "state") as two:
            for host in (one, two):
                self.assertIsNotNone((await call(host, "no_such_tool")).failure)
        self.assertEqual(self.audit().count("no_such_tool"), 2)
