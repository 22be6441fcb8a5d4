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
CANDIDATE = (Phase.COMPARING, Phase.WATCHING)
"""Phases in which it asks the store a question again and again, without a lease."""
LIVING = (*IDLE, Phase.ACTIVE)
EVERY = (*LIVING, Phase.STOPPED)

TABLE: Mapping[tuple[Phase, type[Event]], str] = {
    (Phase.STARTING, Start): "candidacy.start",
    (Phase.COMPARING, EndRead): "candidacy.compare",
    (Phase.COMPARING, StoreFailed): "candidacy.compare_later",
    (Phase.WATCHING, LeaseRead): "candidacy.consider",
    (Phase.WATCHING, StoreFailed): "candidacy.watch_later",
    (Phase.TAKING, LeaseTaken): "takeover.read_log",
    (Phase.TAKING, StoreFailed): "candidacy.watch_later",
    (Phase.READING, LogRead): "takeover.mark",
    (Phase.READING, LeaseRenewed): "takeover.renewed",
    (Phase.READING, StoreFailed): "takeover.reading_failed",
    (Phase.MARKING, AppendEnded): "takeover.marked",
    (Phase.MARKING, StoreFailed): "takeover.marking_failed",
    (Phase.ACTIVE, AppendEnded): "term.appended",
    (Phase.ACTIVE, LeaseRenewed): "term.renewed",
    (Phase.ACTIVE, SnapshotStored): "term.snapshots.stored",
    (Phase.ACTIVE, StoreFailed): "term.store_failed",
    **{(phase, Decide): "term.decisions.refuse" for phase in EVERY},
    **{(phase, HolderGone): "ignore" for phase in EVERY},
    **{(phase, ConnectionClosed): "ignore" for phase in EVERY},
    **{(phase, Probed): "ignore" for phase in EVERY},
    **{(phase, GiveWay): "ignore" for phase in EVERY},
    **{(phase, Leave): "leave" for phase in LIVING},
    **{(phase, Broke): "broke" for phase in LIVING},
    (Phase.WATCHING, HolderGone): "candidacy.holder_gone",
    (Phase.ACTIVE, Decide): "term.decisions.decide",
    (Phase.ACTIVE, ConnectionClosed): "term.connection_closed",
    (Phase.ACTIVE, Probed): "term.probes.probed",
    (Phase.ACTIVE, GiveWay): "term.give_way",
    (Phase.STOPPED, Leave): "ignore",
    (Phase.STOPPED, Broke): "ignore",
}
"""(Phase, event) -> the step of `Tenure`, or of the part of it that is named, that it leads to."""
