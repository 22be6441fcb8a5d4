"""Questions to other brokers: each ends once, and there are never too many."""

from __future__ import annotations

from anabranch.core.broker.peers import MARKERS, MOST_UNDER_WAY, Peers


def test_what_is_asked_is_taken_once_and_in_order():
    peers = Peers()
    for number in range(3):
        assert peers.ask(number % 2, MARKERS, f"message {number}", print)
    assert [each.message for each in peers.take_effects()] == [f"message {n}" for n in range(3)]
    assert not peers.take_effects()
    assert peers.under_way == 3


def test_the_answer_or_its_absence_goes_to_the_one_who_asked():
    peers, told = Peers(), []
    peers.ask(1, MARKERS, "first", lambda answer: told.append(("first", answer)))
    peers.ask(2, MARKERS, "second", lambda answer: told.append(("second", answer)))
    first, second = peers.take_effects()
    peers.answered(second, None)
    peers.answered(first, "answer")
    assert told == [("second", None), ("first", "answer")]
    assert peers.under_way == 0


def test_one_who_is_told_may_ask_again():
    peers = Peers()

    def again(_answer):
        assert peers.ask(1, MARKERS, "again", print)

    peers.ask(1, MARKERS, "once", again)
    (ask,) = peers.take_effects()
    peers.answered(ask, None)
    assert [each.message for each in peers.take_effects()] == ["again"]
    assert peers.under_way == 1


def test_too_many_asks_of_one_broker_are_not_taken():
    peers = Peers()
    assert all(peers.ask(1, MARKERS, n, print) for n in range(MOST_UNDER_WAY))
    assert not peers.ask(1, MARKERS, "one too many", print)
    assert peers.ask(2, MARKERS, "another broker", print)
    asks = peers.take_effects()
    peers.answered(asks[0], None)
    assert peers.ask(1, MARKERS, "room again", print)
