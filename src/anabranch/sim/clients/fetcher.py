"""Reading partitions as consumers do: from a position on, one request a broker at a time.

What: a `Fetcher` keeps positions, asks the leader (or, when it may, any replica) for what follows,
writes down what came, and moves on. It starts over at the earliest or latest offset when its
position is not there, checks its history when the leader's epoch changed (KIP-320), and may hold a
fetch session (KIP-227). A lagging reader is one with small requests and long pauses.

Rule kept: a position is only ever moved by what a broker answered. When a reader starts over, what
follows is written down under another name, because order is promised within one reading only. Not
here: who owns which partition (member.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anabranch.core.errors import ErrorCode
from anabranch.core.types import EARLIEST, ZERO_TOPIC_ID, TopicId, TopicPartition
from anabranch.core.wire.batch import crc_is_valid, walk
from anabranch.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.core.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from anabranch.core.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from anabranch.core.wire.records import decode_records
from anabranch.sim.clients.client import NOBODY, Client
from anabranch.sim.history import WRITTEN_AS, Poll, Thrown

if TYPE_CHECKING:
    from anabranch.core.wire.messages.fetch import FetchResponse, PartitionData
    from anabranch.core.wire.records import Record

NO_SESSION, FIRST_EPOCH, NO_EPOCH = 0, 0, -1
_EPOCH_END_UNKNOWN = -1

_WRONG_PLACE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a fetcher reads. `any_replica` also asks followers and observers."""

    isolation: int = 0
    max_wait_ms: int = 1_500
    max_bytes: int = 1 << 20
    pause_ms: int = 200
    any_replica: bool = False
    sessions: bool = False
    start: int = EARLIEST


@dataclass(slots=True, eq=False)
class _Position:
    """Where the reading of a partition is. `offset` -1: not known yet."""

    place: TopicPartition
    name: str
    offset: int = -1
    epoch: int = -1
    """Of the last record that was read."""
    checked_epoch: int = -1
    """The leader epoch against which this history was last checked."""
    source: int = NOBODY
    busy: bool = False
    starts_over: int = 0
    topic_id: TopicId = ZERO_TOPIC_ID
    """Of the topic that is read, as far as it is known."""


class Fetcher:
    """See the module. `on_polled` hears of each partition's position that moved."""

    def __init__(
        self,
        client: Client,
        reading: ReadOptions,
        *,
        in_group: bool = False,
        on_polled: Callable[[TopicPartition, int], None] | None = None,
    ) -> None:
        self.client = client
        self.reading = reading
        self.in_group = in_group
        self.on_polled = on_polled
        self.positions: dict[TopicPartition, _Position] = {}
        self.polls = 0
        self.stopped = False
        self._flying: set[int] = set()
        """Brokers that are asked, or that are not to be asked again yet."""
        self._sessions: dict[int, tuple[int, int, tuple[TopicPartition, ...]]] = {}
        """Broker -> its fetch session's id, next epoch, and partitions."""
        self._refreshing = False
        self._failures = 0

    def read(self, place: TopicPartition, offset: int = -1) -> None:
        """Begin to read a partition: from an offset, or from where `start` says."""
        self.positions[place] = _Position(place, self.client.name, offset)

    def forget(self) -> None:
        """Stop for good: answers that are still on their way are not looked at."""
        self.stopped = True
        self.positions = {}

    def topic_changed(self, topic: str) -> None:
        """A topic is another one than it was: read it from where `start` says."""
        self._sessions.clear()
        for position in self.positions.values():
            if position.place.topic == topic:
                position.checked_epoch = -1
                self._start_over(position, -1)

    def turn(self) -> None:
        """Ask every broker that has something for us and is not asked already."""
        if self.stopped or self.client.stopped:
            return
        by_node: dict[int, list[_Position]] = {}
        lost = False
        for position in self.positions.values():
            if position.busy:
                continue
            known = self.client.places.get(position.place)
            if known is None or known.leader == NOBODY:
                lost = True
            elif position.offset < 0:
                self._find_start(position, known.leader)
            elif position.epoch >= 0 and position.checked_epoch not in (-1, known.leader_epoch):
                self._check_history(position, known.leader, known.leader_epoch)
            else:
                position.checked_epoch = known.leader_epoch
                by_node.setdefault(self._source(position), []).append(position)
        for node_id in sorted(by_node):
            if node_id not in self._flying:
                self._fetch(node_id, by_node[node_id])
        if lost:
            self._lost()

    def _source(self, position: _Position) -> int:
        known = self.client.places[position.place]
        if not self.reading.any_replica or not known.replicas:
            return known.leader
        readable = (*known.replicas, *self._observers(position.place))
        if position.source not in readable:
            position.source = readable[self.client.random.randrange(len(readable))]
        return position.source

    def _observers(self, place: TopicPartition) -> tuple[int, ...]:
        """Who observes a partition: metadata for clients do not say it, a reader is set up so."""
        partition = self.client.cluster.image.partition(*place)
        return () if partition is None else partition.observers

    def _lost(self) -> None:
        """Metadata are stale: ask for them after a pause, once."""
        if self._refreshing or self.stopped:
            return
        self._refreshing = True
        self._failures += 1

        def found() -> None:
            self._refreshing = False
            self.turn()

        self.client.later(self.client.backoff_ms(self._failures), self.client.refresh, found)

    def _rested(self, node_id: int) -> None:
        self._flying.discard(node_id)
        self.turn()

    # Fetching.

    def _fetch(self, node_id: int, positions: list[_Position]) -> None:
        session_id, epoch = self._session(node_id, tuple(each.place for each in positions))
        topics: dict[str, FetchTopic] = {}
        for position in positions:
            position.busy = True
            topic, index = position.place
            topic_id = position.topic_id = self.client.topic_id(topic)
            entry = topics.get(topic)
            if entry is None:
                entry = topics[topic] = FetchTopic(topic=topic, topic_id=topic_id, partitions=[])
            entry.partitions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=position.checked_epoch,
                    fetch_offset=position.offset,
                    partition_max_bytes=self.reading.max_bytes,
                )
            )
        message = FetchRequest(
            max_wait_ms=self.reading.max_wait_ms,
            min_bytes=1,
            max_bytes=self.reading.max_bytes,
            isolation_level=self.reading.isolation,
            session_id=session_id,
            session_epoch=epoch,
            topics=list(topics.values()),
        )
        self._flying.add(node_id)
        asked = {position: position.offset for position in positions}
        self.client.ask(
            node_id,
            message,
            lambda response: self._fetched(node_id, asked, response),
            timeout_ms=self.reading.max_wait_ms + self.client.patience.request_timeout_ms,
        )

    def _session(self, node_id: int, places: tuple[TopicPartition, ...]) -> tuple[int, int]:
        """The session and epoch of the next request; other partitions need another session."""
        if not self.reading.sessions:
            return NO_SESSION, NO_EPOCH
        session_id, epoch, known = self._sessions.get(node_id, (NO_SESSION, FIRST_EPOCH, places))
        if known != places:
            epoch = FIRST_EPOCH
        self._sessions[node_id] = (session_id, epoch, places)
        return session_id, epoch

    def _fetched(
        self, node_id: int, asked: dict[_Position, int], response: FetchResponse | None
    ) -> None:
        for position in asked:
            position.busy = False
        if self.stopped:
            return
        if response is None or response.error_code:
            self._sessions.pop(node_id, None)
            for position in asked:
                position.source = NOBODY
            self._flying.discard(node_id)
            self._lost()
            return
        if node_id in self._sessions:
            _, epoch, places = self._sessions.pop(node_id)
            if response.session_id != NO_SESSION:
                self._sessions[node_id] = (response.session_id, epoch + 1, places)
        if self._take(node_id, asked, response):
            self._flying.discard(node_id)
            self._lost()
        else:
            self._failures = 0
            self.client.later(self.reading.pause_ms, self._rested, node_id)

    def _take(self, node_id: int, asked: dict[_Position, int], response: FetchResponse) -> bool:
        """Write down what came; whether a broker said that it is the wrong one."""
        names = {self.client.topic_id(name): name for name in self.client.topics}
        by_place = {position.place: position for position in asked}
        wrong = False
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for answer in topic.partitions:
                position = by_place.get(TopicPartition(name, answer.partition_index))
                if position is None or asked[position] != position.offset:
                    continue
                code = answer.error_code
                if code == ErrorCode.NONE:
                    self._records(position, answer)
                elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._out_of_range(position, node_id)
                elif code in _WRONG_PLACE:
                    position.source = NOBODY
                    wrong = True
        return wrong

    def _records(self, position: _Position, answer: PartitionData) -> None:
        if not answer.records:
            return
        found: list[tuple[int, bytes]] = []
        start = offset = position.offset
        for at, header in walk(answer.records):
            if header.next_offset <= start:
                continue
            if not crc_is_valid(answer.records, at, header.size_bytes):
                position.source = NOBODY
                break  # a reader stops there, and asks again
            if not header.is_control:
                for record in decode_records(answer.records, at):
                    if record.offset >= start:
                        found.append((record.offset, written_as(record)))
            offset, position.epoch = header.next_offset, header.leader_epoch
        if offset == start:
            return
        self.polls += 1
        if position.source != NOBODY and position.source in self._observers(position.place):
            self.client.history.mark("observer-read")
        self.client.history.add(
            Poll(
                client=position.name,
                place=position.place,
                at_us=self.client.world.now_us,
                position=start,
                records=found,
                isolation=self.reading.isolation,
                in_group=self.in_group,
                topic_id=position.topic_id,
            )
        )
        position.offset = offset
        if self.on_polled is not None:
            self.on_polled(position.place, offset)

    def _out_of_range(self, position: _Position, node_id: int) -> None:
        """Where a follower lags, the leader knows better; where the leader says so, start over."""
        known = self.client.places.get(position.place)
        if known is not None and node_id != known.leader:
            position.source = known.leader
            return
        self._thrown_out(position)

    def _thrown_out(self, position: _Position) -> None:
        """There is nothing here, its leader says: start over."""
        history, now_us = self.client.history, self.client.world.now_us
        history.add(Thrown(position.name, position.place, position.offset, now_us))
        self._start_over(position, -1)

    def _start_over(self, position: _Position, offset: int) -> None:
        position.starts_over += 1
        position.name = f"{self.client.name}+{position.starts_over}"
        position.offset = offset
        position.epoch = -1

    # Finding the place to begin, and checking that it is still there.

    def _find_start(self, position: _Position, leader: int) -> None:
        topic, index = position.place
        part = ListOffsetsPartition(partition_index=index, timestamp=self.reading.start)
        message = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=self.reading.isolation,
            topics=[ListOffsetsTopic(name=topic, partitions=[part])],
        )
        position.busy = True

        def told(response: Any) -> None:
            position.busy = False
            answer = response.topics[0].partitions[0] if response is not None else None
            if answer is None or answer.error_code or answer.offset < 0:
                self._lost()
                return
            position.offset = answer.offset
            self.turn()

        self.client.ask(leader, message, told)

    def _check_history(self, position: _Position, leader: int, leader_epoch: int) -> None:
        """Ask the new leader where the epoch that was read last ended (KIP-320)."""
        topic, index = position.place
        part = OffsetForLeaderPartition(
            partition=index, current_leader_epoch=leader_epoch, leader_epoch=position.epoch
        )
        message = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[part])]
        )
        position.busy = True

        def told(response: Any) -> None:
            position.busy = False
            answer = response.topics[0].partitions[0] if response is not None else None
            if answer is None or answer.error_code:
                self._lost()
                return
            position.checked_epoch = leader_epoch
            if answer.end_offset == _EPOCH_END_UNKNOWN:
                self._thrown_out(position)
            elif answer.end_offset < position.offset:
                self.client.history.mark("reader-truncated")
                self._start_over(position, answer.end_offset)
            self.turn()

        self.client.ask(leader, message, told)


def written_as(record: Record) -> bytes:
    """What the producer wrote; a tombstone says it in a header."""
    if record.value is not None:
        return record.value
    return dict(record.headers).get(WRITTEN_AS) or b""
