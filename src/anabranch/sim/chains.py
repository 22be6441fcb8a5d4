"""Chains of calls in the simulated world: generators that yield what is to be done next.

What: `Chain` runs one. What it yields is handed to `perform`, with whom to tell what that gave; a
StorageFault is thrown into the chain, everything else is sent. Rule kept: a chain goes on in an
event of its own, unless what it yielded is over at once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias

from anabranch.core.errors import StorageFault

Told: TypeAlias = Callable[[Any], None]
Perform: TypeAlias = Callable[[Any, Told], None]


class Chain:
    """One chain. It ends with its generator, or with a fault that the generator lets through."""

    def __init__(self, steps: Generator[Any, Any, Any], perform: Perform) -> None:
        self._steps = steps
        self._perform = perform

    def go_on(self, result: Any = None) -> None:
        """Begin, or take what the last step gave."""
        try:
            if isinstance(result, StorageFault):
                step = self._steps.throw(result)
            else:
                step = self._steps.send(result)
        except (StopIteration, StorageFault):
            return
        self._perform(step, self.go_on)
