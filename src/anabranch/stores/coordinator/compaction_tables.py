"""Claims of compaction jobs, and segments that take the place of others: SQL for both engines.

What: the calls of `CompactionClaims`, each a transaction. Rules kept: locks are taken in the order
of all calls: the partition, its remote log, its segments; new segments become FINISHED, old ones
are removed and the size is corrected in one transaction, which a newer leader, another claim, and
a segment that is not as it was refuse. A compacted segment has a claim id below -1, so that a
tiering job, of whichever version, ends no try of a compaction job. Not here: connections, what is
worth a pass (`core/tiering`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from anabranch.core.diskless.rows import Change, LogKey, LogState
from anabranch.core.errors import StorageFault
from anabranch.core.remote.facts import TryEnded
from anabranch.core.remote.segments import RemoteSegment, SegmentId
from anabranch.core.tiering.claims import LEASE_MS, ClaimHeld, is_held
from anabranch.core.tiering.compaction_claims import Swap
from anabranch.core.tiering.compaction_plan import Tiered, tiles
from anabranch.stores.coordinator.remote_tables import (
    FINISHED,
    OF_LOG,
    REMOVED,
    RESTORED_CLAIM,
    STARTED,
)
from anabranch.stores.coordinator.tiering_tables import LogStatements

FIRST_CLAIM = -2
"""Claim ids of tries count down from here, a job's own ones up from 0."""
UPGRADE = (
    "broker {} does not know of compaction, and would look for segments that are gone: upgrade all "
    "brokers, and have each of them running once with diskless.storage.system.enable=true"
)


class CompactionTables:
    """`CompactionClaims` over a database whose schema is the newest, in calls that wait."""

    def __init__(self, on: LogStatements) -> None:
        self._on = on

    def registered(self, broker_id: int, broker_epoch: int) -> None:
        """Within the transaction that registers a broker: it knows of compaction."""
        self._on.do(
            "INSERT INTO compaction_brokers (broker_id, broker_epoch) VALUES (?, ?) "
            "ON CONFLICT (broker_id) DO UPDATE SET broker_epoch = excluded.broker_epoch",
            (broker_id, broker_epoch),
        )

    def claim_compaction(self, claim_id: int, owner: str, broker_ids: Collection[int]) -> str:
        """Take the claim, or renew it."""
        on = self._on
        with on.transaction():
            on.rows(f"SELECT last_number FROM commits{on.lock}")  # one job after the other
            self._check_brokers(broker_ids)
            now_ms = on.now_ms()
            held = on.rows("SELECT claim_id, owner, expires_ms FROM compaction_claims")
            if held and held[0][0] == claim_id:
                self._renew(claim_id, now_ms)
                return self._store_id()
            if held and is_held(held[0][2], now_ms):
                raise ClaimHeld(
                    f"compaction job {held[0][1]!r} is at work; wait until it has ended, or for "
                    f"{(held[0][2] - now_ms) // 1000 + 1} s if it was killed"
                )
            on.do("DELETE FROM compaction_claims")
            on.do(
                "INSERT INTO compaction_claims VALUES (?, ?, ?)",
                (claim_id, owner, now_ms + LEASE_MS),
            )
            self._give_up(f"claim_id < -1 AND claim_id <> {_of_try(claim_id)}", now_ms)
            return self._store_id()

    def tiered(self, keys: Sequence[LogKey]) -> list[Tiered | None]:
        """What is known of partitions."""
        with self._on.transaction():
            states, now_ms = self._on.states(keys), self._on.now_ms()
            return [
                None if state is None else Tiered(state, self._on.remote.segments_of(key), now_ms)
                for key, state in zip(keys, states, strict=True)
            ]

    def start_compacted(self, claim_id: int, topic: str, segment: RemoteSegment) -> None:
        """A try begins."""
        with self._on.transaction():
            self._locked(segment.key)
            self._on.remote.lead_within(segment.key, topic, segment.leader_epoch)
            now_ms = self._on.now_ms()
            self._renewed(claim_id, now_ms)
            self._on.remote.start_within(segment, _of_try(claim_id), now_ms)

    def compacted_stands(self, claim_id: int, segment_id: SegmentId) -> bool:
        """Whether a try may go on."""
        with self._on.transaction():
            found = self._on.rows(
                "SELECT 1 FROM remote_segments WHERE segment_id = ? AND state = ?",
                (segment_id, STARTED),
            )
            if found:
                self._renew(claim_id, self._on.now_ms())
            return bool(found)

    def swap(
        self, claim_id: int, key: LogKey, leader_epoch: int, swaps: Sequence[Swap]
    ) -> LogState:
        """Tries become FINISHED, and those that they were made of are removed."""
        on = self._on
        with on.transaction():
            state = self._locked(key)
            by_id = {each.segment_id: each for each in on.remote.segments_of(key)}
            if swaps and all(_is_finished(by_id, each.segment_id) for each in swaps):
                return state  # its answer was lost
            self._renewed(claim_id, on.now_ms())
            grown = 0
            for each in swaps:
                grown += self._swap_one(key, leader_epoch, each, by_id)
            state = state._replace(byte_size=state.byte_size + grown)
            on.do(f"UPDATE logs SET byte_size = ? WHERE {OF_LOG}", (state.byte_size, *key))
            on.tell([Change(key, state)])
            return state

    def _swap_one(
        self, key: LogKey, leader_epoch: int, swap: Swap, by_id: dict[SegmentId, RemoteSegment]
    ) -> int:
        """By how many bytes the partition grows; no segment counts twice."""
        made = by_id.pop(swap.segment_id, None)
        old = sorted(
            (by_id.pop(each) for each in swap.replaced if _is_finished(by_id, each)), key=_start
        )
        if made is None or len(old) != len(swap.replaced) or not tiles(made, old):
            raise TryEnded(
                f"segment {swap.segment_id.hex()} of partition {key.partition}: what it was made "
                "of was removed or compacted by another job meanwhile"
            )
        self._on.remote.finish_within(key, leader_epoch, swap.segment_id, made.custom_metadata)
        now_ms, change = self._on.now_ms(), self._on.remote.change(key)
        self._on.many(
            "UPDATE remote_segments SET state = ?, event_ms = ?, claim_id = ?, changed = ? "
            "WHERE segment_id = ? AND state = ?",
            [(REMOVED, now_ms, RESTORED_CLAIM, change, each.segment_id, FINISHED) for each in old],
        )
        return made.byte_size - sum(each.byte_size for each in old)

    def release_compaction(self, claim_id: int) -> None:
        """The job is done."""
        with self._on.transaction():
            self._on.do("DELETE FROM compaction_claims WHERE claim_id = ?", (claim_id,))
            self._give_up(f"claim_id = {_of_try(claim_id)}", self._on.now_ms())

    # What the calls share.

    def _locked(self, key: LogKey) -> LogState:
        state = self._on.locked_logs([key]).get(key)
        if state is None:
            raise TryEnded(f"partition {key.partition}: its topic was deleted")
        return state

    def _renewed(self, claim_id: int, now_ms: int) -> None:
        """The claim of this job is locked, and renewed."""
        query = f"SELECT 1 FROM compaction_claims WHERE claim_id = ?{self._on.lock}"
        if not self._on.rows(query, (claim_id,)):
            raise ClaimHeld(
                "another compaction job has taken the claim of this one over; begin again"
            )
        self._renew(claim_id, now_ms)

    def _renew(self, claim_id: int, now_ms: int) -> None:
        self._on.do(
            "UPDATE compaction_claims SET expires_ms = ? WHERE claim_id = ?",
            (now_ms + LEASE_MS, claim_id),
        )

    def _store_id(self) -> str:
        found = self._on.rows("SELECT value FROM facts WHERE name = 'store.id'")
        return str(found[0][0]) if found else ""

    def _give_up(self, whose: str, now_ms: int) -> None:
        self._on.do(
            f"UPDATE remote_segments SET state = ?, event_ms = ? WHERE state = 0 AND {whose}",
            (REMOVED, now_ms),
        )

    def _check_brokers(self, broker_ids: Iterable[int]) -> None:
        rows = self._on.rows(
            "SELECT b.broker_id FROM brokers b JOIN compaction_brokers c "
            "ON c.broker_id = b.broker_id AND c.broker_epoch = b.broker_epoch"
        )
        known = {row[0] for row in rows}
        for broker_id in sorted(broker_ids):
            if broker_id not in known:
                raise StorageFault(UPGRADE.format(broker_id))


def _of_try(claim_id: int) -> int:
    return FIRST_CLAIM - claim_id


def _is_finished(by_id: dict[SegmentId, RemoteSegment], segment_id: SegmentId) -> bool:
    return segment_id in by_id and by_id[segment_id].is_finished


def _start(segment: RemoteSegment) -> int:
    return segment.start_offset
