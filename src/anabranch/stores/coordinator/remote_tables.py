"""The facts of remote segments in SQL: the same statements for SQLite and PostgreSQL.

What: the calls of `RemoteFacts`, each a transaction. Rules kept: the row of a partition in
`remote_logs` is locked first, and its leader's epoch is compared in the same transaction; states
follow one another as `segments.py` says. Not here: transactions, connections (`sql_tables.py` and
the engines), decisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import msgspec

from anabranch.core.diskless.coordinator import Deposed
from anabranch.core.diskless.rows import LogKey
from anabranch.core.errors import StorageFault
from anabranch.core.remote.facts import HeldRemoteLog, TryEnded
from anabranch.core.remote.known_segments import NOTHING, Changed
from anabranch.core.remote.lineage import kept_start
from anabranch.core.remote.segments import EpochStart, RemoteSegment, SegmentId, SegmentState
from anabranch.core.types import TopicId

SEGMENT = (
    "segment_id, topic_id, partition, start_offset, end_offset, max_timestamp, leader_epochs, "
    "byte_size, broker_id, leader_epoch, has_no_aborted, state, event_ms, custom_metadata"
)
INSERT = (
    f"INSERT INTO remote_segments ({SEGMENT}, claim_id, changed) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
)
NO_CLAIM, RESTORED_CLAIM = -1, 0
"""Of a segment that a leader copies, and of one that some job had made."""
PAGE = 500
"""Values of one statement: fewer than any database takes."""
OF_LOG = "topic_id = ? AND partition = ?"
STARTED, FINISHED, REMOVED = (
    int(SegmentState.COPY_SEGMENT_STARTED),
    int(SegmentState.COPY_SEGMENT_FINISHED),
    int(SegmentState.DELETE_SEGMENT_STARTED),
)


class Statements(Protocol):
    """What an engine gives: see `SqlTables`."""

    lock: str

    def transaction(self) -> AbstractContextManager[None]: ...
    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...
    def do(self, query: str, values: Sequence[Any] = ()) -> None: ...
    def count(self, query: str, values: Sequence[Any] = ()) -> int: ...
    def many(self, query: str, values: Iterable[Sequence[Any]]) -> None: ...
    def now_ms(self) -> int: ...


class FactsRead(NamedTuple):
    """What is told of a partition."""

    log_start: int
    now_ms: int
    """By the coordinator's clock."""
    changed: Changed


class RemoteTables:
    """`RemoteFacts` over a database whose schema is the newest, in calls that wait."""

    def __init__(self, on: Statements) -> None:
        self._on = on

    def lead(
        self,
        key: LogKey,
        topic: str,
        leader_epoch: int,
        epochs: Sequence[EpochStart] = (),
        known: int = NOTHING,
    ) -> FactsRead:
        """What has changed after the change that is known, for the partition's leader."""
        with self._on.transaction():
            log_start = self.lead_within(key, topic, leader_epoch, epochs)
            self.locked_classic(key, leader_epoch)
            return self._facts(key, log_start, known)

    def lead_within(
        self, key: LogKey, topic: str, leader_epoch: int, epochs: Sequence[EpochStart] = ()
    ) -> int:
        """As `lead`, within a transaction; the log start."""
        if self._on.rows("SELECT 1 FROM deleted_topics WHERE topic_id = ?", (key.topic_id,)):
            raise TryEnded(f"topic {topic}: it was deleted, and its remote log with it")
        self._on.do(
            "INSERT INTO remote_logs (topic_id, partition, topic_name, leader_epoch) "
            "VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (*key, topic, leader_epoch),
        )
        newest, log_start = self._locked(key, leader_epoch)
        if newest < leader_epoch:
            log_start = kept_start(log_start, epochs, newest)
            self._on.do(
                f"UPDATE remote_logs SET leader_epoch = ?, log_start_offset = ? WHERE {OF_LOG}",
                (leader_epoch, log_start, *key),
            )
        return log_start

    def look(self, key: LogKey, known: int = NOTHING) -> FactsRead | None:
        """What has changed after the change that is known, for a reader."""
        with self._on.transaction():
            found = self._on.rows(f"SELECT log_start_offset FROM remote_logs WHERE {OF_LOG}", key)
            return self._facts(key, found[0][0], known) if found else None

    def logs(self, after: LogKey, limit: int) -> list[HeldRemoteLog]:
        """Partitions after one that have facts, by topic id; without a name where the topic was
        deleted."""
        with self._on.transaction():
            keys = self._on.rows(
                "SELECT topic_id, partition FROM remote_logs "
                "WHERE (topic_id, partition) > (?, ?) "
                "UNION SELECT topic_id, partition FROM remote_segments "
                "WHERE (topic_id, partition) > (?, ?) "
                "ORDER BY topic_id, partition LIMIT ?",
                (*after, *after, limit),
            )
            return [self._held(LogKey(TopicId(bytes(topic_id)), at)) for topic_id, at in keys]

    def _held(self, key: LogKey) -> HeldRemoteLog:
        found = self._on.rows(
            f"SELECT topic_name, leader_epoch, log_start_offset FROM remote_logs WHERE {OF_LOG}",
            key,
        )
        topic, leader_epoch, log_start = found[0] if found else ("", -1, 0)
        return HeldRemoteLog(topic, key, leader_epoch, log_start, tuple(self._segments(key)))

    def start(self, segment: RemoteSegment) -> None:
        """A try begins."""
        with self._on.transaction():
            self.locked_classic(segment.key, segment.leader_epoch)
            self.start_within(segment, NO_CLAIM, self._on.now_ms())

    def start_within(self, segment: RemoteSegment, claim_id: int, now_ms: int) -> None:
        """As `start`, within a transaction that has the remote log locked."""
        state = SegmentState.COPY_SEGMENT_STARTED
        row = _row(segment._replace(state=state, event_ms=now_ms))
        self._on.do(INSERT, (*row, claim_id, self.change(segment.key)))

    def change(self, key: LogKey) -> int:
        """Within a transaction: the number of the change that it makes to a partition."""
        self._on.do(f"UPDATE remote_logs SET last_change = last_change + 1 WHERE {OF_LOG}", key)
        found = self._on.rows(f"SELECT last_change FROM remote_logs WHERE {OF_LOG}", key)
        return int(found[0][0]) if found else 0

    def stands(self, segment: RemoteSegment) -> bool:
        """Whether a try may go on."""
        query = (
            "SELECT 1 FROM remote_segments s JOIN remote_logs l USING (topic_id, partition) "
            "WHERE s.segment_id = ? AND s.state = ? AND l.leader_epoch = ?"
        )
        return bool(self._on.rows(query, (segment.segment_id, STARTED, segment.leader_epoch)))

    def finish(self, segment: RemoteSegment) -> None:
        """A try becomes FINISHED."""
        with self._on.transaction():
            self.locked_classic(segment.key, segment.leader_epoch)
            self.finish_within(
                segment.key, segment.leader_epoch, segment.segment_id, segment.custom_metadata
            )

    def finish_within(
        self, key: LogKey, leader_epoch: int, segment_id: SegmentId, custom_metadata: bytes = b""
    ) -> RemoteSegment:
        """As `finish`, within a transaction; what was known of the try before."""
        self._locked(key, leader_epoch)
        rows = self._on.rows(
            f"SELECT {SEGMENT} FROM remote_segments WHERE segment_id = ? AND {OF_LOG}"
            f"{self._on.lock}",
            (segment_id, *key),
        )
        found = _segment(rows[0]) if rows else None
        if found is None or found.state not in (STARTED, FINISHED):
            raise TryEnded(
                f"segment {segment_id.hex()} of partition {key.partition}: its copy was given up "
                "before it ended"
            )
        if found.state == STARTED:
            self._on.do(
                "UPDATE remote_segments SET state = ?, event_ms = ?, custom_metadata = ?, "
                "changed = ? WHERE segment_id = ?",
                (FINISHED, self._on.now_ms(), custom_metadata, self.change(key), segment_id),
            )
        return found

    def begin_removal(
        self,
        key: LogKey,
        leader_epoch: int,
        log_start: int,
        finished: Sequence[SegmentId],
        given_up: Sequence[SegmentId],
    ) -> None:
        """Record a log start, and what is removed."""
        with self._on.transaction():
            _, recorded = self.locked_classic(key, leader_epoch)
            if log_start > recorded:
                self._on.do(
                    f"UPDATE remote_logs SET log_start_offset = ? WHERE {OF_LOG}", (log_start, *key)
                )
            now_ms, change = self._on.now_ms(), self.change(key)
            self._on.many(
                "UPDATE remote_segments SET state = ?, event_ms = ?, changed = ? "
                f"WHERE segment_id = ? AND state = ? AND {OF_LOG}",
                [
                    (REMOVED, now_ms, change, segment_id, state, *key)
                    for state, ids in ((FINISHED, finished), (STARTED, given_up))
                    for segment_id in ids
                ],
            )

    def forget(self, segment_ids: Sequence[SegmentId]) -> None:
        """Removals are over."""
        with self._on.transaction():
            for topic_id, partition, changed in self._removed(segment_ids):
                self._on.do(
                    f"UPDATE remote_logs SET last_forgotten = ? WHERE {OF_LOG} "
                    "AND last_forgotten < ?",
                    (changed, topic_id, partition, changed),
                )
            self._on.many(
                "DELETE FROM remote_segments WHERE segment_id = ? AND state = ?",
                [(segment_id, REMOVED) for segment_id in segment_ids],
            )

    def _removed(self, segment_ids: Sequence[SegmentId]) -> list[tuple[Any, ...]]:
        """The partitions of removals, each with the newest change that began one."""
        found: list[tuple[Any, ...]] = []
        for at in range(0, len(segment_ids), PAGE):
            page = segment_ids[at : at + PAGE]
            marks = ", ".join("?" * len(page))
            query = (
                "SELECT topic_id, partition, MAX(changed) FROM remote_segments "
                f"WHERE segment_id IN ({marks}) AND state = ? GROUP BY topic_id, partition "
                "ORDER BY topic_id, partition"
            )
            found += self._on.rows(query, (*page, REMOVED))
        return found

    def topics(self, after: TopicId, limit: int) -> list[TopicId]:
        """Topics that have a remote log, by id."""
        rows = self._on.rows(
            "SELECT DISTINCT topic_id FROM remote_logs WHERE topic_id > ? "
            "ORDER BY topic_id LIMIT ?",
            (after, limit),
        )
        return [TopicId(topic_id) for (topic_id,) in rows]

    def copied_topics(self) -> list[TopicId]:
        """Topics that have remote segments."""
        rows = self._on.rows(
            "SELECT DISTINCT topic_id FROM remote_logs l WHERE EXISTS "
            "(SELECT 1 FROM remote_segments s WHERE s.topic_id = l.topic_id) ORDER BY topic_id"
        )
        return [TopicId(topic_id) for (topic_id,) in rows]

    def known(self, segment_ids: Sequence[SegmentId]) -> set[SegmentId]:
        """Those of which there is a fact."""
        found: set[SegmentId] = set()
        for at in range(0, len(segment_ids), PAGE):
            page = segment_ids[at : at + PAGE]
            marks = ", ".join("?" * len(page))
            query = f"SELECT segment_id FROM remote_segments WHERE segment_id IN ({marks})"
            found.update(SegmentId(bytes(each)) for (each,) in self._on.rows(query, page))
        return found

    def delete_topic(self, topic_id: TopicId, now_ms: int) -> None:
        """Within the transaction that deletes a topic: its segments are removed, and no leader of
        it is known any more."""
        self._on.do("DELETE FROM remote_logs WHERE topic_id = ?", (topic_id,))
        self._on.do("DELETE FROM seals WHERE topic_id = ?", (topic_id,))
        self._on.do(
            "UPDATE remote_segments SET state = ?, event_ms = ? WHERE topic_id = ? AND state < ?",
            (REMOVED, now_ms, topic_id, REMOVED),
        )

    def orphans(self, limit: int) -> list[RemoteSegment]:
        """Removals of deleted topics, and of segments that jobs have made."""
        rows = self._on.rows(
            f"SELECT {SEGMENT} FROM remote_segments WHERE state = 2 AND (claim_id <> -1 OR "
            "topic_id IN (SELECT topic_id FROM deleted_topics)) "
            "ORDER BY event_ms, segment_id LIMIT ?",
            (limit,),
        )
        return [_segment(row) for row in rows]

    def load(self, logs: Sequence[HeldRemoteLog]) -> None:
        """Take the facts of a coordinator that was lost."""
        with self._on.transaction():
            if self._on.rows("SELECT 1 FROM remote_logs LIMIT 1") or self._on.rows(
                "SELECT 1 FROM remote_segments LIMIT 1"
            ):
                raise StorageFault(
                    "the coordinator has facts of remote segments; a restore needs an empty one"
                )
            diskless = {
                LogKey(TopicId(bytes(topic_id)), partition)
                for topic_id, partition in self._on.rows("SELECT topic_id, partition FROM logs")
            }
            self._on.many(
                "INSERT INTO remote_logs (topic_id, partition, topic_name, leader_epoch, "
                "log_start_offset, is_over) VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (*log.key, log.topic, log.leader_epoch, log.log_start, int(log.key in diskless))
                    for log in logs
                ],
            )
            self._on.many(
                INSERT,
                [
                    (*_row(each), RESTORED_CLAIM if log.key in diskless else NO_CLAIM, 0)
                    for log in logs
                    for each in log.segments
                ],
            )

    def finished(self, key: LogKey) -> list[RemoteSegment]:
        """The finished segments of a partition, by their offsets."""
        return [each for each in self._segments(key) if each.is_finished]

    def locked_classic(self, key: LogKey, leader_epoch: int) -> tuple[int, int]:
        """As `_locked`, for the leader of a classic partition."""
        found = self._locked(key, leader_epoch)
        if self._on.rows(f"SELECT 1 FROM remote_logs WHERE {OF_LOG} AND is_over = 1", key):
            raise TryEnded("the topic of this partition is diskless now: it has no classic leader")
        return found

    def _locked(self, key: LogKey, leader_epoch: int) -> tuple[int, int]:
        """The newest leader's epoch and the log start, locked. Raises Deposed and TryEnded."""
        found = self._on.rows(
            f"SELECT leader_epoch, log_start_offset FROM remote_logs WHERE {OF_LOG}{self._on.lock}",
            key,
        )
        if not found:
            raise TryEnded("the remote log of this partition is gone: its topic was deleted")
        newest, log_start = found[0]
        if leader_epoch < newest:
            raise Deposed(
                f"a leader calls with epoch {leader_epoch}, the coordinator knows {newest}"
            )
        return int(newest), int(log_start)

    def _facts(self, key: LogKey, log_start: int, known: int) -> FactsRead:
        [(newest, forgotten)] = self._on.rows(
            f"SELECT last_change, last_forgotten FROM remote_logs WHERE {OF_LOG}", key
        )
        is_whole = known < forgotten or not 0 <= known <= newest
        segments = self._segments(key) if is_whole else self._new(key, known)
        return FactsRead(log_start, self._on.now_ms(), Changed(newest, is_whole, tuple(segments)))

    def segments_of(self, key: LogKey) -> tuple[RemoteSegment, ...]:
        """Within a transaction: the segments of a partition, by start offset."""
        return tuple(self._segments(key))

    def _segments(self, key: LogKey) -> list[RemoteSegment]:
        query = (
            f"SELECT {SEGMENT} FROM remote_segments WHERE {OF_LOG} "
            "ORDER BY start_offset, end_offset, segment_id"
        )
        return [_segment(row) for row in self._on.rows(query, key)]

    def _new(self, key: LogKey, known: int) -> list[RemoteSegment]:
        """What has changed after a change, and all that is not finished."""
        changed = f"SELECT {SEGMENT} FROM remote_segments WHERE {OF_LOG} AND changed > ?"
        others = (
            f"SELECT {SEGMENT} FROM remote_segments WHERE {OF_LOG} AND state <> 1 AND changed <= ?"
        )
        values = (*key, known)
        return [
            _segment(row) for query in (changed, others) for row in self._on.rows(query, values)
        ]


def _row(segment: RemoteSegment) -> tuple[Any, ...]:
    return (
        segment.segment_id,
        *segment.key,
        segment.start_offset,
        segment.end_offset,
        segment.max_timestamp,
        msgspec.json.encode(segment.leader_epochs).decode(),
        segment.byte_size,
        segment.broker_id,
        segment.leader_epoch,
        int(not segment.has_aborted),
        int(segment.state),
        segment.event_ms,
        segment.custom_metadata,
    )


def _segment(row: Sequence[Any]) -> RemoteSegment:
    """A segment from the columns of SEGMENT."""
    segment_id, topic_id, partition, start, end, newest, epochs, size, *rest = row
    broker_id, leader_epoch, has_no_aborted, state, event_ms, custom_metadata = rest
    return RemoteSegment(
        SegmentId(bytes(segment_id)),
        LogKey(TopicId(bytes(topic_id)), partition),
        start,
        end,
        newest,
        tuple(EpochStart(*each) for each in msgspec.json.decode(epochs)),
        size,
        broker_id,
        leader_epoch,
        not has_no_aborted,
        SegmentState(state),
        event_ms,
        bytes(custom_metadata or b""),
    )
