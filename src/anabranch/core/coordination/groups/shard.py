"""One partition of `__consumer_offsets` while this broker leads it: where its groups are written.

What: what groups need beside writing (`core.coordination.shard`): the proof that no other broker
leads, and the commits in flight.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, ClassVar

from anabranch.core.coordination.groups.in_flight import InFlight, Place
from anabranch.core.coordination.groups.offset_records import nothing_said
from anabranch.core.coordination.groups.undecided import Undecided
from anabranch.core.coordination.shard import AS_COORDINATOR, Coordinator
from anabranch.core.coordination.shard import Shard as AnyShard
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.wire.compression import Codec

if TYPE_CHECKING:
    from anabranch.core.coordination.answers import Answer
    from anabranch.core.coordination.host import Host
    from anabranch.core.replication.replica import Replica

NO_GROUP = ""
"""Of a record that is written for a partition's sake."""

CODECS = tuple(Codec)


class Shard(AnyShard):
    """One offsets partition for as long as this broker leads it."""

    refusals: ClassVar[Mapping[ErrorCode, ErrorCode]] = {
        **AS_COORDINATOR,
        ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    }

    def __init__(self, broker: Host, replica: Replica, coordinator: Coordinator) -> None:
        super().__init__(broker, replica, coordinator)
        self.image_at_start = broker.image
        """The metadata by which this broker began to lead it, until it is read."""
        self.in_flight = InFlight()
        self.undecided = Undecided()
        self._unproven: list[Answer] = []
        self._is_proving = False

    @property
    def codec(self) -> Codec:
        """What `offsets.topic.compression.codec` says."""
        return CODECS[self._broker.config.offsets_topic_compression_codec]

    def prove(self, answer: Answer, now_ms: int) -> None:
        """Give an answer NONE once a record that is written after now is committed, else the code
        of the log's refusal.

        Then no broker had led after this one when it was asked, for each in-sync replica has
        fetched from here since; and all that was read is committed. One record proves it to all
        who ask while the one before is under way. Alone in sync, this broker needs none: no other
        can be elected before the metadata says so. With too few in sync nobody is kept waiting: a
        record that is under way may wait for days."""
        replica = self.replica
        if not replica.enough_in_sync:
            answer.give(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        if replica.is_alone and self.is_settled:
            answer.give(ErrorCode.NONE)
            return
        self._unproven.append(answer)
        if not self._is_proving:
            self._prove(now_ms)

    def _prove(self, now_ms: int) -> None:
        asking, self._unproven = self._unproven, []

        def effect(now_ms: int) -> None:
            self._is_proving = False
            for answer in asking:
                answer.give(ErrorCode.NONE)
            if self._unproven:
                self._prove(now_ms)

        self._is_proving = True
        try:
            self.write([nothing_said(NO_GROUP, now_ms)], now_ms, effect)
        except ApiError as fault:
            self._is_proving = False
            for answer in asking:
                answer.give(fault.code)

    def under_way(self, group_id: str) -> Collection[Place]:
        """Where a group has a commit in flight, or in a transaction that is open."""
        in_flight, undecided = self.in_flight.of(group_id), self.undecided.of(group_id)
        return dict.fromkeys((*in_flight, *undecided)) if undecided else in_flight
