"""B2, R16: a reviewed plan runs, exactly, paced, and survives its controller."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.core.controller.test_diskless_topics import create
from tests.core.controller.test_reassignment import alter, move
from tests.core.controller.world import CLUSTER, World, speaking
from tests.core.metadata.test_features import SAFE, refused, update

from anabranch.core.controller.brokers.cordons import CORDON
from anabranch.core.controller.brokers.cordons import cordoned as cordoned_brokers
from anabranch.core.controller.brokers.membership import is_active
from anabranch.core.controller.moves.plan_progress import PATIENCE_MS, Step
from anabranch.core.errors import Bug, ErrorCode
from anabranch.core.metadata.batches import decode_batches, encode_snapshot
from anabranch.core.metadata.committed_log import CommittedLog
from anabranch.core.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC
from anabranch.core.metadata.plan_state import PlanImage, State
from anabranch.core.metadata.replay import replay_batch
from anabranch.core.metadata.snapshot import from_snapshot, snapshot_records
from anabranch.core.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from anabranch.core.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from anabranch.core.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from anabranch.core.wire.messages.unregister_broker import UnregisterBrokerRequest
from anabranch.core.wire.metadata_records import ConfigRecord
from anabranch.core.wire.own_fields import (
    ASKED,
    OWN_TAG,
    AskedMove,
    PlanAsked,
    PlanTold,
    tagged,
    untagged,
)
from anabranch.core.wire.own_records import RECORDS_FEATURE, PlanMovesRecord, PlanProgressRecord

RATE = "leader.replication.throttled.rate"
LISTED = "follower.replication.throttled.replicas"


@pytest.fixture
def world() -> World:
    """Five brokers; `t` has four partitions on 1, 2 and 3."""
    made = World()
    made.start(1, 2, 3, 4, 5)
    made.create("t", [1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 2, 3])
    return made


DRAIN_3 = {0: (1, 2, 4), 1: (2, 4, 1), 2: (1, 2, 4), 3: (1, 2, 4)}


def ask(world: World, verb: str, **fields: Any) -> Any:
    """The whole answer, and what it tells of the plan."""
    request = AlterPartitionReassignmentsRequest(
        unknown_tagged_fields=tagged(PlanAsked(verb=verb, **fields))
    )
    response = world.ask(request, 1)
    return response, untagged(PlanTold, response.unknown_tagged_fields)


def asked(world: World, targets: dict[int, tuple[int, ...]], topic: str = "t") -> dict[str, Any]:
    moves = [
        AskedMove(
            topic=topic,
            partition=index,
            before=list(world.partition(topic, index).replicas),
            after=list(target),
            why="BROKER_DRAINED",
            because="broker 3 is drained",
        )
        for index, target in sorted(targets.items())
    ]
    return {
        "cluster_id": CLUSTER, "goal": "drain broker 3", "made_at_ms": 1, "most_at_once": 2,
        "moves": moves,
    }  # fmt: skip


def carry(world: World, targets: dict[int, tuple[int, ...]] = DRAIN_3, **fields: Any) -> Any:
    response, told = ask(world, "carry", **{**asked(world, targets), **fields})
    assert response.error_code == ErrorCode.NONE, response.error_message
    return told


def plan(world: World) -> PlanImage:
    assert world.image.plan is not None
    return world.image.plan


def status(world: World) -> PlanTold:
    request = ListPartitionReassignmentsRequest(topics=None, unknown_tagged_fields=ASKED)
    return untagged(PlanTold, world.ask(request, 0).unknown_tagged_fields)


def counts(world: World) -> tuple[int, int, int, int]:
    told = status(world)
    return told.waiting, told.under_way, told.done, told.gone


def rows(world: World, count: int = 4) -> list[tuple[int, ...]]:
    return [world.partition("t", index).replicas for index in range(count)]


def pass_time(world: World, ms: int) -> None:
    """Let time pass while every broker that is up sends heartbeats."""
    for _ in range(max(1, ms // 2_000)):
        for broker_id, broker in sorted(world.image.brokers.items()):
            if not broker.fenced:
                world.beat(broker_id)
        world.pass_time(min(ms, 2_000))


def catch_up(world: World, count: int = 4) -> None:
    """Everybody who is up and copies is in sync."""
    for index in range(count):
        state = world.partition("t", index)
        up = [each for each in state.replicas if is_active(world.image, each)]
        if state.adding or state.removing or set(up) != set(state.isr):
            alter(world, *up, index=index)


def run(world: World, count: int = 4) -> None:
    """Go on until the plan has nothing to do any more."""
    for _ in range(40):
        if plan(world).state is not State.RUNNING:
            return
        catch_up(world, count)
        pass_time(world, 600)
    raise AssertionError(f"still running: {status(world)}")


def test_a_plan_runs_paced_and_ends(world: World) -> None:
    told = carry(world)
    assert (told.plan_id, told.waiting, State(told.state)) == (1, 4, State.RUNNING)
    assert world.controller.state.moving == {}, "handing over begins nothing by itself"
    pass_time(world, 600)
    assert counts(world) == (2, 2, 0, 0)
    pass_time(world, 4_000)
    assert len(world.controller.state.moving) == 2, "the next begin when some are done"
    catch_up(world)
    assert counts(world) == (2, 0, 2, 0)
    run(world)
    assert (plan(world).state, counts(world)) == (State.DONE, (0, 0, 4, 0))
    assert rows(world) == list(DRAIN_3.values())
    assert world.sentences("PLAN_CHANGED") == [
        "the plan to drain broker 3 runs: 4 moves, at most 2 at once",
        "the plan to drain broker 3 is done: all partitions have the planned replicas",
    ]
    assert world.sentences("REASSIGNMENT_BEGUN")[0] == (
        "t-0 moves from 1, 2, 3 to 1, 2, 4: waiting for 4 to be in sync (broker 3 is drained)"
    )


def test_nothing_is_looked_at_while_everybody_copies(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    look = Step.look

    def counted(step: Step) -> None:
        looks.append(world.now_ms)
        look(step)

    monkeypatch.setattr(Step, "look", counted)
    carry(world)
    pass_time(world, 6_000)
    assert len(looks) == 2, "the first two begin, and then there is nothing to do"
    catch_up(world)
    pass_time(world, 6_000)
    assert len(looks) == 4


def test_moves_that_need_nobody_new_are_done_at_once(world: World) -> None:
    carry(world, {0: (2, 1, 3), 1: (2, 3), 2: (3, 1), 3: (1, 2)}, most_at_once=1)
    pass_time(world, 1_200)
    assert (plan(world).state, rows(world)) == (State.DONE, [(2, 1, 3), (2, 3), (3, 1), (1, 2)])


def test_the_next_controller_goes_on(world: World) -> None:
    carry(world)
    pass_time(world, 600)
    catch_up(world)
    pass_time(world, 600)
    before = world.image
    world.controller.resign()
    world.controller.begin_term(2, world.replayed(), CommittedLog(), world.now_ms)
    assert world.image.plan == before.plan
    run(world)
    assert (plan(world).state, rows(world)) == (State.DONE, list(DRAIN_3.values()))


def test_pause_lets_go_on_what_is_under_way_and_resume_the_rest(world: World) -> None:
    carry(world)
    pass_time(world, 600)
    assert ask(world, "pause")[0].error_code == ErrorCode.NONE
    catch_up(world)
    pass_time(world, 5_000)
    assert (plan(world).state, counts(world)) == (State.PAUSED, (2, 0, 2, 0))
    assert world.controller.state.moving == {}
    assert ask(world, "resume")[0].error_code == ErrorCode.NONE
    run(world)
    assert rows(world) == list(DRAIN_3.values())


def test_cancel_takes_back_what_is_under_way_and_keeps_what_is_done(world: World) -> None:
    carry(world)
    pass_time(world, 600)
    catch_up(world)
    pass_time(world, 600)
    assert counts(world) == (0, 2, 2, 0)
    response, told = ask(world, "cancel")
    assert (response.error_code, State(told.state)) == (ErrorCode.NONE, State.CANCELLED)
    assert told.sentence == "cancelled 2 moves, completed moves stay"
    pass_time(world, 5_000)
    assert rows(world) == [(1, 2, 4), (2, 4, 1), (3, 1, 2), (1, 2, 3)]
    assert world.controller.state.moving == {}
    assert counts(world) == (2, 0, 2, 0)


@pytest.mark.parametrize("first", [None, "cancel", "pause"])
def test_roll_back_moves_everything_to_where_it_was(world: World, first: str | None) -> None:
    before = rows(world)
    carry(world)
    pass_time(world, 600)
    catch_up(world)
    pass_time(world, 600)
    if first:
        ask(world, first)
    assert ask(world, "roll-back")[0].error_code == ErrorCode.NONE
    run(world)
    assert (plan(world).state, plan(world).backwards) == (State.DONE, True)
    assert rows(world) == before
    assert world.sentences("PLAN_CHANGED")[-1] == (
        "the plan to drain broker 3 (rolling back) is done: all partitions have their previous "
        "replicas"
    )


def test_a_plan_that_is_done_can_be_rolled_back_and_paced(world: World) -> None:
    before = rows(world)
    carry(world)
    run(world)
    ask(world, "roll-back")
    pass_time(world, 2_000)
    assert len(world.controller.state.moving) == 2
    run(world)
    assert rows(world) == before
    assert ask(world, "roll-back")[0].error_code == ErrorCode.NONE, "and again without harm"
    assert carry(world).plan_id == 2


def test_what_somebody_else_moves_stops_the_plan_and_is_named(world: World) -> None:
    carry(world)
    pass_time(world, 600)
    move(world, 1, 2, 5, index=3)
    pass_time(world, 600)
    assert plan(world).state is State.STOPPED
    assert plan(world).sentence == "t-3 is moving to 1, 2, 5, which is not part of the plan"
    catch_up(world)
    ask(world, "resume")
    pass_time(world, 2_000)
    assert plan(world).sentence == "t-3 was moved to 1, 2, 5 by other means"
    assert counts(world) == (2, 0, 2, 0)
    cordon(world, 3, None)  # the plan's own cordon would refuse the way back
    move(world, 1, 2, 3, index=3)
    catch_up(world)
    ask(world, "resume")
    run(world)
    assert rows(world) == list(DRAIN_3.values())


def test_a_move_that_somebody_took_back_begins_again_by_resume(world: World) -> None:
    carry(world)
    pass_time(world, 600)
    move(world, cancel=True, index=0)
    pass_time(world, 600)
    assert plan(world).sentence == "the move of t-0 was cancelled by other means"
    ask(world, "resume")
    run(world)
    assert rows(world) == list(DRAIN_3.values())


def test_moves_to_a_broker_that_died_wait_and_the_others_go_on(world: World) -> None:
    carry(world, {0: (1, 2, 4), 1: (2, 4, 1), 2: (3, 1, 5), 3: (1, 2, 5)}, most_at_once=1)
    pass_time(world, 600)
    world.beat(4, want_fence=True)
    for _ in range(8):
        catch_up(world)
        pass_time(world, 600)
    assert (plan(world).state, counts(world)) == (State.RUNNING, (1, 1, 2, 0))
    assert [(each.partition, each.sentence) for each in status(world).moves] == [
        (0, "waits for broker 4 to be back"),
        (1, "waits for broker 4 to be back"),
    ]
    world.beat(4)
    run(world)
    assert plan(world).state is State.DONE


def test_one_more_replica_waits_for_nobody_but_who_comes(world: World) -> None:
    world.beat(3, want_fence=True)
    carry(world, {0: (1, 2, 3, 4)})
    pass_time(world, 600)
    assert world.partition("t").adding == (4,)
    assert [each.sentence for each in status(world).moves] == ["copies"]
    run(world)
    assert (plan(world).state, world.partition("t").isr) == (State.DONE, (1, 2, 4))


def test_a_plan_stops_when_all_that_is_left_waits_for_long(world: World) -> None:
    carry(world)
    pass_time(world, 600)
    world.beat(4, want_fence=True)
    pass_time(world, PATIENCE_MS - 10_000)
    assert plan(world).state is State.RUNNING
    pass_time(world, 20_000)
    assert plan(world).state is State.STOPPED
    assert plan(world).sentence == "all remaining moves wait for broker 4"
    assert len(world.controller.state.moving) == 2, "what is under way is left as it is"
    world.beat(4)
    ask(world, "resume")
    run(world)
    assert rows(world) == list(DRAIN_3.values())


def test_moves_of_which_nobody_has_the_records_wait_for_whoever_has(world: World) -> None:
    world.create("a", [3], [3])
    world.beat(3, want_fence=True)
    both = asked(world, {0: (4,), 1: (4,)}, "a")["moves"] + asked(world, DRAIN_3)["moves"]
    carry(world, moves=both)
    for _ in range(6):
        catch_up(world)
        pass_time(world, 600)
    assert rows(world) == list(DRAIN_3.values()), "the others go on"
    assert [(each.topic, each.sentence) for each in status(world).moves] == [
        ("a", "waits for broker 3 to be back"),
        ("a", "waits for broker 3 to be back"),
    ]
    pass_time(world, PATIENCE_MS + 10_000)
    assert plan(world).state is State.STOPPED
    assert plan(world).sentence == "all remaining moves wait for broker 3"
    world.beat(3)
    ask(world, "resume")
    pass_time(world, 600)
    assert [each.sentence for each in status(world).moves] == ["copies", "copies"]


def test_an_order_alone_is_changed_while_nobody_leads(world: World) -> None:
    world.create("a", [3, 4])
    world.beat(4, want_fence=True)
    world.beat(3, want_fence=True)
    moves = asked(world, {0: (4, 3)}, "a")["moves"]
    carry(world, moves=moves)
    pass_time(world, 600)
    assert (plan(world).state, world.partition("a").replicas) == (State.DONE, (4, 3))


def test_a_diskless_partition_that_nobody_leads_moves_at_once() -> None:
    world = World(settings={"diskless.storage.system.enable": "true"})
    world.start(3)
    assert create(world, "d", diskless_enable="true") == (0, "")
    world.beat(3, want_fence=True)
    world.start(1)
    assert world.partition("d").leader == -1
    ask(world, "carry", **asked(world, {0: (1,)}, "d"))
    pass_time(world, 600)
    assert (plan(world).state, world.partition("d").leader) == (State.DONE, 1)


def test_a_plan_empties_a_broker_that_is_not_registered_any_more(world: World) -> None:
    world.beat(3, want_fence=True)
    world.ask(UnregisterBrokerRequest(broker_id=3))
    carry(world, throttle=1_000)
    run(world)
    assert (plan(world).state, rows(world)) == (State.DONE, list(DRAIN_3.values()))
    assert not world.image.config(RESOURCE_BROKER, "3"), "the throttle is taken off there, too"


def test_a_deleted_topic_is_no_more_to_do(world: World) -> None:
    world.create("u", [1, 2, 3])
    moves = asked(world, DRAIN_3)["moves"] + asked(world, {0: (1, 2, 5)}, "u")["moves"]
    carry(world, moves=moves)
    world.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="u")]))
    run(world)
    assert (plan(world).state, counts(world)) == (State.DONE, (0, 0, 4, 1))
    assert plan(world).sentence == (
        "all partitions of topics that still exist have the planned replicas"
    )


STALE = [
    ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID, "made for cluster other"),
    ({"moves": []}, ErrorCode.INVALID_REQUEST, "1 to 20000 moves"),
    ({"goal": "g" * 1001}, ErrorCode.INVALID_REQUEST, "at most 1000 characters"),
    ({"because": "b" * 1001}, ErrorCode.INVALID_REQUEST, "at most 1000 characters"),
    ({"most_at_once": 0}, ErrorCode.INVALID_REQUEST, "0 at a time"),
    ({"before": [1, 2, 4]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "t-0 is on 1, 2, 3, not on"),
    ({"partition": 9}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "t-9 does not exist"),
    ({"partition": 1}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "t-1 is on 2, 3, 1; t-1 is named"),
    ({"topic": "u"}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "u-0 does not exist"),
    ({"after": [1, 1]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the broker 1 more than once"),
    ({"after": [1, 9]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 9, but no such broker"),
    ({"after": []}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "empty replica list"),
]


@pytest.mark.parametrize(("changes", "code", "said"), STALE)
def test_a_plan_that_does_not_fit_is_refused_whole(
    world: World, changes: dict[str, Any], code: ErrorCode, said: str
) -> None:
    fields = asked(world, DRAIN_3)
    for name, value in changes.items():
        if name in fields:
            fields[name] = value
        else:
            setattr(fields["moves"][0], name, value)
    before = world.image
    response, _ = ask(world, "carry", **fields)
    assert response.error_code == code
    for part in said.split("; "):
        assert part in response.error_message
    assert world.image is before


def test_brokers_that_are_down_and_partitions_that_move_are_refused(world: World) -> None:
    move(world, 1, 2, 5)
    world.beat(4, want_fence=True)
    response, _ = ask(world, "carry", **asked(world, DRAIN_3))
    assert "t-0 is being moved; broker 4, the target of t-1, is down" in response.error_message
    assert world.image.plan is None


def test_one_plan_at_a_time_and_the_same_again_without_harm(world: World) -> None:
    carry(world)
    pass_time(world, 600)
    again, told = ask(world, "carry", **asked(world, DRAIN_3))
    assert (again.error_code, told.under_way) == (ErrorCode.NONE, 2)
    other, _ = ask(world, "carry", **{**asked(world, DRAIN_3), "made_at_ms": 2})
    assert other.error_code == ErrorCode.REASSIGNMENT_IN_PROGRESS
    assert "Another plan is open, to drain broker 3 (running)" in other.error_message


def test_a_plan_that_was_carried_out_is_no_fault_when_it_is_sent_again(world: World) -> None:
    sent = asked(world, DRAIN_3)
    ask(world, "carry", **sent)
    run(world)
    again, told = ask(world, "carry", **sent)
    assert (again.error_code, told.plan_id, State(told.state)) == (ErrorCode.NONE, 1, State.DONE)
    move(world, 1, 2, 5)
    catch_up(world)
    again, _ = ask(world, "carry", **sent)
    assert again.error_code != ErrorCode.NONE, "somebody has moved a partition since"


def test_verbs_without_a_plan_or_after_it(world: World) -> None:
    for verb in ("pause", "resume", "cancel", "roll-back"):
        assert ask(world, verb)[0].error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert ask(world, "hurry")[0].error_code == ErrorCode.INVALID_REQUEST
    assert status(world).plan_id == 0
    carry(world)
    run(world)
    for verb in ("pause", "resume", "cancel"):
        response, _ = ask(world, verb)
        assert response.error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        assert "the last one, to drain broker 3, is done" in response.error_message


def test_a_field_that_cannot_be_read_does_nothing(world: World) -> None:
    for field in (b"", b"\xff\xff\xff", tagged(PlanAsked(verb="carry"))[OWN_TAG][:-3]):
        request = AlterPartitionReassignmentsRequest(unknown_tagged_fields={OWN_TAG: field})
        assert world.ask(request, 1).error_code == ErrorCode.INVALID_REQUEST
    assert world.image.plan is None


def test_unmodified_clients_notice_nothing(world: World) -> None:
    carry(world)
    response = world.ask(ListPartitionReassignmentsRequest(topics=None), 0)
    assert OWN_TAG not in (response.unknown_tagged_fields or {})
    assert OWN_TAG not in (world.ask(AlterPartitionReassignmentsRequest(), 1)
                           .unknown_tagged_fields or {})  # fmt: skip


def test_the_throttle_comes_with_the_plan_and_goes_with_its_end(world: World) -> None:
    carry(world, throttle=1_000_000)
    assert world.image.config(RESOURCE_BROKER, "4")[RATE] == "1000000"
    assert world.image.config(RESOURCE_TOPIC, "t")[LISTED].startswith("0:1,0:2,0:3,0:4,1:2")
    run(world)
    assert RATE not in world.image.config(RESOURCE_BROKER, "4")
    assert LISTED not in world.image.config(RESOURCE_TOPIC, "t")
    ask(world, "roll-back")
    assert world.image.config(RESOURCE_BROKER, "3")[RATE] == "1000000"
    ask(world, "cancel")
    assert RATE not in world.image.config(RESOURCE_BROKER, "3")
    ask(world, "roll-back")
    assert world.image.config(RESOURCE_BROKER, "3")[RATE] == "1000000"
    run(world)
    assert RATE not in world.image.config(RESOURCE_BROKER, "3")


def test_what_a_large_plan_writes_can_be_read(world: World) -> None:
    count = 2_000
    world.create("large", *([1, 2, 3] for _ in range(count)))
    targets = dict.fromkeys(range(count), (1, 2, 4))
    carry(world, {}, **asked(world, targets, "large"), throttle=1_000)
    assert world.replayed() == world.image
    assert world.image.config(RESOURCE_TOPIC, "large")[LISTED] == "*"
    ask(world, "cancel")
    assert LISTED not in world.image.config(RESOURCE_TOPIC, "large")


def test_a_throttle_of_somebody_else_is_left_alone(world: World) -> None:
    from tests.core.controller.test_resources import alter as alter_config

    alter_config(world, RESOURCE_BROKER, "2", RATE, "7")
    response, _ = ask(world, "carry", **asked(world, DRAIN_3), throttle=1_000)
    assert "throttle is set for broker 2 already" in response.error_message
    carry(world)
    run(world)
    assert world.image.config(RESOURCE_BROKER, "2")[RATE] == "7"


def test_a_plan_that_is_over_goes_with_its_level_and_the_next_one_brings_it_back(
    world: World,
) -> None:
    carry(world)
    assert "might delete metadata" in refused(world, (RECORDS_FEATURE, 2, SAFE))
    run(world)
    assert update(world, (RECORDS_FEATURE, 2, SAFE)) == (0, "")
    assert world.image.plan is None
    ask(world, "roll-back")
    carry(world, {0: (1, 2, 5)})
    assert world.image.features[RECORDS_FEATURE] == 3


def test_no_plan_begins_while_a_node_could_not_read_it(world: World) -> None:
    world.register(9, features=speaking(2))
    response, _ = ask(world, "carry", **asked(world, {0: (1, 2, 5)}))
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert response.error_message.endswith("not every node supports that: broker 9.")


def test_records_that_do_not_fit_are_not_replayed(world: World) -> None:
    carry(world)
    for record in (
        PlanMovesRecord(plan_id=9),
        PlanProgressRecord(plan_id=9),
        PlanProgressRecord(plan_id=1, status=1, moves=[4]),
    ):
        with pytest.raises(Bug):
            replay_batch(world.image, [record], world.image.offset + 1, 1)


def snapshotted(world: World) -> Any:
    whole = encode_snapshot(snapshot_records(world.image), epoch=1, last_contained_ms=1, now_ms=1)
    found = [each for batch in decode_batches(whole) for each in batch.records]
    return from_snapshot(found, world.image.next_offset, 1)


STEPS = st.lists(
    st.sampled_from(
        ["wait", "sync", "pause", "resume", "cancel", "roll-back", "carry", "die", "live", "meddle"]
    ),
    max_size=14,
)


@settings(max_examples=60, deadline=None)
@example(["wait", "meddle", "cancel"])
@given(STEPS)
def test_whatever_happens_log_snapshot_and_state_agree_and_a_roll_back_ends_where_it_began(
    steps: list[str],
) -> None:
    world = World()
    world.start(1, 2, 3, 4, 5)
    world.create("t", [1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 2, 3])
    before = rows(world)
    carry(world)
    for step in steps:
        if step == "wait":
            pass_time(world, 600)
        elif step == "sync":
            catch_up(world)
        elif step in ("die", "live"):
            world.beat(4, want_fence=step == "die")
        elif step == "meddle":
            move(world, cancel=True, index=1)
        elif step == "carry":
            ask(world, "carry", **asked(world, DRAIN_3))
        else:
            ask(world, step)
        assert len(world.controller.state.moving) <= 4
    assert world.replayed() == world.image
    assert snapshotted(world) == world.image
    world.beat(4)
    if plan(world).plan_id == 1:
        ask(world, "roll-back")
        for _ in range(3):
            run(world)
            ask(world, "resume")
        assert (plan(world).state, rows(world)) == (State.DONE, before)


def test_a_broker_that_was_forgotten_stops_the_plan_after_a_while(world: World) -> None:
    carry(world)
    ask(world, "pause")
    world.beat(4, want_fence=True)
    world.ask(UnregisterBrokerRequest(broker_id=4))
    ask(world, "resume")
    pass_time(world, PATIENCE_MS + 10_000)
    assert plan(world).sentence == "all remaining moves wait for broker 4"
    ask(world, "cancel")
    assert plan(world).state is State.CANCELLED


def cordon(world: World, broker_id: int, value: str | None) -> None:
    record = ConfigRecord(
        resource_type=RESOURCE_BROKER, resource_name=str(broker_id), name=CORDON, value=value
    )
    world.commit([record])


def test_nothing_goes_to_a_broker_that_is_cordoned(world: World) -> None:
    cordon(world, 4, "*")
    response, _ = ask(world, "carry", **asked(world, DRAIN_3))
    assert "broker 4, the target of t-0, is cordoned" in response.error_message
    cordon(world, 4, None)
    carry(world)
    pass_time(world, 600)
    cordon(world, 4, "*")
    catch_up(world)
    pass_time(world, 600)
    assert plan(world).state is State.STOPPED
    assert plan(world).sentence.startswith("t-2 cannot move: ")
    cordon(world, 4, None)
    ask(world, "resume")
    run(world)
    assert rows(world) == list(DRAIN_3.values())


def cordoned(world: World) -> frozenset[int]:
    return cordoned_brokers(world.image)


@pytest.mark.parametrize("verb", ["cancel", "roll-back", "none"])
@pytest.mark.parametrize("by_hand", [False, True])
def test_a_drain_cordons_first_and_only_its_own_cordon_is_taken_back(
    world: World, verb: str, by_hand: bool
) -> None:
    if by_hand:
        cordon(world, 3, "*")
    told = carry(world)
    assert (cordoned(world), told.cordons) == ({3}, [] if by_hand else [3])
    pass_time(world, 600)
    assert snapshotted(world).plan == plan(world)  # it is remembered in snapshots, too
    if verb != "none":
        ask(world, verb)
        assert cordoned(world) == ({3} if by_hand else set())
        assert plan(world).cordons == ()
    else:
        run(world)
        assert cordoned(world) == {3}, "a drained broker is to be removed"


def test_a_plan_that_drains_no_broker_cordons_none(world: World) -> None:
    moves = asked(world, DRAIN_3)
    for each in moves["moves"]:
        each.why = "BROKER_ADDED"
    ask(world, "carry", **moves)
    assert plan(world).state is State.RUNNING
    assert cordoned(world) == set()


def test_a_cordon_that_was_lifted_meanwhile_is_left_alone(world: World) -> None:
    carry(world)
    cordon(world, 3, None)
    ask(world, "cancel")
    assert cordoned(world) == set()


def test_a_roll_back_to_a_cordoned_broker_stops_and_says_so(world: World) -> None:
    before = rows(world)
    cordon(world, 3, "*")
    carry(world)
    run(world)
    ask(world, "roll-back")
    pass_time(world, 2_000)
    assert plan(world).state is State.STOPPED
    assert "t-0 cannot move: " in plan(world).sentence
    cordon(world, 3, None)
    ask(world, "resume")
    run(world)
    assert rows(world) == before
