"""The coordinator's transactions, as far as SQLite and PostgreSQL make them alike.

What: each call of `Tables` in statements that both engines read, with `?` for values; the engines
give what makes transactions, waits for rows, reads many rows at once and tells changes. Rules kept:
decisions are those of `core/diskless`; what a call moved is told as part of its transaction; each
deletion has a bound; partitions are locked in the order of LogKey, and objects after them. Not
here: threads, connections, faults.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from itertools import starmap
from typing import Any

from anabranch.core.diskless.commit import (
    Decided,
    ObjectRow,
    ObjectState,
    Producer,
    ProducerKey,
    decide,
    is_uncommitted,
    outcome,
)
from anabranch.core.diskless.contents import NOT_EMPTY, Contents
from anabranch.core.diskless.coordinator import Deposed
from anabranch.core.diskless.expired_runs import Oldest, outlived
from anabranch.core.diskless.keys import object_id as id_of_key
from anabranch.core.diskless.keys import object_key as key_of_id
from anabranch.core.diskless.rows import (
    MOST_RUNS_DROPPED,
    VERDICTS_KEPT_MS,
    Change,
    Commit,
    CommitState,
    Committed,
    Found,
    LogKey,
    LogState,
    NewLogs,
    Prepared,
    Run,
    Wanted,
)
from anabranch.core.errors import StorageFault
from anabranch.core.types import TopicId
from anabranch.stores.coordinator.codec import pack_verdicts, pack_written, unpack_verdicts
from anabranch.stores.coordinator.compaction_tables import CompactionTables
from anabranch.stores.coordinator.front import Tables
from anabranch.stores.coordinator.remote_tables import RemoteTables
from anabranch.stores.coordinator.seal_tables import SealTables
from anabranch.stores.coordinator.tiering_tables import TieringTables

OBJECT = "object_id, object_key, state, broker_id, broker_epoch, expires_ms, verdicts"
COMMITTED = (
    "UPDATE wal_objects SET state = ?, byte_size = ?, committed_ms = ?, verdicts = ?, "
    "live_runs = ?, marked_ms = ?, commit_number = (SELECT last_number FROM commits) "
    "WHERE object_id = ?"
)
OF_LOG = "topic_id = ? AND partition = ?"
OLDEST = (
    "end_offset, byte_size, max_timestamp, CASE WHEN max_timestamp >= 0 THEN max_timestamp ELSE "
    "(SELECT committed_ms FROM wal_objects o WHERE o.object_id = runs.object_id) END"
)
"""An object is looked at only for records without a timestamp."""
FORMER = (
    "SELECT coalesce(max(topic_name), ''), coalesce(max(forgotten_producer_id), -1), "
    "coalesce(max((SELECT max(producer_id) FROM producers p WHERE p.topic_id = l.topic_id "
    "AND p.partition = l.partition)), -1) FROM logs l WHERE topic_id = ?"
)
"""A topic's name, and the greatest ids of producers that its partitions have forgotten and know."""
RUNS = (
    "SELECT base_offset, end_offset, object_id, object_key, byte_offset, runs.byte_size, "
    "max_timestamp, timestamp_type FROM runs JOIN wal_objects USING (object_id) "
    f"WHERE {OF_LOG}"
)


class SqlTables(Tables, ABC):
    """`Tables` over a database whose schema is the newest."""

    lock = ""
    """What has a query wait for its rows, and keep them; where others may be at work."""
    share = ""
    """The same for rows that others may read."""

    def __init__(self, cluster_id: str, mark: str) -> None:
        self._cluster_id, self._mark = cluster_id, mark

    @property
    def remote(self) -> RemoteTables:
        """The facts of remote segments in the same database."""
        return RemoteTables(self)

    @property
    def seals(self) -> SealTables:
        """How classic partitions ended that become diskless, in the same database."""
        return SealTables(self)

    @property
    def tiering(self) -> TieringTables:
        """Who makes segments of diskless batches, in the same database."""
        return TieringTables(self)

    @property
    def compaction(self) -> CompactionTables:
        """Claims of compaction jobs, in the same database."""
        return CompactionTables(self)

    # What an engine gives.

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """All of it or nothing."""

    @abstractmethod
    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """What a query gives."""

    @abstractmethod
    def do(self, query: str, values: Sequence[Any] = ()) -> None:
        """Make a statement."""

    @abstractmethod
    def count(self, query: str, values: Sequence[Any] = ()) -> int:
        """How many rows a statement changed."""

    @abstractmethod
    def many(self, query: str, values: Iterable[Sequence[Any]]) -> None:
        """A statement for each row of values."""

    @abstractmethod
    def now_ms(self) -> int:
        """The database's time, in milliseconds since 1970."""

    @abstractmethod
    def tell(self, changes: Sequence[Change]) -> None:
        """Let those who listen know, when the transaction commits."""

    @abstractmethod
    def next_ids(self, count: int) -> list[int]:
        """Numbers for objects, in order."""

    @abstractmethod
    def last_id(self) -> int:
        """The greatest number that there ever was; 0 before the first."""

    @abstractmethod
    def skip_ids(self, last: int) -> None:
        """Give only greater numbers from now on."""

    @abstractmethod
    def locked_logs(self, keys: Sequence[LogKey]) -> dict[LogKey, LogState]:
        """Those partitions that there are, of keys in order, locked."""

    @abstractmethod
    def states(self, keys: Sequence[LogKey]) -> list[LogState | None]:
        pass

    @abstractmethod
    def find(self, wanted: Sequence[Wanted]) -> list[Found]:
        pass

    @abstractmethod
    def known(self, object_ids: Sequence[int]) -> set[str]:
        """Names of those objects that there are."""

    @abstractmethod
    def to_commit(
        self, commit: Commit
    ) -> tuple[
        ObjectRow | None, int | None, dict[LogKey, LogState], dict[ProducerKey, Producer], int
    ]:
        """What `decide` takes, locked: object, epoch, partitions, producers, time."""

    @abstractmethod
    def write_commit(
        self,
        held: Sequence[Any],
        logs: Sequence[tuple[Any, ...]],
        runs: Sequence[tuple[Any, ...]],
        producers: Sequence[tuple[Any, ...]],
        changes: Sequence[Change],
    ) -> None:
        """Write and tell what a commit decided: values of COMMITTED, (high watermark, size, topic,
        partition), runs as in the table, producers as in the table."""

    # The active controller.

    def take_control(self, controller_epoch: int) -> None:
        with self.transaction():
            stored = self._controller_epoch()
            if controller_epoch < stored:
                raise _deposed("controller", controller_epoch, stored)
            self.do(
                "UPDATE facts SET value = ? WHERE name = 'controller.epoch'",
                (str(controller_epoch),),
            )

    def topics(self, after: TopicId, limit: int) -> list[tuple[TopicId, int]]:
        rows = self.rows(
            "SELECT topic_id, count(*) FROM logs WHERE topic_id > ? "
            "GROUP BY topic_id ORDER BY topic_id LIMIT ?",
            (after, limit),
        )
        return [(TopicId(topic_id), count) for topic_id, count in rows]

    def create_logs(self, controller_epoch: int, new: Sequence[NewLogs]) -> None:
        with self.transaction():
            self._check_controller(controller_epoch)
            made: list[Change] = []
            for topic_id, topic, _, end, begins in new:
                if self._one("SELECT 1 FROM deleted_topics WHERE topic_id = ?", (topic_id,)):
                    continue
                missing = sorted(set(range(end)) - set(self._partitions(topic_id)))
                (forgotten,) = self.rows(
                    "SELECT coalesce(max(last_producer_id), -1) FROM deleted_topics "
                    "WHERE topic_name = ? AND last_producer_id >= 0",
                    (topic,),
                )
                made += self._create(topic_id, topic, missing, begins, *forgotten)
            self.tell(made)

    def _create(
        self,
        topic_id: TopicId,
        topic: str,
        missing: Sequence[int],
        begins: Sequence[int],
        forgotten: int,
    ) -> list[Change]:
        """Make rows of partitions: empty ones, or such that go on where a classic one ended."""
        keys = [LogKey(topic_id, partition) for partition in missing]
        taken = self.seals.taken if begins or self.seals.was_classic(topic_id) else _none_before
        where = dict(enumerate(begins))
        begun = {
            key: taken(key, where.get(key.partition, 0)) or (LogState(0, 0), -1) for key in keys
        }
        self.many(
            "INSERT INTO logs (topic_id, partition, topic_name, log_start_offset, high_watermark, "
            "byte_size, tiered_end_offset, leader_epoch, forgotten_producer_id) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (*key, topic, *state, max(forgotten, forgotten_here))
                for key, (state, forgotten_here) in begun.items()
            ),
        )
        return [Change(key, state) for key, (state, _) in begun.items()]

    def delete_topics(self, controller_epoch: int, topic_ids: Sequence[TopicId]) -> None:
        with self.transaction():
            self._check_controller(controller_epoch)
            now_ms = self.now_ms()
            gone: list[LogKey] = []
            for topic_id in sorted(topic_ids):
                gone += (LogKey(topic_id, number) for number in self._partitions(topic_id))
                (former,) = self.rows(FORMER, (topic_id,))
                self.do(
                    "INSERT INTO deleted_topics (topic_id, deleted_ms, topic_name, "
                    "last_producer_id) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                    (topic_id, now_ms, former[0], max(former[1:])),
                )
                self.do("DELETE FROM logs WHERE topic_id = ?", (topic_id,))
                self.remote.delete_topic(topic_id, now_ms)
            self.tell([Change(key, None) for key in gone])

    # Brokers: writing.

    def register(self, broker_id: int, broker_epoch: int) -> None:
        with self.transaction():
            self.do(
                "INSERT INTO brokers VALUES (?, ?) ON CONFLICT (broker_id) DO UPDATE SET "
                "broker_epoch = excluded.broker_epoch "
                "WHERE brokers.broker_epoch < excluded.broker_epoch",
                (broker_id, broker_epoch),
            )
            newest = self.broker_epoch(broker_id)
            if newest != broker_epoch:
                raise _deposed(f"broker {broker_id}", broker_epoch, newest)
            self.tiering.registered(broker_id, broker_epoch)
            self.compaction.registered(broker_id, broker_epoch)

    def prepare(
        self, broker_id: int, broker_epoch: int, count: int, lease_ms: int
    ) -> list[Prepared]:
        with self.transaction():
            newest = self.broker_epoch(broker_id)
            if newest != broker_epoch:
                raise _deposed(f"broker {broker_id}", broker_epoch, newest)
            now_ms = self.now_ms()
            prepared = [
                Prepared(
                    number,
                    key_of_id(self._cluster_id, self._mark, number),
                    now_ms + lease_ms,
                    lease_ms,
                )
                for number in self.next_ids(count)
            ]
            self.many(
                "INSERT INTO wal_objects (object_id, object_key, expires_ms, prepared_ms, state, "
                "broker_id, broker_epoch) VALUES (?, ?, ?, ?, 0, ?, ?)",
                ((*each[:3], now_ms, broker_id, broker_epoch) for each in prepared),
            )
        return prepared

    def commit(self, commit: Commit) -> Committed:
        with self.transaction():
            found, broker_epoch, logs, producers, now_ms = self.to_commit(commit)
            forgotten = self._forgotten(logs) if commit.waited_for else {}
            decided = decide(commit, found, broker_epoch, logs, producers, now_ms, forgotten)
            if decided.object_state is not None:
                self._write(commit, decided, now_ms)
        return decided.answer

    def outcome(self, object_key: str) -> Committed:
        with self.transaction():
            number = id_of_key(object_key)
            row = self._one(
                f"SELECT {OBJECT} FROM wal_objects WHERE object_id = ?{self.lock}", (number,)
            )
            found = None if row is None or row[1] != object_key else object_row(row)
            decided = outcome(found, self.now_ms())
            if decided.object_state is not None:
                self._refuse([number])
        return decided.answer

    def refuse(self, object_ids: Sequence[int]) -> None:
        with self.transaction():
            self._refuse(object_ids)

    # Brokers: reading.

    def some_by_time(
        self, key: LogKey, timestamp: int, first: int, most_runs: int
    ) -> tuple[Run | None, int | None]:
        """The first run that is not older, among some from an offset on; where others begin."""
        chosen = "AND max_timestamp >= ? ORDER BY base_offset"
        return self._step(key, first, most_runs, chosen, timestamp)

    def some_newest(self, key: LogKey, first: int, most_runs: int) -> tuple[Run | None, int | None]:
        """The first run of the greatest timestamp, among some from an offset on; where others
        begin."""
        return self._step(key, first, most_runs, "ORDER BY max_timestamp DESC, base_offset")

    # Shortening.

    def delete_before(self, wanted: Iterable[tuple[LogKey, int]]) -> list[LogState | None]:
        asked = list(wanted)
        with self.transaction():
            states = self.locked_logs(sorted({key for key, _ in asked}))
            changed: set[LogKey] = set()
            dropped: list[int] = []
            for key, offset in asked:
                state = states.get(key)
                raised = None if state is None else _raised(state, offset)
                if raised is not None and raised != state:
                    most = MOST_RUNS_DROPPED // len(asked)
                    states[key], objects = self._drop_below_start(key, raised, most)
                    dropped += objects
                    changed.add(key)
            self._write_shortened({key: states[key] for key in sorted(changed)}, dropped)
            self.tell([Change(key, states[key]) for key in sorted(changed)])
        return [states.get(key) for key, _ in asked]

    def expire(
        self, key: LogKey, *, older_than_ms: int, most_bytes: int, most_runs: int
    ) -> tuple[LogState | None, int]:
        with self.transaction():
            before = self.locked_logs([key]).get(key)
            if before is None:
                return None, 0
            state, removed = self.tiering.drop_below_start(key, before)
            state, dropped = self._drop_below_start(key, state, most_runs)
            oldest = self.rows(
                f"SELECT {OLDEST} FROM runs WHERE {OF_LOG} ORDER BY base_offset LIMIT ?",
                (*key, most_runs - len(dropped)),
            )
            start_offset = outlived(
                [*(self.tiering.oldest(key) if state.tiered_end else ()), *starmap(Oldest, oldest)],
                state.byte_size, older_than_ms, most_bytes,
            )  # fmt: skip
            state, more_removed = self.tiering.drop_below_start(key, _raised(state, start_offset))
            state, more = self._drop_below_start(key, state, most_runs - len(dropped))
            if state != before:
                self._write_shortened({key: state}, dropped + more)
                self.tell([Change(key, state)])
        return state, len(dropped + more) + removed + more_removed

    # Garbage.

    def mark_expired(self, limit: int) -> int:
        with self.transaction():
            now_ms = self.now_ms()
            done = self._mark_prepared(now_ms, limit)
            done += self._forget_verdicts(now_ms - VERDICTS_KEPT_MS, limit - done)
            return done + self._sweep(limit - done, now_ms)

    def forget_producers(self, idle_ms: int, limit: int) -> int:
        with self.transaction():
            until_ms = self.now_ms() - idle_ms
            idle = self.rows(
                "SELECT topic_id, partition, producer_id FROM producers WHERE written_ms <= ? "
                "ORDER BY written_ms LIMIT ?",
                (until_ms, limit),
            )
            newest: dict[LogKey, int] = {}
            for topic_id, partition, producer_id in idle:
                key = LogKey(TopicId(topic_id), partition)
                newest[key] = max(producer_id, newest.get(key, producer_id))
            self.locked_logs(sorted(newest))  # first, as commits do; one that waits reads again
            self.many(
                f"DELETE FROM producers WHERE {OF_LOG} AND producer_id = ? AND written_ms <= ?",
                ((*each, until_ms) for each in idle),
            )
            self.many(
                f"UPDATE logs SET forgotten_producer_id = ? WHERE {OF_LOG} "
                "AND forgotten_producer_id < ?",
                ((newest[key], *key, newest[key]) for key in sorted(newest)),
            )
            return len(idle)

    def to_delete(self, grace_ms: int, limit: int) -> list[tuple[int, str]]:
        rows = self.rows(
            "SELECT object_id, object_key FROM wal_objects WHERE state IN (2, 3) "
            "AND marked_ms <= ? ORDER BY marked_ms LIMIT ?",
            (self.now_ms() - grace_ms, limit),
        )
        return [(number, key) for number, key in rows]

    def count_to_delete(self, grace_ms: int, limit: int) -> int:
        ((count,),) = self.rows(
            "SELECT count(*) FROM (SELECT 1 FROM wal_objects WHERE state IN (2, 3) "
            "AND marked_ms <= ? LIMIT ?) waiting",
            (self.now_ms() - grace_ms, limit),
        )
        return int(count)

    def deleted(self, object_ids: Sequence[int]) -> None:
        ids = [(number,) for number in sorted(object_ids)]
        waits = "WHERE object_id = ? AND state IN (2, 3)"
        with self.transaction():
            self.many(f"DELETE FROM wal_objects {waits} AND verdicts IS NULL", ids)
            self.many(f"UPDATE wal_objects SET state = 4 {waits}", ids)

    def unknown(self, object_keys: Sequence[str]) -> list[str]:
        known = self.known([id_of_key(key) for key in object_keys])
        return [key for key in object_keys if key not in known]

    def uncommitted(self, object_ids: Sequence[int]) -> list[int]:
        with self.transaction():
            return self.uncommitted_now(object_ids)

    def uncommitted_now(self, object_ids: Iterable[int]) -> list[int]:
        """As `uncommitted`, within a transaction."""
        last = self.last_id()
        query = "SELECT state FROM wal_objects WHERE object_id = ?"
        rows = {number: self._one(query, (number,)) for number in sorted(object_ids)}
        states = {each: None if row is None else ObjectState(row[0]) for each, row in rows.items()}
        return [each for each, state in states.items() if is_uncommitted(each, state, last)]

    # Restoring.

    def store(self, store_id: str) -> str:
        with self.transaction():
            if store_id:
                first = "INSERT INTO facts VALUES ('store.id', ?) ON CONFLICT DO NOTHING"
                self.do(first, (store_id,))
            row = self._one("SELECT value FROM facts WHERE name = 'store.id'")
        return "" if row is None else str(row[0])

    def mark(self) -> str:
        return self._mark

    def load(self, contents: Contents) -> None:
        with self.transaction():
            if self._one("SELECT 1 FROM logs LIMIT 1") or self._one(
                "SELECT 1 FROM wal_objects LIMIT 1"
            ):
                raise StorageFault(NOT_EMPTY.format(self._mark))
            now_ms = self.now_ms()
            self.many(
                "INSERT INTO logs (topic_id, partition, topic_name, log_start_offset, "
                "high_watermark, byte_size, tiered_end_offset, leader_epoch) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                ((*log.key, log.topic, *log.state) for log in contents.logs),
            )
            self.many(
                "INSERT INTO wal_objects (object_id, object_key, byte_size, broker_id, "
                "broker_epoch, live_runs, state, prepared_ms, expires_ms, committed_ms, marked_ms) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    (*held, int(held.state), now_ms, now_ms, now_ms, held.marked_ms(now_ms))
                    for held in contents.objects
                ),
            )
            self.many(
                "INSERT INTO runs (topic_id, partition, base_offset, end_offset, object_id, "
                "byte_offset, byte_size, max_timestamp, timestamp_type) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                ((*run.key, *run[1:4], *run[5:]) for run in contents.runs),
            )
            self.many(
                "INSERT INTO producers VALUES (?, ?, ?, ?, ?, ?)",
                (
                    (*each.key, each.producer_id, known.epoch, pack_written(known.written), now_ms)
                    for each, known in contents.producers
                ),
            )
            if contents.last_object_id:
                self.skip_ids(contents.last_object_id)

    # What the calls share.

    def broker_epoch(self, broker_id: int) -> int | None:
        """The newest epoch of a broker."""
        found = self._one(
            f"SELECT broker_epoch FROM brokers WHERE broker_id = ?{self.share}", (broker_id,)
        )
        return None if found is None else int(found[0])

    def _one(self, query: str, values: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        return next(iter(self.rows(query, values)), None)

    def _controller_epoch(self) -> int:
        found = self._one(f"SELECT value FROM facts WHERE name = 'controller.epoch'{self.lock}")
        return -1 if found is None else int(found[0])

    def _check_controller(self, epoch: int) -> None:
        stored = self._controller_epoch()
        if epoch != stored:
            raise _deposed("controller", epoch, stored)

    def _forgotten(self, keys: Iterable[LogKey]) -> dict[LogKey, int]:
        """The greatest producer id that each of these partitions may have forgotten."""
        query = f"SELECT forgotten_producer_id FROM logs WHERE {OF_LOG}"
        return {key: int(number) for key in keys for (number,) in self.rows(query, key)}

    def _partitions(self, topic_id: TopicId) -> list[int]:
        """Of a topic, locked."""
        query = f"SELECT partition FROM logs WHERE topic_id = ? ORDER BY partition{self.lock}"
        return [row[0] for row in self.rows(query, (topic_id,))]

    def _write(self, commit: Commit, decided: Decided, now_ms: int) -> None:
        """What a commit decided."""
        if decided.answer.state is not CommitState.COMMITTED:
            self._refuse([commit.object_id])
            return
        is_unused = decided.object_state is ObjectState.UNUSED
        self.write_commit(
            (
                int(ObjectState.UNUSED if is_unused else ObjectState.COMMITTED),
                commit.byte_size,
                now_ms,
                pack_verdicts(decided.answer.verdicts),
                len(decided.runs),
                now_ms if is_unused else None,
                commit.object_id,
            ),
            [(log.high_watermark, log.byte_size, *key) for key, log in decided.logs.items()],
            [(*run.key, *run[1:4], *run[5:]) for run in decided.runs],
            [
                (*each.key, each.producer_id, known.epoch, pack_written(known.written), now_ms)
                for each, known in decided.producers.items()
            ],
            _moved(decided),
        )

    def _refuse(self, object_ids: Sequence[int]) -> None:
        now_ms = self.now_ms()
        self.many(
            "UPDATE wal_objects SET state = 2, marked_ms = ? WHERE object_id = ? AND state = 0",
            ((now_ms, number) for number in sorted(object_ids)),
        )

    def _step(
        self, key: LogKey, first: int, most_runs: int, chosen: str, *values: int
    ) -> tuple[Run | None, int | None]:
        (state,) = self.states([key])
        if state is None:
            return None, None
        beyond = self._one(
            f"SELECT base_offset FROM runs WHERE {OF_LOG} AND base_offset >= ? "
            "ORDER BY base_offset LIMIT 1 OFFSET ?",
            (*key, first, most_runs),
        )
        end = state.high_watermark if beyond is None else beyond[0]
        row = self._one(
            f"{RUNS} AND base_offset >= ? AND base_offset < ? AND end_offset > ? {chosen} LIMIT 1",
            (*key, first, end, state.start_offset, *values),
        )
        return None if row is None else Run(key, *row), None if beyond is None else end

    def _drop_below_start(
        self, key: LogKey, state: LogState, limit: int
    ) -> tuple[LogState, list[int]]:
        """Delete the first runs that lie below the start; the objects in which they were."""
        rows = self.rows(
            f"SELECT base_offset, end_offset, byte_size, object_id FROM runs WHERE {OF_LOG} "
            "AND base_offset < ? ORDER BY base_offset LIMIT ?",
            (*key, state.start_offset, limit),
        )
        dropped = [row for row in rows if row[1] <= state.start_offset]
        if dropped:
            self.do(f"DELETE FROM runs WHERE {OF_LOG} AND base_offset <= ?", (*key, dropped[-1][0]))
        byte_size = state.byte_size - sum(row[2] for row in dropped)
        return state._replace(byte_size=byte_size), [row[3] for row in dropped]

    def _write_shortened(self, states: dict[LogKey, LogState], dropped: list[int]) -> None:
        self.many(
            f"UPDATE logs SET log_start_offset = ?, byte_size = ? WHERE {OF_LOG}",
            ((state.start_offset, state.byte_size, *key) for key, state in states.items()),
        )
        self.release(dropped, self.now_ms())

    def release(self, object_ids: Iterable[int], now_ms: int) -> None:
        """Runs of these objects are gone, one for each time that an id comes."""
        counts = sorted(Counter(object_ids).items())
        self.many(
            "UPDATE wal_objects SET live_runs = live_runs - ? WHERE object_id = ?",
            ((count, number) for number, count in counts),
        )
        self.many(
            "UPDATE wal_objects SET state = 3, marked_ms = ? "
            "WHERE object_id = ? AND state = 1 AND live_runs = 0",
            ((now_ms, number) for number, _ in counts),
        )

    def _mark_prepared(self, now_ms: int, limit: int) -> int:
        """The oldest ones, as the index has them; each is looked at again once it is locked."""
        expired = self.rows(
            "SELECT object_id FROM wal_objects WHERE state = 0 AND expires_ms <= ? "
            "ORDER BY expires_ms LIMIT ?",
            (now_ms, limit),
        )
        self._refuse([number for (number,) in expired])
        return len(expired)

    def _forget_verdicts(self, until_ms: int, limit: int) -> int:
        rows = self.rows(
            "SELECT object_id FROM wal_objects WHERE verdicts IS NOT NULL AND committed_ms <= ? "
            "ORDER BY committed_ms LIMIT ?",
            (until_ms, limit),
        )
        rows.sort()  # the order in which all lock objects; what is locked does not become GONE
        self.many("UPDATE wal_objects SET verdicts = NULL WHERE object_id = ?", rows)
        self.many("DELETE FROM wal_objects WHERE object_id = ? AND state = 4", rows)
        return len(rows)

    def _sweep(self, limit: int, now_ms: int) -> int:
        """Drop what is left of deleted topics."""
        done = 0
        while done < limit:
            topic = self._one(
                f"SELECT topic_id FROM deleted_topics WHERE swept = 0 LIMIT 1{self.lock}"
            )
            if topic is None:
                break
            done += self._sweep_runs(topic, limit - done, now_ms)
            if done < limit:
                done += self._sweep_producers(topic, limit - done)
            if done < limit:
                self.do("UPDATE deleted_topics SET swept = 1 WHERE topic_id = ?", topic)
        return done

    def _sweep_runs(self, topic: tuple[Any, ...], limit: int, now_ms: int) -> int:
        rows = self.rows(
            "SELECT topic_id, partition, base_offset, object_id FROM runs WHERE topic_id = ? "
            f"LIMIT ?{self.lock}",
            (*topic, limit),
        )
        self.many(f"DELETE FROM runs WHERE {OF_LOG} AND base_offset = ?", (row[:3] for row in rows))
        self.release((row[3] for row in rows), now_ms)
        return len(rows)

    def _sweep_producers(self, topic: tuple[Any, ...], limit: int) -> int:
        return self.count(
            "DELETE FROM producers WHERE (topic_id, partition, producer_id) IN (SELECT "
            "topic_id, partition, producer_id FROM producers WHERE topic_id = ? LIMIT ?)",
            (*topic, limit),
        )


def object_row(row: Sequence[Any]) -> ObjectRow:
    """An object from the columns of OBJECT."""
    number, key, state, broker_id, broker_epoch, expires_ms, verdicts = row
    told = unpack_verdicts(verdicts)
    return ObjectRow(number, key, ObjectState(state), broker_id, broker_epoch, expires_ms, told)


def _raised(state: LogState, offset: int) -> LogState:
    """A partition that begins at an offset, but never beyond its end, and never further back."""
    start_offset = min(offset, state.high_watermark)
    return state._replace(start_offset=max(start_offset, state.start_offset))


def _moved(decided: Decided) -> list[Change]:
    """What a commit tells those who listen."""
    runs: dict[LogKey, list[Run]] = {key: [] for key in decided.logs}
    for run in decided.runs:
        runs[run.key].append(run)
    return [Change(key, decided.logs[key], tuple(runs[key])) for key in sorted(runs)]


def _deposed(who: str, epoch: int, newest: int | None) -> Deposed:
    return Deposed(f"{who} calls with epoch {epoch}, the coordinator knows {newest}")


def _none_before(_key: LogKey, _begin: int) -> None:
    """Of a topic that was created diskless."""
