"""The coordinator's transactions in PostgreSQL.

What: the calls of `SqlTables` with locks on rows, since several brokers are at work at once, and
with few round trips: a transaction is one pipeline, in which only reading waits, and rows come and
go as arrays. Rules kept: READ COMMITTED; a commit locks its object and its broker's row (shared),
then the rows of its partitions in the order of LogKey, and reads producers after that; who drops
runs locks partitions first and objects, by id, after them; the active controller's calls stand in
one line. NOTIFY is part of the transaction, so listeners hear in the order of commits; what does
not fit into one message comes in several. The clock is the server's. A commit is made only where
the last commits that the node knows of are there (decision 75). Not here: connections.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import psycopg

from anabranch.core.diskless.commit import ObjectRow, Producer, ProducerKey, producer_keys
from anabranch.core.diskless.last_commits import check_committed
from anabranch.core.diskless.rows import (
    MOST_RUNS_FOUND,
    Change,
    Commit,
    Found,
    LogKey,
    LogState,
    Run,
    Wanted,
)
from anabranch.core.types import TopicId
from anabranch.stores.coordinator.codec import pack_changes, unpack_changes, unpack_written
from anabranch.stores.coordinator.sql_tables import OBJECT, SqlTables, object_row

Connection: TypeAlias = psycopg.Connection[Any]

CHANNEL = "anabranch_diskless"
NUMBERS_LOCK = 0x616E6F62
"""The advisory lock of who takes numbers for objects, the letters "anob". Numbers that nextval()
gives are written to the log 32 ahead: a standby that takes over, or a server that was killed, would
say that it has given some that it has not, so that what it has lost could not be told from what it
has forgotten. setval() writes the very number."""
CHANGE_BYTES = 5900
"""In base64 below the 8000 bytes that a NOTIFY may have."""
NOW = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
KEYS = "unnest(%s::bytea[], %s::bigint[]) WITH ORDINALITY AS k (topic_id, partition, place)"
STATES = (
    "SELECT l.log_start_offset, l.high_watermark, l.byte_size, l.tiered_end_offset, "
    "l.leader_epoch FROM "
    f"{KEYS} LEFT JOIN logs l USING (topic_id, partition) ORDER BY place"
)
LOCKED = (
    "SELECT l.topic_id, l.partition, l.log_start_offset, l.high_watermark, l.byte_size, "
    f"l.tiered_end_offset, l.leader_epoch FROM {KEYS} JOIN logs l USING (topic_id, partition) "
    "ORDER BY l.topic_id, l.partition FOR UPDATE OF l"
)
PRODUCERS = (
    "SELECT p.topic_id, p.partition, p.producer_id, p.producer_epoch, p.written FROM "
    "unnest(%s::bytea[], %s::bigint[], %s::bigint[]) AS k (topic_id, partition, producer_id) "
    "JOIN producers p USING (topic_id, partition, producer_id)"
)
TO_COMMIT = (
    f"SELECT {NOW}, (SELECT broker_epoch FROM brokers WHERE broker_id = ? FOR SHARE), "
    "(SELECT array_agg(earlier.object_id) FROM wal_objects earlier "
    "WHERE earlier.object_id = ANY(?::bigint[]) AND earlier.state IN (1, 3, 4)), "
    f"{OBJECT} FROM wal_objects WHERE object_id = ? FOR UPDATE"
)
"""The subquery gives those of some earlier commits that are still there."""
NOTIFY = f"SELECT pg_notify('{CHANNEL}', each) FROM unnest(?::text[]) each"
WRITE = (
    "WITH numbered AS (UPDATE commits SET last_number = last_number + 1 RETURNING last_number), "
    "object AS (UPDATE wal_objects SET state = ?::bigint, byte_size = ?::bigint, "
    "committed_ms = ?::bigint, verdicts = ?::bytea, live_runs = ?::bigint, marked_ms = ?::bigint, "
    "commit_number = (SELECT last_number FROM numbered) WHERE object_id = ?::bigint), moved AS ("
    "UPDATE logs SET high_watermark = k.high_watermark, byte_size = k.byte_size "
    "FROM unnest(?::bigint[], ?::bigint[], ?::bytea[], ?::bigint[]) "
    "AS k (high_watermark, byte_size, topic_id, partition) "
    "WHERE logs.topic_id = k.topic_id AND logs.partition = k.partition), added AS ("
    "INSERT INTO runs (topic_id, partition, base_offset, end_offset, object_id, byte_offset, "
    "byte_size, max_timestamp, timestamp_type) SELECT * FROM unnest(?::bytea[], ?::bigint[], "
    "?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[])), "
    "remembered AS (INSERT INTO producers SELECT * FROM unnest(?::bytea[], ?::bigint[], "
    "?::bigint[], ?::bigint[], ?::bytea[], ?::bigint[]) "
    "ON CONFLICT (topic_id, partition, producer_id) DO UPDATE SET "
    "producer_epoch = excluded.producer_epoch, written = excluded.written, "
    f"written_ms = excluded.written_ms) {NOTIFY}"
)
"""All that a commit writes: each statement of a pipeline is a turn of the client's and the
server's processes, which costs more than what it does."""
NEAREST = (
    "SELECT base_offset, end_offset, object_id, byte_offset, byte_size, max_timestamp, "
    "timestamp_type, sum(byte_size) OVER (ORDER BY base_offset) AS total "
    "FROM runs WHERE runs.topic_id = k.topic_id AND runs.partition = k.partition "
    "AND base_offset >= (SELECT coalesce(max(first.base_offset), 0) FROM runs first "
    "WHERE first.topic_id = k.topic_id AND first.partition = k.partition "
    "AND first.base_offset <= k.wanted) AND end_offset > k.wanted "
    f"ORDER BY base_offset LIMIT {MOST_RUNS_FOUND}"
)
FIND = (
    "SELECT place, l.log_start_offset, l.high_watermark, l.byte_size, l.tiered_end_offset, "
    "l.leader_epoch, r.* "
    "FROM unnest(%s::bytea[], %s::bigint[], %s::bigint[], %s::bigint[]) WITH ORDINALITY "
    "AS k (topic_id, partition, wanted, most_bytes, place) "
    "LEFT JOIN logs l USING (topic_id, partition) LEFT JOIN LATERAL ("
    "SELECT base_offset, end_offset, object_id, object_key, byte_offset, n.byte_size, "
    f"max_timestamp, timestamp_type FROM ({NEAREST}) n JOIN wal_objects USING (object_id) "
    "WHERE total <= k.most_bytes OR total = n.byte_size) AS r "
    "ON k.wanted >= greatest(l.log_start_offset, l.tiered_end_offset) "
    "AND k.wanted < l.high_watermark "
    "ORDER BY place, r.base_offset"
)
"""One statement, and so one view of partitions and runs."""


class PostgresTables(SqlTables):
    """`Tables` on a connection in autocommit mode; one thread at a time. `known` gives the objects
    that must be there as committed."""

    lock = " FOR UPDATE"
    share = " FOR SHARE"

    def __init__(
        self, connection: Connection, cluster_id: str, mark: str, known: Callable[[], list[int]]
    ) -> None:
        super().__init__(cluster_id, mark)
        self.connection = connection
        self._known = known
        self._pipeline: psycopg.Pipeline | None = None

    # How statements are made.

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """One pipeline; what fails is rolled back."""
        try:
            with self.connection.pipeline() as self._pipeline:
                self.connection.execute("BEGIN")
                yield
                self.connection.execute("COMMIT")
        except BaseException:
            if not self.connection.closed:
                self.connection.execute("ROLLBACK")
            raise
        finally:
            self._pipeline = None

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._execute(query, values).fetchall()

    def do(self, query: str, values: Sequence[Any] = ()) -> None:
        """Make a statement, for which nothing waits before the end of the transaction."""
        self._execute(query, values)

    def count(self, query: str, values: Sequence[Any] = ()) -> int:
        cursor = self._execute(query, values)
        if self._pipeline is not None:
            self._pipeline.sync()
        return cursor.rowcount

    def many(self, query: str, values: Iterable[Sequence[Any]]) -> None:
        with self.connection.cursor() as cursor:
            cursor.executemany(_placed(query), list(values))

    def now_ms(self) -> int:
        """By the server's clock."""
        return int(self.rows(f"SELECT {NOW}")[0][0])

    def tell(self, changes: Sequence[Change]) -> None:
        """Notify all listeners, when the transaction commits."""
        packets = _packets(changes)
        if packets:
            self._execute(NOTIFY, (packets,))

    def next_ids(self, count: int) -> list[int]:
        self.rows("SELECT pg_advisory_xact_lock(?::bigint)", (NUMBERS_LOCK,))
        last = self.last_id() + count
        self.skip_ids(last)
        return list(range(last - count + 1, last + 1))

    def last_id(self) -> int:
        """As the sequence has it."""
        rows = self.rows(
            "SELECT pg_sequence_last_value("
            "pg_get_serial_sequence('wal_objects', 'object_id')::regclass)"
        )
        return int(rows[0][0] or 0)

    def skip_ids(self, last: int) -> None:
        self.do(
            "SELECT setval(pg_get_serial_sequence('wal_objects', 'object_id'), ?::bigint)", (last,)
        )

    # Many rows at once.

    def locked_logs(self, keys: Sequence[LogKey]) -> dict[LogKey, LogState]:
        """Those partitions that there are, locked in order."""
        return _logs(self._execute(LOCKED, _columns(keys, 2)).fetchall())

    def states(self, keys: Sequence[LogKey]) -> list[LogState | None]:
        return [_state(row) for row in self._execute(STATES, _columns(keys, 2)).fetchall()]

    def known(self, object_ids: Sequence[int]) -> set[str]:
        rows = self.rows(
            "SELECT object_key FROM wal_objects WHERE object_id = ANY(?::bigint[]) AND state <> 4",
            (list(object_ids),),
        )
        return {str(row[0]) for row in rows}

    def find(self, wanted: Sequence[Wanted]) -> list[Found]:
        columns = [
            list(column) for column in zip(*((*each[0], *each[1:]) for each in wanted), strict=True)
        ]
        if not columns:
            return []
        states: list[LogState | None] = [None] * len(wanted)
        runs: list[list[Run]] = [[] for _ in wanted]
        for place, *row in self._execute(FIND, columns).fetchall():
            state, run = row[:5], row[5:]
            states[place - 1] = _state(state)
            if run[0] is not None:
                runs[place - 1].append(Run(wanted[place - 1].key, *run))
        return [
            Found(each.key, state, tuple(found))
            for each, state, found in zip(wanted, states, runs, strict=True)
        ]

    def to_commit(
        self, commit: Commit
    ) -> tuple[
        ObjectRow | None, int | None, dict[LogKey, LogState], dict[ProducerKey, Producer], int
    ]:
        """All that a commit reads, in one round trip."""
        known = self._known()
        found = self._execute(TO_COMMIT, (commit.broker_id, known, commit.object_id))
        logs = self._execute(
            LOCKED, _columns(dict.fromkeys(batch.key for batch in commit.batches), 2)
        )
        wanted = sorted(producer_keys(commit.batches))
        producers = self._producers(wanted) if wanted else None
        row = found.fetchone()
        if row is not None:
            self._check_earlier(set(known).difference(row[2] or ()))
        return (
            None if row is None else object_row(row[3:]),
            None if row is None or row[1] is None else int(row[1]),
            _logs(logs.fetchall()),
            {} if producers is None else dict(map(_producer, producers.fetchall())),
            0 if row is None else int(row[0]),
        )

    def _check_earlier(self, missing: set[int]) -> None:
        """Earlier commits have no row where all their runs are deleted. Raises OlderCopy where they
        were never made: the tables were loaded again from an older copy."""
        if missing:
            check_committed(self.uncommitted_now(missing), "coordinator")

    def _producers(self, wanted: Sequence[ProducerKey]) -> psycopg.Cursor[Any]:
        return self._execute(
            PRODUCERS, _columns([(*each.key, each.producer_id) for each in wanted], 3)
        )

    def write_commit(
        self,
        held: Sequence[Any],
        logs: Sequence[tuple[Any, ...]],
        runs: Sequence[tuple[Any, ...]],
        producers: Sequence[tuple[Any, ...]],
        changes: Sequence[Change],
    ) -> None:
        """What a commit writes and tells, in one statement."""
        columns = (*_columns(logs, 4), *_columns(runs, 9), *_columns(producers, 6))
        self._execute(WRITE, (*held, *columns, _packets(changes)))

    def _execute(self, query: str, values: Sequence[Any]) -> psycopg.Cursor[Any]:
        return self.connection.execute(_placed(query), values, binary=True)


def heard(payload: str) -> list[Change]:
    """The changes of one message. Raises ValueError or struct.error for what is none."""
    return unpack_changes(base64.b64decode(payload, validate=True))


def _packets(changes: Sequence[Change]) -> list[str]:
    return [base64.b64encode(packet).decode() for packet in pack_changes(changes, CHANGE_BYTES)]


def _producer(row: Sequence[Any]) -> tuple[ProducerKey, Producer]:
    topic_id, partition, producer_id, known, written = row
    key = ProducerKey(LogKey(TopicId(topic_id), partition), producer_id)
    return key, Producer(known, unpack_written(written))


def _placed(query: str) -> bytes:
    return query.replace("?", "%s").encode()


def _columns(rows: Iterable[Sequence[Any]], count: int) -> list[list[Any]]:
    """Rows as columns, of which there are so many also when there is no row."""
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(count)]


def _state(row: Sequence[Any]) -> LogState | None:
    return None if row[0] is None else LogState(*row)


def _logs(rows: Iterable[Sequence[Any]]) -> dict[LogKey, LogState]:
    return {LogKey(TopicId(row[0]), row[1]): LogState(*row[2:]) for row in rows}
