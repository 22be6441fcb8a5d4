"""When a leader calls its followers: a little after a leadership began.

What: a follower has one fetch under way, which waits at the leader for records of what it names. A
partition that the follower has come to follow meanwhile is named by its next one, so that the first
records of a new topic, or under a new leader, would wait for `replica.fetch.wait.max.ms`. A call
has the waiting fetches answered. Why more than one: followers hear of a leadership as the leader
does, a little sooner or later. Rule kept: a few calls, for all leaderships that began together.
Not here: answering (`fetch_followers`).
"""

from __future__ import annotations

from anabranch.core.types import NEVER_MS

FIRST_CALL_MS = 10
CALLS = 3
"""10 ms after the leadership began, 40 ms later, and 160 ms after that."""


class Calls:
    """The calls of one leader; `due_ms` is of the steady clock."""

    __slots__ = ("_made", "due_ms")

    def __init__(self) -> None:
        self._made = 0
        self.due_ms = NEVER_MS

    def begin(self, now_ms: int) -> None:
        """A leadership with followers began."""
        self._made = 0
        self.due_ms = min(self.due_ms, now_ms + FIRST_CALL_MS)

    def made(self, now_ms: int) -> None:
        """The call that was due was made."""
        self._made += 1
        is_last = self._made == CALLS
        self.due_ms = NEVER_MS if is_last else now_ms + (FIRST_CALL_MS << 2 * self._made)
