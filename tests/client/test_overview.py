"""What moves wait for, as a cluster's status counts them."""

from __future__ import annotations

from anabranch.client.overview import blocked_moves
from anabranch.core.controller.moves.reassignment import begun
from anabranch.core.types import TopicPartition


def test_a_move_that_only_removes_waits_for_those_that_stay():
    fewer, more = TopicPartition("fewer", 0), TopicPartition("more", 0)
    moves = {fewer: begun([1, 2, 3], [1, 3]), more: begun([1, 3], [1, 3, 2])}
    assert blocked_moves(moves, {1, 2}, {}) == {fewer: (3,)}
    assert blocked_moves(moves, {1, 3}, {}) == {more: (2,)}


def test_a_move_of_what_nobody_leads_waits_for_one_who_has_the_records():
    place = TopicPartition("t", 0)
    moves = {place: begun([3], [1])}
    assert blocked_moves(moves, {1, 2}, {place: (3,)}) == {place: (3,)}
    assert blocked_moves(moves, {1, 2}, {}) == {}
