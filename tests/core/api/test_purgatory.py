"""Parked requests are answered once: by a key, by a deadline, or never when cancelled."""

from __future__ import annotations

import random
import weakref

from anabranch.core.api.purgatory import DEAD_ENTRIES_KEPT, Purgatory
from anabranch.core.errors import Bug
from anabranch.core.outcome import Wait, when_all


class Frame:
    def finish(self, _outcome):
        pass


def park(purgatory, got, name, keys=("key",), deadline=100.0, ready=None):
    ready = {} if ready is None else ready

    def poll(_now_ms, expired):
        return ready.get(name) or (f"{name} late" if expired else None)

    return purgatory.park(Wait(tuple(keys), 0, poll), got.append, deadline, 0)


def test_a_key_wakes_only_who_is_ready():
    purgatory, got, ready = Purgatory(), [], {}
    park(purgatory, got, "a", ready=ready)
    park(purgatory, got, "b", ready=ready)
    purgatory.wake(["other", "key"], 0)
    assert got == []
    ready["b"] = "b ready"
    purgatory.wake(["key"], 0)
    assert got == ["b ready"]
    assert len(purgatory) == 1


def test_who_waits_for_several_keys_is_asked_once_however_many_have_changed():
    purgatory, asked = Purgatory(), []
    for name in ("a", "b"):
        purgatory.park(Wait((1, 2, 3), 0, lambda *_, name=name: asked.append(name)), print, 10.0, 0)
    purgatory.wake([3, 1, 2], 0)
    assert asked == ["a", "b"]
    purgatory.wake([2], 0)
    assert asked == ["a", "b", "a", "b"]


def test_deadlines_come_in_order_and_once():
    purgatory, got = Purgatory(), []
    for name, deadline in [("c", 30.0), ("a", 10.0), ("b", 20.0)]:
        park(purgatory, got, name, deadline=deadline)
    assert purgatory.next_deadline() == 10.0
    purgatory.expire(25.0, 0)
    purgatory.expire(25.0, 0)
    assert got == ["a late", "b late"]
    assert purgatory.next_deadline() == 30.0


def test_cancelled_is_forgotten():
    purgatory, got = Purgatory(), []
    parked = park(purgatory, got, "a")
    purgatory.cancel(parked)
    purgatory.cancel(parked)
    purgatory.expire(1000.0, 0)
    assert got == []
    assert purgatory.next_deadline() is None
    assert len(purgatory) == 0


def test_a_poll_that_fails_is_answered_with_its_fault():
    purgatory, got = Purgatory(), []

    def fail(_now_ms, _expired):
        raise ZeroDivisionError

    purgatory.park(Wait(("key",), 0, fail), got.append, 10.0, 0)
    purgatory.wake(["key"], 0)
    assert isinstance(got[0], ZeroDivisionError)


def test_no_answer_at_the_deadline_is_a_bug_and_ends():
    purgatory, got = Purgatory(), []
    purgatory.park(Wait(("key",), 0, lambda _now, _expired: None), got.append, 10.0, 0)
    purgatory.expire(10.0, 0)
    assert isinstance(got[0], Bug)


def test_finished_requests_do_not_pile_up():
    purgatory, got, ready = Purgatory(), [], {}
    for number in range(3 * DEAD_ENTRIES_KEPT):
        ready[number] = "done"
        park(purgatory, got, number, keys=(number,), deadline=1e9, ready=ready)
        purgatory.wake([number], 0)
    assert len(got) == 3 * DEAD_ENTRIES_KEPT
    assert len(purgatory) == 0
    assert len(purgatory._heap) <= DEAD_ENTRIES_KEPT + 1
    assert not purgatory.by_key


def test_everybody_is_answered_exactly_once():
    source = random.Random(7)
    purgatory, ready = Purgatory(), {}
    answers = {}
    for number in range(2000):
        got = answers[number] = []
        keys = source.sample(range(20), source.randint(1, 3))
        park(purgatory, got, number, keys=keys, deadline=float(source.randint(0, 500)), ready=ready)
        if source.random() < 0.5:
            ready[source.randint(0, number)] = "ready"
        purgatory.wake([source.randint(0, 19)], 0)
        purgatory.expire(number / 8, 0)
    purgatory.finish_all(0)
    assert all(len(got) == 1 for got in answers.values())
    assert len(purgatory) == 0


def test_who_goes_on_to_wait_is_answered_too_when_the_node_stops():
    """Nobody is there to wake it afterwards."""
    purgatory, got = Purgatory(), []

    def part(name, deadline_ms):
        return Wait((name,), deadline_ms, lambda _now, expired: f"{name} late" if expired else None)

    purgatory.park(when_all([part("a", 20), part("b", 30_000)], tuple), got.append, 0, 0)
    purgatory.finish_all(0)
    assert got == [("a late", "b late")]


def test_what_a_forgotten_request_held_is_let_go_before_its_deadline():
    """Clients that come, ask with a late deadline and go leave nothing behind but a heap entry."""
    purgatory = Purgatory()
    held = [weakref.WeakSet(), weakref.WeakSet()]
    for _ in range(3):
        frame, answer = Frame(), Frame()
        held[0].add(frame)
        held[1].add(answer)
        wait = Wait(("key",), 0, lambda _now_ms, expired, frame=frame: frame if expired else None)
        parked = purgatory.park(wait, answer.finish, 1e12, 0)
        purgatory.cancel(parked)
    del wait, frame, answer, parked
    assert [len(each) for each in held] == [0, 0]


def test_when_there_is_no_time_left_the_others_stay_due():
    purgatory, got = Purgatory(), []
    for number in range(10):
        wait = Wait((), 0, lambda _now, expired, number=number: number if expired else None)
        purgatory.park(wait, got.append, 0.0, 0)
    for count in range(1, 11):
        assert purgatory.next_deadline() == 0.0
        purgatory.expire(5.0, 0, lambda: False)
        assert got == list(range(count))
    assert purgatory.next_deadline() is None
