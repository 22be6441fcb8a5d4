"""What clients of diskless topics saw, against what is truly committed.

What: what was acknowledged is committed at its offset, then and for good; what a reader gets begins
at its position, has no hole but what compaction may remove, and is what was committed there; no
reader is told that an offset is out of range that a partition has; who asks where a partition ends
hears of all that was acknowledged before. Rule kept: clients' words alone are judged, by the
account of `diskless.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.diskless.rows import LogKey
from anabranch.sim.checks.diskless import DisklessChecks, TrueLog, violated
from anabranch.sim.cluster import Watcher
from anabranch.sim.history import OK, OPEN, History, Poll, Send

if TYPE_CHECKING:
    from anabranch.core.types import TopicId, TopicPartition
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.node import SimNode


class DisklessClientChecks(Watcher):
    """See the module. It registers itself with the cluster. `doubles`: the network may double what
    is sent."""

    def __init__(self, cluster: Cluster, truth: DisklessChecks, *, doubles: bool) -> None:
        self.doubles = doubles
        self.cluster = cluster
        self.truth = truth
        self.history = History()
        self._ends: dict[LogKey, int] = {}
        self.compacted_topics: frozenset[str] = frozenset()
        """Topics whose records may be compacted."""
        self._read_to: dict[tuple[str, TopicPartition], int] = {}
        self._offsets: dict[LogKey, dict[bytes, int]] = {}
        cluster.checks.append(self)

    def event_ended(self, node: SimNode | None) -> None:
        if node is None and (self.history.fresh or self.history.open):
            self.hear()

    def hear(self) -> None:
        """Judge what clients wrote down since the last time."""
        history = self.history
        for event in history.fresh:
            if isinstance(event, Poll):
                self._polled(event)
        history.fresh.clear()
        done = [send for send in history.open if send.outcome is not OPEN]
        if done:
            for send in done:
                if send.outcome == OK:
                    self._acknowledged(send)
            history.open = [send for send in history.open if send.outcome is OPEN]

    def _log(self, topic_id: TopicId, index: int) -> TrueLog:
        return self.truth.logs.get(LogKey(topic_id, index)) or TrueLog()

    def _acknowledged(self, send: Send) -> None:
        key = LogKey(send.topic_id, send.place.partition)
        log, offset = self._log(*key), send.offset
        if offset < 0:
            offset = log.values.index(send.value) if send.value in log.values else -1
        if not 0 <= offset < log.high or log.values[offset] != send.value:
            raise violated(
                "lost-write", "A record was acknowledged that is not committed there.",
                record=send.id, place=send.place, offset=send.offset,
            )  # fmt: skip
        self._ends[key] = max(offset + 1, self._ends.get(key, 0))

    def _polled(self, poll: Poll) -> None:
        log = self._log(poll.topic_id, poll.place.partition)
        following = self._read_to.get((poll.client, poll.place), poll.position)
        if poll.place.topic not in self.compacted_topics:
            following = poll.position
        for offset, value in poll.records:
            if offset < following or not self._may_lack(poll, log, range(following, offset)):
                raise violated(
                    "hole", "A reader was shown a hole.",
                    client=poll.client, place=poll.place, wanted=following, got=offset,
                )  # fmt: skip
            following = offset + 1
            if offset >= log.high or log.values[offset] != value:
                raise violated(
                    "inconsistent-offsets", "A reader got what is not committed at that offset.",
                    client=poll.client, place=poll.place, offset=offset,
                )  # fmt: skip
        self._read_to[poll.client, poll.place] = following

    def _may_lack(self, poll: Poll, log: TrueLog, offsets: range) -> bool:
        """Whether compaction may have removed what a reader did not get; what it gets next begins
        behind that."""
        if offsets and poll.place.topic not in self.compacted_topics:
            return False
        return all(
            offset < log.start
            or log.is_tombstone(offset)
            or log.newest_before(offset, log.high) > offset
            for offset in offsets
        )

    def sent(self, value: bytes) -> None:
        """A record is sent, perhaps not for the first time; the network may double it."""
        self.truth.sent[value] += 2 if self.doubles else 1

    def thrown(self, place: TopicPartition, topic_id: TopicId, position: int) -> None:
        """A reader was told that its position is out of range."""
        log = self._log(topic_id, place.partition)
        topic = self.cluster.image.topic(place.topic)
        if log.is_gone or topic is None or topic.topic_id != topic_id:
            return
        if log.start <= position <= log.high and not self._is_second(place.topic, topic_id):
            raise violated(
                "out-of-range", "An offset is out of range that the partition has.",
                place=place, position=position, start=log.start, end=log.high,
            )  # fmt: skip

    def _is_second(self, _name: str, topic_id: TopicId) -> bool:
        """Whether positions may stem from an older topic of the name."""
        return any(log.is_gone for key, log in self.truth.logs.items() if key.topic_id != topic_id)

    # Where it ends.

    def _key(self, place: TopicPartition) -> LogKey | None:
        topic = self.cluster.image.topic(place.topic)
        return None if topic is None else LogKey(topic.topic_id, place.partition)

    def acknowledged_end(self, place: TopicPartition) -> tuple[LogKey | None, int]:
        """Up to where records of the present topic are acknowledged."""
        self.hear()
        key = self._key(place)
        return key, 0 if key is None else self._ends.get(key, 0)

    def looked(self, place: TopicPartition, least: tuple[LogKey | None, int], end: int) -> None:
        """A broker said where a partition ends."""
        key, acknowledged = least
        if key is not None and key == self._key(place) and end < acknowledged:
            raise violated(
                "stale-end", "A partition ends before what was acknowledged.",
                place=place, end=end, acknowledged=acknowledged,
            )  # fmt: skip

    def end(self) -> None:
        """Judge the whole history."""
        self.hear()
        for send in self.history.sends:
            if send.outcome == OK:
                self._acknowledged(send)
            if send.idempotent:
                log = self._log(send.topic_id, send.place.partition)
                if log.values.count(send.value) > 1:
                    raise violated("duplicate", "A record stands twice.", record=send.id)
