"""What is put behind the end of a partition keeps the order in which its producer wrote it.

All ways in which four batches of an idempotent producer can be left without offsets: its numbers
begin anywhere, also just before they wrap; its epoch may rise between any two; any of them are
lost; objects have their ids in any order; the first may be known from a manifest.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations

import pytest

from anabranch.core.diskless.commit import SEQUENCES, Producer, ProducerKey, Written
from anabranch.core.diskless.contents import Contents, HeldLog
from anabranch.core.diskless.findings import Kind
from anabranch.core.diskless.guessed_offsets import append_unknown
from anabranch.core.diskless.manifests import NotedObject, Offsets
from anabranch.core.diskless.restoration import Rebuilt
from anabranch.core.diskless.rows import Batch, LogKey, LogState
from anabranch.core.types import TopicId

KEY = LogKey(TopicId(b"t" * 16), 0)
PRODUCER = 50
BATCHES = 4
END = 100
"""Where what is known ends."""


def written(first: int, rises_before: int) -> list[Batch]:
    """Two records a batch; before one of them the producer begins a new epoch."""
    batches, epoch, sequence = [], 0, first
    for number in range(BATCHES):
        if number == rises_before:
            epoch, sequence = 1, 0
        batches.append(Batch(KEY, 0, 100, 2, 0, 0, PRODUCER, epoch, sequence))
        sequence = (sequence + 2) % SEQUENCES
    return batches


def rebuilt(known: list[Batch]) -> Rebuilt:
    """A partition that has batches with known places."""
    producers = [
        (
            ProducerKey(KEY, PRODUCER),
            Producer(each.producer_epoch, (Written(each.base_sequence, each.last_sequence, 98),)),
        )
        for each in known
    ]
    before = [noted(1, each, 98) for each in known]
    log = HeldLog(KEY, "t", LogState(0, END))
    return Rebuilt(Contents([log], [], [], producers, 0), [], before, set(), {})


def noted(object_id: int, batch: Batch, base_offset: int = -1) -> NotedObject:
    return NotedObject(object_id, f"{object_id}", 100, 1, 9, [Offsets(batch, base_offset)])


def left(batches: list[Batch]) -> Iterator[tuple[Batch, ...]]:
    """Those that are not lost, in any order of their objects."""
    for count in range(len(batches) + 1):
        for some in combinations(batches, count):
            yield from permutations(some)


@pytest.mark.parametrize("first", [0, 5, SEQUENCES - 2, SEQUENCES - 3])
@pytest.mark.parametrize("known_count", [0, 1])
def test_a_producers_batches_keep_their_order(first: int, known_count: int) -> None:
    for rises_before in range(known_count, BATCHES + 1):
        batches = written(first, rises_before)
        known = batches[:known_count]
        for objects in left(batches[known_count:]):
            unknown = [noted(number, each) for number, each in enumerate(objects, 2)]
            appended, findings = append_unknown(rebuilt(known), unknown)
            assert findings == []
            placed = sorted(
                (base_offset, batch) for one in appended for batch, base_offset in one.batches
            )
            assert [offset for offset, _ in placed] == [END + 2 * n for n in range(len(objects))]
            assert [batch for _, batch in placed] == [each for each in batches if each in objects]


def test_others_are_put_in_the_order_of_their_objects() -> None:
    """What waits for an earlier batch of its producer holds no other one up."""
    plain = [Batch(KEY, 0, 100, 2, time) for time in range(2)]
    early, late = written(0, BATCHES)[:2]
    for order in permutations([late, *plain, early]):
        unknown = [noted(number, each) for number, each in enumerate(order, 2)]
        appended = append_unknown(rebuilt([]), unknown).objects
        offsets = {batch: offset for one in appended for batch, offset in one.batches}
        assert offsets[early] < offsets[late]
        assert sorted(plain, key=offsets.__getitem__) == [each for each in order if each in plain]


@pytest.mark.parametrize("first", [0, 5, SEQUENCES - 2, SEQUENCES - 3])
def test_what_would_come_behind_a_later_batch_of_its_producer_is_left_out_and_told(
    first: int,
) -> None:
    for rises_before in range(1, BATCHES + 1):
        batches = written(first, rises_before)
        for number, last in enumerate(batches):
            unknown = [noted(at, each) for at, each in enumerate(batches, 2) if each is not last]
            appended, findings = append_unknown(rebuilt([last]), unknown)
            placed = [batch for one in appended for batch, _ in one.batches]
            assert placed == batches[number + 1 :]
            assert [each.kind for each in findings] == [Kind.RECORDS_LEFT_OUT] * number
            assert all(each.place == "t-0" and "producer 50" in each.detail for each in findings)
