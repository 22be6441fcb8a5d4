"""The coordinator's transactions in SQLite.

What: each call of `Tables`, in the worker's thread and under the lock of the file, so that no other
process is between two statements. Rules kept: decisions are those of `core/diskless`; what a call
moved stands in `changes` as part of its transaction; each deletion has a bound. The clock is this
machine's: SQLite has no other, and all processes of one file share the machine. Not here: the lock,
the thread, faults (`sqlite.py`).
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from anabranch.core.diskless.commit import (
    Decided,
    ObjectRow,
    ObjectState,
    Producer,
    ProducerKey,
    decide,
    outcome,
    producer_keys,
)
from anabranch.core.diskless.coordinator import Deposed
from anabranch.core.diskless.keys import object_id as id_of_key
from anabranch.core.diskless.keys import object_key as key_of_id
from anabranch.core.diskless.memory_coordinator import MOST_RUNS_DROPPED, MOST_RUNS_FOUND
from anabranch.core.diskless.rows import (
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
from anabranch.core.diskless.shortening import outlived
from anabranch.core.types import TopicId
from anabranch.server.coordinator.packing import (
    pack_changes,
    pack_verdicts,
    pack_written,
    unpack_changes,
    unpack_verdicts,
    unpack_written,
)
from anabranch.server.sqlite_file import transaction

CHANGES_KEPT = 1000
"""Packets of changes that a listener may be behind: a second or so of commits."""
CHANGE_BYTES = 1 << 20
LOG = "log_start_offset, high_watermark, byte_size"
OF_LOG = "topic_id = ? AND partition = ?"
RUN = (
    "base_offset, end_offset, runs.object_id, object_key, byte_offset, runs.byte_size, "
    "max_timestamp, timestamp_type"
)
RUNS = f"SELECT {RUN} FROM runs JOIN wal_objects USING (object_id) WHERE {OF_LOG}"


class SqliteTables:
    """`Tables` on a connection whose schema is the newest."""

    def __init__(
        self, connection: sqlite3.Connection, cluster_id: str, mark: str, clock: Callable[[], int]
    ) -> None:
        self._on, self._cluster_id, self._mark, self._clock = connection, cluster_id, mark, clock

    # The active controller.

    def take_control(self, controller_epoch: int) -> None:
        """See `Coordinator.take_control`."""
        with transaction(self._on) as on:
            stored = self._controller_epoch()
            if controller_epoch < stored:
                raise _deposed("controller", controller_epoch, stored)
            on.execute(
                "INSERT OR REPLACE INTO facts VALUES ('controller.epoch', ?)",
                (str(controller_epoch),),
            )

    def topics(self, after: TopicId, limit: int) -> list[tuple[TopicId, int]]:
        """See `Coordinator.topics`."""
        return self._on.execute(
            "SELECT topic_id, count(*) FROM logs WHERE topic_id > ? "
            "GROUP BY topic_id ORDER BY topic_id LIMIT ?",
            (after, limit),
        ).fetchall()

    def create_logs(self, controller_epoch: int, new: Sequence[NewLogs]) -> None:
        """See `Coordinator.create_logs`."""
        with transaction(self._on) as on:
            self._check_controller(controller_epoch)
            made: list[LogKey] = []
            for topic_id, topic, first, end in new:
                if self._one("SELECT 1 FROM deleted_topics WHERE topic_id = ?", (topic_id,)):
                    continue
                have = on.execute("SELECT partition FROM logs WHERE topic_id = ?", (topic_id,))
                missing = sorted(set(range(first, end)) - {row[0] for row in have})
                on.executemany(
                    "INSERT INTO logs (topic_id, partition, topic_name) VALUES (?, ?, ?)",
                    ((topic_id, partition, topic) for partition in missing),
                )
                made += (LogKey(topic_id, partition) for partition in missing)
            self._tell([Change(key, LogState(0, 0)) for key in made])

    def delete_topics(self, controller_epoch: int, topic_ids: Sequence[TopicId]) -> None:
        """See `Coordinator.delete_topics`."""
        with transaction(self._on) as on:
            self._check_controller(controller_epoch)
            now_ms = self._clock()
            gone: list[LogKey] = []
            for topic_id in topic_ids:
                on.execute(
                    "INSERT OR IGNORE INTO deleted_topics (topic_id, deleted_ms) VALUES (?, ?)",
                    (topic_id, now_ms),
                )
                rows = on.execute("SELECT partition FROM logs WHERE topic_id = ?", (topic_id,))
                gone += (LogKey(topic_id, partition) for (partition,) in rows)
                on.execute("DELETE FROM logs WHERE topic_id = ?", (topic_id,))
            self._tell([Change(key, None) for key in gone])

    # Brokers: writing.

    def register(self, broker_id: int, broker_epoch: int) -> None:
        """See `Coordinator.register`."""
        with transaction(self._on) as on:
            newest = self._broker_epoch(broker_id)
            if newest is not None and broker_epoch < newest:
                raise _deposed(f"broker {broker_id}", broker_epoch, newest)
            on.execute("INSERT OR REPLACE INTO brokers VALUES (?, ?)", (broker_id, broker_epoch))

    def prepare(
        self, broker_id: int, broker_epoch: int, count: int, lease_ms: int
    ) -> list[Prepared]:
        """See `Coordinator.prepare`."""
        with transaction(self._on) as on:
            newest = self._broker_epoch(broker_id)
            if newest != broker_epoch:
                raise _deposed(f"broker {broker_id}", broker_epoch, newest)
            last = self._one("SELECT seq FROM sqlite_sequence WHERE name = 'wal_objects'") or (0,)
            now_ms = self._clock()
            prepared = [
                Prepared(number, self._key(number), now_ms + lease_ms, lease_ms)
                for number in range(last[0] + 1, last[0] + 1 + count)
            ]
            on.executemany(
                "INSERT INTO wal_objects (object_id, object_key, state, broker_id, broker_epoch, "
                "prepared_ms, expires_ms) VALUES (?, ?, 0, ?, ?, ?, ?)",
                (
                    (each.object_id, each.object_key, broker_id, broker_epoch, now_ms, expires_ms)
                    for each in prepared
                    for expires_ms in (each.expires_ms,)
                ),
            )
        return prepared

    def commit(self, commit: Commit) -> Committed:
        """See `Coordinator.commit`."""
        with transaction(self._on):
            now_ms = self._clock()
            keys = sorted({batch.key for batch in commit.batches})
            decided = decide(
                commit,
                self._object(commit.object_id),
                self._broker_epoch(commit.broker_id),
                self._logs(keys),
                self._producers(producer_keys(commit.batches)),
                now_ms,
            )
            self._write(commit.object_id, commit.byte_size, decided, now_ms)
        return decided.answer

    def outcome(self, object_key: str) -> Committed:
        """See `Coordinator.outcome`."""
        with transaction(self._on):
            now_ms = self._clock()
            found = self._object(id_of_key(object_key))
            if found is not None and found.object_key != object_key:
                found = None
            decided = outcome(found, now_ms)
            if found is not None and decided.object_state is not None:
                self._refuse([found.object_id])
        return decided.answer

    def refuse(self, object_ids: Sequence[int]) -> None:
        """See `Coordinator.refuse`."""
        with transaction(self._on):
            self._refuse(object_ids)

    # Brokers: reading.

    def states(self, keys: Sequence[LogKey]) -> list[LogState | None]:
        """See `Coordinator.states`."""
        return [self._log(key) for key in keys]

    def find(self, wanted: Sequence[Wanted]) -> list[Found]:
        """See `Coordinator.find`."""
        return [self._find(each) for each in wanted]

    def by_time(self, key: LogKey, timestamp: int) -> Run | None:
        """See `Coordinator.by_time`."""
        return self._first_run(
            key, "AND end_offset > ? AND max_timestamp >= ? ORDER BY base_offset", timestamp
        )

    def newest(self, key: LogKey) -> Run | None:
        """See `Coordinator.newest`."""
        return self._first_run(key, "AND end_offset > ? ORDER BY max_timestamp DESC, base_offset")

    # Shortening.

    def delete_before(self, wanted: Iterable[tuple[LogKey, int]]) -> list[LogState | None]:
        """See `Coordinator.delete_before`."""
        states, changes = [], []
        with transaction(self._on):
            for key, offset in wanted:
                state = before = self._log(key)
                if state is not None:
                    state = self._raise_start(key, state, offset)
                if state is not None and state != before:
                    state, _ = self._drop_below_start(key, state, MOST_RUNS_DROPPED)
                    changes.append(Change(key, state))
                states.append(state)
            self._tell(changes)
        return states

    def expire(
        self, key: LogKey, *, older_than_ms: int, most_bytes: int, most_runs: int
    ) -> tuple[LogState | None, int]:
        """See `Coordinator.expire`."""
        with transaction(self._on) as on:
            before = self._log(key)
            if before is None:
                return None, 0
            state, dropped = self._drop_below_start(key, before, most_runs)
            oldest = on.execute(
                f"SELECT end_offset, byte_size, max_timestamp FROM runs WHERE {OF_LOG} "
                "ORDER BY base_offset LIMIT ?",
                (*key, most_runs - dropped),
            ).fetchall()
            start_offset = outlived(oldest, state.byte_size, older_than_ms, most_bytes)
            raised = self._raise_start(key, state, start_offset)
            if raised != state:
                state, more = self._drop_below_start(key, raised, most_runs - dropped)
                dropped += more
                self._tell([Change(key, state)])
        return state, dropped

    # Garbage.

    def mark_expired(self, limit: int) -> int:
        """See `Coordinator.mark_expired`."""
        with transaction(self._on) as on:
            now_ms = self._clock()
            done = on.execute(
                "UPDATE wal_objects SET state = 2, marked_ms = ? WHERE object_id IN (SELECT "
                "object_id FROM wal_objects WHERE state = 0 AND expires_ms <= ? LIMIT ?)",
                (now_ms, now_ms, limit),
            ).rowcount
            done += self._forget_verdicts(now_ms - VERDICTS_KEPT_MS, limit - done)
            return done + self._sweep(limit - done)

    def forget_producers(self, idle_ms: int, limit: int) -> int:
        """See `Coordinator.forget_producers`."""
        with transaction(self._on) as on:
            return on.execute(
                "DELETE FROM producers WHERE (topic_id, partition, producer_id) IN (SELECT "
                "topic_id, partition, producer_id FROM producers WHERE written_ms <= ? LIMIT ?)",
                (self._clock() - idle_ms, limit),
            ).rowcount

    def to_delete(self, grace_ms: int, limit: int) -> list[tuple[int, str]]:
        """See `Coordinator.to_delete`."""
        return self._on.execute(
            "SELECT object_id, object_key FROM wal_objects WHERE state IN (2, 3) "
            "AND marked_ms <= ? LIMIT ?",
            (self._clock() - grace_ms, limit),
        ).fetchall()

    def deleted(self, object_ids: Sequence[int]) -> None:
        """See `Coordinator.deleted`."""
        ids = [(number,) for number in object_ids]
        waits = "WHERE object_id = ? AND state IN (2, 3)"
        with transaction(self._on) as on:
            on.executemany(f"DELETE FROM wal_objects {waits} AND verdicts IS NULL", ids)
            on.executemany(f"UPDATE wal_objects SET state = 4 {waits}", ids)

    def unknown(self, object_keys: Sequence[str]) -> list[str]:
        """See `Coordinator.unknown`."""
        found = ((key, self._object(id_of_key(key))) for key in object_keys)
        return [
            key
            for key, each in found
            if each is None or each.object_key != key or each.state is ObjectState.GONE
        ]

    # Changes.

    def last_change(self) -> int:
        """The number of the newest packet of changes."""
        last = self._one("SELECT seq FROM sqlite_sequence WHERE name = 'changes'")
        return 0 if last is None else int(last[0])

    def changes_after(self, sequence: int, limit: int) -> list[tuple[int, list[Change]]]:
        """Packets after a number; those that are not kept any more are missing in front."""
        rows = self._on.execute(
            "SELECT sequence, body FROM changes WHERE sequence > ? ORDER BY sequence LIMIT ?",
            (sequence, limit),
        )
        return [(number, unpack_changes(body)) for number, body in rows]

    # What the calls share.

    def _one(self, query: str, values: tuple[Any, ...] = ()) -> Any:
        return self._on.execute(query, values).fetchone()

    def _controller_epoch(self) -> int:
        found = self._one("SELECT value FROM facts WHERE name = 'controller.epoch'")
        return -1 if found is None else int(found[0])

    def _check_controller(self, epoch: int) -> None:
        stored = self._controller_epoch()
        if epoch != stored:
            raise _deposed("controller", epoch, stored)

    def _key(self, number: int) -> str:
        return key_of_id(self._cluster_id, self._mark, number)

    def _broker_epoch(self, broker_id: int) -> int | None:
        found = self._one("SELECT broker_epoch FROM brokers WHERE broker_id = ?", (broker_id,))
        return None if found is None else int(found[0])

    def _object(self, number: int) -> ObjectRow | None:
        found = self._one(
            "SELECT object_id, object_key, state, broker_id, broker_epoch, expires_ms, verdicts "
            "FROM wal_objects WHERE object_id = ?",
            (number,),
        )
        if found is None:
            return None
        at, key, state, broker_id, broker_epoch, expires_ms, verdicts = found
        told = unpack_verdicts(verdicts)
        return ObjectRow(at, key, ObjectState(state), broker_id, broker_epoch, expires_ms, told)

    def _log(self, key: LogKey) -> LogState | None:
        found = self._one(f"SELECT {LOG} FROM logs WHERE {OF_LOG}", key)
        return None if found is None else LogState(*found)

    def _logs(self, keys: Sequence[LogKey]) -> dict[LogKey, LogState]:
        found = ((key, self._log(key)) for key in keys)
        return {key: state for key, state in found if state is not None}

    def _producers(self, wanted: Iterable[ProducerKey]) -> dict[ProducerKey, Producer]:
        found = {}
        for each in sorted(wanted):
            row = self._one(
                f"SELECT producer_epoch, written FROM producers WHERE {OF_LOG} AND producer_id = ?",
                (*each.key, each.producer_id),
            )
            if row is not None:
                found[each] = Producer(row[0], unpack_written(row[1]))
        return found

    def _write(self, number: int, byte_size: int, decided: Decided, now_ms: int) -> None:
        """What a commit decided."""
        on, state = self._on, decided.object_state
        if state is None:
            return
        if decided.answer.state is not CommitState.COMMITTED:
            self._refuse([number])
            return
        on.execute(
            "UPDATE wal_objects SET state = ?, byte_size = ?, committed_ms = ?, verdicts = ?, "
            "live_runs = ?, marked_ms = ? WHERE object_id = ?",
            (
                int(state),
                byte_size,
                now_ms,
                pack_verdicts(decided.answer.verdicts),
                len(decided.runs),
                now_ms if state is ObjectState.UNUSED else None,
                number,
            ),
        )
        on.executemany(
            f"UPDATE logs SET high_watermark = ?, byte_size = ? WHERE {OF_LOG}",
            ((log.high_watermark, log.byte_size, *key) for key, log in decided.logs.items()),
        )
        on.executemany(
            "INSERT INTO runs (topic_id, partition, base_offset, end_offset, object_id, "
            "byte_offset, byte_size, max_timestamp, timestamp_type) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            ((*run.key, *run[1:4], *run[5:]) for run in decided.runs),
        )
        on.executemany(
            "INSERT OR REPLACE INTO producers VALUES (?, ?, ?, ?, ?, ?)",
            (
                (*each.key, each.producer_id, known.epoch, pack_written(known.written), now_ms)
                for each, known in decided.producers.items()
            ),
        )
        self._tell(moved(decided))

    def _tell(self, changes: Sequence[Change]) -> None:
        last: int | None = None
        for body in pack_changes(changes, CHANGE_BYTES):
            last = self._on.execute("INSERT INTO changes (body) VALUES (?)", (body,)).lastrowid
        if last is not None:
            self._on.execute("DELETE FROM changes WHERE sequence <= ?", (last - CHANGES_KEPT,))

    def _refuse(self, object_ids: Sequence[int]) -> None:
        now_ms = self._clock()
        self._on.executemany(
            "UPDATE wal_objects SET state = 2, marked_ms = ? WHERE object_id = ? AND state = 0",
            ((now_ms, number) for number in object_ids),
        )

    def _find(self, wanted: Wanted) -> Found:
        key, offset, most_bytes = wanted
        state = self._log(key)
        if state is None or not state.start_offset <= offset < state.high_watermark:
            return Found(key, state)
        rows = self._on.execute(
            f"{RUNS} AND base_offset >= (SELECT max(base_offset) FROM runs WHERE {OF_LOG} "
            f"AND base_offset <= ?) ORDER BY base_offset LIMIT {MOST_RUNS_FOUND}",
            (*key, *key, offset),
        )
        return Found(key, state, within_budget((Run(key, *row) for row in rows), most_bytes))

    def _first_run(self, key: LogKey, rest: str, *values: int) -> Run | None:
        state = self._log(key)
        if state is None:
            return None
        row = self._one(f"{RUNS} {rest} LIMIT 1", (*key, state.start_offset, *values))
        return None if row is None else Run(key, *row)

    def _raise_start(self, key: LogKey, state: LogState, offset: int) -> LogState:
        start_offset = min(offset, state.high_watermark)
        if start_offset <= state.start_offset:
            return state
        self._on.execute(
            f"UPDATE logs SET log_start_offset = ? WHERE {OF_LOG}", (start_offset, *key)
        )
        return state._replace(start_offset=start_offset)

    def _drop_below_start(self, key: LogKey, state: LogState, limit: int) -> tuple[LogState, int]:
        rows = self._on.execute(
            f"SELECT base_offset, end_offset, byte_size, object_id FROM runs WHERE {OF_LOG} "
            "AND base_offset < ? ORDER BY base_offset LIMIT ?",
            (*key, state.start_offset, limit),
        ).fetchall()
        dropped = [row for row in rows if row[1] <= state.start_offset]
        if not dropped:
            return state, 0
        self._on.execute(
            f"DELETE FROM runs WHERE {OF_LOG} AND base_offset <= ?", (*key, dropped[-1][0])
        )
        byte_size = state.byte_size - sum(row[2] for row in dropped)
        self._on.execute(f"UPDATE logs SET byte_size = ? WHERE {OF_LOG}", (byte_size, *key))
        self._release(row[3] for row in dropped)
        return state._replace(byte_size=byte_size), len(dropped)

    def _release(self, object_ids: Iterable[int]) -> None:
        """Runs of these objects are gone, one for each time that the id comes."""
        counts = Counter(object_ids)
        self._on.executemany(
            "UPDATE wal_objects SET live_runs = live_runs - ? WHERE object_id = ?",
            ((count, number) for number, count in counts.items()),
        )
        now_ms = self._clock()
        self._on.executemany(
            "UPDATE wal_objects SET state = 3, marked_ms = ? "
            "WHERE object_id = ? AND state = 1 AND live_runs = 0",
            ((now_ms, number) for number in counts),
        )

    def _forget_verdicts(self, until_ms: int, limit: int) -> int:
        rows = self._on.execute(
            "SELECT object_id FROM wal_objects WHERE verdicts IS NOT NULL AND committed_ms <= ? "
            "LIMIT ?",
            (until_ms, limit),
        ).fetchall()
        self._on.executemany("DELETE FROM wal_objects WHERE object_id = ? AND state = 4", rows)
        self._on.executemany("UPDATE wal_objects SET verdicts = NULL WHERE object_id = ?", rows)
        return len(rows)

    def _sweep(self, limit: int) -> int:
        """Drop what is left of deleted topics."""
        done = 0
        while done < limit:
            topic = self._one("SELECT topic_id FROM deleted_topics WHERE swept = 0")
            if topic is None:
                break
            rows = self._on.execute(
                "SELECT topic_id, partition, base_offset, object_id FROM runs WHERE topic_id = ? "
                "LIMIT ?",
                (*topic, limit - done),
            ).fetchall()
            self._on.executemany(
                f"DELETE FROM runs WHERE {OF_LOG} AND base_offset = ?", (row[:3] for row in rows)
            )
            self._release(row[3] for row in rows)
            done += len(rows)
            if done < limit:
                done += self._sweep_producers(topic, limit - done)
            if done < limit:
                self._on.execute("UPDATE deleted_topics SET swept = 1 WHERE topic_id = ?", topic)
        return done

    def _sweep_producers(self, topic: tuple[bytes], limit: int) -> int:
        return self._on.execute(
            "DELETE FROM producers WHERE (topic_id, partition, producer_id) IN (SELECT "
            "topic_id, partition, producer_id FROM producers WHERE topic_id = ? LIMIT ?)",
            (*topic, limit),
        ).rowcount


def moved(decided: Decided) -> list[Change]:
    """What a commit tells those who listen."""
    runs: dict[LogKey, list[Run]] = {key: [] for key in decided.logs}
    for run in decided.runs:
        runs[run.key].append(run)
    return [Change(key, decided.logs[key], tuple(runs[key])) for key in sorted(runs)]


def within_budget(runs: Iterable[Run], most_bytes: int) -> tuple[Run, ...]:
    """The first runs that fit, and at least one."""
    taken: list[Run] = []
    for run in runs:
        most_bytes -= run.byte_size
        if taken and most_bytes < 0:
            break
        taken.append(run)
    return tuple(taken)


def _deposed(who: str, epoch: int, newest: int | None) -> Deposed:
    return Deposed(f"{who} calls with epoch {epoch}, the coordinator knows {newest}")
