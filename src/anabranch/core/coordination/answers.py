"""An answer that a coordinator gives later: all have joined, or what it wrote is committed.

The rule it keeps: the first answer given counts. Giving it marks the object itself as changed, and
it is the key that its request waits under, so that a group of a thousand wakes each member once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from anabranch.core.outcome import Wait

LONGEST_WAIT_MS = 24 * 3_600_000
"""The coordinator's own timers end every wait long before; a stopping node ends it at once."""


class Answer:
    """What one parked request will be answered with; `message` is None until then."""

    __slots__ = ("_changed", "is_waited_for", "message")

    def __init__(self, changed: dict[Hashable, None]) -> None:
        self.message: Any = None
        self.is_waited_for = False
        self._changed = changed

    def give(self, message: Any) -> None:
        """Answer; a second one is left alone."""
        if self.message is None:
            self.message = message
            if self.is_waited_for:
                self._changed[self] = None

    def wait(
        self,
        now_ms: int,
        late: Callable[[], Any],
        *,
        keys: tuple[Hashable, ...] = (),
        look: Callable[[int], bool] | None = None,
        longest_ms: int = LONGEST_WAIT_MS,
    ) -> Any:
        """The message if it is there, else a Wait for it.

        `look` is called before each look at the message, when one of `keys` has changed; it says
        whether there still is something to wait for. `late` makes the answer for when there is
        not, or when time is over.
        """
        if self.message is not None:
            return self.message
        self.is_waited_for = True

        def poll(now_ms: int, expired: bool) -> Any | None:
            is_over = expired if look is None else not look(now_ms) or expired
            return late() if is_over and self.message is None else self.message

        return Wait((self, *keys), now_ms + longest_ms, poll)
