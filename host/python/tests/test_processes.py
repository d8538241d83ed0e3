"""Signals, forks and limits of processes."""

from __future__ import annotations

import json
import signal

from support import ProgramTest
from test_sync import echo

from toolbay import ToolCall

LIMITED = """
    import asyncio, logging, os, resource, sys
    from toolbay import Host, HostError, Policy, Session, ToolCall, tool
    # A crash is part of some tests.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    policy = Policy.parse("version = 1\\n[host]\\nbreaker_faults = 0", base=sys.argv[1])
    plugins, cache = os.path.join(sys.argv[1], "traps"), sys.argv[2]

    @tool
    async def answer() -> str:
        '''Answer.'''
        return "yes"

    def run(host, *names, session=None):
        calls = [ToolCall(str(n), name) for n, name in enumerate(names)]
        results = host.call_all_sync(host.view(), calls, session=session)
        return [result.failure.code if result.failure else result.output.value for result in results]
"""


class Traps(ProgramTest):
    def test_traps_are_faults_and_a_segfault_reaches_faulthandler(self) -> None:
        self.traps()
        code, output, errors = self.run_in_folder("""
            import ctypes, faulthandler
            logging.disable()
            faulthandler.enable()
            with Host(policy, plugins=plugins, cache_dir=cache) as host:
                traps = [f"traps__{name}" for name in ("stop", "divide", "reach")]
                print({code for _ in range(35) for code in run(host, *(20 * traps))})
                print(run(host, "traps__rest"), flush=True)
                ctypes.string_at(0)
        """, LIMITED)
        self.assertEqual((code, output), (-signal.SIGSEGV, "{'trap'}\n['done']\n"), errors)
        self.assertIn("Fatal Python error: Segmentation fault", errors)

    def test_faulthandler_that_replaces_the_handlers_of_traps_is_refused(self) -> None:
        self.traps()
        for before, after in ("disable", "enable"), ("enable", "disable"):
            code, output, errors = self.run_in_folder(f"""
                import faulthandler
                logging.disable()
                faulthandler.{before}()
                with Host(policy, plugins=plugins, cache_dir=cache) as host:
                    faulthandler.{after}()
                    for use in (lambda: run(host, "traps__stop"), Host(policy).__enter__):
                        try:
                            use()
                        except ValueError as error:
                            print("faulthandler" in str(error))
                    if {before == "disable"}:
                        faulthandler.{before}()
                        print(run(host, "traps__stop") == ["trap"])
            """, LIMITED)
            self.assertEqual((code, output), (0, 3 * "True\n" if before == "disable" else 2 * "True\n"), errors)


class Machine(ProgramTest):
    def test_without_a_cache_or_a_pool_calls_work(self) -> None:
        self.traps()
        code, output, errors = self.run_in_folder("""
            messages = []
            class Collect(logging.Handler):
                def emit(self, record):
                    messages.append(record.getMessage())
            logging.getLogger("toolbay").addHandler(Collect())

            def check(warning, runs=("done", "yes"), times=1, **options):
                with Host(policy, plugins=plugins, **options) as host:
                    host.register(answer)
                    assert run(host, "traps__rest", "answer") == list(runs), messages
                assert sum(warning in message for message in messages) == times, messages
                messages.clear()

            # The pool does not fit. In 4 GiB, the memory of a guest does not either.
            most = resource.getrlimit(resource.RLIMIT_AS)[1]
            for gib, runs, times in (4, ("host_failed", "yes"), 1), (8, ("done", "yes"), 0):
                resource.setrlimit(resource.RLIMIT_AS, (gib << 30, most))
                # A process says it once.
                check("instance pool", runs, times, cache_dir=cache)
            resource.setrlimit(resource.RLIMIT_AS, (most, most))

            # A home that nobody can write, and a cache of another user.
            os.environ.pop("TOOLBAY_CACHE", None)
            os.environ.pop("XDG_CACHE_HOME", None)
            os.environ["HOME"] = "/proc/self"
            check("compile cache is not used")
            if os.geteuid() == 0:
                other = os.path.join(sys.argv[1], "other")
                os.mkdir(other, 0o700)
                os.chown(other, 65534, 65534)
            else:
                other = "/"
            check("belongs to another user", cache_dir=other)
        """, LIMITED)
        self.assertEqual((code, output), (0, ""), errors)


class Forks(ProgramTest):
    def test_workers_that_are_forked_after_a_preload_open_hosts(self) -> None:
        self.traps()
        code, output, errors = self.run_in_folder("""
            session = Session(max_calls=1)
            def work():
                with Host(policy, plugins=plugins, cache_dir=cache) as host:
                    host.register(answer)
                    assert run(host, "answer", session=session) == ["yes"]
                    assert run(host, "answer", session=session) != ["yes"]
                    assert run(host, "traps__rest") == ["done"]
            children = [os.fork() for _ in range(2)]
            work()
            # Children of a child, too.
            if 0 not in children:
                print([os.waitpid(child, 0)[1] for child in children])
        """, LIMITED)
        self.assertEqual((code, output), (0, "[0, 0]\n"), errors)

    def test_children_have_sessions_of_their_own(self) -> None:
        code, output, errors = self.run_in_folder("""
            sessions = [Session()]
            for _ in range(2):
                child = os.fork()
                if child == 0:
                    print(Session().id, flush=True)
                    os._exit(0)
                os.waitpid(child, 0)
        """, LIMITED)
        self.assertEqual(code, 0, errors)
        one, another = output.split()
        self.assertNotEqual(one, another)

    def test_a_child_may_open_a_host_after_an_opening_that_failed(self) -> None:
        code, output, errors = self.run_in_folder("""
            for options in {"plugins": "/none"}, {"state_dir": "/dev/null"}, {"plugins": "/none", "cache_dir": cache}:
                try:
                    Host(policy, **options).__enter__()
                except HostError as error:
                    print(error.kind, flush=True)
            child = os.fork()
            with Host(policy, cache_dir=cache) as host:
                host.register(answer)
                assert run(host, "answer") == ["yes"]
            if child:
                print(os.waitpid(child, 0)[1])
        """, LIMITED)
        self.assertEqual((code, output), (0, "load\nstate\nload\n0\n"), errors)


class Signals(ProgramTest):
    def test_a_program_that_is_terminated_leaves_a_state_that_opens_again(self) -> None:
        for end, expected in ("signal.SIGTERM", -signal.SIGTERM), ("signal.SIGKILL", -signal.SIGKILL):
            code, _, errors = self.run_in_folder(f"""
                begun = asyncio.Event()
                @tool
                async def stay() -> None:
                    '''Stay.'''
                    begun.set()
                    await asyncio.Event().wait()
                @tool
                async def terminate() -> None:
                    '''Terminate the program.'''
                    await begun.wait()
                    os.kill(os.getpid(), {end})
                with Host(policy, state_dir=state) as host:
                    host.register(stay, terminate)
                    host.call_all_sync(host.view(), [ToolCall("1", "stay"), ToolCall("2", "terminate")])
            """)
            self.assertEqual((code, errors), (expected, ""))
        with self.host(state_dir=self.folder / "state") as host:
            host.register(echo)
            [result] = host.call_all_sync(host.view(), [ToolCall("1", "echo", {"text": "x"})])
            self.assertEqual(result.output.value, "x")
        begun = [json.loads(line)["tool"] for line in self.audit().splitlines() if '"kind":"start"' in line]
        self.assertEqual(sorted(begun), ["echo", "stay", "stay", "terminate", "terminate"])

    def test_control_c_once_and_twice_leaves_a_host_that_works(self) -> None:
        code, output, errors = self.run_in_folder("""
            def interrupt(times):
                async def work() -> None:
                    '''Interrupt the program.'''
                    for _ in range(times):
                        os.kill(os.getpid(), signal.SIGINT)
                    await asyncio.Event().wait()
                return tool(name=f"interrupt{times}")(work)

            @tool
            async def answer() -> str:
                '''Answer.'''
                return "yes"

            with Host(policy) as host:
                host.register(interrupt(1), interrupt(2), answer)
                for name in ("interrupt1", "interrupt2", "interrupt1"):
                    try:
                        host.call_all_sync(host.view(), [ToolCall("1", name)])
                    except KeyboardInterrupt:
                        print("interrupted")
                    [result] = host.call_all_sync(host.view(), [ToolCall("1", "answer")])
                    print(result.output.value)
        """)
        self.assertEqual((code, output), (0, 3 * "interrupted\nyes\n"), errors)
        self.assertNotIn("never retrieved", errors)
