"""Rounds of syncs: one a log at a time, and what is appended meanwhile waits for the next one.

Rule kept: a sync that failed is never tried again as if nothing had happened, because what the
kernel then holds is unknown: the folder goes offline. Only logs with a round are in the table's
states, so that the others cost nothing. Source: PostgreSQL's fsync failures of 2018; Kafka's
LogDirFailureChannel. Not here: which files a round covers (`core/log/sync_round.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import TYPE_CHECKING

from anabranch.core.broker.hosting.effects import SyncLog
from anabranch.core.errors import Bug, StorageFault

if TYPE_CHECKING:
    from anabranch.core.broker.hosting.host import Host
    from anabranch.core.types import TopicPartition


class State(Enum):
    """Whether a log is synced now."""

    IDLE = "idle"
    RUNNING = "running"
    AGAIN = "running, with another round to follow"


class Event(Enum):
    """What happens to it."""

    ASKED = "asked for a sync"
    BEGUN = "begun to be synced"
    ENDED = "synced"


TRANSITIONS: Mapping[tuple[State, Event], State] = {
    (State.IDLE, Event.ASKED): State.IDLE,
    (State.IDLE, Event.BEGUN): State.RUNNING,
    (State.RUNNING, Event.ASKED): State.AGAIN,
    (State.RUNNING, Event.ENDED): State.IDLE,
    (State.AGAIN, Event.ASKED): State.AGAIN,
    (State.AGAIN, Event.ENDED): State.IDLE,
}


class Syncs:
    """The sync rounds of one broker's logs. `rounds_total` counts those that were begun."""

    def __init__(self, broker: Host) -> None:
        self.rounds_total = 0
        self._broker = broker
        self._states: dict[TopicPartition, State] = {}

    @property
    def under_way(self) -> Collection[TopicPartition]:
        """The logs that are being synced."""
        return self._states.keys()

    def begin(self, place: TopicPartition) -> SyncLog | None:
        """A log has something to sync: the round that begins, if one does. Raises StorageFault;
        DiskFull harms nothing."""
        if self._step(place, Event.ASKED) is not State.IDLE:
            return None
        replica = self._broker.partitions.get(*place)
        target = None if replica is None else replica.log.sync_target()
        if replica is None or target is None:
            return None
        self._step(place, Event.BEGUN)
        self.rounds_total += 1
        return SyncLog(replica, *target)

    def ended(self, asked: SyncLog, fault: StorageFault | None) -> StorageFault | None:
        """A round ended; the fault with which the folder fails, if it does."""
        replica, place = asked.replica, asked.replica.topic_partition
        was = self._states.get(place, State.IDLE)
        self._step(place, Event.ENDED)
        self._broker.replication.log_synced()
        if was is State.AGAIN:
            self._broker.unsynced.add(place)
        if fault is not None:  # the files of a replica that is not hosted any more may be gone
            is_hosted = self._broker.partitions.get(*place) is replica
            return fault if is_hosted else None
        if replica.synced(asked.end_offset):
            self._broker.changed[place] = None
        return None

    def _step(self, place: TopicPartition, event: Event) -> State:
        """The state that follows. Raises Bug for a pair that cannot be."""
        before = self._states.get(place, State.IDLE)
        after = TRANSITIONS.get((before, event))
        if after is None:
            raise Bug(f"a log that is {before.value} was {event.value}")
        if after is State.IDLE:
            self._states.pop(place, None)
        else:
            self._states[place] = after
        return after
