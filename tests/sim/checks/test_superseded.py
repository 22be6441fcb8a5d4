"""Of compacted topics the checks of transactions ask for what compaction cannot have taken."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.sim.checks.test_transactions import HERE, RESULT, THERE, Stage, violated

from anabranch.core.types import TopicPartition
from anabranch.sim.checks.violation import Violation
from anabranch.sim.transaction_history import COMMITTED, UNKNOWN, Transaction, Written


@pytest.fixture
def stage() -> Stage:
    return Stage()


def wrote(
    stage: Stage, at_us: int, *records: tuple[TopicPartition, int, bytes], outcome: str = COMMITTED
) -> Transaction:
    """A transaction with records of keys, which ends soon."""
    transaction = stage.at(at_us).begin()
    for place, offset, key in records:
        stage.write(transaction, place, offset).key = key
    stage.at(at_us + 5).commit(transaction, outcome)
    return transaction


def is_gone(stage: Stage, place: TopicPartition, offset: int) -> None:
    """Compaction has taken a record."""
    del stage.log[place][offset]


def test_what_a_later_transaction_superseded_may_be_gone(stage):
    wrote(stage, 0, (HERE, 0, b"a"), (THERE, 0, b"b"))
    wrote(stage, 10, (HERE, 2, b"a"))
    is_gone(stage, HERE, 0)
    stage.end()


@pytest.mark.parametrize("place", [HERE, THERE])
def test_the_latest_record_of_a_key_is_there(stage, place):
    wrote(stage, 0, (HERE, 0, b"a"), (THERE, 0, b"b"))
    wrote(stage, 10, (HERE, 2, b"a"), (THERE, 2, b"b"))
    is_gone(stage, place, 2)
    assert violated(stage) == "lost-write"


@pytest.mark.parametrize("how", ["aborted", "of another key", "of another partition", "earlier"])
def test_what_supersedes_nothing_is_no_excuse(stage, how):
    wrote(stage, 0, (HERE, 4, b"a"))
    match how:
        case "aborted":
            later = stage.at(10).begin()
            stage.write(later, HERE, 6).key = b"a"
            stage.abort(later)
        case "of another key":
            wrote(stage, 10, (HERE, 6, b"b"))
        case "of another partition":
            wrote(stage, 10, (THERE, 6, b"a"))
        case "earlier":
            wrote(stage, 0, (HERE, 2, b"a"))
    is_gone(stage, HERE, 4)
    assert violated(stage) == "lost-write"


def test_a_tombstone_goes_in_time(stage):
    transaction = wrote(stage, 0, (HERE, 0, b"a"))
    transaction.writes[0].is_tombstone = True
    is_gone(stage, HERE, 0)
    stage.end()


def test_what_has_expired_is_gone(stage):
    wrote(stage, 0, (HERE, 0, b"a"), (HERE, 4, b"b"))
    stage.places[HERE] = SimpleNamespace(losses=[], forks=[], expires=True, deleted_to=3)
    is_gone(stage, HERE, 0)
    stage.end()
    stage.history.reads.clear()
    stage.checks.committed_values.clear()
    is_gone(stage, HERE, 4)
    assert violated(stage) == "lost-write"


def test_a_transaction_that_was_ever_shown_is_there_but_for_what_is_superseded(stage):
    wrote(stage, 0, (HERE, 0, b"a"), (THERE, 0, b"b"), outcome=UNKNOWN)
    stage.at(8).read("reader", HERE, 0, 1)
    wrote(stage, 10, (HERE, 2, b"a"))
    is_gone(stage, HERE, 0)
    stage.end()
    stage.history.reads.clear()
    stage.checks.committed_values.clear()
    is_gone(stage, THERE, 0)
    assert violated(stage) == "fractured"


def test_an_offset_that_no_client_was_told_is_what_readers_saw(stage):
    first = wrote(stage, 0, (HERE, 0, b"a"))
    first.writes[0].offset = -1
    stage.at(8).read("reader", HERE, 0, 1)
    wrote(stage, 10, (HERE, 2, b"b"))
    is_gone(stage, HERE, 0)
    assert violated(stage) == "lost-write"


def test_of_two_records_whose_order_is_not_known_either_may_be_gone(stage):
    first, second = wrote(stage, 0, (HERE, 0, b"a")), wrote(stage, 10, (HERE, 2, b"a"))
    for transaction in (first, second):
        transaction.writes[0].offset = -1
    is_gone(stage, HERE, 0)
    stage.end()
    second.writes[0].key = b"b"
    stage.history.reads.clear()
    stage.checks.committed_values.clear()
    assert violated(stage) == "lost-write"


def test_a_reader_may_pass_at_one_replica_what_another_one_still_has(stage):
    wrote(stage, 0, (HERE, 0, b"a"))
    wrote(stage, 10, (HERE, 2, b"a"))
    stage.at(20).read("reader", HERE, 0, 2, records=())
    stage.end()


def test_a_reader_passes_no_record_that_was_superseded_later(stage):
    wrote(stage, 0, (HERE, 0, b"a"))
    stage.at(8).read("reader", HERE, 0, 1, records=())
    wrote(stage, 10, (HERE, 2, b"a"))
    assert violated(stage) == "poll-skip"


def grouped(stage: Stage) -> Transaction:
    """What a group read is superseded, and so is its answer, of which no client knows."""
    wrote(stage, 0, (HERE, 0, b"a"))
    answer = stage.at(10).begin("loop")
    stage.write(answer, RESULT, 0).key = b"r"
    answer.consumed, answer.offsets = [(HERE, 0)], {HERE: 2}
    stage.at(12).commit(answer, UNKNOWN)
    stage.history.final_offsets = {HERE: 2}
    return answer


def test_a_transaction_of_a_group_may_be_gone_whole(stage):
    grouped(stage)
    wrote(stage, 20, (RESULT, 2, b"r"))
    is_gone(stage, RESULT, 0)
    stage.end()


def test_it_is_not_committed_when_what_must_be_there_is_not(stage):
    grouped(stage)
    is_gone(stage, RESULT, 0)
    assert violated(stage) == "group-lost"


def test_a_group_passes_at_one_replica_what_another_one_still_has(stage):
    grouped(stage).consumed = [(HERE, 9)]
    wrote(stage, 20, (HERE, 1, b"a"), (RESULT, 2, b"r"))
    with pytest.raises(Violation, match="group-lost"):
        stage.end()  # the later record itself was passed, too
    stage.history.transactions[-1].writes[0].offset = 3
    stage.log[HERE][3] = stage.log[HERE].pop(1)
    stage.history.reads.clear()
    stage.checks.committed_values.clear()
    stage.checks.all_values.clear()
    stage.end()


def test_a_record_without_a_key_stays(stage):
    written = Written(HERE, b"value", 0)
    transaction = stage.begin()
    transaction.writes.append(written)
    stage.at(5).commit(transaction)
    assert violated(stage) == "lost-write"
