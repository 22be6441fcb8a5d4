"""One candidate's term, step by step: the lease, appends, answers, snapshots, ends."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from itertools import product
from operator import attrgetter

import pytest
from tests.core.controller.tenure_world import FAILED, Node, Store, end_of, failed

from anabranch.core.controller.brokers.hints import LATER_MS, Answer
from anabranch.core.controller.result import Result
from anabranch.core.controller.tenure import effects, events
from anabranch.core.controller.tenure.decisions import SHARED_MS
from anabranch.core.controller.tenure.phases import EVERY, TABLE, Phase
from anabranch.core.controller.tenure.tenure import Tenure
from anabranch.core.errors import Bug
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.replay import replay_batch
from anabranch.core.metadata.store import NOBODY, Committed, Unknown
from anabranch.core.wire.metadata_records import BrokerEndpoint, RegisterBrokerRecord

LEASE_MS, RENEW_MS, WATCH_MS = 6_000, 2_000, 500
FEW_BYTES = "metadata.log.max.record.bytes.between.snapshots"
INTERVAL = "metadata.log.max.snapshot.interval.ms"


def only_call(node: Node, kind: type) -> effects.StoreCall:
    """The one call under way by now, which must be of that kind."""
    node.tick()
    (call,) = node.calls
    assert isinstance(call, kind)
    node.calls.clear()
    return call


def state_of(tenure: Tenure) -> dict[str, object]:
    """What a tenure and its parts hold, containers copied."""
    parts = ["state", "candidacy", "takeover", "term", "term.decisions", "term.snapshots"]
    return {
        f"{part}.{name}": copy(value)
        for part in [*parts, "term.probes"]
        for name, value in vars(attrgetter(part)(tenure)).items()
        if isinstance(value, list | dict) or not hasattr(value, "__dict__")
    }


# The table.


def test_every_step_that_the_table_names_exists() -> None:
    tenure = Node(Store()).tenure
    assert all(callable(attrgetter(name)(tenure)) for name in TABLE.values())
    assert {phase for phase, _ in TABLE} == set(EVERY)


@pytest.mark.parametrize(
    ("phase", "kind"),
    [
        pair
        for pair in product(EVERY, (events.Start, events.Leave, events.Broke))
        if pair not in TABLE
    ],
)
def test_an_unknown_pair_raises(phase: Phase, kind: type) -> None:
    node = Node(Store())
    node.tenure.state.phase = phase
    with pytest.raises(Bug, match=phase.value):
        node.step(kind())


def test_an_answer_to_a_call_that_is_not_under_way_changes_nothing() -> None:
    node = Node(Store()).started()
    before = state_of(node.tenure)
    node.step(events.LeaseRead(effects.ReadLease(), None))
    node.step(events.StoreFailed(effects.ReadLog(), FAILED))
    assert state_of(node.tenure) == before


# Taking the lease.


def test_the_first_candidate_becomes_active_and_marks_its_epoch() -> None:
    store = Store()
    node = Node(store).started()
    assert node.is_active and node.controller.epoch == 1
    assert [each.epoch for each in store.batches] == [1, 1], "the mark, and the feature levels"
    assert node.said(effects.Began) == [effects.Began(1, 1)]


def test_another_waits_until_the_holder_was_silent_for_a_lease_by_its_own_clock() -> None:
    store = Store()
    Node(store, 1).started()
    second = Node(store, 2).started()
    second.go(LEASE_MS)
    assert not second.is_active
    second.go(2 * WATCH_MS)
    assert second.is_active and second.controller.epoch == 2


def test_a_holder_that_renews_is_left_alone() -> None:
    store = Store()
    first, second = Node(store, 1).started(), Node(store, 2).started()
    for _ in range(40):
        first.go(WATCH_MS)
        second.go(WATCH_MS)
    assert first.is_active and not second.is_active


def test_a_holder_whose_process_is_gone_is_not_waited_for() -> None:
    store = Store()
    Node(store, 1).started()
    second = Node(store, 2).started()
    (watch,) = second.said(effects.Watch)
    second.step(events.HolderGone(watch.lease.epoch))
    second.go()
    assert second.is_active
    assert second.said(effects.Watch)[-1] == effects.Watch(None)


def test_a_holder_that_is_gone_is_forgotten_when_another_was_quicker() -> None:
    store = Store()
    Node(store, 1).started()
    second, third = Node(store, 2).started(), Node(store, 3).started()
    third.step(events.HolderGone(1))
    third.go()
    second.step(events.HolderGone(1))
    second.go(WATCH_MS)
    assert third.is_active and not second.is_active


def test_a_holder_that_lived_although_it_was_told_to_be_gone_is_waited_for_from_then_on() -> None:
    """Its machine refuses connections to the address at which it is watched, as a firewall does."""
    store = Store()
    first, second = Node(store, 1).started(), Node(store, 2).started()
    for holder, other in ((first, second), (second, first)):
        other.step(events.HolderGone(holder.controller.epoch))
        other.go()
        holder.go(RENEW_MS)
        assert other.is_active and not holder.is_active
    second.step(events.HolderGone(3))
    second.go(WATCH_MS)
    assert first.is_active and not second.is_active
    (said,) = [each.sentence for each in second.said(effects.Troubled)]
    assert said.startswith("node 1 is controller, but nothing listens at its address there:1")
    second.go(LEASE_MS + WATCH_MS)
    assert second.is_active, "it is silent now"


def test_a_restarted_process_takes_its_own_lease_at_once() -> None:
    store = Store()
    Node(store, 1).started()
    assert Node(store, 1, life=2).started().controller.epoch == 2


def test_a_twin_takes_over_once_and_the_first_stops() -> None:
    store = Store()
    first = Node(store, 1).started()
    assert Node(store, 1, life=2).started().is_active
    first.go(RENEW_MS)
    (stop,) = first.said(effects.Stop)
    assert "another process is controller with node.id=1" in stop.sentence


def test_the_lease_is_renewed_while_the_log_is_read() -> None:
    store = Store()
    node = Node(store)
    node.step(events.Start())
    for _ in range(2):
        answer = store.do(node, node.calls.pop(0))
        assert answer is not None
        node.step(answer)
    read = only_call(node, effects.ReadLog)
    for _ in range(5):
        node.go(RENEW_MS)
    assert store.held is not None and store.held.beat == 5
    answer = store.do(node, read)
    assert answer is not None
    node.step(answer)
    node.go()
    assert node.is_active


def test_a_log_that_was_read_from_a_store_s_copy_that_is_behind_is_not_served() -> None:
    store = Store()
    Node(store, 1).started().decide(1)
    second = Node(store, 2).started()
    second.step(events.HolderGone(1))
    while not any(isinstance(each, effects.ReadLog) for each in second.calls):
        answer = store.do(second, second.calls.pop(0))
        assert answer is not None
        second.step(answer)
    whole, store.batches = store.batches, store.batches[:1]
    answer = store.do(second, second.calls.pop(0))
    store.batches = whole
    assert answer is not None
    second.step(answer)
    second.go()
    assert not second.is_active
    second.go(WATCH_MS)
    assert second.is_active and second.controller.log.end_offset == store.end_offset


# Keeping it.


def test_a_confirmation_counts_from_when_it_was_asked_for() -> None:
    store = Store()
    node = Node(store).started()
    node.now_ms += RENEW_MS
    node.tick()
    renew = only_call(node, effects.RenewLease)
    answer = store.do(node, renew)
    assert answer is not None
    node.now_ms += LEASE_MS
    node.step(answer)
    assert node.is_active
    node.now_ms += 1
    node.decide(1)
    assert node.refused == [1] and not node.is_active


def test_confirmations_may_come_out_of_order() -> None:
    store = Store()
    node = Node(store).started()
    node.now_ms += RENEW_MS
    node.tick()
    renew = only_call(node, effects.RenewLease)
    renewed = store.do(node, renew)
    node.now_ms += 1_000
    node.decide(1)
    append = only_call(node, effects.Append)
    appended = store.do(node, append)
    assert renewed is not None and appended is not None
    node.step(appended)
    asked_ms = node.now_ms
    node.step(renewed)
    assert node.tenure.next_tick_ms <= asked_ms + LEASE_MS + 1
    assert (
        node.tenure.state.holding is not None and node.tenure.state.holding.confirmed_ms == asked_ms
    )


def test_a_process_that_slept_through_its_lease_decides_nothing() -> None:
    store = Store()
    node = Node(store).started()
    node.now_ms += LEASE_MS + 1
    node.decide(1)
    assert node.refused == [1] and not node.is_active
    node.go()
    assert node.is_active and node.controller.epoch == 2 and node.topics == set()


def test_a_machine_whose_clock_stood_still_learns_of_its_successor_by_its_next_append() -> None:
    store = Store()
    first, second = Node(store, 1).started(), Node(store, 2).started()
    second.go(LEASE_MS + WATCH_MS)
    second.decide(1)
    second.go()
    assert first.is_active, "its clock has not moved"
    first.decide(2)
    first.go()
    assert first.refused == [2] and first.answered == [] and not first.is_active
    assert [each.epoch for each in store.batches][-1] == 2


def test_a_renewal_that_is_not_answered_in_time_ends_the_term() -> None:
    node = Node(Store()).started()
    node.now_ms += RENEW_MS
    node.tick()
    node.now_ms = node.tenure.next_tick_ms
    while node.is_active:
        node.tick()
        node.now_ms = node.tenure.next_tick_ms
    (resigned,) = node.said(effects.Resigned)
    assert resigned.why == "the lease was not confirmed in time"


# Decisions.


def test_an_answer_leaves_after_everything_that_it_stands_on() -> None:
    store = Store()
    node = Node(store).started()
    node.decide(1)
    node.step(events.Decide(events.Result((), "seen"), "a reader"))
    assert node.answered == []
    node.go()
    assert node.answered == [1, "a reader"]


def test_decisions_that_wait_for_the_disk_share_an_append() -> None:
    node = Node(Store()).started()
    node.decide(1)
    node.decide(2)
    first = only_call(node, effects.Append)
    assert len(first.batches) == 2
    for number in range(3, 50):
        node.decide(number)
    assert node.calls == []
    node.step(events.AppendEnded(first, Committed(node.controller.log.end_offset + 1)))
    assert len(only_call(node, effects.Append).batches) == 47


def planned_ones(node: Node) -> None:
    """Two decisions of which more follow, ten milliseconds apart, and no append under way."""
    node.plan(1, more_follow=True)
    node.go(10)
    node.plan(2, more_follow=True)


def test_decisions_of_which_more_follow_share_an_append_soon() -> None:
    store = Store()
    node = Node(store).started()
    before, begin_ms = len(store.batches), node.now_ms
    planned_ones(node)
    assert not node.calls
    assert node.tenure.next_tick_ms == begin_ms + SHARED_MS
    node.now_ms = begin_ms + SHARED_MS
    append = only_call(node, effects.Append)
    assert isinstance(append, effects.Append)
    assert len(append.batches) == 2
    node.plan(3, more_follow=True)  # while that one is under way
    node.step(store.do(node, append))
    assert len(store.batches) == before + 2
    node.go(SHARED_MS)
    assert len(store.batches) == before + 3


@pytest.mark.parametrize("has_records", [True, False])
def test_nobody_waits_for_decisions_of_which_more_follow(has_records: bool) -> None:
    """An answer stands on all that was planned, whether it brings records or not."""
    store = Store()
    node = Node(store).started()
    planned_ones(node)
    if has_records:
        node.decide(3)
    else:
        node.step(events.Decide(Result((), "done"), 3))
    node.go()
    assert node.answered == [3]


def test_a_decision_of_which_none_follow_takes_the_others_along() -> None:
    store = Store()
    node = Node(store).started()
    before = len(store.batches)
    planned_ones(node)
    node.plan(3, more_follow=False)
    node.go()
    assert len(store.batches) == before + 3


def test_what_a_term_had_planned_delays_nothing_of_the_next() -> None:
    store = Store()
    node = Node(store).started()
    node.plan(1, more_follow=True)
    node.step(events.GiveWay("it may be isolated"))
    node.go(LEASE_MS + WATCH_MS)
    assert node.is_active
    node.plan(2, more_follow=True)
    assert node.tenure.term.decisions.append_ms == node.now_ms + SHARED_MS


@pytest.mark.parametrize("done", [True, False])
def test_after_an_unknown_outcome_it_resigns_and_reads_again(done: bool) -> None:
    store = Store()
    node = Node(store).started()
    node.decide(1)
    node.decide(2)
    append = only_call(node, effects.Append)
    if done:
        store.do(node, append)
    node.step(events.AppendEnded(append, Unknown(FAILED)))
    assert node.refused == [1, 2] and node.answered == []
    node.go()
    assert node.is_active and node.controller.epoch == 2
    assert node.topics == ({"t1", "t2"} if done else set())
    assert node.controller.log.end_offset == store.end_offset


@pytest.mark.parametrize("has_more", [False, True])
@pytest.mark.parametrize("is_asking", [False, True])
@pytest.mark.parametrize("is_deposed", [False, True])
def test_who_was_deposed_acknowledges_nothing(
    is_deposed: bool, is_asking: bool, has_more: bool
) -> None:
    """Also what it finds done already: by its own log it may be, and its successor's differs. A
    renewal that was asked for before the decision proves nothing."""
    store = Store()
    node = Node(store).started()
    if has_more:
        node.decide(1)
        append = only_call(node, effects.Append)
        node.step(store.do(node, append))
    renewal = None
    if is_asking:
        node.now_ms += RENEW_MS
        node.tick()
        renewal = store.do(node, only_call(node, effects.RenewLease))
    if is_deposed:
        store.held = replace(store.held, epoch=store.held.epoch + 1, holder=2)
    node.step(events.Decide(Result((), "done already"), 5))
    if renewal is not None:
        node.step(renewal)
    node.tick()
    assert 5 not in node.answered
    assert node.tenure.owed == [5]
    node.go()
    assert (5 in node.answered, 5 in node.refused) == (not is_deposed, is_deposed)
    assert node.tenure.owed == []


@pytest.mark.parametrize("is_committed", [False, True])
def test_what_writes_nothing_stands_on_what_was_planned_too(is_committed: bool) -> None:
    store = Store()
    node = Node(store).started()
    node.decide(1)
    append = only_call(node, effects.Append)
    node.step(events.Decide(Result((), "stands on the topic"), 2))
    node.tick()
    node.step(store.do(node, only_call(node, effects.RenewLease)))
    assert node.answered == []
    outcome = store.do(node, append) if is_committed else failed(append)
    node.step(outcome)
    assert node.answered == ([1, 2] if is_committed else [])
    assert node.refused == ([] if is_committed else [1, 2])


def test_what_is_routine_asks_no_store() -> None:
    """Heartbeats come from each broker all the time, and promise nothing."""
    node = Node(Store()).started()
    for number in range(3):
        node.step(events.Decide(Result((), "still there", is_routine=True), number))
    assert node.answered == [0, 1, 2] and node.calls == []


def test_one_renewal_confirms_all_that_waits_for_it() -> None:
    node = Node(Store()).started()
    for number in range(3):
        node.step(events.Decide(Result((), "done already"), number))
    node.tick()
    assert [type(each) for each in node.calls] == [effects.RenewLease]
    node.go()
    assert node.answered == [0, 1, 2]


def test_a_decision_that_writes_nothing_is_no_append() -> None:
    """The silence of a broker that was fenced before this term is confirmed, and costs nothing."""
    store = Store()
    node = Node(store).started()
    record = RegisterBrokerRecord(broker_id=7, broker_epoch=9, fenced=True)
    node.step(events.Decide(events.Result((record,), None), "registered"))
    node.go()
    node.step(events.Leave())
    node.go()
    second = Node(store, 2).started()
    end_offset = store.end_offset
    for _ in range(20):
        second.go(RENEW_MS)
    assert second.is_active and second.controller.sessions.suspects == frozenset()
    assert store.end_offset == end_offset


def test_a_snapshot_holds_what_is_committed_and_is_read_again() -> None:
    store = Store()
    node = Node(store, settings={FEW_BYTES: "400"}).started()
    for number in range(30):
        node.decide(2 * number)
        node.decide(2 * number + 1)
        node.go()
    assert store.snapshot is not None and node.controller.log.start_offset > 0
    node.now_ms += LEASE_MS + 1
    before = node.topics
    node.go()
    assert node.controller.epoch == 2 and node.topics == before


def test_a_snapshot_holds_nothing_that_is_decided_and_not_committed() -> None:
    store = Store()
    node = Node(store, settings={FEW_BYTES: "1"}).started()
    node.decide(1)
    append = only_call(node, effects.Append)
    node.decide(2)
    answer = store.do(node, append)
    assert answer is not None
    node.step(answer)
    (snapshot,) = [each for each in node.calls if isinstance(each, effects.WriteSnapshot)]
    assert snapshot.image.next_offset == store.end_offset < node.controller.image.next_offset
    assert {each.name for each in snapshot.image.topics_by_id.values()} == {"t1"}


def test_snapshots_are_written_while_more_is_always_decided() -> None:
    """As when a plan moves thousands of partitions: else store and memory would grow meanwhile."""
    store = Store()
    node = Node(store, settings={FEW_BYTES: "1000"}).started()
    node.decide_named(0)
    node.tick()
    for number in range(1, 100):
        node.decide_named(number)  # while an append is under way
        calls, node.calls = node.calls, []
        for answer in [store.do(node, call) for call in calls]:
            assert answer is not None
            node.step(answer)
        node.tick()
        assert node.controller.image.next_offset > node.controller.log.end_offset
    assert store.snapshots_asked > 1
    assert node.controller.log.bytes_since_snapshot < 2000


def test_a_snapshot_that_was_not_stored_is_tried_again() -> None:
    store = Store()
    node = Node(store, settings={FEW_BYTES: "1"}).started()
    node.decide(1)
    answer = store.do(node, only_call(node, effects.Append))
    assert answer is not None
    node.step(answer)
    node.step(failed(only_call(node, effects.WriteSnapshot)))
    assert node.is_active
    node.decide(2)
    node.go()
    assert store.snapshot is not None


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_snapshot_that_became_due_meanwhile_is_written_when_the_other_ends(
    is_stored: bool,
) -> None:
    """In a cluster that rests nothing else would ever have it written."""
    store = Store()
    node = Node(store, settings={FEW_BYTES: "1"}).started()
    decide_and_commit(node, store, 1)
    first = only_call(node, effects.WriteSnapshot)
    decide_and_commit(node, store, 2)
    assert not [each for each in node.calls if isinstance(each, effects.WriteSnapshot)]
    node.step(store.do(node, first) if is_stored else failed(first))
    assert node.calls
    second = only_call(node, effects.WriteSnapshot)
    assert second.image.next_offset == node.controller.image.next_offset
    node.step(store.do(node, second) if is_stored else failed(second))
    assert not node.calls, "nothing came since"


def test_what_was_decided_meanwhile_is_in_none_before_it_is_committed() -> None:
    store = Store()
    node = Node(store, settings={FEW_BYTES: "1"}).started()
    decide_and_commit(node, store, 1)
    first = only_call(node, effects.WriteSnapshot)
    node.decide(2)
    append = only_call(node, effects.Append)
    node.decide(3)
    node.step(store.do(node, append))
    node.step(store.do(node, first))
    (second,) = [each for each in node.calls if isinstance(each, effects.WriteSnapshot)]
    assert second.image.next_offset == store.end_offset < node.controller.image.next_offset
    node.go()
    assert store.snapshot is not None and store.snapshot.end_offset == store.end_offset


def test_what_came_while_a_snapshot_was_stored_counts_for_the_next() -> None:
    store = Store()
    node = Node(store, settings={FEW_BYTES: "200"}).started()
    number = 0
    while node.controller.log.bytes_since_snapshot < 200:
        decide_and_commit(node, store, number := number + 1)
    first = only_call(node, effects.WriteSnapshot)
    decide_and_commit(node, store, number + 1)
    few_bytes = node.controller.log.bytes_after(first.image.next_offset)
    assert 0 < few_bytes < 200
    node.step(store.do(node, first))
    assert node.controller.log.bytes_since_snapshot == few_bytes and not node.calls


def test_a_snapshot_that_is_due_by_time_waits_for_no_commit() -> None:
    store = Store()
    node = Node(store, settings={INTERVAL: "60000"}).started()
    decide_and_commit(node, store, 1)
    node.go(59_000)
    assert store.snapshot is None
    node.go(2_000)
    assert store.snapshot is not None and store.snapshot.end_offset == store.end_offset
    node.go(120_000)
    assert store.snapshots_asked == 1, "nothing came since"


def test_a_snapshot_that_was_due_by_time_and_not_stored_is_tried_again_after_the_same_time() -> (
    None
):
    store = Store()
    node = Node(store, settings={INTERVAL: "60000"}).started()
    decide_and_commit(node, store, 1)
    store.refuses_snapshots = True
    node.go(61_000)
    assert node.is_active and store.snapshots_asked == 1
    store.refuses_snapshots = False
    node.go(58_000)
    assert store.snapshots_asked == 1
    node.go(3_000)
    assert store.snapshot is not None


def decide_and_commit(node: Node, store: Store, number: int) -> None:
    node.decide(number)
    answer = store.do(node, only_call(node, effects.Append))
    assert answer is not None
    node.step(answer)


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_controller_that_is_doubted_asks_the_store_at_once(is_taken: bool) -> None:
    store = Store()
    node = Node(store).started()
    node.go(1)
    if is_taken:
        assert store.held is not None
        store.held = replace(store.held, holder=2, epoch=2)
    node.controller.is_doubted = True
    node.tick()
    assert not node.controller.is_doubt_settled, "nothing was asked since"
    answer = store.do(node, only_call(node, effects.RenewLease))
    assert answer is not None
    node.step(answer)
    assert node.is_active is node.controller.is_doubt_settled is not is_taken
    assert effects.Moved() in node.said(effects.Moved), "who waits is answered"
    node.go(3 * RENEW_MS)
    assert node.is_active is not is_taken


def test_a_confirmation_from_before_a_doubt_settles_nothing() -> None:
    store = Store()
    node = Node(store).started()
    node.go(RENEW_MS - 1)
    node.now_ms += 1
    node.tick()
    older = only_call(node, effects.RenewLease)
    node.now_ms += 1
    node.controller.is_doubted = True
    node.tick()
    answer = store.do(node, older)
    assert answer is not None
    node.step(answer)
    assert not node.controller.is_doubt_settled
    node.calls.clear()
    node.go(RENEW_MS)
    assert node.controller.is_doubt_settled


# Dialling brokers.


@pytest.mark.parametrize("heard", [False, True])
def test_a_listener_that_outlives_its_connections_is_dialled_again(heard: bool) -> None:
    """Of a process that dies slowly it may go last; unless the broker is heard meanwhile."""
    store = Store()
    node = Node(store).started()
    listener = BrokerEndpoint(name="PLAINTEXT", host="there", port=9092, security_protocol=0)
    epoch = node.controller.image.next_offset
    record = RegisterBrokerRecord(
        broker_id=7, broker_epoch=epoch, incarnation_id=bytes(16), end_points=[listener],
        features=[], rack=None, fenced=False, log_dirs=[],
    )  # fmt: skip
    node.step(events.Decide(events.Result((record,), None), "registered"))
    node.go()
    node.controller.sessions.heard(7, epoch, node.now_ms)
    node.step(events.ConnectionClosed(7, epoch))
    (dial,) = node.said(effects.Dial)
    node.step(events.Probed(dial, Answer.SAME))
    node.go(LATER_MS - 1)
    assert node.said(effects.Dial) == [dial]
    if heard:
        node.controller.sessions.heard(7, epoch, node.now_ms)
    node.go(2)
    dials = node.said(effects.Dial)
    assert len(dials) == (1 if heard else 2)
    node.step(events.Probed(dials[-1], Answer.REFUSED))
    node.go()
    assert node.controller.image.brokers[7].fenced is not heard


# Ends.


def test_who_gives_way_leaves_the_lease_to_others_first() -> None:
    store = Store()
    first = Node(store, 1).started()
    first.step(events.GiveWay("it hears nobody"))
    first.go(LEASE_MS - 1)
    assert not first.is_active and store.held is not None and store.held.holder == NOBODY
    first.go(1 + WATCH_MS)
    assert first.is_active and first.controller.epoch == 2


def test_who_leaves_gives_the_lease_back_and_refuses_who_waits() -> None:
    store = Store()
    node = Node(store).started()
    node.decide(1)
    node.step(events.Leave())
    assert node.refused == [1] and node.said(effects.Resigned) == []
    assert any(isinstance(each, effects.ReleaseLease) for each in node.calls)
    node.decide(2)
    assert node.refused == [1, 2]
    assert node.tenure.next_tick_ms > node.now_ms + 10**9


def test_a_store_that_is_older_than_the_copy_ends_the_node_before_it_takes_anything() -> None:
    store = Store()
    node = Node(store).started()
    node.decide(1)
    node.go()
    copy = end_of(store)
    del store.batches[1:]
    before = store.held
    (stop,) = Node(store, 2, copy=copy).started().said(effects.Stop)
    assert "went back to offset 1" in stop.sentence and "metadata restore" in stop.sentence
    assert store.held == before


def test_a_store_that_goes_back_under_a_holder_ends_it_and_is_not_written_to() -> None:
    store = Store()
    node = Node(store).started()
    node.decide(1)
    node.go()
    del store.batches[1:]
    node.decide(2)
    node.go()
    assert node.refused == [2]
    (stop,) = node.said(effects.Stop)
    assert "went back to offset 1" in stop.sentence
    assert store.end_offset == 1
    assert store.held is not None and store.held.holder == NOBODY


def test_a_lease_of_an_older_epoch_is_a_store_that_went_back() -> None:
    store = Store()
    Node(store, 1).started()
    older = store.held
    second, third = Node(store, 2).started(), Node(store, 3).started()
    third.step(events.HolderGone(1))
    third.go()
    second.go(WATCH_MS)
    store.held = older
    second.go(WATCH_MS)
    (stop,) = second.said(effects.Stop)
    assert "a lease of epoch 1, but this node has seen epoch 2" in stop.sentence


def follow(node: Node, epoch: int) -> None:
    """The node follows metadata that a controller of this epoch wrote."""
    node.controller.followed = replay_batch(MetadataImage.empty(), (), 0, epoch)[0]


def test_a_controller_whose_node_follows_a_newer_one_resigns() -> None:
    """Its clock stood still, and a store that was set back since would let it go on."""
    store = Store()
    node = Node(store).started()
    follow(node, 1)
    node.tick()
    assert node.is_active
    follow(node, 2)
    node.tick()
    assert not node.is_active
    (resigned,) = node.said(effects.Resigned)
    assert "another controller took the lease" in resigned.why


@pytest.mark.parametrize("has_lease", [False, True])
def test_a_lease_of_an_older_epoch_than_what_was_followed(has_lease: bool) -> None:
    """A store that was filled from a copy has no lease at first."""
    store = Store()
    Node(store, 1).started()
    if not has_lease:
        store.held = None
    node = Node(store, 2)
    follow(node, 2)
    node.started().go(2 * WATCH_MS)
    stops = node.said(effects.Stop)
    assert bool(stops) is has_lease
    for stop in stops:
        assert "a lease of epoch 1, but this node has seen epoch 2" in stop.sentence


def test_a_lease_that_was_read_before_a_newer_epoch_was_followed_is_no_older_store() -> None:
    store = Store()
    Node(store, 1).started()
    node = Node(store, 2).started()
    node.now_ms += WATCH_MS
    node.tick()
    answer = store.do(node, only_call(node, effects.ReadLease))
    assert answer is not None
    follow(node, 2)
    node.step(answer)
    assert node.said(effects.Stop) == []


def test_what_a_newer_version_wrote_ends_the_node_and_gives_the_lease_back() -> None:
    store = Store()
    node = Node(store)
    node.step(events.Start())
    while not any(isinstance(each, effects.ReadLog) for each in node.calls):
        answer = store.do(node, node.calls.pop(0))
        assert answer is not None
        node.step(answer)
    node.step(events.StoreFailed(only_call(node, effects.ReadLog), "too new", for_good=True))
    assert isinstance(node.calls[0], effects.ReleaseLease)
    assert node.said(effects.Stop) == [effects.Stop("too new")]
