"""What a coordinator holds, as rows that another one can load: for restoring.

What: partitions, committed objects, runs and producers. Rule kept: rows agree with one another as
those of a coordinator that has committed the same objects. Not here: objects that are prepared or
refused, which nobody needs; epochs of brokers and controllers, which register anew.
"""

from __future__ import annotations

from typing import NamedTuple

from anabranch.core.diskless.commit import ObjectState, Producer, ProducerKey
from anabranch.core.diskless.rows import LogKey, LogState, Run

NOT_EMPTY = (
    "coordinator {}: it is not empty; set a new database in diskless.coordinator.url, or remove "
    "this one if you do not need it"
)


class HeldLog(NamedTuple):
    """A partition's row."""

    key: LogKey
    topic: str
    state: LogState


class HeldObject(NamedTuple):
    """A committed object's row; one without runs waits for deletion."""

    object_id: int
    object_key: str
    byte_size: int
    broker_id: int
    broker_epoch: int
    live_runs: int

    @property
    def state(self) -> ObjectState:
        """What becomes of it."""
        return ObjectState.COMMITTED if self.live_runs else ObjectState.UNUSED

    def marked_ms(self, now_ms: int) -> int | None:
        """Since when it waits for deletion, if it does."""
        return None if self.live_runs else now_ms


class Contents(NamedTuple):
    """All rows, each kind in order."""

    logs: list[HeldLog]
    objects: list[HeldObject]
    runs: list[Run]
    producers: list[tuple[ProducerKey, Producer]]
    last_object_id: int = 0
    """The greatest that was ever given: two objects with one id could not be told apart later."""
