"""The phases of a tenure, and what may happen in each: an unknown pair of both is a bug.

    STARTING --Start--> COMPARING --the store is no older--> WATCHING <-- everything that fails
    WATCHING --the lease is free, or its holder silent--> TAKING --> READING --> MARKING --> ACTIVE
    any --Leave, Broke, a store that went back--> STOPPED

In MARKING the first batch of the epoch is under way: only its commit shows that all of the log was
read. Answers to calls that are not under way any more are dropped before this table is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from anabranch.core.controller.tenure.events import (
    AppendEnded,
    Broke,
    ConnectionClosed,
    Decide,
    EndRead,
    Event,
    GiveWay,
    HolderGone,
    LeaseRead,
    LeaseRenewed,
    LeaseTaken,
    Leave,
    LogRead,
    Probed,
    SnapshotStored,
    Start,
    StoreFailed,
)


class Phase(Enum):
    """Where a node stands with the lease."""

    STARTING = "starting"
    COMPARING = "comparing"
    """It asks whether the store is older than this node's copy of the metadata."""
    WATCHING = "watching"
    TAKING = "taking"
    READING = "reading"
    MARKING = "marking"
    ACTIVE = "active"
    STOPPED = "stopped"


IDLE = (Phase.STARTING, Phase.COMPARING, Phase.WATCHING, Phase.TAKING, Phase.READING, Phase.MARKING)
"""Phases in which the node may not decide yet."""
LIVING = (*IDLE, Phase.ACTIVE)
EVERY = (*LIVING, Phase.STOPPED)

TABLE: Mapping[tuple[Phase, type[Event]], str] = {
    (Phase.STARTING, Start): "start",
    (Phase.COMPARING, EndRead): "compare",
    (Phase.COMPARING, StoreFailed): "compare_later",
    (Phase.WATCHING, LeaseRead): "consider",
    (Phase.WATCHING, StoreFailed): "watch_later",
    (Phase.TAKING, LeaseTaken): "read_log",
    (Phase.TAKING, StoreFailed): "watch_later",
    (Phase.READING, LogRead): "mark",
    (Phase.READING, LeaseRenewed): "renewed_while_reading",
    (Phase.READING, StoreFailed): "reading_failed",
    (Phase.MARKING, AppendEnded): "marked",
    (Phase.MARKING, StoreFailed): "watch_later",
    (Phase.ACTIVE, AppendEnded): "appended",
    (Phase.ACTIVE, LeaseRenewed): "renewed",
    (Phase.ACTIVE, SnapshotStored): "snapshot_stored",
    (Phase.ACTIVE, StoreFailed): "active_failed",
    **{(phase, Decide): "refuse" for phase in EVERY},
    **{(phase, HolderGone): "ignore" for phase in EVERY},
    **{(phase, ConnectionClosed): "ignore" for phase in EVERY},
    **{(phase, Probed): "ignore" for phase in EVERY},
    **{(phase, GiveWay): "ignore" for phase in EVERY},
    **{(phase, Leave): "leave" for phase in LIVING},
    **{(phase, Broke): "broke" for phase in LIVING},
    (Phase.WATCHING, HolderGone): "holder_gone",
    (Phase.ACTIVE, Decide): "decide",
    (Phase.ACTIVE, ConnectionClosed): "connection_closed",
    (Phase.ACTIVE, Probed): "probed",
    (Phase.ACTIVE, GiveWay): "give_way",
    (Phase.STOPPED, Leave): "ignore",
    (Phase.STOPPED, Broke): "ignore",
}
"""(Phase, event) -> the step of `Tenure` that it leads to; "ignore" is none."""
