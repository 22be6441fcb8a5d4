"""What is noted of records that have landed."""

from __future__ import annotations

import pytest

from anabranch.core.mirror.index import Chunk, IndexRun
from anabranch.core.mirror.landed import (
    Origin,
    chunks_after,
    is_other_topic,
    landed_runs,
    notes_position,
)
from anabranch.core.mirror.restamp import Run

ONE, OTHER = b"1" * 16, b"2" * 16
ORIGIN = Origin("orders", 3, ONE, OTHER)


def test_runs_that_land_in_pieces_keep_their_order():
    landed = landed_runs([Run(5, 3), Run(9, 2)], [(100, 2), (300, 3)])
    assert landed == [IndexRun(5, 100, 2), IndexRun(7, 300, 1), IndexRun(9, 301, 2)]


def test_a_chunk_grows_until_the_source_goes_back():
    runs = [IndexRun(0, 0, 5), IndexRun(7, 6, 1), IndexRun(3, 9, 2)]
    first, second = chunks_after(None, runs, ORIGIN, begins=True, leader_epoch=4)
    assert first.runs == tuple(runs[:2]) and first.begins and first.leader_epoch == 4
    assert second.runs == (runs[2],) and not second.begins
    assert (second.source_id, second.target_id) == (ONE, OTHER)
    assert chunks_after(first, [], ORIGIN) == []


@pytest.mark.parametrize("ids", [(ONE, OTHER), (b"\0" * 16, OTHER)])
def test_what_has_the_same_ids_or_none_is_the_same_topic(ids):
    assert is_other_topic(Chunk("orders", 3, (IndexRun(0, 0, 1),), False, *ids), ORIGIN) == (
        False,
        False,
    )


def test_what_has_other_ids_is_another_topic():
    chunk = Chunk("orders", 3, (IndexRun(0, 0, 1),), False, OTHER, ONE)
    assert is_other_topic(chunk, ORIGIN) == (True, True)
    assert is_other_topic(None, ORIGIN) == (False, False)


def test_a_position_is_written_once_there_is_an_index_beside_it():
    chunk = Chunk("orders", 3, (IndexRun(0, 0, 1),))
    assert not notes_position(None, begins=True)
    assert notes_position(chunk, begins=True) and notes_position(None, begins=False)
    assert notes_position(None, begins=True, from_latest=True), "what came meanwhile would be lost"
