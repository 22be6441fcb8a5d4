"""Whether compaction has taken records of a log: told from its batches, within a bound."""

from __future__ import annotations

import pytest
from tests.core.log.compacting import compact
from tests.core.log.support import NOW_MS, batch, new_log, sync

from anabranch.core.log import holes
from anabranch.core.log.holes import may_have_holes

COUNT = 6


def filled(**settings):
    log = new_log(**settings)
    for number in range(COUNT):
        log.append_as_leader(batch(count=2, tag=number), leader_epoch=0, now_ms=NOW_MS)
    return log


def test_a_log_that_was_never_compacted_has_none():
    log = filled()
    assert not any(may_have_holes(log, upto) for upto in range(2 * COUNT + 1))


def test_a_log_that_lost_records_to_compaction_has_some_where_they_were():
    log = filled(cleanup_policy="compact")
    log.roll(NOW_MS)
    log.append_as_leader(batch(count=2), leader_epoch=0, now_ms=NOW_MS)
    sync(log)
    compact(log, NOW_MS)
    assert may_have_holes(log, log.end_offset)
    assert not may_have_holes(log, 0)


@pytest.mark.parametrize(("most", "unsure"), [(3, True), (COUNT + 1, False)])
def test_a_log_too_long_to_look_at_is_taken_for_compacted(monkeypatch, most, unsure):
    monkeypatch.setattr(holes, "MOST_BATCHES", most)
    assert may_have_holes(filled(), 2 * COUNT) is unsure


@pytest.mark.parametrize(("most_batches", "unsure"), [(2, True), (COUNT + 1, False)])
def test_of_large_batches_fewer_are_looked_at(monkeypatch, most_batches, unsure):
    log = filled()
    size_bytes = log.size_bytes // COUNT
    monkeypatch.setattr(holes, "MOST_BYTES", most_batches * size_bytes)
    assert may_have_holes(log, 2 * COUNT) is unsure
