"""The judge of transactions: each kind of wrong is planted, and found under its name."""

from __future__ import annotations

import pytest
from chaos.check_transactions import Transactions
from chaos.transfers import entries, entry_of, receipt_of

PLACES = ("accounts-0", "accounts-4", "orders-1")


def history(*, outcome="committed", receipts=1):
    """One transfer, its receipt, and a reader who saw all of it."""
    found = Transactions()
    found.take({"op": "processed", "group": "x", "count": 1}, "processor")
    found.take({"op": "transaction", "name": "t1.1", "outcome": outcome}, "transfer")
    for place, entry in zip(PLACES, entries("t1.1", 7), strict=True):
        show(found, place, 0, entry.value.decode())
        show(found, place, 0, entry.value.decode(), role="committed")
    order = "orders-1@0 t1.1 2 0"
    for offset in range(receipts):
        show(found, "receipts-0", offset, receipt_of("x", order).decode())
    return found


def show(found, place, offset, value, role="verdict"):
    line = {"op": "committed", "client": role, "at": place, "records": [[offset, value]]}
    found.take(line, role)


def ids(found):
    return [each.id for each in found.judge()]


def test_an_entry_is_read_as_it_was_written():
    assert [entry_of(each.value.decode()) for each in entries("t", 5)] == entries("t", 5)
    assert entry_of("x orders-1@0 t1.1 2 0") is None


@pytest.mark.parametrize("outcome", ["committed", "begun"])
def test_a_whole_history_has_nothing_wrong(outcome):
    """A transaction of which nobody heard the outcome may be there."""
    found = history(outcome=outcome)
    assert (ids(found), found.count) == ([], 1)


def test_an_aborted_transaction_that_is_there_is_found():
    assert ids(history(outcome="aborted")) == ["transaction-aborted"]


def test_a_committed_transaction_that_is_not_there_is_found():
    found = history()
    found.take({"op": "transaction", "name": "t1.2", "outcome": "committed"}, "transfer")
    assert ids(found) == ["transaction-lost"]


def test_a_transaction_of_which_a_part_is_there_is_found():
    found = history()
    found.take({"op": "transaction", "name": "t1.2", "outcome": "begun"}, "transfer")
    show(found, "accounts-3", 9, entries("t1.2", 4)[1].value.decode())
    assert ids(found) == ["transaction-torn", "transaction-torn"], "and the sum is not 0"


def test_a_record_that_is_twice_there_is_found():
    found = history()
    show(found, "accounts-0", 1, entries("t1.1", 7)[0].value.decode())
    assert ids(found) == ["transaction-twice", "transaction-torn"]


def test_a_reader_that_was_shown_what_is_not_committed_is_found():
    found = history()
    show(found, "accounts-0", 5, "t1.9 0 -3", role="committed")
    assert ids(found) == ["transaction-aborted"]


@pytest.mark.parametrize(("receipts", "wrong"), [(0, ["not-processed"]), (2, ["processed-twice"])])
def test_each_order_has_one_receipt(receipts, wrong):
    assert ids(history(receipts=receipts)) == wrong


def test_a_receipt_without_an_order_is_found():
    found = history()
    show(found, "receipts-0", 8, receipt_of("x", "orders-1@7 t1.7 2 0").decode())
    assert ids(found) == ["transaction-phantom"]


def test_a_reader_that_is_held_back_is_found():
    found = history()
    told = {"client": "c1", "at": "accounts-0", "position": 3, "end": 5}
    found.take({"op": "held-back", **told}, "committed")
    assert ids(found) == ["held-back"]
