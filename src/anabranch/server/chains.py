"""Performs chains of calls: generators of core that yield what is to be done next.

Rule kept: a step that fails with a StorageFault is told to the chain, which decides what follows;
any other exception ends the chain. A chain that has much to work out between its calls may do that
in a thread, so that the loop goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, NamedTuple, TypeVar

from anabranch.core.errors import StorageFault

Step = TypeVar("Step")
Result = TypeVar("Result")


class _Ended(NamedTuple):
    """What a chain returned."""

    result: Any


async def carried_out(
    steps: Generator[Step, Any, Result],
    perform: Callable[[Step], Awaitable[Any]],
    *,
    in_thread: Callable[[], bool] = lambda: False,
) -> Result:
    """Do each step of a chain, and hand back what it gave; what the chain returns. `in_thread` is
    asked before each step."""
    result: Any = None
    while True:
        if in_thread():
            step = await asyncio.to_thread(_advance, steps, result)
        else:
            step = _advance(steps, result)
        if isinstance(step, _Ended):
            return step.result  # type: ignore[no-any-return]
        try:
            result = await perform(step)
        except StorageFault as fault:
            result = fault


def _advance(steps: Generator[Step, Any, Any], result: Any) -> Step | _Ended:
    """The next step, or the end; a thread cannot hand on StopIteration."""
    try:
        if isinstance(result, StorageFault):
            return steps.throw(result)
        return steps.send(result)
    except StopIteration as ended:
        return _Ended(ended.value)
