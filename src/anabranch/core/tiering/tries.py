"""One try of a segment: its calls and puts, in order.

What: a generator that yields what is to be done next and takes what that gave. Rules kept: the
coordinator knows of a try before the store does; the sidecar is put once all other files are
stored, and says that they are; the leader finishes what is stored whole; no put is begun a minute
after the last word that the try stands, since what a try leaves is removed some time after it was
given up. Not here: requests, puts, who repeats a call (`pipelines/tiering_task.py`).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from anabranch.core.errors import StorageFault
from anabranch.core.remote.keys import SIDECAR, segment_folder
from anabranch.core.remote.sidecar import encode_sidecar
from anabranch.core.remote.unfinished import CONFIRM_MS, may_go_on
from anabranch.core.tiering.built_segment import BuiltSegment
from anabranch.core.types import Buffer
from anabranch.core.wire.messages.tier_segment import FINISH, START

SILENT = "no broker has confirmed the try for a minute; it is given up"


class Lease:
    """For how long a try may begin puts, by the steady clock of the task that makes it."""

    def __init__(self, asked_ms: int) -> None:
        self._asked_ms = asked_ms

    def is_old(self, now_ms: int) -> bool:
        """Whether to ask again whether the try stands."""
        return now_ms - self._asked_ms >= CONFIRM_MS

    def stands(self, asked_ms: int) -> None:
        """It stands, by an answer to what was asked then."""
        self._asked_ms = asked_ms

    def check(self, now_ms: int) -> None:
        """Before a put. Raises StorageFault once that was not to be heard for too long."""
        if not may_go_on(self._asked_ms, now_ms):
            raise StorageFault(SILENT)


class Call(NamedTuple):
    """A step of TierSegment; gives the steady time at which it was asked for, and the answer."""

    step: int


class PutFiles(NamedTuple):
    """Objects by their keys, in any order; the lease is looked at before each put."""

    files: Mapping[str, Sequence[Buffer]]
    lease: Lease


Step: TypeAlias = Call | PutFiles


def one_try(cluster_id: str, topic: str, built: BuiltSegment) -> Generator[Step, Any, None]:
    """The try of a segment that is made in memory. Faults end it; what it has put is removed."""
    asked_ms, started = yield Call(START)
    segment = built.segment._replace(broker_id=started.broker_id, leader_epoch=started.leader_epoch)
    folder = segment_folder(cluster_id, segment.key, segment.segment_id)
    lease = Lease(asked_ms)
    yield PutFiles({folder + name: each for name, each in built.files.items()}, lease)
    yield PutFiles({folder + SIDECAR: [encode_sidecar(topic, segment)]}, lease)
    yield Call(FINISH)
