"""What the coordinator decides when a broker commits an object: verdicts and changed rows.

What: from the rows that a transaction has read, and locked, to what it writes. Why here: SQLite,
PostgreSQL, memory and the simulator commit by the same rules. Rules kept: an object is committed at
most once, before its lease is over, by the broker that prepared it in its current epoch; offsets of
a partition have neither holes nor repeats; each batch has its own verdict; a batch of an idempotent
producer that comes again succeeds with its first offset (the last five are known); a gap is
refused, with the sequence number that is next. A producer that is not known must begin with 0: its
earlier batches may lie in an object of another broker. One that the partition may have forgotten,
or that wrote to a deleted topic of the same name, goes on with any number, once its broker has
waited for what comes before. Sources: KIP-98 for sequences, KIP-360. Not here: SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from itertools import starmap
from typing import NamedTuple

from anabranch.core.diskless.rows import (
    NO_PRODUCER,
    Batch,
    Commit,
    CommitState,
    Committed,
    LogKey,
    LogState,
    Run,
    Verdict,
)
from anabranch.core.errors import ErrorCode
from anabranch.core.log.producers import BATCHES_KEPT, SEQUENCES

MOST_RUN_BYTES = 1 << 20
"""Batches side by side become one row up to this size: a reader that wants one record of a run may
have to read all of it."""


class ObjectState(IntEnum):
    """What the coordinator knows of an object in the store."""

    PREPARED = 0
    COMMITTED = 1
    REFUSED = 2
    """Never committed; it waits for deletion."""
    UNUSED = 3
    """Committed, and no run is left in it; it waits for deletion."""
    GONE = 4
    """It was committed and is deleted; kept so that its outcome can still be told."""


class ObjectRow(NamedTuple):
    """An object as the coordinator has it."""

    object_id: int
    object_key: str
    state: ObjectState
    broker_id: int
    broker_epoch: int
    expires_ms: int
    verdicts: tuple[Verdict, ...] = ()
    """Of a committed object, until they are forgotten."""


class Written(NamedTuple):
    """A batch of an idempotent producer, to be recognised when it comes again."""

    base_sequence: int
    last_sequence: int
    base_offset: int


class Producer(NamedTuple):
    """What a partition knows of a producer: its epoch and its last batches in that epoch."""

    epoch: int
    written: tuple[Written, ...] = ()

    @property
    def next_sequence(self) -> int:
        """With what it goes on; after 2147483647 comes 0."""
        return (self.written[-1].last_sequence + 1) % SEQUENCES if self.written else 0


class ProducerKey(NamedTuple):
    """A producer in a partition."""

    key: LogKey
    producer_id: int


class Decided(NamedTuple):
    """An answer, and the rows to write with it."""

    answer: Committed
    object_state: ObjectState | None = None
    """What the object becomes; None: it stays as it is."""
    logs: Mapping[LogKey, LogState] = {}
    producers: Mapping[ProducerKey, Producer] = {}
    runs: tuple[Run, ...] = ()


def is_uncommitted(number: int, state: ObjectState | None, last_id: int) -> bool:
    """Whether a coordinator that has given ids up to `last_id`, and has an object in this state or
    not at all, has never committed it; one without a row was deleted after its commit."""
    if state is None:
        return number > last_id
    return state in (ObjectState.PREPARED, ObjectState.REFUSED)


def producer_keys(batches: Iterable[Batch]) -> set[ProducerKey]:
    """Whose rows a commit needs."""
    return {
        ProducerKey(batch.key, batch.producer_id)
        for batch in batches
        if batch.producer_id != NO_PRODUCER
    }


def outcome(found: ObjectRow | None, now_ms: int) -> Decided:
    """What became of an object; one whose lease is over is refused for good."""
    if found is None:
        return Decided(_refused("it was never prepared, or is deleted"))
    if found.state is ObjectState.PREPARED:
        if now_ms < found.expires_ms:
            return Decided(Committed(CommitState.PENDING))
        return Decided(_refused("its lease is over"), ObjectState.REFUSED)
    if found.state is ObjectState.REFUSED:
        return Decided(_refused("it was refused before"))
    why = "" if found.verdicts else "its verdicts are no longer kept"
    return Decided(Committed(CommitState.COMMITTED, found.verdicts, why))


def decide(
    commit: Commit,
    found: ObjectRow | None,
    broker_epoch: int | None,
    logs: Mapping[LogKey, LogState],
    producers: Mapping[ProducerKey, Producer],
    now_ms: int,
    forgotten: Mapping[LogKey, int] | None = None,
) -> Decided:
    """Commit an object, given its row, its broker's registered epoch and the rows of its partitions
    and producers (those that there are). `forgotten` has the greatest producer id that a partition
    may have forgotten, where `commit.waited_for` asks."""
    if found is None or found.object_key != commit.object_key:
        return Decided(_refused("it was never prepared, or is deleted"))
    if (found.broker_id, found.broker_epoch) != (commit.broker_id, commit.broker_epoch):
        return Decided(_refused("another broker, or another epoch of this one, prepared it"))
    if found.state is not ObjectState.PREPARED or now_ms >= found.expires_ms:
        return outcome(found, now_ms)
    if broker_epoch != commit.broker_epoch:
        why = f"broker {commit.broker_id} has registered again"
        return Decided(_refused(why), ObjectState.REFUSED)
    taking = _ObjectBatches(commit, dict(logs), dict(producers), forgotten or {})
    verdicts = tuple(starmap(taking.take, enumerate(commit.batches)))
    state = ObjectState.COMMITTED if taking.runs else ObjectState.UNUSED
    return Decided(
        Committed(CommitState.COMMITTED, verdicts), state, *taking.changed(), tuple(taking.runs)
    )


def _refused(why: str) -> Committed:
    return Committed(CommitState.REFUSED, why=why)


class _ObjectBatches:
    """One object's batches, taken one after another."""

    def __init__(
        self,
        commit: Commit,
        logs: dict[LogKey, LogState],
        producers: dict[ProducerKey, Producer],
        forgotten: Mapping[LogKey, int],
    ) -> None:
        self._commit, self._logs, self._producers = commit, logs, producers
        self._forgotten = forgotten
        self._moved: set[ProducerKey] = set()
        self._last_run: dict[LogKey, int] = {}
        self.runs: list[Run] = []

    def take(self, place: int, batch: Batch) -> Verdict:
        """Give the batch at a place its offset, or refuse it."""
        log = self._logs.get(batch.key)
        if log is None:
            return Verdict(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if batch.record_count < 1 or batch.byte_size < 1:
            return Verdict(ErrorCode.INVALID_RECORD)
        if batch.producer_id != NO_PRODUCER:
            answered = self._check(place, batch, log)
            if answered is not None:
                return answered
        self._append(batch, log)
        return Verdict(ErrorCode.NONE, log.high_watermark, log.start_offset)

    def changed(self) -> tuple[dict[LogKey, LogState], dict[ProducerKey, Producer]]:
        """The rows that are not as they were read."""
        logs = {key: self._logs[key] for key in self._last_run}
        return logs, {key: self._producers[key] for key in self._moved}

    def _check(self, place: int, batch: Batch, log: LogState) -> Verdict | None:
        """The verdict of a batch that is not written; else its producer moves on."""
        known = ProducerKey(batch.key, batch.producer_id)
        producer = self._producers.get(known)
        goes_on = producer is None and self._may_go_on(place, batch)
        if producer is not None and producer.epoch > batch.producer_epoch:
            return Verdict(ErrorCode.INVALID_PRODUCER_EPOCH)
        expected = -1 if producer is None else 0
        if producer is None or producer.epoch < batch.producer_epoch:
            producer = Producer(batch.producer_epoch)
        else:
            expected = producer.next_sequence
        sequences = (batch.base_sequence, batch.last_sequence)
        for written in producer.written:
            if written[:2] == sequences:
                return Verdict(ErrorCode.NONE, written.base_offset, log.start_offset, True)
        if batch.base_sequence != producer.next_sequence and not goes_on:
            code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            return Verdict(code, expected_sequence=expected)
        newest = (*producer.written, Written(*sequences, log.high_watermark))[-BATCHES_KEPT:]
        self._producers[known] = Producer(batch.producer_epoch, newest)
        self._moved.add(known)
        return None

    def _may_go_on(self, place: int, batch: Batch) -> bool:
        """Whether a batch of a producer that is not known may have any sequence number."""
        if place not in self._commit.waited_for or batch.base_sequence < 0:
            return False
        return batch.producer_id <= self._forgotten.get(batch.key, NO_PRODUCER)

    def _append(self, batch: Batch, log: LogState) -> None:
        end_offset = log.high_watermark + batch.record_count
        index = self._last_run.get(batch.key)
        before = None if index is None else self.runs[index]
        if before is None or index is None or not _is_beside(before, batch):
            self._last_run[batch.key] = len(self.runs)
            self.runs.append(self._run(batch, log.high_watermark))
        else:
            self.runs[index] = before._replace(
                end_offset=end_offset,
                byte_size=before.byte_size + batch.byte_size,
                max_timestamp=max(before.max_timestamp, batch.max_timestamp),
            )
        self._logs[batch.key] = log._replace(
            high_watermark=end_offset, byte_size=log.byte_size + batch.byte_size
        )

    def _run(self, batch: Batch, base_offset: int) -> Run:
        return Run(
            batch.key,
            base_offset,
            base_offset + batch.record_count,
            self._commit.object_id,
            self._commit.object_key,
            batch.byte_offset,
            batch.byte_size,
            batch.max_timestamp,
            batch.timestamp_type,
        )


def _is_beside(run: Run, batch: Batch) -> bool:
    """Whether a batch may become part of the run before it: what is refused between them, or came
    before, takes bytes, so they do not touch then."""
    return (
        run.byte_offset + run.byte_size == batch.byte_offset
        and run.timestamp_type == batch.timestamp_type
        and run.byte_size + batch.byte_size <= MOST_RUN_BYTES
    )
