"""Programs without asyncio, and the ends of programs."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from support import HostTest, ProgramTest

from toolbay import HostError, ToolCall, _host, tool


@tool
async def echo(text: str) -> str:
    """Repeat a text."""
    return text


class Sync(HostTest):
    def test_a_program_without_asyncio_calls_tools(self) -> None:
        with self.host() as host:
            host.register(echo)
            for text in ("a", "b"):
                [result] = host.call_all_sync(host.view(), [ToolCall("1", "echo", {"text": text})])
                self.assertEqual(result.output.value, text)

    def test_threads_share_a_host(self) -> None:
        values: list[str] = []
        with self.host() as host:
            host.register(echo)

            def work(n: int) -> None:
                [result] = host.call_all_sync(host.view(), [ToolCall("1", "echo", {"text": str(n)})])
                values.append(result.output.value)

            threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(sorted(values), [str(n) for n in range(8)])

    def test_loops_share_a_host(self) -> None:
        async def work() -> str:
            [result] = await host.call_all(host.view(), [ToolCall("1", "echo", {"text": "x"})])
            return result.output.value

        with self.host() as host:
            host.register(echo)
            self.assertEqual([asyncio.run(work()) for _ in range(3)], ["x", "x", "x"])

    def test_a_loop_that_is_closed_cancels_its_calls(self) -> None:
        def leave(task: Any) -> None:
            """Lets a task end with its loop. asyncio would complain."""
            task._log_destroy_pending = False

        async def wait_forever() -> None:
            leave(asyncio.current_task())
            started.set()
            await asyncio.Event().wait()

        started = threading.Event()
        wait_forever.__doc__ = "Wait."
        with self.host(state_dir=self.folder / "state") as host:
            host.register(tool(name="wait")(wait_forever))
            loop = asyncio.new_event_loop()
            task = loop.create_task(host.call_all(host.view(), [ToolCall("1", "wait")]))

            async def until_started() -> None:
                while not started.is_set():
                    await asyncio.sleep(0.001)

            loop.run_until_complete(until_started())
            loop.close()
            # The loop is gone with the tasks in it.
            leave(task)
        self.assertIn("cancelled", self.audit())

    def test_it_is_refused_inside_of_a_running_loop(self) -> None:
        async def main() -> None:
            async with self.host() as host:
                with self.assertRaisesRegex(TypeError, "await host.call_all"):
                    host.call_all_sync(host.view(), [])
                with self.assertRaisesRegex(TypeError, "async with"), self.host():
                    pass

        asyncio.run(main())

    def test_without_asyncio_the_error_names_it(self) -> None:
        with self.host() as host, self.assertRaisesRegex(TypeError, "asyncio"):
            host.call_all(host.view(), []).send(None)

    def test_an_exception_of_the_loop_leaves_nothing_for_the_next_run(self) -> None:
        def interrupt() -> None:
            raise KeyboardInterrupt

        async def work() -> None:
            asyncio.get_running_loop().call_soon(interrupt)

        runner = _host._runner()
        self.addCleanup(runner.close)
        with self.assertRaises(KeyboardInterrupt):
            # It comes when the task is done and the loop does not know.
            runner.run(work())
        self.assertEqual(runner.run(asyncio.sleep(0.001, "done")), "done")

    def test_a_closed_host_says_so(self) -> None:
        host = self.host()
        with host:
            with self.assertRaisesRegex(ValueError, "open already"), host:
                pass
        for use in (host.view, lambda: host.problems, lambda: host.register(echo)):
            with self.assertRaises(HostError) as raised:
                use()
            self.assertEqual(raised.exception.kind, "closed")


class Ends(ProgramTest):
    def test_a_program_ends_while_calls_run(self) -> None:
        for end in ("sys.exit(7)", "os._exit(7)", "raise SystemExit(7)"):
            code, _, errors = self.run_in_folder(f"""
                host = Host(policy, state_dir=state)
                async def main():
                    await host
                    host.register(wait)
                    task = asyncio.create_task(host.call_all(host.view(), [ToolCall("1", "wait")]))
                    await asyncio.sleep(0.05)
                    {end}
                asyncio.run(main())
            """)
            self.assertEqual((code, errors), (7, ""), end)
        self.assertIn("cancelled", self.audit())

    def test_a_program_ends_although_a_tool_ignores_its_cancellation(self) -> None:
        code, output, _ = self.run_in_folder("""
            @tool(timeout=0.01)
            async def stay() -> None:
                '''Stay.'''
                while True:
                    try:
                        await asyncio.Event().wait()
                    except asyncio.CancelledError:
                        pass
            with Host(policy) as host:
                host.register(stay)
                print(host.call_all_sync(host.view(), [ToolCall("1", "stay")])[0].failure.code)
        """)
        self.assertEqual((code, output), (0, "deadline\n"))

    def test_a_host_that_the_end_of_python_closed_is_left_without_an_error(self) -> None:
        code, output, errors = self.run_in_folder("""
            from toolbay import _host
            with Host(policy) as host:
                host.register(wait)
                # What runs when Python ends; a daemon thread can go on meanwhile.
                _host._shut_down()
                try:
                    host.view()
                except HostError as error:
                    print(error.kind)
        """)
        self.assertEqual((code, output, errors), (0, "closed\n", ""))

    def test_control_c_ends_a_synchronous_call(self) -> None:
        code, output, _ = self.run_in_folder("""
            @tool
            async def interrupt() -> None:
                '''Interrupt the program.'''
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.Event().wait()
            with Host(policy, state_dir=state) as host:
                host.register(interrupt)
                try:
                    host.call_all_sync(host.view(), [ToolCall("1", "interrupt")])
                except KeyboardInterrupt:
                    print("interrupted")
        """)
        self.assertEqual((code, output), (0, "interrupted\n"))
        self.assertIn("cancelled", self.audit())

    def test_an_exit_in_a_tool_is_raised_in_the_loop(self) -> None:
        for kind in ("async def", "def"):
            for error in ("SystemExit(3)", "KeyboardInterrupt()"):
                code, _, errors = self.run_in_folder(f"""
                    @tool
                    {kind} leave() -> None:
                        '''Leave.'''
                        raise {error}
                    async def main():
                        async with Host(policy) as host:
                            host.register(leave)
                            await host.call_all(host.view(), [ToolCall("1", "leave")])
                            await asyncio.sleep(10)
                    try:
                        asyncio.run(main())
                    except KeyboardInterrupt:
                        sys.exit(4)
                """)
                self.assertEqual(code, 3 if "SystemExit" in error else 4, errors)

    def test_an_exit_in_an_approver_or_a_progress_function_is_raised_in_the_loop(self) -> None:
        for approver, progress in ("leave", "None"), ("agree", "leave"):
            code, output, errors = self.run_in_folder(f"""
                from toolbay import CallContext
                @tool(needs_approval=True)
                async def work(context: CallContext) -> None:
                    '''Work.'''
                    print("works", flush=True)
                    context.progress("begun")
                    await asyncio.Event().wait()
                async def agree(request):
                    return "yes"
                def leave(_):
                    sys.exit(3)
                with Host(policy, approver={approver}, state_dir=state) as host:
                    host.register(work)
                    host.call_all_sync(host.view(), [ToolCall("1", "work")], progress={progress})
            """)
            self.assertEqual((code, output), (3, "works\n" if approver == "agree" else ""), errors)
        self.assertIn("cancelled", self.audit())

    def test_a_fork_of_an_open_host_is_refused(self) -> None:
        code, output, errors = self.run_in_folder("""
            with Host(policy) as host:
                view = host.view()
                child = os.fork()
                if child == 0:
                    try:
                        host.call_all_sync(view, [])
                    except HostError as error:
                        print(error.kind, flush=True)
                    try:
                        Host(policy).__enter__()
                    except HostError as error:
                        print(error.kind, flush=True)
                    os._exit(0)
                os.waitpid(child, 0)
                print(len(host.call_all_sync(view, [])))
        """)
        self.assertEqual((code, output), (0, "fork\nfork\n0\n"), errors)

    def test_a_child_opens_its_own_host(self) -> None:
        code, output, errors = self.run_in_folder("""
            child = os.fork()
            with Host(policy) as host:
                os.write(1, b"%d\\n" % len(host.call_all_sync(host.view(), [])))
            if child:
                os.waitpid(child, 0)
        """)
        self.assertEqual((code, output), (0, "0\n0\n"), errors)
        # A child of a child, with the loop of its parent.
        code, output, errors = self.run_in_folder("""
            import multiprocessing
            def work(n):
                with Host(policy) as host:
                    return len(host.call_all_sync(host.view(), []))
            if __name__ == "__main__":
                with multiprocessing.get_context("fork").Pool(2) as pool:
                    print(pool.map(work, range(2)))
        """)
        self.assertEqual((code, output), (0, "[0, 0]\n"), errors)

    def test_the_import_starts_and_opens_nothing(self) -> None:
        code, output, errors = self.run_in_folder("""
            print(threading.active_count(), [name for name in os.listdir("/proc/self/task")] == [str(os.getpid())])
            kinds = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")]
            print(any(kind.startswith("socket:") for kind in kinds))
        """)
        self.assertEqual((code, output), (0, "1 True\nFalse\n"), errors)
