"""An event loop on a thread, for code that Spark calls and that may not wait for the network.

Why: while a task reads from Spark and encodes, what it made before is sent. Rule kept: when the
block is left, the thread has ended and nothing on its loop goes on.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


class Background:
    """A running event loop; `call` runs a coroutine there and waits for its result."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="anabranch-background", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def call(self, what: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result, or what it raises."""
        return asyncio.run_coroutine_threadsafe(what, self._loop).result()

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        try:
            self.call(_cancel_the_others())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


async def _cancel_the_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for each in others:
        each.cancel()
    await asyncio.gather(*others, return_exceptions=True)
