"""What waits composes, whatever it waits for."""

from __future__ import annotations

import pytest

from anabranch.core.log.files import ColdRead
from anabranch.core.log.memory_files import MemoryFiles
from anabranch.core.outcome import Cold, Wait, then, when_all


def wait_for(box, keys=("key",), deadline_ms=10):
    return Wait(keys, deadline_ms, lambda _now, expired: box[0] if box or not expired else "late")


def cold(again):
    read = ColdRead(MemoryFiles().open("a", create=True), 0, 1)
    return Cold((read,), again)


def test_an_answer_that_is_there_is_told_at_once():
    assert then(2, str) == "2"


def test_a_wait_keeps_its_keys_its_time_and_its_size():
    wait = then(Wait(("a", "b"), 7, lambda _n, _e: 5, 99), str)
    assert (wait.keys, wait.deadline_ms, wait.most_bytes) == (("a", "b"), 7, 99)
    assert wait.poll(0, False) == "5"


def test_nothing_is_told_before_there_is_an_answer():
    told = []
    wait = Wait(("key",), 7, lambda _n, expired: "late" if expired else None).then(told.append)
    assert wait.poll(0, False) is None
    assert told == []
    wait.poll(7, True)
    assert told == ["late"]


@pytest.mark.parametrize("depth", [1, 3])
def test_what_a_wait_goes_on_with_is_told_too(depth):
    """A poll may need the disk, and may then wait once more."""
    outcome = wait_for([cold(lambda _now: wait_for([3]))])
    for _ in range(depth):
        outcome = then(outcome, lambda number: number + 1)
    reads = outcome.poll(0, False)
    assert isinstance(reads, Cold)
    assert reads.poll(0, False).poll(0, False) == 3 + depth


def test_what_went_wrong_while_bytes_were_brought_in_is_raised():
    reads = cold(lambda _now: 1)
    reads.fault = RuntimeError("no thread")
    with pytest.raises(RuntimeError):
        reads.poll(0, False)


def test_reads_are_a_key_by_themselves():
    first, second = cold(lambda _now: 1), cold(lambda _now: 1)
    assert first.keys == (first,) != second.keys


def test_each_part_is_waited_for_until_its_own_time_is_over():
    boxes = [[], [], []]

    def poll(box):
        return lambda _now, expired: box[0] if box else ("late" if expired else None)

    waits = [
        Wait((name,), ms, poll(box)) for name, ms, box in zip("abc", (3, 9, 9), boxes, strict=True)
    ]
    wait = when_all([1, *waits], tuple)
    assert (wait.keys, wait.deadline_ms) == (("a", "b", "c"), 3)
    boxes[2].append("third")
    assert wait.poll(0, False) is None
    wait = wait.poll(3, True)
    assert isinstance(wait, Wait)
    assert (wait.keys, wait.deadline_ms) == (("b",), 9)
    boxes[1].append("second")
    assert wait.poll(9, True) == (1, "late", "second", "third")
    assert when_all([1, 2], tuple) == (1, 2)


def test_a_part_that_was_answered_in_time_ends_no_others_wait():
    first = []
    parts = [wait_for(first, ("first",), 3), wait_for([], ("other",), 9)]
    parts[0].poll, late = (lambda _now, _expired: first[0] if first else None), parts[1].poll
    parts[1].poll = lambda now, expired: late(now, expired) if expired else None
    wait = when_all(parts, tuple)
    first.append(1)
    assert wait.poll(0, False) is None
    wait = wait.poll(3, True)
    assert (wait.keys, wait.deadline_ms) == (("other",), 9)
    assert wait.poll(9, True) == (1, "late")


def test_what_parts_hold_is_held_by_all_together():
    def part(**how):
        return Wait(("key",), 3, lambda _now, _expired: None, **how)

    wait = when_all([part(most_bytes=5, is_urgent=True), part(most_bytes=7), part()], tuple)
    assert (wait.most_bytes, wait.is_urgent, wait.holds_up) == (12, True, False)
    assert when_all([part(), part(holds_up=True)], tuple).holds_up


def test_a_part_may_wait_for_something_else_while_others_wait_still():
    """What it waits for then may come before the others have ended."""
    first, later, other = [], [], []

    def part(name, box, deadline_ms):
        return Wait((name,), deadline_ms, lambda _now, _expired: box[0] if box else None)

    parts = [part("first", first, 3), part("other", other, 5)]
    wait = when_all(parts, tuple)
    first.append(part("later", later, 9))
    wait = wait.poll(0, False)
    assert isinstance(wait, Wait)
    assert set(wait.keys) == {"later", "other"}
    assert wait.deadline_ms == 5
    later.append(1)
    assert wait.poll(0, False) is None
    other.append(2)
    assert wait.poll(0, False) == (1, 2)
