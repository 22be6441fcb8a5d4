"""Offsets for batches that no manifest names: a guess, made only when it is asked for.

What: brokers store manifests at different times, so that after a crash of all of them offsets are
missing between others, and records lie in objects without a place. How: batches of one broker in a
partition keep their order, which their object ids tell; the missing offsets of a partition are
filled where batches of some brokers, each from its first that is left on, fill them exactly; the
others come after the end, those of a producer in the order in which it wrote them. Rules kept: a
batch of an idempotent producer that is there is left out; each batch gets one place. Not here:
which offsets are missing (`restoration.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from anabranch.core.diskless.commit import (
    Producer,
    ProducerKey,
    Written,
)
from anabranch.core.diskless.manifests import NotedObject, Offsets
from anabranch.core.diskless.restoration import Rebuilt
from anabranch.core.diskless.rows import NO_PRODUCER, Batch, LogKey
from anabranch.core.log.producers import BATCHES_KEPT, SEQUENCES

MOST_WAYS = 64
"""Ways of filling that are followed at once: brokers with batches of equal sizes allow many."""
MOST_STEPS = 1_000_000
"""Tries for one gap, about a second; a gap that takes more stays, and is told."""


class LooseBatch(NamedTuple):
    """A batch without a place, and its object."""

    object_id: int
    broker_id: int
    batch: Batch


class _Filled(NamedTuple):
    """A gap that is filled from `start` on with what each broker has between two places."""

    earlier: _Filled | None
    start: int
    before: tuple[int, ...]
    after: tuple[int, ...]


def append_unknown(
    rebuilt: Rebuilt, noted: Iterable[NotedObject], unknown: Sequence[NotedObject]
) -> list[NotedObject]:
    """The unknown objects with the offsets that their batches get; what is left out is missing."""
    written = {_identity(each.batch) for one in noted for each in one.batches} - {None}
    loose: dict[LogKey, list[LooseBatch]] = {}
    for one in sorted(unknown):
        for batch, _ in one.batches:
            identity = _identity(batch)
            if batch.key.topic_id in rebuilt.deleted or (
                identity is not None and identity in written
            ):
                continue
            if identity is not None:
                written.add(identity)
            loose.setdefault(batch.key, []).append(LooseBatch(one.object_id, one.broker_id, batch))
    taken: dict[int, list[Offsets]] = {one.object_id: [] for one in unknown}
    ends = {log.key: log.state.high_watermark for log in rebuilt.contents.logs}
    known = dict(rebuilt.contents.producers)
    for key in sorted(loose):
        placed = dict(fill(loose[key], rebuilt.gaps.get(key, ())))
        rest = [each for number, each in enumerate(loose[key]) if number not in placed]
        for number, offset in placed.items():
            each = loose[key][number]
            taken[each.object_id].append(Offsets(each.batch, offset))
            _append(each.batch, offset, known)
        for each, offset in _after(rest, ends.get(key, 0), known):
            taken[each.object_id].append(Offsets(each.batch, offset))
    return [one._replace(batches=_in_order(taken[one.object_id])) for one in sorted(unknown)]


def _in_order(batches: list[Offsets]) -> list[Offsets]:
    return sorted(batches, key=lambda each: (each.batch.key, each.base_offset))


def _identity(batch: Batch) -> tuple[ProducerKey, int, int, int, int] | None:
    """What a batch of an idempotent producer is recognised by; its size, since sequence numbers
    begin again after 2147483647."""
    if batch.producer_id == NO_PRODUCER:
        return None
    producer = ProducerKey(batch.key, batch.producer_id)
    sizes = batch.record_count, batch.byte_size
    return producer, batch.producer_epoch, batch.base_sequence, *sizes


def fill(loose: Sequence[LooseBatch], gaps: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """(number of a batch, its offset) for those that fill gaps exactly; gaps are in order."""
    brokers = sorted({each.broker_id for each in loose})
    queues = [
        [number for number, each in enumerate(loose) if each.broker_id == broker]
        for broker in brokers
    ]
    counts = [[loose[number].batch.record_count for number in queue] for queue in queues]
    ways: dict[tuple[int, ...], _Filled | None] = {(0,) * len(brokers): None}
    """How far each broker's batches are used up, and by which gaps."""
    for start, end in gaps:
        found: dict[tuple[int, ...], _Filled | None] = {}
        steps = iter(range(MOST_STEPS))
        for used, filled in ways.items():
            for upto in islice(_exact(counts, used, end - start, steps), MOST_WAYS - len(found)):
                found.setdefault(upto, _Filled(filled, start, used, upto))
        ways = found or ways  # a gap that nothing fills stays
    last = next(iter(ways.values()))
    while last is not None:
        offset = last.start
        for queue, first, upto_here in zip(queues, last.before, last.after):
            for number in queue[first:upto_here]:
                yield number, offset
                offset += loose[number].batch.record_count
        last = last.earlier


def _exact(
    counts: Sequence[Sequence[int]], used: tuple[int, ...], wanted: int, steps: Iterator[int]
) -> Iterator[tuple[int, ...]]:
    """How far each broker's batches may be used so that together they have so many records."""
    if not counts:
        if not wanted:
            yield ()
        return
    first, size = used[0], 0
    for upto in range(first, len(counts[0]) + 1):
        if upto > first:
            size += counts[0][upto - 1]
        if size > wanted or next(steps, None) is None:
            return
        for rest in _exact(counts[1:], used[1:], wanted - size, steps):
            yield (upto, *rest)


def _after(
    loose: Sequence[LooseBatch], end: int, known: dict[ProducerKey, Producer]
) -> Iterator[tuple[LooseBatch, int]]:
    """Batches that come after the end of a partition, and their offsets: in the order of their
    objects, but none before another one that its producer wrote earlier."""
    turns = _turns(loose)
    queue = list(loose)
    while queue:
        waiting = []
        for each in queue:
            turn = turns.get(each.batch.producer_id)
            if turn is not None and turn[0] is not each:
                waiting.append(each)
                continue
            if turn is not None:
                turn.popleft()
            if not _is_there(each.batch, known):
                yield each, end
                end = _append(each.batch, end, known)
        queue = waiting


def _turns(loose: Iterable[LooseBatch]) -> dict[int, deque[LooseBatch]]:
    """What each idempotent producer wrote, in its order: by epoch, and then by sequence number.

    These wrap, so the nearer way from one of them counts: 0 says nothing of where an epoch began.
    What is lost between two batches does not matter."""
    by_producer: dict[int, list[LooseBatch]] = {}
    origins: dict[tuple[int, int], int] = {}
    for each in loose:
        batch = each.batch
        if batch.producer_id != NO_PRODUCER:
            by_producer.setdefault(batch.producer_id, []).append(each)
            origins.setdefault((batch.producer_id, batch.producer_epoch), batch.base_sequence)

    def place(each: LooseBatch) -> tuple[int, int]:
        batch = each.batch
        origin = origins[batch.producer_id, batch.producer_epoch]
        return batch.producer_epoch, _distance(origin, batch.base_sequence)

    return {each: deque(sorted(found, key=place)) for each, found in by_producer.items()}


def _distance(origin: int, sequence: int) -> int:
    """How far a sequence number is behind another one, negative when it is before it."""
    return (sequence - origin + SEQUENCES // 2) % SEQUENCES - SEQUENCES // 2


def _is_there(batch: Batch, known: Mapping[ProducerKey, Producer]) -> bool:
    """Whether a batch of an idempotent producer has a place, or a newer epoch has fenced it."""
    producer = known.get(ProducerKey(batch.key, batch.producer_id))
    if batch.producer_id == NO_PRODUCER or producer is None:
        return False
    if producer.epoch != batch.producer_epoch:
        return producer.epoch > batch.producer_epoch
    sequences = batch.base_sequence, batch.last_sequence
    return any(written[:2] == sequences for written in producer.written)


def _append(batch: Batch, base_offset: int, known: dict[ProducerKey, Producer]) -> int:
    """Note a batch of an idempotent producer at its place; the offset after it."""
    if batch.producer_id != NO_PRODUCER:
        key = ProducerKey(batch.key, batch.producer_id)
        before = known.get(key, Producer(batch.producer_epoch))
        if before.epoch <= batch.producer_epoch:
            earlier = before.written if before.epoch == batch.producer_epoch else ()
            placed = Written(batch.base_sequence, batch.last_sequence, base_offset)
            written = sorted((*earlier, placed), key=lambda each: each.base_offset)
            known[key] = Producer(batch.producer_epoch, tuple(written[-BATCHES_KEPT:]))
    return base_offset + batch.record_count
