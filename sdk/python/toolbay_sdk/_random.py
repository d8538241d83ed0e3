"""Random numbers of a component: what is drawn without a seed is seeded when it draws first, in each instance.

A component holds the state that the build saved, also that of the generators of `random`. So each instance has to seed
them again; and one that draws nothing must not ask the host for random bytes, which the operator would be told.
"""

import random
from typing import Any


class Random(random.Random):
    """A generator that seeds itself when it draws first, unless the author gave it a seed."""

    # Before the first instance exists: `random.Random` seeds itself while it is made.
    _is_seeded = True

    def __init__(self, x: Any = None) -> None:
        super().__init__(0)
        self.seed(x)

    def seed(self, a: Any = None, version: int = 2) -> None:
        """Takes a seed; without one, that of the host with the first number."""
        self._is_seeded = a is not None
        if self._is_seeded:
            super().seed(a, version)
        else:
            self.gauss_next = None

    def random(self) -> float:
        """A number from 0 to 1."""
        self._begin()
        return super().random()

    def getrandbits(self, k: int, /) -> int:
        """A whole number of this many bits."""
        self._begin()
        return super().getrandbits(k)

    def getstate(self) -> tuple[Any, ...]:
        """The state, with which `setstate` continues."""
        self._begin()
        return super().getstate()

    def setstate(self, state: tuple[Any, ...]) -> None:
        """Continues from a state."""
        super().setstate(state)
        self._is_seeded = True

    def _begin(self) -> None:
        if not self._is_seeded:
            super().seed()
            self._is_seeded = True


def install() -> None:
    """Replaces the generators of `random`, before an author's module takes functions from it."""
    hidden = random._inst
    shared = Random()
    for name, value in list(vars(random).items()):
        if getattr(value, "__self__", None) is hidden:
            setattr(random, name, getattr(shared, name))
    random._inst = shared
    random.Random = Random
