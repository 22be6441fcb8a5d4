"""Finding the active controller, and finding it again, without a connection."""

from __future__ import annotations

from immutables import Map

from anabranch.core.broker.registration.active_controller import (
    FIRST_PAUSE_MS,
    LONGEST_DIAL_MS,
    LONGEST_PAUSE_MS,
    PATIENCE_MS,
    SILENCE_MS,
    Attempts,
    Search,
    Seen,
    addresses_of,
)
from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.image import ControllerImage, Endpoint, MetadataImage

NOT_ACTIVE = int(ErrorCode.NOT_CONTROLLER)
ADDRESSES = ["a", "b", "c"]


def asked(search: Search[str], error_code: int) -> str:
    """Connect, and hear an answer; who was asked."""
    address = search.next_address(ADDRESSES)
    search.connected()
    if not search.answered(error_code):
        search.leave()
    return address


def test_a_node_knows_the_controllers_it_was_given_and_those_that_registered():
    def registered(controller_id: int, **ports: int) -> ControllerImage:
        places = {name: Endpoint("h", port) for name, port in ports.items()}
        return ControllerImage(controller_id, bytes(16), Map(places))

    given = [("a", 1), ("h", 12)]
    known = {each.controller_id: each for each in (
        registered(3, OTHER=13, CONTROLLER=23), registered(2, CONTROLLER=12), registered(4, X=14),
        registered(5),
    )}  # fmt: skip
    image = MetadataImage(controllers=Map(known))
    assert addresses_of(given, MetadataImage.empty(), ("CONTROLLER",)) == given
    assert addresses_of(given, image, ("CONTROLLER", "OTHER")) == [*given, ("h", 23), ("h", 14)]


def test_all_are_asked_in_turn_until_one_is_active():
    search: Search[str] = Search()
    assert [asked(search, code) for code in (NOT_ACTIVE, NOT_ACTIVE, 0)] == ["a", "b", "c"]
    assert search.generation == 3
    assert search.next_address(ADDRESSES) == "c"


def test_what_one_channel_found_the_others_know():
    seen: Seen[str] = Seen()
    first, second = Search(seen), Search(seen)
    asked(first, NOT_ACTIVE)
    asked(first, 0)
    assert asked(second, 0) == "b"
    second.leave()
    assert asked(first, NOT_ACTIVE) == "b", "the second one says only that it is not b any more"


def test_an_answer_with_another_error_is_the_active_controllers():
    search: Search[str] = Search()
    search.next_address(ADDRESSES)
    assert search.answered(int(ErrorCode.STALE_BROKER_EPOCH))
    assert search.seen.active == "a"


def test_a_silent_controller_is_left_only_for_one_that_says_it_is_active():
    search: Search[str] = Search()
    asked(search, 0)
    assert search.others_to_ask(ADDRESSES) == ["b", "c"]
    search.found([])
    assert not search.is_elsewhere
    search.found(["c"])
    assert search.is_elsewhere
    assert search.others_to_ask(ADDRESSES) == []
    search.leave()
    assert asked(search, 0) == "c"


def test_a_dial_that_takes_all_its_time_gets_more_and_one_that_is_refused_does_not():
    search: Search[str] = Search()
    search.not_connected(1)
    assert search.dial_ms == SILENCE_MS
    for _ in range(10):
        search.not_connected(search.dial_ms)
    assert search.dial_ms == LONGEST_DIAL_MS
    search.connected()
    assert search.dial_ms == SILENCE_MS


def test_the_pauses_grow_and_end():
    attempts, now_ms, pauses = Attempts(0), 0, []
    while (pause_ms := attempts.pause_ms(now_ms)) is not None:
        pauses.append(pause_ms)
        now_ms += pause_ms
    assert pauses[:3] == [FIRST_PAUSE_MS, 2 * FIRST_PAUSE_MS, 4 * FIRST_PAUSE_MS]
    assert max(pauses) == LONGEST_PAUSE_MS
    assert PATIENCE_MS < now_ms <= PATIENCE_MS + LONGEST_PAUSE_MS
    assert Attempts(0, None).pause_ms(10**12) == FIRST_PAUSE_MS
