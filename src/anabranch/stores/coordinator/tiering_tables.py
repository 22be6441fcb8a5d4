"""Claims of tiering jobs, and segments that take the place of runs: the same SQL for both engines.

What: the calls of `TieringClaims`, each a transaction. Rules kept: locks are taken in the order of
all calls: the partition, its remote log, its segments, objects; a segment becomes FINISHED, its
runs go, its objects are released and the tiered end is raised in one transaction, which a newer
leader, another claim and another segment in its place refuse. Not here: connections, which runs are
ready (`core/tiering`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Protocol

from anabranch.core.diskless.expired_runs import Oldest
from anabranch.core.diskless.rows import Change, LogKey, LogState, Run
from anabranch.core.errors import StorageFault
from anabranch.core.remote.facts import TryEnded
from anabranch.core.remote.segments import RemoteSegment, SegmentId
from anabranch.core.tiering.claims import (
    LEASE_MS,
    Aged,
    Claim,
    ClaimHeld,
    TieredBefore,
    is_held,
)
from anabranch.core.tiering.lag import PartitionLag, lag
from anabranch.core.tiering.plan import MOST_RUNS, AgedRun, Eligible, TieredEnd, begins_right
from anabranch.stores.coordinator.remote_tables import (
    FINISHED,
    OF_LOG,
    REMOVED,
    STARTED,
    RemoteTables,
    Statements,
)

AGED = (
    "SELECT base_offset, end_offset, object_id, object_key, byte_offset, runs.byte_size, "
    "max_timestamp, timestamp_type, committed_ms, commit_number "
    f"FROM runs JOIN wal_objects USING (object_id) WHERE {OF_LOG} ORDER BY base_offset LIMIT ?"
)
UPGRADE = (
    "broker {} does not know of tiering, and would pass over what is tiered: upgrade all brokers, "
    "and have each of them running once with diskless.storage.system.enable=true"
)


class LogStatements(Statements, Protocol):
    """What the tables of a coordinator give: see `SqlTables`."""

    share: str

    @property
    def remote(self) -> RemoteTables: ...
    def locked_logs(self, keys: Sequence[LogKey]) -> dict[LogKey, LogState]: ...
    def states(self, keys: Sequence[LogKey]) -> list[LogState | None]: ...
    def tell(self, changes: Sequence[Change]) -> None: ...
    def release(self, object_ids: Iterable[int], now_ms: int) -> None: ...


class TieringTables:
    """`TieringClaims` over a database whose schema is the newest, in calls that wait."""

    def __init__(self, on: LogStatements) -> None:
        self._on = on

    def registered(self, broker_id: int, broker_epoch: int) -> None:
        """Within the transaction that registers a broker: it knows of tiering and of seals."""
        self._on.do(
            "INSERT INTO tiering_brokers (broker_id, broker_epoch, knows) VALUES (?, ?, 2) "
            "ON CONFLICT (broker_id) DO UPDATE SET broker_epoch = excluded.broker_epoch, knows = 2",
            (broker_id, broker_epoch),
        )

    def claim(self, claim_id: int, owner: str, broker_ids: Collection[int]) -> Claim:
        """Take the claim, or renew it."""
        on = self._on
        with on.transaction():
            ((newest,),) = on.rows(f"SELECT last_number FROM commits{on.lock}")
            self._check_brokers(broker_ids)
            now_ms = on.now_ms()
            held = on.rows("SELECT claim_id, owner, commit_number, expires_ms FROM tiering_claims")
            if held and held[0][0] == claim_id:
                self._renew(claim_id, now_ms)
                return Claim(claim_id, held[0][2], self._store_id())
            if held and is_held(held[0][3], now_ms):
                raise ClaimHeld(
                    f"tiering job {held[0][1]!r} is at work; wait until it has ended, or for "
                    f"{(held[0][3] - now_ms) // 1000 + 1} s if it was killed"
                )
            on.do("DELETE FROM tiering_claims")
            on.do(
                "INSERT INTO tiering_claims VALUES (?, ?, ?, ?)",
                (claim_id, owner, newest, now_ms + LEASE_MS),
            )
            self._give_up_others(claim_id, now_ms)
            return Claim(claim_id, newest, self._store_id())

    def aged(self, claim_id: int, wanted: Sequence[Eligible]) -> list[Aged | None]:
        """What may become segments."""
        with self._on.transaction():
            now_ms = self._on.now_ms()
            newest = self._renewed(claim_id, now_ms)
            states = self._on.states([each.key for each in wanted])
            return [
                None if state is None else self._aged(each.key, state, newest, now_ms)
                for each, state in zip(wanted, states, strict=True)
            ]

    def _aged(self, key: LogKey, state: LogState, newest: int, now_ms: int) -> Aged:
        oldest = self._oldest(key, MOST_RUNS + 1)
        runs = [run for run, _ in takewhile(lambda each: each[1] <= newest, oldest)]
        return Aged(state, runs, self._before(key, state), now_ms)

    def _oldest(self, key: LogKey, limit: int) -> Iterator[tuple[AgedRun, int]]:
        """The oldest runs, each with the number of its commit."""
        for *run, committed_ms, number in self._on.rows(AGED, (*key, limit)):
            yield AgedRun(Run(key, *run), committed_ms), number

    def _before(self, key: LogKey, state: LogState) -> TieredEnd | None:
        found = self._on.rows(
            f"SELECT segment_id, start_offset, end_offset FROM remote_segments WHERE {OF_LOG} "
            "AND end_offset = ? AND state = ? ORDER BY segment_id LIMIT 1",
            (*key, state.tiered_end, FINISHED),
        )
        if not found:
            return None
        segment_id, *offsets = found[0]
        return TieredEnd(SegmentId(bytes(segment_id)), *offsets)

    def lags(self, wanted: Sequence[Eligible], most_rows: int) -> list[PartitionLag | None]:
        """What is old enough to be tiered."""
        with self._on.transaction():
            now_ms = self._on.now_ms()
            states = self._on.states([each.key for each in wanted])
            return [
                None if state is None else self._lag(each, state, most_rows, now_ms)
                for each, state in zip(wanted, states, strict=True)
            ]

    def _lag(self, wanted: Eligible, state: LogState, most_rows: int, now_ms: int) -> PartitionLag:
        """Most partitions are not behind, as the first of their rows says."""
        runs = [run for run, _ in self._oldest(wanted.key, 1)]
        if runs and runs[0].committed_ms + wanted.age_ms <= now_ms:
            runs = [run for run, _ in self._oldest(wanted.key, most_rows)]
        return lag(state, runs, wanted, now_ms)

    def start(self, claim_id: int, topic: str, segment: RemoteSegment) -> None:
        """A try begins."""
        with self._on.transaction():
            state = self._locked(segment.key)
            self._on.remote.lead_within(segment.key, topic, segment.leader_epoch)
            now_ms = self._on.now_ms()
            self._renewed(claim_id, now_ms)
            if not begins_right(state, segment.start_offset, segment.end_offset):
                raise self._not_next(segment, state, claim_id)
            self._on.remote.start_within(segment, claim_id, now_ms)

    def stands(self, claim_id: int, segment_id: SegmentId) -> bool:
        """Whether a try may go on."""
        with self._on.transaction():
            found = self._on.rows(
                "SELECT 1 FROM remote_segments WHERE segment_id = ? AND state = ?",
                (segment_id, STARTED),
            )
            if found:
                self._renew(claim_id, self._on.now_ms())
            return bool(found)

    def finish(self, key: LogKey, leader_epoch: int, segment_id: SegmentId) -> LogState:
        """A try becomes FINISHED and takes the place of its runs, by what its start said."""
        on = self._on
        with on.transaction():
            state = self._locked(key)
            segment = on.remote.finish_within(key, leader_epoch, segment_id)
            if segment.is_finished:
                return state
            if not begins_right(state, segment.start_offset, segment.end_offset):
                raise self._not_next(segment, state, self._claim_of(segment_id))
            runs = on.rows(
                "SELECT object_id, byte_size, base_offset, end_offset FROM runs "
                f"WHERE {OF_LOG} AND base_offset < ?",
                (*key, segment.end_offset),
            )
            _check_runs(segment, [row[2:] for row in runs])
            on.do(
                f"DELETE FROM runs WHERE {OF_LOG} AND base_offset < ?", (*key, segment.end_offset)
            )
            size = state.byte_size + segment.byte_size - sum(row[1] for row in runs)
            state = state._replace(byte_size=size, tiered_end=segment.end_offset)
            on.do(
                f"UPDATE logs SET byte_size = ?, tiered_end_offset = ? WHERE {OF_LOG}",
                (size, segment.end_offset, *key),
            )
            on.release((row[0] for row in runs), on.now_ms())
            on.tell([Change(key, state)])
            return state

    def release(self, claim_id: int) -> None:
        """The job is done."""
        with self._on.transaction():
            self._on.do("DELETE FROM tiering_claims WHERE claim_id = ?", (claim_id,))

    # Retention.

    def oldest(self, key: LogKey) -> list[Oldest]:
        """The finished segments of a partition, as its retention looks at them."""
        rows = self._on.rows(
            "SELECT end_offset, byte_size, max_timestamp, CASE WHEN max_timestamp >= 0 "
            f"THEN max_timestamp ELSE event_ms END FROM remote_segments WHERE {OF_LOG} "
            "AND state = ?",
            (*key, FINISHED),
        )
        return sorted(Oldest(*row) for row in rows)

    def drop_below_start(self, key: LogKey, state: LogState) -> tuple[LogState, int]:
        """Within a transaction that has the partition locked: begin to remove finished segments
        that lie below the start; the state then, and how many they are."""
        if not state.tiered_end:
            return state, 0
        rows = self._on.rows(
            f"SELECT segment_id, byte_size FROM remote_segments WHERE {OF_LOG} AND state = ? "
            "AND end_offset <= ?",
            (*key, FINISHED, state.start_offset),
        )
        if rows:
            now_ms, change = self._on.now_ms(), self._on.remote.change(key)
            self._on.many(
                "UPDATE remote_segments SET state = ?, event_ms = ?, changed = ? "
                "WHERE segment_id = ?",
                [(REMOVED, now_ms, change, segment_id) for segment_id, _ in rows],
            )
        size = state.byte_size - sum(row[1] for row in rows)
        return state._replace(byte_size=size), len(rows)

    # What the calls share.

    def _locked(self, key: LogKey) -> LogState:
        state = self._on.locked_logs([key]).get(key)
        if state is None:
            raise TryEnded(f"partition {key.partition}: its topic was deleted")
        return state

    def _renewed(self, claim_id: int, now_ms: int) -> int:
        """The commit number of the claim that this job holds, locked."""
        found = self._on.rows(
            f"SELECT commit_number FROM tiering_claims WHERE claim_id = ?{self._on.lock}",
            (claim_id,),
        )
        if not found:
            raise ClaimHeld("another tiering job has taken the claim of this one over; begin again")
        self._renew(claim_id, now_ms)
        return int(found[0][0])

    def _renew(self, claim_id: int, now_ms: int) -> None:
        self._on.do(
            "UPDATE tiering_claims SET expires_ms = ? WHERE claim_id = ?",
            (now_ms + LEASE_MS, claim_id),
        )

    def _store_id(self) -> str:
        found = self._on.rows("SELECT value FROM facts WHERE name = 'store.id'")
        return str(found[0][0]) if found else ""

    def _claim_of(self, segment_id: SegmentId) -> int:
        query = "SELECT claim_id FROM remote_segments WHERE segment_id = ?"
        return int(self._on.rows(query, (segment_id,))[0][0])

    def _not_next(self, segment: RemoteSegment, state: LogState, claim_id: int) -> TryEnded:
        """Why a try is over that does not begin where the tiered part ends."""
        offsets = f"a segment of offsets {segment.start_offset} to {segment.end_offset}"
        if self._on.rows(
            f"SELECT 1 FROM remote_segments WHERE {OF_LOG} AND start_offset = ? "
            "AND end_offset = ? AND claim_id = ? AND state = ?",
            (*segment.key, segment.start_offset, segment.end_offset, claim_id, FINISHED),
        ):
            return TieredBefore(f"{offsets} was tiered already, by this job")
        return TryEnded(
            f"{offsets} does not go on where the tiered part ends, at {state.tiered_end}, or all "
            f"of it is deleted, up to {state.start_offset}: it was tiered already, or is not "
            "needed any more"
        )

    def _give_up_others(self, claim_id: int, now_ms: int) -> None:
        self._on.do(
            "UPDATE remote_segments SET state = ?, event_ms = ? "
            "WHERE state = 0 AND claim_id >= 0 AND claim_id <> ?",
            (REMOVED, now_ms, claim_id),
        )

    def _check_brokers(self, broker_ids: Collection[int]) -> None:
        known = {
            row[0]
            for row in self._on.rows(
                "SELECT b.broker_id FROM brokers b JOIN tiering_brokers t "
                "ON t.broker_id = b.broker_id AND t.broker_epoch = b.broker_epoch"
            )
        }
        for broker_id in sorted(broker_ids):
            if broker_id not in known:
                raise StorageFault(UPGRADE.format(broker_id))


def _check_runs(segment: RemoteSegment, offsets: Iterable[tuple[int, int]]) -> None:
    """Raises StorageFault where runs, of which all are deleted, are not those of the segment."""
    held = [each for each in offsets if each[1] > segment.start_offset]
    is_whole = all(base >= segment.start_offset for base, _ in held)
    if not is_whole or max((end for _, end in held), default=-1) != segment.end_offset:
        raise StorageFault(
            f"a segment of offsets {segment.start_offset} to {segment.end_offset} does not begin "
            "and end where batches of the partition do; no row is deleted"
        )
