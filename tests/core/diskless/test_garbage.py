"""When a broker collects garbage: turns, pauses and what a listing may delete."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.diskless.garbage import GarbageRounds, Pace, is_ours
from anabranch.core.diskless.keys import object_key
from anabranch.core.diskless.objects import Listed

PACE = Pace(round_ms=100, grace_ms=50, retry_ms=10, list_ms=1000, orphan_ms=500)


@given(st.integers(1, 7))
def test_brokers_take_turns(brokers):
    rounds = [GarbageRounds(PACE) for _ in range(brokers)]
    begun: list[tuple[int, int]] = []
    for now_ms in range(0, 5000, 10):
        for turn, each in enumerate(rounds):
            if now_ms >= each.due_ms(now_ms, turn, brokers):
                begun.append((now_ms, turn))
                each.ended(now_ms, brokers)
    times = [now_ms for now_ms, _ in begun]
    assert all(after - before == PACE.round_ms for before, after in pairwise(times))
    assert [turn for _, turn in begun[:brokers]] == list(range(brokers))


def test_a_round_that_failed_is_followed_soon():
    rounds = GarbageRounds(PACE)
    rounds.ended(1000, 3)
    assert rounds.due_ms(1000, 0, 3) == 1300 and rounds.succeeded_ms == 1000
    rounds.failed(1300)
    assert rounds.due_ms(1300, 0, 3) == 1310 and rounds.succeeded_ms == 1000


def test_brokers_that_go_do_not_hold_a_round_up():
    rounds = GarbageRounds(PACE)
    rounds.ended(0, 50)
    assert rounds.due_ms(10, 0, 1) == 110


def test_the_store_is_listed_rarely_and_not_at_once():
    rounds = GarbageRounds(PACE)
    listed = [now_ms for now_ms in range(0, 4000, 100) if rounds.lists_now(now_ms, 1, 2)]
    assert listed == [1000, 2000, 3000]


def test_an_object_is_an_orphan_only_when_it_is_old():
    rounds = GarbageRounds(PACE)
    assert not rounds.is_old(Listed("k", 1, 600), 1099)
    assert rounds.is_old(Listed("k", 1, 600), 1100)


def test_an_object_that_another_database_named_is_not_ours():
    assert is_ours(object_key("cluster-with-dashes", "1f-mark", 7), "1f-mark")
    assert not is_ours(object_key("cluster", "older", 7), "1f-mark")
    assert not is_ours("cluster/wal/7f/something", "")
