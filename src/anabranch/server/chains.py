"""Performs chains of calls: generators of core that yield what is to be done next.

Rule kept: a step that fails with a StorageFault is told to the chain, which decides what follows;
any other exception ends the chain.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from anabranch.core.errors import StorageFault

Step = TypeVar("Step")
Result = TypeVar("Result")


async def carried_out(
    steps: Generator[Step, Any, Result], perform: Callable[[Step], Awaitable[Any]]
) -> Result:
    """Do each step of a chain, and hand back what it gave; what the chain returns."""
    result: Any = None
    while True:
        try:
            if isinstance(result, StorageFault):
                step = steps.throw(result)
            else:
                step = steps.send(result)
        except StopIteration as ended:
            return ended.value  # type: ignore[no-any-return]
        try:
            result = await perform(step)
        except StorageFault as fault:
            result = fault
