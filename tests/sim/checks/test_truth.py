"""What a log lacks of what is committed, where a leader's log begins within a batch."""

from __future__ import annotations

import pytest

from anabranch.sim.checks.entries import Entry
from anabranch.sim.checks.truth import Truth


def entry(base: int, end: int) -> Entry:
    return Entry(base, end, 0, base, -1, -1, -1)


@pytest.fixture
def truth() -> Truth:
    """Three batches of three, of which an operator deleted the first five records."""
    truth = Truth((b"", 0))
    truth.commit([entry(base, base + 3) for base in (0, 3, 6)], 9)
    truth.start_moved(5)
    return truth


def test_a_log_that_has_the_batch_or_begins_behind_it_lacks_nothing(truth):
    assert truth.missing_in([entry(3, 6), entry(6, 9)], 5, 9) is None
    assert truth.missing_in([entry(6, 9)], 6, 9) is None


def test_a_log_that_begins_before_must_have_the_batch(truth):
    assert truth.missing_in([entry(0, 3)], 5, 6) == entry(3, 6)


def test_an_empty_log_has_nothing_of_it(truth):
    """Seed 2055: the last leader came back with an empty disk, by a rule that allows it, and its
    loss was not noted; whoever copied it was said to lack the batch."""
    assert truth.missing_in([], 5, 6) == entry(3, 6)
    assert truth.missing_in([], 9, 9) is None


def test_an_empty_log_that_ends_where_it_is_asked_lacks_nothing(truth):
    """A follower that begins anew within a batch knows nothing beyond its start."""
    assert truth.missing_in([], 7, 7) is None
