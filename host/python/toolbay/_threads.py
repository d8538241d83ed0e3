"""Threads for plain functions. They are daemons: Python does not wait for a function that never returns."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

MOST = 32
"""Most threads, as many as `concurrent.futures` starts."""
IDLE = 10.0
"""Seconds after which a thread without work ends."""

Work = Callable[[], None]


class ThreadPool:
    """At most `MOST` threads, which start when they are needed."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._work: deque[Work] = deque()
        self._idle = 0
        self._threads = 0

    def submit(self, work: Work) -> bool:
        """Runs the work in a thread. Returns False if none is free: then the work waits until `withdraw`."""
        with self._lock:
            self._work.append(work)
            if self._idle >= len(self._work):
                self._lock.notify()
                return True
            if self._threads < MOST:
                self._threads += 1
                try:
                    threading.Thread(target=self._run, name=f"toolbay-tool-{self._threads}", daemon=True).start()
                except Exception:
                    # The process may have no more threads, or it ends. A thread that runs already takes the work.
                    self._threads -= 1
                    return False
                return True
            return False

    def withdraw(self, work: Work) -> bool:
        """Takes back work that has not begun. Returns False if it has."""
        with self._lock:
            try:
                self._work.remove(work)
            except ValueError:
                return False
            return True

    def _run(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
                has_work = self._lock.wait_for(lambda: bool(self._work), IDLE)
                self._idle -= 1
                if not has_work:
                    self._threads -= 1
                    return
                work = self._work.popleft()
            try:
                work()
            except BaseException:
                # The work has reported its errors. This one must not cost a thread.
                pass
            # What it holds must not live as long as the thread.
            del work


_pool: ThreadPool | None = None


def pool() -> ThreadPool:
    """The threads of the process."""
    global _pool
    if _pool is None:
        os.register_at_fork(after_in_child=_forget)
        _pool = ThreadPool()
    return _pool


def _forget() -> None:
    """A child has none of its parent's threads."""
    global _pool
    if _pool is not None:
        _pool = ThreadPool()
