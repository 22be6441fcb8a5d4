"""The controller keeps diskless partitions as the racks want them, and then is quiet."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.core.controller.test_managed_replicas import (
    RACKS,
    check_all,
    diskless,
    racked_world,
    reassign,
    rows,
)

from anabranch.core.controller.cluster_state import ClusterState
from anabranch.core.controller.controller import Controller
from anabranch.core.controller.diskless import figures, reconciler
from anabranch.core.controller.diskless.racks import DEGRADED, HEALTHY, UNAVAILABLE, Racks
from anabranch.core.controller.diskless.reconciliation import (
    UNLED,
    next_step,
    placement,
    wish,
)
from anabranch.core.controller.history import MOST_A_DECISION
from anabranch.core.metadata.batches import decode_batches
from anabranch.core.metadata.committed_log import CommittedLog
from anabranch.core.metadata.image import CLUSTER_DEFAULT, RESOURCE_BROKER, RESOURCE_TOPIC
from anabranch.core.wire.codec import decode, encode_bytes
from anabranch.core.wire.messages.unregister_broker import UnregisterBrokerRequest
from anabranch.core.wire.metadata_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from anabranch.core.wire.schema import Message

THRESHOLD_MS = 300_000
BEAT_MS = 2_000
RECONCILE = "diskless.managed.rf.auto.reconcile"
MOVES = ("DISKLESS_REPLICA_ADDED", "DISKLESS_REPLICA_REMOVED")


def live(world, ms, *alive):
    """Let time pass while these brokers send heartbeats; the codes that came."""
    codes, end_ms = [], world.now_ms + ms
    while world.now_ms < end_ms:
        for broker_id in alive:
            if broker_id in world.image.brokers:
                world.beat(broker_id)
        codes += world.pass_time(min(BEAT_MS, end_ms - world.now_ms))
    return codes


def set_config(world, name, value, broker=CLUSTER_DEFAULT):
    world.commit([ConfigRecord(resource_type=RESOURCE_BROKER, resource_name=broker, name=name,
                               value=value)])  # fmt: skip


def cordon(world, broker_id, value="*"):
    set_config(world, "cordoned.log.dirs", value, str(broker_id))


def fail_over(world, off_ms=0):
    """The controller dies, and after a while another one takes over what is committed."""
    world.now_ms += off_ms
    image, old = world.replayed(), world.controller
    new = Controller(1, old.cluster_id, old.static_config, Random(2))
    new.begin_term(1, image, CommittedLog(), world.now_ms)
    world.controller = new


def racks_of(row):
    return sorted(RACKS.get(each, "unknown") for each in row)


def moves_of(world, first_batch):
    """Partition records since that batch."""
    return [
        record
        for batch in world.batches[first_batch:]
        for decoded in decode_batches(batch)
        for record in decoded.records
        if type(record) is PartitionChangeRecord and record.replicas is not None
    ]


def state_of(world, rack):
    return Racks(world.image).by_name[rack].state


# A rack that goes


def test_a_rack_that_is_gone_for_longer_than_the_threshold_loses_its_replicas():
    world = racked_world(1, 2, 3)
    diskless(world, partitions=3)
    live(world, 10_000, 1, 2, 3)
    codes = live(world, 250_000, 1, 2)
    assert state_of(world, "c") is DEGRADED
    assert "ABSENT_BROKER_AWAITED" in codes
    assert "RACK_STATE_CHANGED" in codes
    assert [racks_of(row) for row in rows(world)] == [["a", "b", "c"]] * 3
    assert not {*codes} & {*MOVES}
    codes = live(world, 80_000, 1, 2)
    assert state_of(world, "c") is UNAVAILABLE
    assert "ABSENT_BROKER_GIVEN_UP" in codes
    assert [racks_of(row) for row in rows(world)] == [["a", "b"]] * 3
    check_all(world)
    world.beat(3)
    live(world, 2_000, 1, 2, 3)
    assert state_of(world, "c") is HEALTHY
    assert [racks_of(row) for row in rows(world)] == [["a", "b", "c"]] * 3
    check_all(world)


def test_a_rack_that_blinks_keeps_everything():
    world = racked_world(1, 2, 3)
    diskless(world, partitions=3)
    live(world, 2_000, 1, 2, 3)
    before, batches = rows(world), len(world.batches)
    for _ in range(3):
        live(world, 250_000, 1, 2)
        world.beat(3)
        live(world, 20_000, 1, 2, 3)
    assert rows(world) == before
    assert not moves_of(world, batches)


def test_a_broker_that_was_back_between_two_looks_is_away_anew():
    world = racked_world(1, 2, 3)
    diskless(world, partitions=3)
    live(world, 10_000, 1, 2, 3)
    live(world, 250_000, 1, 2)
    epoch = world.image.brokers[3].epoch
    for fenced in (-1, 1):
        change = BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=epoch, fenced=fenced)
        world.commit([change])
    live(world, 250_000, 1, 2)
    assert state_of(world, "c") is DEGRADED
    assert [racks_of(row) for row in rows(world)] == [["a", "b", "c"]] * 3
    live(world, 60_000, 1, 2)
    assert state_of(world, "c") is UNAVAILABLE


def test_the_last_replica_stays_when_every_rack_is_gone():
    world = racked_world(1, 2, 3)
    diskless(world)
    for broker_id in (1, 2, 3):
        world.beat(broker_id, want_fence=True)
    world.pass_time(2 * THRESHOLD_MS)
    check_all(world)
    (row,) = rows(world)
    assert len(row) == 1
    other = next(each for each in (1, 2, 3) if each not in row)
    world.beat(other)
    live(world, 4_000, other)
    assert rows(world) == [(other,)]
    check_all(world)


def test_a_cordoned_rack_is_degraded_for_ever_and_unavailable_never():
    world = racked_world(1, 2, 3)
    diskless(world)
    (before,) = rows(world)
    cordon(world, 3)
    live(world, 2 * THRESHOLD_MS, 1, 2, 3)
    assert state_of(world, "c") is DEGRADED
    assert rows(world) == [before]
    diskless(world, "later")
    assert racks_of(world.partition("later").replicas) == ["a", "b"]
    cordon(world, 3, "")
    live(world, 2_000, 1, 2, 3)
    assert racks_of(world.partition("later").replicas) == ["a", "b", "c"]


def test_an_unregistered_rack_is_waited_for_and_then_forgotten():
    world = racked_world(1, 2, 3)
    diskless(world)
    live(world, 50_000, 1, 2)
    world.ask(UnregisterBrokerRequest(broker_id=3))
    assert 3 in world.image.absences
    live(world, 200_000, 1, 2)
    assert state_of(world, "c") is DEGRADED
    assert racks_of(rows(world)[0]) == ["a", "b", "c"]
    live(world, 80_000, 1, 2)
    assert racks_of(rows(world)[0]) == ["a", "b"]
    live(world, 2_000, 1, 2)
    assert not world.image.absences
    assert "c" not in Racks(world.image).by_name
    check_all(world)


def preferred_counts(world, *brokers):
    """How many lists each broker is the first of."""
    firsts = Counter(row[0] for row in rows(world))
    return [firsts[each] for each in brokers]


def led_counts(world, *brokers):
    leaders = Counter(partition.leader for partition in world.image.topic("t").partitions.values())
    return [leaders[each] for each in brokers]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=2, unique=True),
                min_size=1, max_size=3))  # fmt: skip
@example([[3], [2, 3]])
def test_racks_that_were_gone_lead_again(visits):
    """Whichever racks went for longer than the threshold, and in whatever order they return."""
    world = racked_world(1, 2, 3)
    diskless(world, partitions=12)
    for number, gone in enumerate(visits):
        stay = [each for each in (1, 2, 3) if each not in gone]
        live(world, THRESHOLD_MS + 40_000, *stay)
        assert preferred_counts(world, *stay) == [12 // len(stay)] * len(stay)
        for broker_id in gone:
            world.register(broker_id, incarnation=10 + number, rack=RACKS[broker_id])
            stay.append(broker_id)
            live(world, 4_000, *stay)
        assert preferred_counts(world, 1, 2, 3) == [4, 4, 4]
    said = [each for each in world.reasons if each.code == "DISKLESS_PREFERRED_LEADER_CHANGED"]
    assert said
    live(world, 320_000, 1, 2, 3)
    assert led_counts(world, 1, 2, 3) == [4, 4, 4], "the balance of preferred leaders has run"
    offset = world.image.offset
    live(world, 320_000, 1, 2, 3)
    assert world.image.offset == offset
    check_all(world)


def test_a_list_that_an_operator_ordered_keeps_its_order():
    world = racked_world(1, 2, 3)
    diskless(world, partitions=6)
    for index in range(6):
        assert reassign(world, "t", index, [2, 1, 3]) == (0, None)
    live(world, 5_000, 1, 2, 3)
    fail_over(world)
    live(world, 20_000, 1, 2)
    live(world, 20_000, 1, 2, 3)
    assert rows(world) == [(2, 1, 3)] * 6


# Time


def test_a_new_controller_goes_on_counting():
    world = racked_world(1, 2, 3)
    diskless(world)
    for _ in range(3):
        live(world, 95_000, 1, 2)
        fail_over(world)
        check_all(world)
    assert racks_of(rows(world)[0]) == ["a", "b", "c"]
    live(world, 60_000, 1, 2)
    assert racks_of(rows(world)[0]) == ["a", "b"]


def test_time_without_a_controller_never_counts():
    world = racked_world(1, 2, 3)
    diskless(world)
    live(world, 10_000, 1, 2, 3)
    before, batches = rows(world), len(world.batches)
    fail_over(world, off_ms=3_600_000)
    for broker_id in (1, 2):
        world.register(broker_id, incarnation=2, rack=RACKS[broker_id])
    live(world, 60_000, 1, 2)
    world.register(3, incarnation=2, rack="c")
    live(world, 20_000, 1, 2, 3)
    assert rows(world) == before
    assert not moves_of(world, batches)


def test_a_pause_of_the_controller_does_not_count():
    world = racked_world(1, 2, 3)
    diskless(world)
    live(world, 20_000, 1, 2)
    before = rows(world)
    world.now_ms += 3_600_000
    world.controller.sessions.forgive(3_600_000, world.now_ms)
    live(world, 60_000, 1, 2)
    assert rows(world) == before


def test_a_controller_that_hears_nobody_counts_nothing():
    world = racked_world(1, 2, 3)
    diskless(world)
    live(world, 2_000, 1, 2, 3)
    duties, state, config = world.controller.duties, world.controller.state, world.controller.config
    world.beat(3, want_fence=True)
    live(world, 2_000, 1, 2)
    now_ms, counted_ms = world.now_ms, duties.diskless.elapsed_ms(3)
    assert 0 < counted_ms <= 2_000
    for _ in range(200):
        now_ms += 4_000
        duties.diskless.due(state, config, now_ms, hears=False)
    duties.diskless.due(state, config, now_ms + 4_000, hears=True)
    assert duties.diskless.elapsed_ms(3) <= counted_ms + 4_000


def test_counting_holds_nothing_else_up():
    """With a short threshold an absence is written at almost every look."""
    name = "diskless_managed_rf_rack_unavailable_threshold_ms"
    world = racked_world(1, 2, 3, 4, **{name: "9000"})
    diskless(world)
    live(world, 2_000, 1, 2, 3, 4)
    world.beat(3, want_fence=True)
    live(world, 500, 1, 2, 4)  # one look
    reconciling = world.controller.duties.diskless
    assert reconciling.racks.by_name["c"].state is DEGRADED
    reassign(world, "t", 0, [1, 4, 2, 3])
    live(world, 1_700, 1, 2, 4)
    assert racks_of(rows(world)[0]) == ["a", "b", "c"]
    rack = reconciling.racks.by_name["c"]
    assert 1_500 <= reconciling.degraded_ms(rack, world.now_ms) <= 2_500


# Dead replicas in healthy racks


def test_a_dead_replica_in_a_healthy_rack_is_replaced_there_after_the_threshold():
    world = racked_world(1, 2, 3, 4)
    diskless(world)
    (before,) = rows(world)
    assert 1 in before
    live(world, 280_000, 2, 3, 4)
    assert rows(world) == [before]
    live(world, 60_000, 2, 3, 4)
    assert rows(world) == [tuple(4 if each == 1 else each for each in before)]
    check_all(world)
    live(world, 20_000, 1, 2, 3, 4)
    assert 1 not in rows(world)[0]


def test_it_is_replaced_at_once_if_no_replica_lives():
    world = racked_world(1, 2, 3, 4)
    diskless(world)
    for broker_id in (1, 2, 3):
        world.beat(broker_id, want_fence=True)
    live(world, 2_000, 4)
    assert world.partition("t").leader == 4
    assert racks_of(rows(world)[0]) == ["a", "b", "c"]
    check_all(world)


# Drift


def test_drift_is_mended_the_leader_last_and_a_move_inside_a_rack_stays():
    world = racked_world(1, 2, 3, 4, 5, 6)
    diskless(world)
    assert reassign(world, "t", 0, [4, 5, 6]) == (0, None)
    live(world, 5_000, 1, 2, 3, 4, 5, 6)
    assert rows(world) == [(4, 5, 6)]
    assert reassign(world, "t", 0, [1, 4, 2]) == (0, None)
    codes = live(world, 5_000, 1, 2, 3, 4, 5, 6)
    assert racks_of(rows(world)[0]) == ["a", "b", "c"]
    assert codes.index("DISKLESS_REPLICA_ADDED") < codes.index("DISKLESS_REPLICA_REMOVED")
    assert world.partition("t").leader in (1, 4)
    check_all(world)


def test_with_auto_reconcile_off_drift_stays_and_is_said_once():
    world = racked_world(1, 2, 3, **{RECONCILE.replace(".", "_"): "false"})
    diskless(world)
    assert reassign(world, "t", 0, [1]) == (0, None)
    codes = live(world, 20_000, 1, 2, 3)
    assert codes.count("DISKLESS_FROZEN") == 1
    assert rows(world) == [(1,)]
    set_config(world, RECONCILE, "true")
    live(world, 2_000, 1, 2, 3)
    assert racks_of(rows(world)[0]) == ["a", "b", "c"]


@settings(max_examples=40, deadline=None)
@given(st.sets(st.integers(1, 6)), st.sets(st.integers(1, 6)), st.integers(1, 3))
@example({4}, set(), 3)
def test_with_auto_reconcile_off_a_living_broker_of_its_racks_leads(survivors, closed, width):
    """Whichever brokers die and are cordoned; or it is said why it has no leader."""
    world = racked_world(1, 2, 3, 4, 5, 6, **{RECONCILE.replace(".", "_"): "false"})
    diskless(world)
    assert reassign(world, "t", 0, [1, 2, 3][:width]) == (0, None)
    live(world, 3_000, 1, 2, 3, 4, 5, 6)
    (before,) = rows(world)
    for broker_id in closed:
        cordon(world, broker_id)
    for broker_id in {1, 2, 3, 4, 5, 6} - survivors:
        world.beat(broker_id, want_fence=True)
    live(world, 4_000, *sorted(survivors))
    partition = world.partition("t")
    if survivors.isdisjoint(before):
        racks = {RACKS[each] for each in before}
        able = {each for each in survivors - closed if RACKS[each] in racks}
        assert (partition.leader in able) if able else (partition.leader == -1)
        came = set(partition.replicas) - set(before)
        assert len(came) == bool(able)
        assert racks_of(partition.replicas) == racks_of(before)
        view = placement(partition.replicas, partition.leader, Racks(world.image), reconciles=False)
        assert (UNLED in view.sentences) == (not able)
        told = [each.sentence for each in world.reasons if each.code == "DISKLESS_FROZEN"]
        assert able or "without a leader: 1 diskless partition" in told[-1]
    else:
        assert rows(world) == [before], "nothing else moves"
        assert partition.leader in survivors
    check_all(world)
    offset = world.image.offset
    live(world, 10_000, *sorted(survivors))
    assert [rows(world), world.partition("t").leader] == [[partition.replicas], partition.leader]
    assert world.image.offset - offset < 30, "only absences are written"


# What was written before


def test_partitions_of_an_older_version_come_right_after_the_roll():
    world = racked_world(1, 2, 3)
    topic_id = bytes([7]) * 16
    old = [PartitionRecord(partition_id=index, topic_id=topic_id, replicas=[index + 1], isr=[],
                           leader=-1, leader_epoch=4, partition_epoch=6, directories=[bytes(16)],
                           eligible_leader_replicas=[index + 1])
           for index in range(3)]  # fmt: skip
    enabled = ConfigRecord(resource_type=RESOURCE_TOPIC, resource_name="old",
                           name="diskless.enable", value="true")  # fmt: skip
    world.commit([TopicRecord(name="old", topic_id=topic_id), enabled, *old])
    fail_over(world)
    live(world, 5_000, 1, 2, 3)
    assert [racks_of(row) for row in rows(world, "old")] == [["a", "b", "c"]] * 3
    assert [row[0] for row in rows(world, "old")] == [1, 2, 3]
    check_all(world)


def test_a_partition_that_only_was_written_as_a_classic_one_is_repaired():
    world = racked_world(1)
    topic_id = bytes([7]) * 16
    enabled = ConfigRecord(resource_type=RESOURCE_TOPIC, resource_name="old",
                           name="diskless.enable", value="true")  # fmt: skip
    old = PartitionRecord(partition_id=0, topic_id=topic_id, replicas=[1], isr=[], leader=-1,
                          leader_epoch=4, partition_epoch=6, directories=[bytes(16)])  # fmt: skip
    world.commit([TopicRecord(name="old", topic_id=topic_id), enabled, old])
    assert "DISKLESS_REPLICAS_REPAIRED" in live(world, 2_000, 1)
    assert world.partition("old").leader == 1
    check_all(world)


# Pace, cost, quiet


def test_the_pace_holds_and_quiet_follows():
    world = racked_world(1, 2, diskless_managed_rf_max_moves_per_sec="100")
    diskless(world, partitions=500)
    live(world, 2_000, 1, 2)
    world.register(3, rack="c")
    batches, begin = len(world.batches), world.now_ms
    while any(len(row) < 3 for row in rows(world)):
        live(world, 1_000, 1, 2, 3)
        made = len(moves_of(world, batches))
        assert made <= (world.now_ms - begin) // 1_000 * 100 + 20
        assert world.now_ms - begin <= 7_000
    live(world, 1_000, 1, 2, 3)
    assert world.controller.duties.diskless.backlog == 0
    before = world.image.offset
    live(world, 60_000, 1, 2, 3)
    assert world.image.offset == before
    set_config(world, "diskless.managed.rf.max.moves.per.sec", "5000")
    world.register(7, rack="d")
    live(world, 1_500, 1, 2, 3, 7)
    assert {len(row) for row in rows(world)} == {4}


def test_a_change_costs_what_it_concerns():
    world = racked_world(1, 2, 3, 4, 5, 6)
    diskless(world, partitions=2_000)
    live(world, 4_000, 1, 2, 3, 4, 5, 6)
    steps = world.controller.state.steps
    live(world, 20_000, 1, 2, 3, 4, 5, 6)
    assert world.controller.state.steps == steps, "nothing is looked at while nothing changes"
    reassign(world, "t", 0, [2])
    live(world, 2_000, 1, 2, 3, 4, 5, 6)
    assert world.controller.state.steps - steps < 50
    steps = world.controller.state.steps
    live(world, 30_000, 1, 2, 3, 4, 5)
    led = 2_000 // 6 + 50
    assert world.controller.state.steps - steps < 6 * led, "only what broker 6 led changes"


def test_a_batch_tells_of_some_partitions_and_sums_up_the_rest():
    """A line of the log for each of thousands a second would hold up clients."""
    world = racked_world(1, 2)
    diskless(world, partitions=800)
    live(world, 2_000, 1, 2)
    world.register(3, rack="c")
    batches, most = len(world.batches), 0
    while any(len(row) < 3 for row in rows(world)):
        said = len(world.reasons)
        live(world, 10, 1, 2, 3)
        most = max(most, len(world.reasons) - said)
    assert len(moves_of(world, batches)) == 800
    assert MOVES[0] in {reason.code for reason in world.reasons}
    assert 1 < most <= MOST_A_DECISION
    summed = [each.details["count"] for each in world.reasons if each.code == "DISKLESS_RECONCILED"]
    assert sum(summed) == 800


def test_a_look_that_comes_late_makes_no_larger_step():
    """The controller has other work then, and clients wait for it."""
    pace, made = reconciler.Pace(0), []
    while moves := pace.allowed(5_000, 60_000):
        pace.spend(moves)
        made.append(moves)
    assert made == [40] * 7 + [20]
    assert pace.allowed(5_000, 60_010) == 40


@pytest.mark.parametrize(("moves_per_sec", "most"), [(100, 50), (5_000, 60), (50_000, 600)])
def test_moves_are_made_in_small_batches_that_keep_the_pace(moves_per_sec, most):
    """Clients have their turn between two of them, on the controller and on nodes that follow."""
    pace = str(moves_per_sec)
    world = racked_world(1, 2, diskless_managed_rf_max_moves_per_sec=pace)
    diskless(world, partitions=1_000)
    live(world, 4_000, 1, 2)
    world.register(3, rack="c")
    batches, begin = len(world.batches), world.now_ms
    while moves_of(world, batches) == []:
        live(world, 10, 1, 2, 3)
        begin = world.now_ms
    while len(moves_of(world, batches)) < 500:
        live(world, 10, 1, 2, 3)
    made = [
        sum(type(record) is PartitionChangeRecord for record in decoded.records)
        for batch in world.batches[batches:]
        for decoded in decode_batches(batch)
    ]
    assert max(made) <= most
    assert world.now_ms - begin <= 500 * 1_000 // moves_per_sec + 100


def test_only_a_full_batch_of_moves_says_that_more_follow(monkeypatch):
    """Those share an append; the last one waits for nothing."""
    world = racked_world(1, 2)
    diskless(world, partitions=150)
    live(world, 4_000, 1, 2)
    made, commit = [], world.commit_result

    def noted(result):
        if result is not None and PartitionChangeRecord in map(type, result.records):
            made.append((len(result.records), result.more_follow))
        return commit(result)

    monkeypatch.setattr(world, "commit_result", noted)
    world.register(3, rack="c")
    live(world, 4_000, 1, 2, 3)
    assert made == [(40, True)] * 3 + [(30, False)]


def test_moves_that_took_long_are_followed_by_a_longer_pause():
    """Else a busy machine would do nothing but move, and clients would wait."""
    world = racked_world(1, 2)
    diskless(world, partitions=3_000)
    live(world, 4_000, 1, 2)
    world.register(3, rack="c")
    state, config = world.controller.state, world.controller.config
    reconciling = world.controller.duties.diskless
    for _ in range(100):
        if not reconciling.todo:
            live(world, 10, 1, 2, 3)

    def moves(now_ms):
        result = reconciling.due(state, config, now_ms, hears=True)
        return 0 if result is None else len(result.records)

    moves(world.now_ms + 1_000)
    moves(world.now_ms + 1_001)  # whatever was moved before is over
    moved_ms = world.now_ms + 2_000
    assert moves(moved_ms) == 40
    moved_ms += 10
    assert moves(moved_ms) == 40, "it took a moment, so that the pace holds"
    assert moves(moved_ms + 100) == 0, "90 ms behind the pause that there is always"
    assert reconciling.due_ms == moved_ms + 450
    assert moves(moved_ms + 449) == 0
    moved_ms += 450
    assert moves(moved_ms) == 40
    assert moves(moved_ms + 5_000) == 0
    assert reconciling.due_ms == moved_ms + 5_490, "but never for long"


def test_what_partitions_on_the_same_brokers_want_is_found_once(monkeypatch):
    world = racked_world(1, 2)
    diskless(world, partitions=600)
    live(world, 2_000, 1, 2)
    asked, wish = [], reconciler.wish
    monkeypatch.setattr(reconciler, "wish", lambda *what: asked.append(what) or wish(*what))
    world.register(3, rack="c")
    live(world, 3_000, 1, 2, 3)
    assert {racks_of(row) == ["a", "b", "c"] for row in rows(world)} == {True}
    assert len(asked) < 20
    check_all(world)


def test_a_page_of_metrics_costs_the_topics_and_some_of_what_is_not_steady(monkeypatch):
    """Clients share a processor with who makes it."""
    world = racked_world(1, 2, 3)
    for name in ("t", "u"):
        diskless(world, name, partitions=100)
    live(world, 2_000, 1, 2, 3)
    looked, controller = [], world.controller
    topic_name = ClusterState.topic_name
    monkeypatch.setattr(ClusterState, "topic_name",
                        lambda state, key: looked.append(key) or topic_name(state, key))  # fmt: skip
    monkeypatch.setattr(figures, "MOST_SERIES", 20)
    told = figures.figures(controller, world.now_ms)
    assert told.topics == ("t", "u")
    assert list(told.partitions) == []
    assert len(looked) == 2
    cordon(world, 3)
    diskless(world, "v", partitions=100)
    live(world, 2_000, 1, 2, 3)
    assert len(controller.duties.diskless.unsteady) == 100, "they wait for the rack"
    told = list(figures.figures(controller, world.now_ms).partitions)
    assert [each.topic for each in told] == ["v"] * 20
    assert {each.placement_state for each in told} == {1}


def test_figures_that_are_read_later_are_still_of_one_moment():
    """A thread reads them, while the controller goes on."""
    world = racked_world(1, 2)
    diskless(world, partitions=100)
    live(world, 2_000, 1, 2)
    cordon(world, 2)
    live(world, 2_000, 1, 2)
    diskless(world, "waits", partitions=100)
    live(world, 2_000, 1, 2)
    at_once = list(figures.figures(world.controller, world.now_ms).partitions)
    told = figures.figures(world.controller, world.now_ms)
    assert {each.placement_state for each in at_once} == {0, 1}
    world.register(3, rack="c")
    live(world, 4_000, 1, 2, 3)
    assert list(told.partitions) == at_once
    assert list(figures.figures(world.controller, world.now_ms).partitions) != at_once


def test_classic_duties_are_not_starved():
    world = racked_world(1, 2, 3)
    world.create("classic", [1, 2], [2, 1])
    diskless(world, partitions=3_000)
    world.beat(1, want_fence=True)
    world.beat(1)
    assert not set(MOVES) & set(live(world, 2_000, 1, 2, 3))
    world.register(7, rack="d")
    world.controller.duties.balance_ms = world.now_ms + 300
    codes = live(world, 700, 1, 2, 3, 7)
    assert "DISKLESS_REPLICA_ADDED" in codes
    assert "LEADERS_REBALANCED" in codes
    assert world.controller.duties.diskless.backlog > 0


# Any order


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["away", "back", "cordon", "uncordon", "unregister", "reassign", "fail over",
                         "wait", "wait long", "create"]),
        st.integers(1, 6),
        st.integers(1, 6),
    ),
    max_size=14,
)  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(EVENTS)
def test_whatever_happens_it_ends_with_one_replica_a_rack_and_silence(events):
    world = racked_world(1, 2, 3, 4, 5, 6)
    diskless(world, partitions=2)
    alive = {1, 2, 3, 4, 5, 6}
    for number, (event, first, second) in enumerate(events):
        if event == "away":
            alive.discard(first)
        elif event == "back":
            alive.add(first)
            world.register(first, incarnation=10 + number, rack=RACKS[first])
        elif event in ("cordon", "uncordon"):
            cordon(world, first, "*" if event == "cordon" else "")
        elif event == "unregister" and first not in alive and first in world.image.brokers:
            world.ask(UnregisterBrokerRequest(broker_id=first))
        elif event == "reassign":
            reassign(world, "t", 0, list(dict.fromkeys((first, second))))
        elif event == "fail over":
            fail_over(world, off_ms=1000 * second)
        elif event == "create" and world.image.topic(f"t{number}") is None:
            if any(world.image.brokers[each].active for each in alive):
                cordon(world, first, "")
                if world.image.brokers.get(first) and world.image.brokers[first].active:
                    diskless(world, f"t{number}")
        live(world, {"wait": 20_000, "wait long": 320_000}.get(event, 1_000), *sorted(alive))
        check_all(world)
    for broker_id in range(1, 7):
        cordon(world, broker_id, "")
        if broker_id not in alive:
            world.register(broker_id, incarnation=99, rack=RACKS[broker_id])
    live(world, 12_000, 1, 2, 3, 4, 5, 6)
    check_all(world)
    for topic in world.image.topics_by_id.values():
        for partition in topic.partitions.values():
            assert racks_of(partition.replicas) == ["a", "b", "c"]
    offset = world.image.offset
    live(world, 30_000, 1, 2, 3, 4, 5, 6)
    assert world.image.offset == offset


def unsettled(world):
    """Steps that a look at every partition would make now."""
    racks, found = Racks(world.image), []
    for topic in world.image.topics_by_id.values():
        for partition in topic.partitions.values():
            row, leader = partition.replicas, partition.leader
            found.append(next_step(row, leader, wish(row, leader, racks), racks, {}, {}))
    return [step for step in found if step is not None]


HERE = st.lists(
    st.sampled_from(["cordon 4", "uncordon 4", "cordon 1", "uncordon 1", "lose 1", "return 1",
                     "both", "one", "fail over"]),
    max_size=6,
)  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(HERE)
@example(["cordon 4", "lose 1", "uncordon 4"])
@example(["cordon 1", "cordon 4", "both", "uncordon 1"])
def test_what_waits_for_capacity_in_its_rack_is_done_once_the_rack_has_some(events):
    """Nothing that a look at all partitions would change stays as it is. Brokers 1 and 4 share a
    rack; 1 is lost for longer than the threshold."""
    world = racked_world(1, 2, 3, 4)
    diskless(world)
    alive = {1, 2, 3, 4}
    for number, event in enumerate(events):
        what, _, broker = event.partition(" ")
        if what in ("cordon", "uncordon"):
            cordon(world, int(broker), "*" if what == "cordon" else "")
        elif event == "lose 1":
            alive.discard(1)
            live(world, THRESHOLD_MS + 40_000, *sorted(alive))
        elif event == "return 1" and 1 not in alive:
            alive.add(1)
            world.register(1, incarnation=10 + number, rack=RACKS[1])
        elif event in ("both", "one"):
            reassign(world, "t", 0, [1, 4, 2] if event == "both" else [4, 2])
        elif event == "fail over":
            fail_over(world)
        live(world, 4_000, *sorted(alive))
        assert unsettled(world) == [], events[: number + 1]


def test_equal_lives_make_equal_records():
    def life():
        world = racked_world(1, 2, 3, 4)
        diskless(world, partitions=5)
        live(world, 320_000, 2, 3, 4)
        reassign(world, "t", 1, [2, 3])
        live(world, 3_000, 2, 3, 4)
        return world.batches

    assert life() == life()


def test_absences_are_written_on_records_that_older_versions_read():
    world = racked_world(1, 2, 3)
    diskless(world)
    live(world, 30_000, 1, 2)
    found = [record for batch in world.batches for decoded in decode_batches(batch)
             for record in decoded.records
             if type(record) is NoOpRecord and record.absences]  # fmt: skip
    assert found
    assert found[0].absences[0].broker_id == 3
    assert [each.absences[0].elapsed_ms for each in found] == sorted(
        each.absences[0].elapsed_ms for each in found
    )
    assert len(found) < 6, "an absence that lasts is written now and then"
    older = decode(OlderNoOpRecord, encode_bytes(found[0], 0), 0)
    assert [*older.unknown_tagged_fields] == [10_003]
    assert decode(NoOpRecord, encode_bytes(OlderNoOpRecord(), 0), 0).absences == []


class OlderNoOpRecord(Message, versions="0", flexible="0+"):
    """The record as Kafka and older versions have it."""


@pytest.mark.parametrize("threshold_ms", [0, 2_000])
def test_short_thresholds(threshold_ms):
    name = "diskless_managed_rf_rack_unavailable_threshold_ms"
    world = racked_world(1, 2, 3, **{name: str(threshold_ms)})
    diskless(world)
    world.beat(3, want_fence=True)
    live(world, threshold_ms + 4_000, 1, 2)
    assert racks_of(rows(world)[0]) == ["a", "b"]
