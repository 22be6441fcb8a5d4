"""The judge of what Kafka Streams counted: each kind of wrong is planted, and found under its name."""

from __future__ import annotations

import pytest
from chaos.check import HEADINGS
from chaos.check_counts import counted
from chaos.check_transactions import Transactions
from chaos.transfers import (
    COUNTS,
    LINES,
    ORDERS,
    PARTS,
    Entry,
    count_of,
    entries,
    shown_as,
    words_of,
)

PLACES = (f"{ORDERS}-0", f"{ORDERS}-0", f"{ORDERS}-1", f"{ORDERS}-0")
"""Where the orders stand, one after the other."""
SHARED = f"{COUNTS}-2"
"""Where words stand that every order says."""


def order_of(number):
    """As a transfer writes it."""
    return Entry(f"t1.{number}", PARTS - 1, 0).value.decode()


class Run:
    """Four orders and two lines, each counted; `counts` can be changed."""

    def __init__(self):
        self.orders = [order_of(number) for number in range(len(PLACES))]
        self.counts = {f"{COUNTS}-0": [], f"{COUNTS}-1": [], SHARED: []}
        for number, order in enumerate(self.orders, 1):
            name, *others = words_of(order)
            self.counts[f"{COUNTS}-0"].append(f"{name} 1")
            self.counts[SHARED] += [f"{word} {number}" for word in others]
        self.lines = ["p9.1:0:abc", "p9.1:1:bcd"]
        self.counts[f"{COUNTS}-1"] += [f"{line} 1" for line in self.lines]

    def judged(self, *, takes_part=True):
        found = Transactions()
        if takes_part:
            found.take({"op": "counting"}, "streams")
        for number, (at, order) in enumerate(zip(PLACES, self.orders, strict=True)):
            name = words_of(order)[0]
            found.take({"op": "transaction", "name": name, "outcome": "committed"}, "transfer")
            self.show(found, at, number, order)
            for each in entries(name, 7)[:-1]:
                self.show(found, "accounts-0", number * 2 + each.index, each.value.decode())
        for offset, line in enumerate(self.lines):
            self.show(found, f"{LINES}-0", offset, line)
        for at, counts in self.counts.items():
            for offset, count in enumerate(counts):
                self.show(found, at, offset * 2, count)
        return found

    def show(self, found, at, offset, value):
        found.take({"op": "committed", "at": at, "records": [[offset, value]]}, "verdict")

    def ids(self, **told):
        return [each.id for each in self.judged(**told).judge()]


@pytest.fixture
def run():
    return Run()


def test_a_count_is_read_as_it_was_written():
    assert count_of(shown_as(COUNTS, b"t1.7", b"3")) == ("t1.7", 3)
    assert count_of(shown_as(COUNTS, None, b"x")) is None
    assert shown_as(ORDERS, b"t1.7", b"t1.7 2 0") == "t1.7 2 0"


def test_counts_that_are_right_have_nothing_wrong(run):
    assert (run.ids(), run.judged().counted) == ([], len(PLACES) + len(run.lines))


def test_a_run_without_kafka_streams_needs_no_counts(run):
    run.counts = {}
    assert (run.ids(takes_part=False), counted({})) == ([], 0)


def test_an_output_that_is_lost_is_found(run):
    run.counts[f"{COUNTS}-0"].pop(1)
    assert run.ids() == ["not-counted"]
    assert run.judged().counted == len(PLACES) + len(run.lines) - 1


def test_nothing_at_all_is_not_taken_for_a_clean_end(run):
    run.counts = {}
    assert set(run.ids()) == {"not-counted"}


@pytest.mark.parametrize("again", ["t1.2 1", "t1.2 2", "p9.1:0:abc 1"])
def test_a_record_that_was_counted_twice_is_found(run, again):
    """With the store of the first time, or without."""
    run.counts[f"{COUNTS}-0"].append(again)
    assert "counted-twice" in run.ids()


def test_a_store_that_lost_what_it_had_counted_is_found(run):
    run.counts[SHARED][4:] = ["2 1", "0 1", "2 2", "0 2"]
    assert set(run.ids()) == {"counted-twice", "not-counted", "counted-late"}


def test_counts_of_a_word_in_another_order_are_found(run):
    counts = run.counts[SHARED]
    counts[0], counts[2] = counts[2], counts[0]
    assert run.ids() == ["counted-late"]


def test_orders_that_were_counted_in_another_order_are_found(run):
    counts = run.counts[f"{COUNTS}-0"]
    counts[1], counts[3] = counts[3], counts[1]
    assert run.ids() == ["counted-late"]


def test_lines_that_were_counted_in_another_order_are_found(run):
    run.counts[f"{COUNTS}-1"].reverse()
    assert run.ids() == ["counted-late"]


def test_a_line_that_was_not_counted_is_found(run):
    run.counts[f"{COUNTS}-1"].pop()
    assert run.ids() == ["not-counted"]


def test_orders_of_two_partitions_have_no_order(run):
    counts = run.counts[f"{COUNTS}-0"]
    counts[2], counts[3] = counts[3], counts[2]
    assert run.ids() == []


def test_counts_in_two_partitions_have_no_order(run):
    counts = run.counts[f"{COUNTS}-0"]
    run.counts[f"{COUNTS}-1"].append(counts[3])
    counts[1:] = counts[1:3]
    assert run.ids() == []


@pytest.mark.parametrize("odd", ["t1.9 1", "nonsense"])
def test_a_count_of_what_is_not_there_is_found(run, odd):
    """An order of an aborted transaction, for one."""
    run.counts[f"{COUNTS}-1"].append(odd)
    assert run.ids() == ["count-phantom"]


def test_each_kind_has_a_heading():
    kinds = ("not-counted", "counted-twice", "counted-late", "count-phantom")
    headings = ["skipped", "duplicated", "reordered", "phantom"]
    assert [HEADINGS[each] for each in kinds] == headings
