"""How a partition stands on this broker, and what may happen to it then: the table.

Rule kept: a log that a full disk refused is tried again, one that is rotten or whose folder failed
is not, as long as the process lives; tried again, it would pass for one that is gone, and an empty
log would take its place. An unknown pair is a bug. Source: KIP-112. Not here: what follows from a
change (`hosting.py`), which containers hold the partitions of each standing
(`core/replication/partitions.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from anabranch.core.errors import Bug


class HostedState(Enum):
    """How a partition stands here."""

    ABSENT = "absent"
    """Not asked for. Its log may lie in a folder."""
    OPENING = "opening"
    CREATING = "creating"
    HOSTED = "hosted"
    ROOMLESS = "roomless"
    """A full disk kept it from being opened."""
    MISSING = "missing"
    """Its log is gone, and may not begin anew yet."""
    ROTTEN = "rotten"
    """Its log is damaged."""
    OFFLINE = "offline"
    """Its folder failed, or no folder works."""


class HostedEvent(Enum):
    """What happens to it."""

    OPEN = "asked for, and its log was found"
    CREATE = "asked for, and its log may begin"
    MISS = "asked for, and its log is gone"
    GIVE_UP = "asked for, and no folder can take it"
    OPENED = "opened"
    NO_ROOM = "refused by a full disk"
    ROT = "found to be damaged"
    FOLDER_FAILED = "in a folder that failed"
    REMOVE = "deleted, moved away, or of an older topic"


_S, _H = HostedState, HostedEvent
TRANSITIONS: Mapping[tuple[HostedState, HostedEvent], HostedState] = {
    (_S.ABSENT, _H.OPEN): _S.OPENING,
    (_S.ABSENT, _H.CREATE): _S.CREATING,
    (_S.ABSENT, _H.MISS): _S.MISSING,
    (_S.ABSENT, _H.GIVE_UP): _S.OFFLINE,
    (_S.OPENING, _H.OPENED): _S.HOSTED,
    (_S.OPENING, _H.NO_ROOM): _S.ROOMLESS,
    (_S.OPENING, _H.ROT): _S.ROTTEN,
    (_S.OPENING, _H.FOLDER_FAILED): _S.OFFLINE,
    (_S.CREATING, _H.OPENED): _S.HOSTED,
    (_S.CREATING, _H.NO_ROOM): _S.ROOMLESS,
    (_S.CREATING, _H.FOLDER_FAILED): _S.OFFLINE,
    (_S.HOSTED, _H.ROT): _S.ROTTEN,
    (_S.HOSTED, _H.FOLDER_FAILED): _S.OFFLINE,
    (_S.HOSTED, _H.REMOVE): _S.ABSENT,
    (_S.ROOMLESS, _H.OPEN): _S.OPENING,
    (_S.ROOMLESS, _H.CREATE): _S.CREATING,
    (_S.ROOMLESS, _H.MISS): _S.MISSING,
    (_S.ROOMLESS, _H.GIVE_UP): _S.OFFLINE,
    (_S.ROOMLESS, _H.REMOVE): _S.ABSENT,
    (_S.MISSING, _H.CREATE): _S.CREATING,
    (_S.MISSING, _H.OPEN): _S.OPENING,
    (_S.MISSING, _H.MISS): _S.MISSING,
    (_S.MISSING, _H.GIVE_UP): _S.OFFLINE,
    (_S.MISSING, _H.REMOVE): _S.ABSENT,
    (_S.ROTTEN, _H.REMOVE): _S.ABSENT,
    (_S.OFFLINE, _H.REMOVE): _S.ABSENT,
}


def after(standing: HostedState, happening: HostedEvent) -> HostedState:
    """The standing that follows. Raises Bug for a pair that cannot be."""
    following = TRANSITIONS.get((standing, happening))
    if following is None:
        raise Bug(f"a partition that is {standing.value} was {happening.value}")
    return following
