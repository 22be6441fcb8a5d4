"""Offsets for batches that no manifest names: a guess, made only when it is asked for.

What: after a crash, records lie in objects without a place. How: the batches of a partition follow
its end in the order of their objects' ids, which is the order of each broker; those of an
idempotent producer exchange their places so that they follow in the order in which it wrote them.
Offsets that are missing between others stay missing, since nothing shows which batches had them.
Rules kept: each batch gets one place; one of an idempotent producer that has a place is left out;
so is one that would come behind a later one of its producer, or of a newer epoch, which is told.
Not here: the rows of what is known (`restoration.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from anabranch.core.diskless.commit import Producer, ProducerKey, Written
from anabranch.core.diskless.findings import Finding, Kind, place_of
from anabranch.core.diskless.manifests import NotedObject, Offsets
from anabranch.core.diskless.restoration import Rebuilt
from anabranch.core.diskless.rows import NO_PRODUCER, Batch, LogKey
from anabranch.core.log.producers import SEQUENCES
from anabranch.core.types import TopicId


class LooseBatch(NamedTuple):
    """A batch without a place, and its object."""

    object_id: int
    batch: Batch


class Appended(NamedTuple):
    """The unknown objects with the offsets that their batches got, and what was left out of them
    although it has no place."""

    objects: list[NotedObject]
    findings: list[Finding]


def append_unknown(rebuilt: Rebuilt, unknown: Sequence[NotedObject]) -> Appended:
    """Place the batches of unknown objects."""
    taken: dict[int, list[Offsets]] = {one.object_id: [] for one in unknown}
    ends = {log.key: log.state.high_watermark for log in rebuilt.contents.logs}
    known = dict(rebuilt.contents.producers)
    names = {log.key.topic_id: log.topic for log in rebuilt.contents.logs}
    findings: list[Finding] = []
    for key, loose in sorted(_loose(rebuilt, unknown).items()):
        end = ends.get(key, 0)
        for object_id, batch in _in_order(loose):
            if _follows(batch, known, end):
                taken[object_id].append(Offsets(batch, end))
                end += batch.record_count
            else:
                findings.append(_left_out(names, object_id, batch))
    return Appended(
        [one._replace(batches=sorted(taken[one.object_id], key=_place)) for one in sorted(unknown)],
        findings,
    )


def _loose(rebuilt: Rebuilt, unknown: Sequence[NotedObject]) -> dict[LogKey, list[LooseBatch]]:
    """What has no place yet, by partition in the order of objects; each batch of an idempotent
    producer once."""
    written = {_identity(each.batch) for one in rebuilt.noted for each in one.batches}
    loose: dict[LogKey, list[LooseBatch]] = {}
    for one in sorted(unknown):
        for batch, _ in one.batches:
            identity = _identity(batch)
            is_there = identity in written and batch.producer_id != NO_PRODUCER
            if not is_there and batch.key.topic_id not in rebuilt.deleted:
                written.add(identity)
                loose.setdefault(batch.key, []).append(LooseBatch(one.object_id, batch))
    return loose


def _place(placed: Offsets) -> tuple[LogKey, int]:
    return placed.batch.key, placed.base_offset


def _identity(batch: Batch) -> tuple[ProducerKey, int, int, int, int]:
    """What a batch of an idempotent producer is recognised by; its size, since sequence numbers
    begin again after 2147483647."""
    producer = ProducerKey(batch.key, batch.producer_id)
    return producer, *batch[7:], batch.record_count, batch.byte_size


def _in_order(loose: Sequence[LooseBatch]) -> Iterator[LooseBatch]:
    """One partition's batches, those of each idempotent producer by epoch and sequence number.

    Sequence numbers wrap, so the nearer way from one of them counts: 0 says nothing of where an
    epoch began. What is lost between two batches does not matter."""
    by_producer: dict[int, list[LooseBatch]] = {}
    origins: dict[tuple[int, int], int] = {}
    for each in loose:
        batch = each.batch
        by_producer.setdefault(batch.producer_id, []).append(each)
        origins.setdefault((batch.producer_id, batch.producer_epoch), batch.base_sequence)

    def place(each: LooseBatch) -> tuple[int, int]:
        batch = each.batch
        origin = origins[batch.producer_id, batch.producer_epoch]
        return batch.producer_epoch, _distance(origin, batch.base_sequence)

    turns = {
        producer_id: iter(batches if producer_id == NO_PRODUCER else sorted(batches, key=place))
        for producer_id, batches in by_producer.items()
    }
    for each in loose:
        yield next(turns[each.batch.producer_id])


def _distance(origin: int, sequence: int) -> int:
    """How far a sequence number is behind another one, negative when it is before it."""
    return (sequence - origin + SEQUENCES // 2) % SEQUENCES - SEQUENCES // 2


def _follows(batch: Batch, known: dict[ProducerKey, Producer], offset: int) -> bool:
    """Whether all that its producer wrote before a batch has smaller offsets; it is noted then."""
    if batch.producer_id == NO_PRODUCER:
        return True
    key = ProducerKey(batch.key, batch.producer_id)
    before = known.get(key)
    if before is not None and before.epoch >= batch.producer_epoch:
        if before.epoch > batch.producer_epoch:
            return False
        if before.written and _distance(before.next_sequence, batch.base_sequence) < 0:
            return False
    written = Written(batch.base_sequence, batch.last_sequence, offset)
    known[key] = Producer(batch.producer_epoch, (written,))
    return True


def _left_out(names: Mapping[TopicId, str], object_id: int, batch: Batch) -> Finding:
    detail = (
        f"{batch.record_count} records of producer {batch.producer_id} in object {object_id}: "
        "records that it wrote later have offsets already"
    )
    return Finding(Kind.RECORDS_LEFT_OUT, place_of(batch.key, names), detail)
