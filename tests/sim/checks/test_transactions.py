"""The checks of transactions find each anomaly that is planted, and nothing in what is sound."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.core.types import TopicPartition
from anabranch.sim.checks.transactions import TransactionChecks
from anabranch.sim.checks.violation import Violation
from anabranch.sim.transaction_history import (
    ABORTED,
    COMMITTED,
    UNKNOWN,
    Read,
    Transaction,
    TransactionHistory,
    Written,
)

HERE, THERE = TopicPartition("transfers", 0), TopicPartition("transfers", 1)
RESULT = TopicPartition("results", 0)


class Stage:
    """A history that is written by hand; `log` is what a partition holds, with gaps for markers."""

    def __init__(self) -> None:
        self.world: Any = SimpleNamespace(now_us=0)
        self.history = TransactionHistory(self.world, doubles=False)
        self.places: dict[TopicPartition, Any] = {}
        self.checks = TransactionChecks(self.history, SimpleNamespace(places=self.places))  # type: ignore[arg-type]
        self.log: dict[TopicPartition, dict[int, bytes]] = {HERE: {}, THERE: {}, RESULT: {}}
        self.hidden: set[tuple[TopicPartition, int]] = set()

    def at(self, now_us: int) -> Stage:
        self.world.now_us = now_us
        return self

    def begin(self, client: str = "one", epoch: int = 0) -> Transaction:
        return self.history.begin(client, "id", 5, epoch)

    def write(self, transaction: Transaction, place: TopicPartition, offset: int) -> Written:
        value = f"{transaction.label}@{place.partition}:{offset}".encode()
        written = Written(place, value, offset)
        transaction.writes.append(written)
        self.log[place][offset] = value
        return written

    def commit(self, transaction: Transaction, outcome: str = COMMITTED) -> None:
        transaction.commit_sent_us = self.world.now_us
        transaction.outcome = outcome
        if outcome != UNKNOWN:
            self.history.ended(transaction, outcome)

    def abort(self, transaction: Transaction) -> None:
        self.history.ended(transaction, ABORTED)
        self.hidden |= {(each.place, each.offset) for each in transaction.writes}

    def read(self, client: str, place: TopicPartition, start: int, end: int, **how: Any) -> None:
        is_committed = how.pop("is_committed", True)
        records = tuple(
            (offset, value)
            for offset, value in sorted(self.log[place].items())
            if start <= offset < end and not (is_committed and (place, offset) in self.hidden)
        )
        records = how.pop("records", records)
        stable = how.pop("stable", end)
        read = Read(client, place, self.world.now_us, start, end, records, is_committed, stable)
        self.history.read(read)

    def end(self) -> None:
        for place in self.log:
            self.read("audits-all", place, 0, 100, is_committed=False)
            self.read("audits-committed", place, 0, 100)
        self.checks.end()


@pytest.fixture
def stage() -> Stage:
    return Stage()


def moved(stage: Stage, outcome: str = COMMITTED) -> Transaction:
    """A transaction with a record in each of two partitions."""
    transaction = stage.begin()
    stage.write(transaction, HERE, 0)
    stage.write(transaction, THERE, 0)
    stage.at(5).commit(transaction, outcome)
    return transaction


def violated(stage: Stage) -> str:
    with pytest.raises(Violation) as found:
        stage.end()
    return found.value.id


def test_what_is_sound_passes(stage):
    moved(stage)
    late = stage.at(10).begin()
    stage.write(late, HERE, 2)
    stage.abort(late)
    stage.at(20).read("reader", HERE, 0, 4)
    stage.end()


def test_a_reader_is_shown_nothing_that_nobody_asked_to_commit(stage):
    transaction = stage.begin()
    stage.write(transaction, HERE, 0)
    with pytest.raises(Violation, match="aborted-read"):
        stage.read("reader", HERE, 0, 1)


def test_a_reader_is_shown_nothing_that_was_aborted(stage):
    transaction = stage.begin()
    written = stage.write(transaction, HERE, 0)
    stage.abort(transaction)
    with pytest.raises(Violation, match="aborted-read"):
        stage.read("reader", HERE, 0, 1, records=((0, written.value),))
    stage.read("dirty", HERE, 0, 1, is_committed=False)


def test_a_reader_is_shown_nothing_behind_the_stable_offset(stage):
    moved(stage)
    with pytest.raises(Violation, match="beyond-stable"):
        stage.read("reader", HERE, 0, 1, stable=0)


def test_a_committed_record_is_there_at_the_end(stage):
    transaction = moved(stage)
    stage.hidden.add((transaction.writes[1].place, 0))
    assert violated(stage) == "lost-write"


def test_what_nobody_knows_is_there_whole_or_not_at_all(stage):
    transaction = moved(stage, UNKNOWN)
    stage.hidden.add((transaction.writes[1].place, 0))
    assert violated(stage) == "fractured"


def test_what_nobody_knows_may_be_missing_whole_unless_it_was_shown(stage):
    transaction = moved(stage, UNKNOWN)
    stage.hidden |= {(each.place, each.offset) for each in transaction.writes}
    stage.end()
    stage.read("reader", HERE, 0, 1, records=((0, transaction.writes[0].value),))
    assert violated(stage) == "fractured"


def test_a_value_stands_once(stage):
    transaction = moved(stage)
    stage.log[HERE][3] = transaction.writes[0].value
    assert violated(stage) == "duplicate"


def test_a_reader_who_passes_a_committed_record_was_shown_it(stage):
    moved(stage)
    stage.at(9).read("reader", HERE, 0, 4, records=())
    assert violated(stage) == "poll-skip"


def test_transactions_stand_in_the_order_in_which_they_were_made(stage):
    first, second = stage.at(1).begin(), stage.at(2).begin("two")
    stage.write(first, HERE, 4)
    stage.write(second, HERE, 2)
    stage.at(9).commit(first)
    stage.at(9).commit(second)
    stage.end()  # at the same time: any order
    stage.history.reads.clear()
    third = stage.at(20).begin()
    stage.write(third, HERE, 1)
    stage.at(21).commit(third)
    assert violated(stage) == "G0"


def test_a_process_does_not_commit_after_the_next_one_began(stage):
    transaction = stage.begin()
    stage.write(transaction, HERE, 0)
    stage.at(3).history.started("two", "id", 5, 1)
    with pytest.raises(Violation, match="zombie"):
        stage.at(5).commit(transaction)


def test_a_value_that_nobody_wrote_is_found(stage):
    with pytest.raises(Violation, match="phantom"):
        stage.read("reader", HERE, 0, 1, records=((0, b"nobody"),))


def loops(stage: Stage) -> Transaction:
    """A record that the group has read, and answered, in a transaction."""
    moved(stage)
    answer = stage.at(10).begin("loop")
    stage.write(answer, RESULT, 0)
    answer.consumed, answer.offsets = [(HERE, 0)], {HERE: 2}
    stage.at(12).commit(answer)
    stage.history.final_offsets = {HERE: 2, THERE: -1}
    return answer


def test_a_loop_that_is_sound_passes(stage):
    loops(stage)
    stage.end()


def test_one_committed_transaction_at_most_reads_a_record(stage):
    loops(stage)
    again = stage.at(20).begin("loop")
    stage.write(again, RESULT, 2)
    again.consumed, again.offsets = [(HERE, 0)], {HERE: 2}
    stage.at(21).commit(again)
    assert violated(stage) == "G2"


def test_the_group_passes_nothing_that_it_did_not_read(stage):
    answer = loops(stage)
    answer.consumed = [(HERE, 1)]
    assert violated(stage) == "group-lost"


def test_the_group_stands_where_a_committed_transaction_put_it(stage):
    loops(stage)
    stage.history.final_offsets[HERE] = 1
    assert violated(stage) == "group-lost"


def test_what_a_rule_allows_to_be_lost_is_not_asked_for(stage):
    transaction = moved(stage)
    stage.hidden.add((transaction.writes[1].place, 0))
    stage.places[THERE] = SimpleNamespace(losses=["by rule"], forks=[])
    stage.end()


def test_what_nobody_can_read_at_the_end_is_not_asked_for(stage):
    moved(stage)
    stage.log[THERE].clear()
    stage.checks.unreadable = {THERE}
    stage.end()


def test_what_else_a_transaction_wrote_is_asked_for(stage):
    moved(stage)
    stage.log[HERE].clear()
    stage.checks.unreadable = {THERE}
    assert violated(stage) == "lost-write"
