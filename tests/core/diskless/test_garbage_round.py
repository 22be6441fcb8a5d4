"""The calls of one round of garbage collection, in their order, and what a listing deletes."""

from __future__ import annotations

from anabranch.core.diskless import garbage_round as does
from anabranch.core.diskless.garbage import DELETE_AT_ONCE, MARK_AT_ONCE, GarbageRounds, Pace
from anabranch.core.diskless.keys import object_key
from anabranch.core.diskless.objects import Listed

PACE = Pace(grace_ms=50, orphan_ms=500, idle_producer_ms=900)
NOW_MS = 10_000


def calls_of(steps, results):
    """What is asked, when each call gives the next of some results."""
    asked, given = [], iter((None, *results))
    try:
        while True:
            asked.append(steps.send(next(given)))
    except StopIteration as ended:
        return asked, ended.value


def test_the_store_deletes_before_the_coordinator_forgets_and_only_what_is_gone():
    rounds = GarbageRounds(PACE)
    asked, left = calls_of(
        does.collect(rounds), [MARK_AT_ONCE, 0, None, [(1, "a"), (2, "b")], ["b"], None]
    )
    assert asked == [
        does.MarkExpired(MARK_AT_ONCE),
        does.MarkExpired(MARK_AT_ONCE),
        does.ForgetProducers(PACE.idle_producer_ms, MARK_AT_ONCE),
        does.FindDeletable(PACE.grace_ms, DELETE_AT_ONCE),
        does.DeleteObjects(["a", "b"]),
        does.ForgetObjects([2]),
    ]
    assert left == 0 and rounds.deleted_objects == 1


def test_a_listing_deletes_what_is_old_unknown_and_of_this_database():
    old, young = NOW_MS - PACE.orphan_ms, NOW_MS - PACE.orphan_ms + 1
    ours, other, known, fresh = (
        object_key("c", mark, number)
        for number, mark in enumerate(("mine", "another", "mine", "mine"))
    )
    page = [Listed(ours, 9, old), Listed(other, 9, old), Listed(known, 9, old)]
    rounds = GarbageRounds(PACE)
    asked, _ = calls_of(
        does.sweep(rounds),
        [
            "mine",
            does.Page([*page, Listed(fresh, 9, young)], NOW_MS),
            [ours, other],
            [ours],
            does.Page([Listed(fresh, 9, young)], NOW_MS),
            None,
        ],
    )
    assert asked == [
        does.ReadMark(),
        does.ListObjects(),
        does.FindUnknown([ours, other, known]),
        does.DeleteObjects([ours]),
        does.ListObjects(),
        does.ListObjects(),
    ]
    assert rounds.deleted_orphans == 1 and rounds.foreign_objects == 1
