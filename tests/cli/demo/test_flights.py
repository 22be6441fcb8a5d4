"""The demo's data and its judge: a tally must see every way in which records can go wrong."""

from __future__ import annotations

import msgspec
import pytest

from anabranch.cli.demo.flights import Flight, Keyed, Tally, carrier_names, flights

SENT = 2_000
"""The first flight without a tail number is row 1,782."""


@pytest.fixture(scope="module")
def first_flights() -> list[Keyed]:
    return list(flights(SENT))


def tally_of(records: list[Keyed], expected: int) -> Tally:
    tally = Tally(expected)
    for key, value in records:
        tally.take(key, value)
    return tally


def test_rows_count_from_zero_in_the_order_of_sending(first_flights):
    rows = [msgspec.json.decode(each.value, type=Flight).row for each in first_flights]
    assert rows == list(range(SENT))


def test_the_key_is_the_tail_number_or_none(first_flights):
    for key, value in first_flights:
        tail_number = msgspec.json.decode(value, type=Flight).tail_number
        assert key == (tail_number.encode() if tail_number else None)
    assert any(each.key is None for each in first_flights)


def test_records_as_sent_hold(first_flights):
    tally = tally_of(first_flights, SENT)
    assert tally.holds
    assert tally.records == SENT
    assert sum(each.flights for each in tally.carriers.values()) == SENT
    assert set(tally.carriers) <= set(carrier_names())


def test_a_missing_record_is_seen(first_flights):
    tally = tally_of(first_flights[1:], SENT)
    assert (tally.missing, tally.holds) == (1, False)


def test_a_record_twice_is_seen(first_flights):
    without_key = next(each for each in first_flights if each.key is None)
    tally = tally_of([*first_flights, without_key], SENT)
    assert (tally.duplicates, tally.out_of_order, tally.holds) == (1, 0, False)


def test_two_records_of_one_key_in_the_wrong_order_are_seen(first_flights):
    keys = [each.key for each in first_flights]
    first = next(i for i, key in enumerate(keys) if key and keys.count(key) > 1)
    second = keys.index(keys[first], first + 1)
    swapped = list(first_flights)
    swapped[first], swapped[second] = swapped[second], swapped[first]
    tally = tally_of(swapped, SENT)
    assert (tally.out_of_order, tally.missing, tally.holds) == (1, 0, False)


def test_a_changed_key_is_seen(first_flights):
    changed = [Keyed(b"N00000", first_flights[0].value), *first_flights[1:]]
    tally = tally_of(changed, SENT)
    assert (tally.wrong_key, tally.holds) == (1, False)
