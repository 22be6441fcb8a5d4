"""The table of states, and what each request comes to in each of them."""

from __future__ import annotations

import itertools
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from anabranch.core.coordination.transactions import rules, transaction
from anabranch.core.coordination.transactions.records import transaction_of, transaction_record
from anabranch.core.coordination.transactions.rules import Answered, Producer
from anabranch.core.coordination.transactions.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    DECIDED,
    EMPTY,
    MAY_COME_FROM,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    TransactionState,
)
from anabranch.core.coordination.transactions.transaction import LAST_EPOCH, Transaction
from anabranch.core.errors import ApiError, Bug, ErrorCode
from anabranch.core.types import TopicPartition

PLACE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
KEPT = [EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT]
"""The states that stand in a log."""
NOW_MS = 5_000
PRODUCER_ID, EPOCH = 7, 3
CONCURRENT, FENCED = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED
INVALID = ErrorCode.INVALID_TXN_STATE


def in_state(state: TransactionState, **changed: object) -> Transaction:
    partitions = frozenset({PLACE}) if state in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT) else ()
    how = {"client_version": 2, "started_ms": 1, "partitions": frozenset(partitions)}
    return Transaction(PRODUCER_ID, EPOCH, 60_000, state, **{**how, **changed})


@pytest.mark.parametrize(("before", "after"), [*product(TransactionState, TransactionState)])
def test_a_move_that_the_table_does_not_know_is_a_bug(before, after):
    known = in_state(before)
    if before in MAY_COME_FROM[after]:
        assert known.become(after).state is after
    else:
        with pytest.raises(Bug):
            known.become(after)


def test_what_is_decided_is_never_decided_otherwise():
    """From a decision nothing leads to the opposite one without an end in between."""
    assert MAY_COME_FROM[COMPLETE_COMMIT] == {PREPARE_COMMIT}
    assert MAY_COME_FROM[COMPLETE_ABORT] == {PREPARE_ABORT}
    assert not MAY_COME_FROM[PREPARE_ABORT] & {PREPARE_COMMIT}
    assert not MAY_COME_FROM[PREPARE_COMMIT] & {PREPARE_ABORT}
    for state in (PREPARE_COMMIT, PREPARE_ABORT):
        assert sum(state in each for each in MAY_COME_FROM.values()) == 1


def test_numbers_and_names_are_kafkas():
    assert [(each.number, each.title) for each in TransactionState] == [
        (0, "Empty"), (1, "Ongoing"), (2, "PrepareCommit"), (3, "PrepareAbort"),
        (4, "CompleteCommit"), (5, "CompleteAbort"), (6, "Dead"), (7, "PrepareEpochFence"),
    ]  # fmt: skip


def code_of(decide) -> object:
    """The next state's name, "answered", or the code of the refusal."""
    try:
        found = decide()
    except ApiError as fault:
        return fault.code
    return "answered" if isinstance(found, Answered) else found.state


END = {
    # state: (commit, abort, commit in the epoch before, abort in the epoch before)
    EMPTY: (INVALID, PREPARE_ABORT, FENCED, FENCED),
    ONGOING: (PREPARE_COMMIT, PREPARE_ABORT, FENCED, FENCED),
    PREPARE_COMMIT: (CONCURRENT, CONCURRENT, CONCURRENT, INVALID),
    PREPARE_ABORT: (CONCURRENT, CONCURRENT, INVALID, CONCURRENT),
    COMPLETE_COMMIT: (INVALID, PREPARE_ABORT, "answered", INVALID),
    COMPLETE_ABORT: (INVALID, PREPARE_ABORT, INVALID, "answered"),
}
"""EndTxn with transaction.version 2, as Kafka 4.1 answers it."""

OLD_END = {
    # state: (commit, abort); the epoch stays, another one is refused
    EMPTY: (INVALID, INVALID),
    ONGOING: (PREPARE_COMMIT, PREPARE_ABORT),
    PREPARE_COMMIT: (CONCURRENT, INVALID),
    PREPARE_ABORT: (INVALID, CONCURRENT),
    COMPLETE_COMMIT: ("answered", INVALID),
    COMPLETE_ABORT: (INVALID, "answered"),
}
"""The same before."""


def end(before, epoch, commits, version, **how):
    asked = {"is_pending": False, "new_producer_id": None, **how}
    return lambda: rules.ended(
        before, Producer(PRODUCER_ID, epoch), commits=commits, client_version=version,
        now_ms=NOW_MS, **asked,
    )  # fmt: skip


@pytest.mark.parametrize("state", KEPT)
def test_end_with_an_epoch_for_each_transaction(state):
    before = in_state(state)
    found = tuple(
        code_of(end(before, epoch, commits, 2))
        for epoch in (EPOCH, EPOCH - 1)
        for commits in (True, False)
    )
    assert found == END[state]


@pytest.mark.parametrize("state", KEPT)
def test_end_of_an_older_client(state):
    before = in_state(state, client_version=0)
    assert tuple(code_of(end(before, EPOCH, each, 0)) for each in (True, False)) == OLD_END[state]
    for epoch, commits in product((EPOCH - 1, EPOCH + 1), (True, False)):
        assert code_of(end(before, epoch, commits, 0)) is FENCED


@pytest.mark.parametrize(("state", "epoch", "commits"), [*product(KEPT, (2, 3, 4), (True, False))])
def test_nothing_ends_what_has_a_record_on_its_way(state, epoch, commits):
    """Who is fenced is told that; all others come again."""
    before = in_state(state)
    sound = code_of(end(before, epoch, commits, 2))
    found = code_of(end(before, epoch, commits, 2, is_pending=True))
    assert found is (FENCED if sound is FENCED else CONCURRENT)


@pytest.mark.parametrize(("state", "commits"), [*product((PREPARE_ABORT, COMPLETE_ABORT), (0, 1))])
def test_who_was_aborted_by_the_coordinator_ends_nothing(state, commits):
    before = in_state(state, is_fenced=True)
    assert code_of(end(before, EPOCH - 1, bool(commits), 2)) is FENCED


ADD = {
    # state: (a partition that is in it, one that is not)
    EMPTY: (ONGOING, ONGOING),
    ONGOING: ("answered", ONGOING),
    PREPARE_COMMIT: (CONCURRENT, CONCURRENT),
    PREPARE_ABORT: (CONCURRENT, CONCURRENT),
    COMPLETE_COMMIT: (ONGOING, ONGOING),
    COMPLETE_ABORT: (ONGOING, ONGOING),
}


def add(before, place, producer=(PRODUCER_ID, EPOCH), *, is_pending=False):
    return lambda: rules.added(
        before, Producer(*producer), frozenset({place}), is_pending=is_pending,
        client_version=2, now_ms=NOW_MS,
    )  # fmt: skip


@pytest.mark.parametrize("state", KEPT)
def test_partitions_join(state):
    before = in_state(state)
    assert tuple(code_of(add(before, place)) for place in (PLACE, OTHER)) == ADD[state]
    assert code_of(add(before, PLACE, is_pending=True)) is CONCURRENT
    assert code_of(add(before, PLACE, (PRODUCER_ID, EPOCH - 1))) is FENCED
    assert code_of(add(before, PLACE, (PRODUCER_ID, EPOCH + 1))) is FENCED
    assert code_of(add(before, PLACE, (8, EPOCH))) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert code_of(add(None, PLACE)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_transaction_keeps_its_start_and_a_new_one_has_its_own():
    ongoing = add(in_state(ONGOING), OTHER)()
    assert (ongoing.started_ms, ongoing.partitions) == (1, {PLACE, OTHER})
    fresh = add(in_state(COMPLETE_COMMIT), OTHER)()
    assert (fresh.started_ms, fresh.partitions) == (NOW_MS, {OTHER})


@pytest.mark.parametrize("state", KEPT)
def test_verification_says_whether_a_partition_takes_part(state):
    before, producer = in_state(state), Producer(PRODUCER_ID, EPOCH)
    decided = state in (PREPARE_COMMIT, PREPARE_ABORT)
    not_in = CONCURRENT if decided else ErrorCode.TRANSACTION_ABORTABLE
    is_in = ErrorCode.NONE if state is ONGOING else not_in
    assert rules.check_part(before, producer, PLACE) is is_in
    assert rules.check_part(before, producer, OTHER) is not_in
    assert rules.check_part(before, Producer(PRODUCER_ID, 2), PLACE) is FENCED


START = {
    EMPTY: EMPTY,
    ONGOING: PREPARE_ABORT,
    PREPARE_COMMIT: CONCURRENT,
    PREPARE_ABORT: CONCURRENT,
    COMPLETE_COMMIT: EMPTY,
    COMPLETE_ABORT: EMPTY,
}


def start(before, expected=None, *, is_pending=False, new_id=None):
    return lambda: rules.started(
        before, 60_000, expected, is_pending=is_pending, new_producer_id=new_id,
        server_version=2, now_ms=NOW_MS,
    )  # fmt: skip


@pytest.mark.parametrize("state", KEPT)
def test_a_producer_starts(state):
    before = in_state(state)
    for expected in (None, Producer(PRODUCER_ID, EPOCH)):
        assert code_of(start(before, expected)) is START[state]
    assert code_of(start(before, Producer(8, EPOCH))) is FENCED
    assert code_of(start(before, is_pending=True)) is CONCURRENT
    behind = code_of(start(before, Producer(PRODUCER_ID, EPOCH - 1)))
    assert behind is (FENCED if state in (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT) else START[state])


def test_every_way_out_of_a_transaction_raises_the_epoch_by_one():
    ongoing = in_state(ONGOING)
    ways = [
        end(ongoing, EPOCH, True, 2)(),
        end(ongoing, EPOCH, False, 2)(),
        transaction.fenced(ongoing, NOW_MS, 2),
        transaction.fenced(ongoing, NOW_MS, 0),
        start(in_state(EMPTY))(),
    ]
    assert {each.producer_epoch for each in ways} == {EPOCH + 1}
    assert PREPARE_EPOCH_FENCE not in {each.state for each in ways}


@pytest.mark.parametrize("state", KEPT)
def test_only_an_id_without_a_transaction_expires(state):
    expires = state in (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
    assert in_state(state).is_expired(10, 10) is expires
    assert not in_state(state, updated_ms=1).is_expired(10, 10)
    if expires:
        assert transaction.dying(in_state(state)).state is DEAD
    else:
        with pytest.raises(Bug):
            transaction.dying(in_state(state))


@pytest.mark.parametrize(("commits", "epoch"), [*product((True, False), (EPOCH, LAST_EPOCH))])
def test_who_goes_on_before_the_markers_are_written_comes_again(commits, epoch):
    """It was told its next epoch, or producer id, when the end was decided."""
    before = end(
        in_state(ONGOING)._replace(producer_epoch=epoch), epoch, commits, 2, new_producer_id=99
    )()
    goes_on = transaction.completed(before, NOW_MS)
    producer = Producer(goes_on.producer_id, goes_on.producer_epoch)
    how = {"is_pending": False, "now_ms": NOW_MS}

    def starts() -> Transaction:
        told = {"new_producer_id": 100, "server_version": 2, **how}
        return rules.started(before, 60_000, producer, **told)

    def adds() -> Transaction | Answered:
        return rules.added(before, producer, frozenset({OTHER}), client_version=2, **how)

    def ends(commits: bool) -> Transaction | Answered:
        told = {"client_version": 2, "new_producer_id": None, **how}
        return rules.ended(before, producer, commits=commits, **told)

    asked = [starts, adds, lambda: ends(True), lambda: ends(False)]
    assert [code_of(each) for each in asked] == [CONCURRENT] * len(asked)
    assert rules.check_part(before, producer, PLACE) is CONCURRENT


LIFE = st.lists(
    st.sampled_from(
        ["starts", "goes on", "asks again", "adds", "commits", "aborts", "late", "marked", "moves"]
    ),
    max_size=25,
)
LATE_ON_THE_LAST_EPOCH = ["starts", "adds", "late", "marked", "goes on", "adds", "commits"]
LATE_AND_MOVED = ["starts", "adds", "late", "marked", "moves", "aborts", "adds", "commits"]
"""The next coordinator does not know that the one before has fenced the producer."""


@settings(max_examples=200)
@given(LIFE, st.sampled_from([0, 2]))
@example(LATE_ON_THE_LAST_EPOCH, 2)
@example(LATE_AND_MOVED, 2)
def test_each_epoch_that_a_producer_is_given_can_be_fenced(steps, version):
    """Also where epochs run out: markers of KIP-890 have a later epoch than the records."""
    known = in_state(EMPTY)._replace(producer_epoch=LAST_EPOCH - 1)
    producer = before = Producer(PRODUCER_ID, LAST_EPOCH - 1)
    ids = itertools.count(100)
    for step in steps:
        how = {"is_pending": False, "now_ms": NOW_MS}
        new = {"new_producer_id": next(ids), **how}
        starting = {"starts": None, "goes on": producer, "asks again": before}
        try:
            if step in starting:
                found = rules.started(known, 60_000, starting[step], server_version=version, **new)
            elif step == "adds":
                found = rules.added(
                    known, producer, frozenset({PLACE}), client_version=version, **how
                )
            elif step in ("commits", "aborts"):
                commits = step == "commits"
                found = rules.ended(known, producer, commits=commits, client_version=version, **new)
            elif step == "late" and known.state is ONGOING:
                found = transaction.fenced(known, NOW_MS, version)
            elif step == "marked" and known.state in DECIDED:
                found = transaction.completed(known, NOW_MS)
            elif step == "moves":
                record = transaction_record("id", known, NOW_MS, version)
                found = transaction_of(bytes(record.value))
            else:
                continue
        except ApiError:
            continue
        if isinstance(found, Answered):
            if version == 2 and step in ("commits", "aborts"):  # the answer says the epoch
                stands = found.transaction
                before, producer = producer, Producer(stands.producer_id, stands.producer_epoch)
                assert producer.epoch <= LAST_EPOCH
            continue
        if known.state is ONGOING and found.state in DECIDED and (found.is_fenced or version == 2):
            assert found.producer_epoch > known.producer_epoch
        if found.state is EMPTY or step in ("commits", "aborts"):
            given = transaction.completed(found, NOW_MS) if found.state in DECIDED else found
            before, producer = producer, Producer(given.producer_id, given.producer_epoch)
        known = found
        assert producer.epoch <= LAST_EPOCH


@pytest.mark.parametrize("state", KEPT)
@pytest.mark.parametrize("producer", [Producer(-1, 0), Producer(-1, -1), Producer(-5, 0)])
def test_no_producer_id_is_not_the_one_that_comes_next(state, producer):
    """CONCURRENT_TRANSACTIONS is retriable: a client would ask for ever."""
    before, how = in_state(state), {"is_pending": False, "now_ms": NOW_MS, "client_version": 2}

    def adds() -> Transaction | Answered:
        return rules.added(before, producer, frozenset({PLACE}), **how)

    def ends() -> Transaction | Answered:
        return rules.ended(before, producer, commits=True, new_producer_id=None, **how)

    assert [code_of(adds), code_of(ends)] == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert rules.check_part(before, producer, PLACE) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
