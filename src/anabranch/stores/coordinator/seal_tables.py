"""Seals of classic partitions that become diskless: the same SQL for both engines.

What: the calls of `Seals`, each a transaction, and what creates the row of a partition that was
sealed. Rules kept: the row of the remote log is locked first, and a leader that was replaced is
refused by it; a seal replaces those of earlier migrations, and none of a later one; once the
diskless row is there, the classic leader's calls are refused. Not here: what a seal must hold
(`core/tiering/seals.py`), which topics become diskless.
"""

from __future__ import annotations

from collections.abc import Collection

from anabranch.core.diskless.rows import LogKey, LogState
from anabranch.core.errors import StorageFault
from anabranch.core.remote.facts import TryEnded
from anabranch.core.tiering.seals import (
    READY,
    SEALED,
    Progress,
    Seal,
    SealedEnd,
    check_kept,
    state_after,
)
from anabranch.core.types import TopicId
from anabranch.stores.coordinator.codec import pack_written
from anabranch.stores.coordinator.remote_tables import (
    FINISHED,
    OF_LOG,
    REMOVED,
    RESTORED_CLAIM,
    RemoteTables,
)
from anabranch.stores.coordinator.tiering_tables import LogStatements

KNOWS_SEALS = 2
"""In `tiering_brokers.knows`: 1 is tiering alone."""
UPGRADE = (
    "broker {} does not know how a topic becomes diskless, and would write to a log that has "
    "ended: upgrade all brokers, and have each of them running once with "
    "diskless.storage.system.enable=true"
)
PUT = (
    "INSERT INTO seals (topic_id, partition, migration, stage, leader_epoch, log_start_offset, "
    "end_offset, last_producer_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (topic_id, partition) DO UPDATE SET migration = excluded.migration, "
    "stage = excluded.stage, leader_epoch = excluded.leader_epoch, "
    "log_start_offset = excluded.log_start_offset, end_offset = excluded.end_offset, "
    "last_producer_id = excluded.last_producer_id"
)


class SealTables:
    """`Seals` over a database whose schema is the newest, in calls that wait."""

    def __init__(self, on: LogStatements) -> None:
        self._on = on

    @property
    def _remote(self) -> RemoteTables:
        return self._on.remote

    def ready(self, key: LogKey, migration: int, leader_epoch: int) -> None:
        """A leader has little left to copy."""
        with self._on.transaction():
            self._remote.locked_classic(key, leader_epoch)
            before = self._check_migration(key, migration)
            if before != (migration, SEALED):
                self._on.do(PUT, (*key, migration, READY, leader_epoch, 0, 0, -1))

    def seal(self, seal: Seal) -> None:
        """A log has ended."""
        key = seal.key
        with self._on.transaction():
            self._remote.locked_classic(key, seal.leader_epoch)
            self._check_migration(key, seal.migration)
            check_kept(seal, self._remote.finished(key))
            self._remove_others(seal)
            self._carry(seal)
            self._on.do(
                PUT,
                (*key, seal.migration, SEALED, seal.leader_epoch, seal.log_start, seal.end_offset,
                 seal.last_producer_id),
            )  # fmt: skip

    def progress(self, topic_id: TopicId, migration: int, broker_ids: Collection[int]) -> Progress:
        """How far a migration is."""
        on = self._on
        with on.transaction():
            self._check_brokers(broker_ids)
            rows = on.rows(
                "SELECT partition, stage, end_offset FROM seals "
                "WHERE topic_id = ? AND migration = ? ORDER BY partition",
                (topic_id, migration),
            )
            ends = tuple((int(at), int(end)) for at, stage, end in rows if stage == SEALED)
            return Progress(len(rows), len(ends), ends)

    def was_classic(self, topic_id: TopicId) -> bool:
        """Whether a topic whose rows are created may have been classic: most were not."""
        return bool(
            self._on.rows(
                "SELECT 1 FROM seals WHERE topic_id = ? UNION ALL "
                "SELECT 1 FROM remote_segments WHERE topic_id = ? LIMIT 1",
                (topic_id, topic_id),
            )
        )

    def taken(self, key: LogKey, begin: int) -> tuple[LogState, int] | None:
        """Within the transaction that creates a diskless partition's row: how it begins, and the
        greatest producer id that it may have forgotten; None where no classic one was before it.
        `begin` is where the metadata has it become diskless, as far as it tells."""
        on = self._on
        held = on.rows(f"SELECT log_start_offset FROM remote_logs WHERE {OF_LOG}{on.lock}", key)
        finished = self._remote.finished(key)
        sealed = self._sealed(key)
        if sealed is None and not finished and not begin:
            return None
        on.do(f"UPDATE remote_logs SET is_over = 1 WHERE {OF_LOG}", key)
        on.do(
            f"UPDATE remote_segments SET claim_id = ? WHERE {OF_LOG} AND claim_id < ?",
            (RESTORED_CLAIM, *key, RESTORED_CLAIM),
        )
        on.do(f"DELETE FROM seals WHERE {OF_LOG}", key)
        state = state_after(sealed, held[0][0] if held else 0, finished, begin)
        return state, -1 if sealed is None else sealed.last_producer_id

    def _sealed(self, key: LogKey) -> SealedEnd | None:
        rows = self._on.rows(
            "SELECT leader_epoch, log_start_offset, end_offset, last_producer_id FROM seals "
            f"WHERE {OF_LOG} AND stage = ?",
            (*key, SEALED),
        )
        return SealedEnd(*map(int, rows[0])) if rows else None

    def _check_migration(self, key: LogKey, migration: int) -> tuple[int, int]:
        """Migration and stage that are known of a partition. Raises TryEnded."""
        rows = self._on.rows(f"SELECT migration, stage FROM seals WHERE {OF_LOG}", key)
        known, stage = rows[0] if rows else (-1, 0)
        if known > migration:
            raise TryEnded(f"migration {migration} was cancelled: {known} has begun since")
        return int(known), int(stage)

    def _remove_others(self, seal: Seal) -> None:
        """Segments that are not kept, and tries that have not ended."""
        kept = set(seal.kept)
        rows = self._on.rows(
            f"SELECT segment_id FROM remote_segments WHERE {OF_LOG} AND state <= ?",
            (*seal.key, FINISHED),
        )
        gone = [each for (each,) in rows if bytes(each) not in kept]
        if not gone:
            return
        now_ms, change = self._on.now_ms(), self._remote.change(seal.key)
        self._on.many(
            "UPDATE remote_segments SET state = ?, event_ms = ?, changed = ? WHERE segment_id = ?",
            [(REMOVED, now_ms, change, each) for each in gone],
        )

    def _carry(self, seal: Seal) -> None:
        self._on.do(f"DELETE FROM producers WHERE {OF_LOG}", seal.key)
        now_ms = self._on.now_ms()
        self._on.many(
            "INSERT INTO producers VALUES (?, ?, ?, ?, ?, ?)",
            [
                (*seal.key, producer_id, known.epoch, pack_written(known.written), now_ms)
                for producer_id, known in seal.producers
            ],
        )

    def _check_brokers(self, broker_ids: Collection[int]) -> None:
        rows = self._on.rows(
            "SELECT b.broker_id FROM brokers b JOIN tiering_brokers t "
            "ON t.broker_id = b.broker_id AND t.broker_epoch = b.broker_epoch WHERE t.knows >= ?",
            (KNOWS_SEALS,),
        )
        known = {row[0] for row in rows}
        for broker_id in sorted(broker_ids):
            if broker_id not in known:
                raise StorageFault(UPGRADE.format(broker_id))
