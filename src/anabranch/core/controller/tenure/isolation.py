"""A controller that hears nobody gives way: the others may hear each other.

What: an active controller looks at its voices: the other brokers that it has heard from in this
term and that have a session. When two or more of them have all been silent for half a session,
nobody is fenced by silence any more. Either one is heard again, and all is as before; or the last
of them has been silent for a whole session, and the controller gives its lease back. If nobody
takes it the others are dead: it takes it again, nobody is a voice in that term, and who is silent
still is fenced at once (`Sessions.go_on`).

Why: a node that is cut off from all others and still reaches the metadata store would keep the
lease for as long as the cut lasts, and nobody there could elect. Why it fences nobody before: its
successor finds the in-sync replicas as they were, not shrunk to the one that is cut off. Why two:
where one other is left, one broker leads on either side of a cut, whoever holds the lease; to a
controller that is no broker one is enough.

Rules kept: a term gives way once for those whom it heard, so dead nodes cost one change; brokers
that a hint or their own stop has fenced are no voices; times that were forgiven
(`Sessions.forgive`) are silence no more, so a process that stood still does not give way for that.
Not here: giving the lease back (the shell).
"""

from __future__ import annotations

from typing import NamedTuple

from anabranch.core.controller.brokers.sessions import Sessions
from anabranch.core.metadata.image import MetadataImage

LEAST_VOICES = 2
"""With fewer, whoever takes the lease has no more brokers than a controller that is one."""
PART_OF_A_SESSION = 2
"""Silence for a session by this many is common silence: some heartbeats of everybody."""


class Isolation(NamedTuple):
    """All voices are silent together: how many, and when that has lasted a session, by the steady
    clock."""

    voices: int
    until_ms: int


def isolation(
    image: MetadataImage, sessions: Sessions, node_id: int, now_ms: int
) -> Isolation | None:
    """The common silence of all others, None while one is heard or nobody else could do better."""
    if all(each == node_id for each in image.controllers):
        return None
    heard = [
        key for key in sessions.contact_ms if key[0] != node_id and key not in sessions.unheard
    ]
    voices = len({broker_id for broker_id, _ in heard})
    if voices < (LEAST_VOICES if node_id in image.brokers else 1):
        return None
    last_ms = max(sessions.contact_ms[key] for key in heard)
    if now_ms <= last_ms + sessions.timeout_ms // PART_OF_A_SESSION:
        return None
    return Isolation(voices, last_ms + sessions.timeout_ms)


class GivenBack(NamedTuple):
    """The epoch of a lease that is left to others until then, by the steady clock."""

    epoch: int
    until_ms: int

    def is_left_to_others(self, epoch: int, now_ms: int) -> bool:
        """Whether the lease that is still of this epoch may not be taken again yet."""
        return epoch == self.epoch and now_ms < self.until_ms


NOTHING_GIVEN = GivenBack(-2, 0)
"""Of no epoch, nor is the next one."""
