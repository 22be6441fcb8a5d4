"""Every way in which a log can break a promise, planted by hand, is caught under its id."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.sim.checks.stage import KEY, PLACE, TOPIC_ID, Stage

from anabranch.core.log.config import LogConfig
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.replication.partitions import Partitions
from anabranch.core.wire.metadata_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    UnfenceBrokerRecord,
)
from anabranch.sim.checks.committed import ZOMBIE_WROTE
from anabranch.sim.checks.liveness import copy_unrest
from anabranch.sim.checks.metadata import LAST_KNOWN, UNCLEAN
from anabranch.sim.checks.replicas import LAST_STANDING
from anabranch.sim.checks.truth import Loss
from anabranch.sim.checks.violation import Violation
from anabranch.sim.history import Send
from anabranch.sim.processes import State


def violated(act) -> str:
    with pytest.raises(Violation) as caught:
        act()
    assert "\n" not in str(caught.value)
    return caught.value.id


def acknowledged(stage: Stage, offset: int, acks: int = -1) -> None:
    stage.logs.acknowledged(Send("p/1", "p", PLACE, b"v", acks, True, 0, 1, "ok", offset))


def patch(stage: Stage, node_id: int, at: int, value: bytes) -> None:
    """Overwrite bytes of a log's first segment."""
    inode = stage.nodes[node_id].disk.names["d/t-0/00000000000000000000.log"]
    assert inode is not None
    inode.seen[at : at + len(value)] = value


# What must not be complained about.


def test_a_healthy_partition_a_failover_and_a_return_are_clean():
    stage = Stage()
    stage.write(3)
    stage.append(1)
    stage.look(1)  # a tail that nobody copied
    stage.elect(2, [2, 3], 1)
    stage.follow(2, 3)
    stage.write(2, leader=2, followers=(3,))
    stage.follow(1)
    stage.log(1).truncate_to(3)
    stage.look(1)
    stage.copy(2, 1)
    stage.tell(1, 5)
    stage.commit(unfenced(stage, 1))
    stage.change(isr=[2, 3, 1])
    stage.write(1, leader=2, followers=(1, 3))
    truth = stage.logs.truths[KEY]
    assert (truth.high, truth.losses) == (6, [])
    assert stage.marks["truncation"] == stage.marks["zombie-leader"] == 1
    acknowledged(stage, 5)
    stage.logs.shown(PLACE, 5, "reader")


def unfenced(stage: Stage, node_id: int) -> UnfenceBrokerRecord:
    return UnfenceBrokerRecord(id=node_id, epoch=stage.image.brokers[node_id].epoch)


def test_a_crash_keeps_and_a_power_cut_takes_what_was_not_synced():
    stage = Stage()
    stage.write(3)
    stage.restart(2, "crash")
    assert not stage.marks["power-cut-lost-tail"]
    stage.restart(3, "power")
    assert stage.log(3).end_offset < 3
    assert stage.marks["power-cut-lost-tail"] == 1


def test_what_a_recorded_unclean_election_loses_is_counted_under_its_name():
    stage = Stage(unclean_leader_election_enable="true")
    stage.write(2)
    stage.change(isr=[1, 2])
    stage.write(2, followers=(2,))
    stage.elect(3, [3], 1, 2, leader_recovery_state=1)
    stage.follow(3)
    truth = stage.logs.truths[KEY]
    assert (truth.high, truth.peak) == (2, 4)
    assert [(loss.rule, loss.records) for loss in truth.losses] == [(UNCLEAN, 1)] * 2
    stage.follow(1)
    stage.log(1).truncate_to(2)
    stage.replica(1).truncated()
    stage.look(1)  # cutting what was lost is no violation
    acknowledged(stage, 3)  # and it may have been acknowledged before


def two_histories(**settings: str) -> Stage:
    """Node 3 is back, and has a record of its own where the others committed and deleted theirs."""
    stage = Stage(min_isr=1, **settings)
    stage.write(1)
    stage.append(3)
    stage.look(3)
    stage.elect(1, [1, 2], 3)
    stage.follow(1, 2)
    stage.write(2, followers=(2,))
    for node_id in (1, 2):
        stage.log(node_id).delete_records_before(3)
        stage.look(node_id)
    stage.commit(unfenced(stage, 3))
    return stage


@pytest.mark.parametrize("node_id", [1, 3])
def test_a_leader_that_was_replaced_may_delete_what_it_is_asked_to(node_id):
    """Seed 20000019: node 1 did not know that another led, and joined the ISR again without what
    it had deleted. Of node 3, which led never, nobody asked that."""
    stage = Stage(min_isr=1)
    stage.write(3)
    stage.append(node_id)
    stage.look(node_id)
    stage.elect(2, [2, 4 - node_id], node_id)
    stage.follow(2, 4 - node_id)
    stage.log(node_id).delete_records_before(2)
    stage.look(node_id)
    stage.log(node_id).truncate_to(3)
    stage.replica(node_id).truncated()
    stage.look(node_id)
    del stage.logs.seats[node_id].copies[KEY].entries[:2]  # as when their segments are gone
    stage.commit(unfenced(stage, node_id))
    if node_id == 1:
        stage.change(isr=[2, 3, 1])
        stage.elect(1, [1], 2, 3)
        stage.follow(1)
    else:
        assert violated(lambda: stage.change(isr=[2, 1, 3])) == "L4"


def test_an_unclean_election_may_change_records_that_were_deleted_by_then():
    """Seed 710055: the former leader's log began behind the place where its successor's history
    leaves it, so that the fork was noted too late."""
    stage = two_histories(unclean_leader_election_enable="true")
    stage.elect(3, [3], 1, 2, leader_recovery_state=1)
    stage.follow(3)
    assert stage.logs.truths[KEY].forks[0] == (1, UNCLEAN)


def test_an_unclean_election_that_changes_nothing_deleted_is_no_fork_there():
    stage = Stage(unclean_leader_election_enable="true", min_isr=1)
    stage.write(3)
    stage.change(isr=[1, 2])
    for node_id in (1, 2):
        stage.log(node_id).delete_records_before(2)
        stage.look(node_id)
    stage.write(1, followers=(2,))
    stage.elect(3, [3], 1, 2, leader_recovery_state=1)
    stage.follow(3)
    assert stage.logs.truths[KEY].forks == [(3, UNCLEAN)]


def test_what_was_deleted_may_be_gone_again_after_a_leader_brought_it_back():
    """Seed 731422: a leader that had lost its log start with the power served deleted records, and
    its successor had them deleted still."""
    stage = Stage(unclean_leader_election_enable="true", min_isr=1)
    stage.write(3)
    stage.change(isr=[1, 2])
    for node_id in (1, 2):
        stage.log(node_id).delete_records_before(3)
        stage.look(node_id)
    stage.write(1, followers=(2,))
    stage.elect(3, [3], 1, 2, leader_recovery_state=1)
    stage.follow(3)
    truth = stage.logs.truths[KEY]
    assert (truth.start, truth.high) == (0, 3)
    stage.commit(unfenced(stage, 1))
    stage.follow(1)
    stage.log(1).truncate_fully(3)
    stage.replica(1).high_watermark = 3
    stage.look(1)
    stage.change(isr=[3, 1])
    stage.follow(1, 3)
    stage.elect(1, [1], 3)
    stage.follow(1)
    assert (truth.start, truth.high) == (3, 3)


def test_what_the_last_known_leader_lost_is_counted_under_its_name():
    stage = Stage()
    stage.change(isr=[1, 2])
    stage.change(isr=[1], eligible_leader_replicas=[2])
    stage.commit(stage.changed(eligible_leader_replicas=[]))
    stage.write(2, followers=(2,))
    lost = stage.changed(isr=[], leader=-1, last_known_elr=[1])
    stage.commit(lost, stage.fence(1), stage.fence(2), stage.fence(3))
    stage.register(1, 90, fenced=True)
    stage.restart(1, "power", epoch=90)
    end = stage.log(1).end_offset
    assert end < 2
    stage.commit(
        unfenced(stage, 1),
        stage.changed(leader=1, isr=[1], last_known_elr=[], leader_recovery_state=1),
    )
    stage.follow(1)
    assert {loss.rule for loss in stage.logs.truths[KEY].losses} == {LAST_KNOWN}


def test_without_elr_the_last_in_sync_replica_may_come_back_with_less():
    stage = Stage(elr=False)
    stage.write(2)
    stage.elect(-1, [1], 1, 2, 3)
    stage.register(1, 90, fenced=True)
    stage.restart(1, "power", epoch=90)
    stage.commit(unfenced(stage, 1), stage.changed(leader=1, isr=[1]))
    stage.follow(1)
    assert {loss.rule for loss in stage.logs.truths[KEY].losses} == {LAST_STANDING}


def test_without_elr_a_power_cut_may_take_a_record_and_what_had_superseded_another():
    """Seed 60020731: of two batches compaction had taken the first from this log, before it was
    copied."""
    stage = Stage(elr=False, cleanup_policy="compact")
    stage.write(2)
    copy = stage.logs.seats[1].copies[KEY]
    copy.holes = {copy.entries[0]}
    stage.elect(-1, [1], 1, 2, 3)
    stage.register(1, 90, fenced=True)
    stage.restart(1, "power", epoch=90)
    stage.commit(unfenced(stage, 1), stage.changed(leader=1, isr=[1]))
    stage.follow(1)
    assert {loss.rule for loss in stage.logs.truths[KEY].losses} == {LAST_STANDING}


def test_what_a_zombie_commits_after_an_unclean_election_is_counted():
    stage = Stage(unclean_leader_election_enable="true", min_isr=1)
    stage.write(1)
    stage.change(isr=[1])
    stage.elect(3, [3], 1, 2, leader_recovery_state=1)
    stage.follow(3)
    stage.append(1)
    stage.tell(1, 2)
    assert [loss.rule for loss in stage.logs.truths[KEY].losses] == [ZOMBIE_WROTE]
    acknowledged(stage, 1)


def test_a_zombie_commits_nothing_while_the_log_of_who_replaced_it_is_closed():
    """Seed 36010499: a power cut had ended the present leader's process."""
    stage = Stage(unclean_leader_election_enable="true", min_isr=1)
    stage.write(1)
    stage.change(isr=[1])
    stage.elect(3, [3], 1, 2, leader_recovery_state=1)
    stage.follow(3)
    truth, node = stage.logs.truths[KEY], stage.nodes[3]
    node.state = State.CRASHED
    stage.logs.node_changed(node, "power")
    stage.append(1)
    stage.tell(1, 2)
    assert (truth.high, [loss.rule for loss in truth.losses]) == (1, [ZOMBIE_WROTE])
    stage.restart(3, "power", epoch=90)  # and it leads as before


def test_a_zombie_brings_nothing_back_that_the_present_leader_s_disk_lost_before_it_led():
    """Three unclean leaders in turn; the last one lost its records in a power cut."""
    stage = Stage(elr=False, unclean_leader_election_enable="true", min_isr=1)
    stage.append(1, count=2)
    stage.look(1)
    stage.copy(1, 2, 3)
    stage.tell(1, 2)
    stage.change(isr=[1])
    stage.register(3, 90, fenced=True)
    stage.restart(3, "power", epoch=90)
    stage.elect(2, [2], 1, leader_recovery_state=1)
    stage.follow(2)
    stage.commit(unfenced(stage, 3))
    stage.elect(3, [3], 2, leader_recovery_state=1)
    stage.follow(3)
    truth = stage.logs.truths[KEY]
    assert truth.high == 0 and len(truth.losses) == 1
    stage.tell(2, 2)
    assert truth.high == 0


def test_a_zombie_s_batch_may_lie_across_what_is_committed():
    stage = Stage(unclean_leader_election_enable="true", min_isr=1)
    stage.write(1)
    stage.change(isr=[1])
    stage.elect(3, [3], 1, 2, leader_recovery_state=1)
    stage.follow(3)
    stage.append(3)
    stage.tell(3, 2)
    stage.append(1, count=2)
    stage.tell(1, 3)  # offsets 1-2 are one batch, and 1 is another one's
    truth = stage.logs.truths[KEY]
    assert (truth.high, [loss.rule for loss in truth.losses]) == (2, [ZOMBIE_WROTE])


def test_a_branch_that_was_cut_off_may_lead_again():
    """Two unclean elections: the second leader shows from its start what the first one lacked."""
    stage = Stage(unclean_leader_election_enable="true", min_isr=1)
    stage.change(isr=[1, 2])
    stage.write(3, followers=(2,))  # node 3 has nothing of it
    stage.elect(3, [3], 1, 2, leader_recovery_state=1)
    stage.follow(3)
    stage.append(3)
    stage.tell(3, 1)
    stage.commit(unfenced(stage, 2))
    stage.elect(2, [2], 3, leader_recovery_state=1)
    stage.follow(2)
    truth = stage.logs.truths[KEY]
    assert (truth.high, [each.epoch for each in truth.entries]) == (3, [0, 0, 0])
    stage.append(2)
    stage.tell(2, 4)
    assert [each.epoch for each in truth.entries] == [0, 0, 0, 2]


def test_a_leader_that_read_of_its_former_life_in_old_metadata_does_not_lead():
    stage = Stage()
    stage.write(2)
    stage.restart(1, "power", epoch=99)
    assert stage.replica(1).is_leader
    assert stage.logs.truths[KEY].high == 2


def test_one_event_may_bring_a_term_and_its_end():
    stage = Stage(unclean_leader_election_enable="true", min_isr=1)
    stage.write(1)
    stage.append(3, epoch=0)
    stage.look(3)  # a tail that only node 3 has
    stage.change(isr=[1, 2])
    stage.elect(3, [3], 1, 2, leader_recovery_state=1)
    stage.commit(unfenced(stage, 2), stage.changed(leader=2, isr=[2]), stage.fence(3))
    stage.follow(2)
    stage.replica(3).high_watermark = 2  # for an instant it led, alone
    stage.follow(3)
    assert stage.logs.truths[KEY].high == 1


BEGINNINGS = [(0, 0, False), (0, 0, True), (2, 1, True)]
"""Where a log begins anew whose batches before 3 were deleted: its local part, the whole log, and
whether another store may hold what is older."""


def begins_anew(stage, offset, start_offset, has_remote):
    """Replica 3 drops all it has and goes on where its leader does."""
    log = stage.log(3)
    log.config = LogConfig(has_remote=has_remote)
    log.truncate_fully(offset, start_offset)
    stage.replica(3).high_watermark = offset
    stage.look(3)


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_a_log_start_may_go_back_under_a_leader_who_has_less(beginning):
    """Seed 60329: a log with a remote part announces its new start, not 0, as where it is cut."""
    stage = Stage(unclean_leader_election_enable="true")
    stage.write(3)
    stage.log(1).delete_records_before(3)
    stage.look(1)
    stage.log(3).delete_records_before(3)
    stage.look(3)
    stage.change(isr=[1, 3])
    stage.log(2).before_truncation = lambda place, after: None
    stage.elect(2, [2], 1, 3, leader_recovery_state=1)
    stage.follow(2)
    begins_anew(stage, *beginning)


def has_no_history(stage, beginning=BEGINNINGS[0], *, upto):
    """Replica 3 has deleted all its records, and begins anew before."""
    stage.log(3).delete_records_before(upto)
    stage.look(3)
    begins_anew(stage, *beginning)


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_a_log_without_records_may_begin_anew_where_its_leader_does(beginning):
    stage = Stage()
    stage.write(3)
    stage.change(isr=[1, 2])
    has_no_history(stage, beginning, upto=3)


def test_l6_a_log_with_records_may_not_begin_anew():
    stage = Stage()
    stage.write(3)
    stage.change(isr=[1, 2])
    assert violated(lambda: has_no_history(stage, upto=2)) == "L6"


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_l1_a_log_without_records_may_not_begin_anew_where_it_may_lead(beginning):
    stage = Stage()
    stage.write(3)
    assert violated(lambda: has_no_history(stage, beginning, upto=3)) == "L1"


def test_who_observes_no_more_is_forgotten():
    stage = Stage()
    stage.write(2)
    stage.change(isr=[1, 2])
    stage.change(replicas=[1, 2])
    node = stage.nodes[3]
    node.broker.partitions.drop(stage.replica(3))
    node.broker.image = stage.image
    stage.look(3)
    assert KEY not in stage.logs.seats[3].copies


def test_a_log_that_moved_away_is_begun_anew_though_newer_metadata_give_it_back():
    """Seed 710525: a broker was paused while its replica moved away and came back as an observer.
    It followed both changes afterwards, in two events."""
    stage = Stage()
    stage.write(2)
    stage.change(isr=[1, 2], replicas=[1, 2])
    moved = stage.image
    stage.change(replicas=[1, 2, 3])
    node = stage.nodes[3]
    node.broker.partitions.drop(stage.replica(3))
    node.broker.image = moved
    stage.look(3)
    node.disk.rename("d/t-0", "d/t-0-stray")
    stage.follow(3)
    assert stage.logs.seats[3].copies[KEY].entries == []


def test_l7_a_log_that_is_dropped_and_begun_anew_while_its_partition_stays():
    stage = Stage()
    stage.write(2)
    node = stage.nodes[3]
    node.broker.partitions.drop(stage.replica(3))
    stage.change(isr=[1, 2])
    node.broker.image = stage.image
    stage.look(3)
    node.disk.rename("d/t-0", "d/t-0-stray")
    stage.change(isr=[1])
    assert violated(lambda: stage.follow(3)) == "L7"


def moved_away(stage: Stage) -> None:
    """The partition moves away from node 3, which is down then and sets its log aside later."""
    node = stage.nodes[3]
    stage.logs.node_changed(node, "stop")
    node.broker = SimpleNamespace(
        image=MetadataImage.empty(), partitions=Partitions(3), broker_epoch=13
    )
    stage.change(isr=[1, 2], replicas=[1, 2])
    stage.logs.node_changed(node, "start")


def test_a_log_that_moved_away_while_its_node_was_down_is_begun_anew():
    stage = Stage()
    stage.write(2)
    moved_away(stage)
    stage.nodes[3].broker.image = stage.image
    stage.look(3)
    stage.nodes[3].disk.rename("d/t-0", "d/t-0-stray")
    stage.change(replicas=[1, 2, 3])
    stage.follow(3)
    assert stage.logs.seats[3].copies[KEY].entries == []


def test_a_log_that_moved_away_and_back_while_its_node_was_down_is_begun_anew():
    """Its process follows both changes in one event: a snapshot, and what came since."""
    stage = Stage()
    stage.write(2)
    moved_away(stage)
    stage.change(replicas=[1, 2, 3])
    stage.nodes[3].disk.rename("d/t-0", "d/t-0-stray")
    stage.follow(3)
    assert stage.logs.seats[3].copies[KEY].entries == []
    assert violated(lambda: stage.change(isr=[1, 2, 3])) == "L4"


def test_a_compacted_log_may_begin_anew_at_its_own_start():
    stage = Stage(min_isr=1, cleanup_policy="compact,delete", unclean_leader_election_enable="true")
    stage.write(3)
    stage.log(3).delete_records_before(1)
    stage.look(3)
    stage.change(isr=[1, 3])
    stage.elect(2, [2], 1, 3, leader_recovery_state=1)
    stage.follow(2)
    stage.log(3).truncate_fully(1)
    stage.replica(3).high_watermark = 1
    stage.look(3)
    assert stage.logs.seats[3].copies[KEY].entries == []


def test_a_replica_that_is_added_raises_no_minimum_before_it_is_in_sync():
    stage = Stage(min_isr=2)
    stage.change(isr=[1], replicas=[1, 2], adding_replicas=[2], removing_replicas=[])
    stage.append(1)
    stage.follow(1)
    stage.tell(1, 1)
    assert stage.logs.truths[KEY].high == 1


# L1


def test_l1_marks_out_of_order():
    stage = Stage()
    stage.write(2)
    assert violated(lambda: stage.tell(1, 3)) == "L1"


def test_l1_a_gap_between_batches():
    stage = Stage()
    stage.write(1)
    stage.append(1)
    size = stage.log(1).segments[0].size // 2
    patch(stage, 1, size, (5).to_bytes(8, "big"))
    assert violated(lambda: stage.look(1)) == "L1"


def test_l1_bytes_that_are_no_batch():
    stage = Stage()
    stage.append(1)
    patch(stage, 1, 8, (3).to_bytes(4, "big"))
    assert violated(lambda: stage.look(1)) == "L1"


def test_l1_a_log_start_that_goes_back():
    stage = Stage()
    stage.write(3)
    stage.log(1).delete_records_before(2)
    stage.look(1)
    stage.log(1).start_offset = 1
    assert violated(lambda: stage.look(1)) == "L1"


def test_l1_an_end_that_no_batch_has():
    stage = Stage()
    stage.append(1)
    stage.log(1).end_offset = 2
    assert violated(lambda: stage.look(1)) == "L1"


# L2


def test_l2_two_batches_at_one_offset_and_epoch():
    stage = Stage()
    stage.append(1)
    stage.look(1)
    stage.append(2, epoch=0)
    assert violated(lambda: stage.look(2)) == "L2"


def test_l2_a_follower_that_shows_another_history():
    stage = Stage()
    stage.write(1)
    stage.elect(2, [2], 1, 3)
    stage.follow(2)
    stage.commit(unfenced(stage, 3))
    stage.append(3, epoch=0)  # a tail of the old epoch
    stage.look(3)
    stage.append(2)
    stage.append(2)
    stage.look(2)
    stage.tell(2, 1)
    stage.logs.truths[KEY].commit(stage.logs.seats[2].copies[KEY].entries[1:], 3)
    stage.follow(3)
    assert violated(lambda: stage.tell(3, 2)) == "L2"


# L3


def test_l3_committed_and_not_with_every_in_sync_replica():
    stage = Stage()
    stage.append(1)
    stage.look(1)
    stage.copy(1, 2)
    assert violated(lambda: stage.tell(1, 1)) == "L3"


def test_l3_a_replica_whose_disk_lost_power_is_not_counted_against_anybody():
    stage = Stage()
    stage.append(1)
    stage.look(1)
    stage.copy(1, 2, 3)
    stage.logs.node_changed(stage.nodes[3], "power")
    stage.tell(1, 1)


# L4


def test_without_elr_the_last_in_sync_replica_may_come_back_with_less_of_what_had_expired():
    """Retention had dropped all of it; a power cut brought older segments back, and no others."""
    stage = Stage(elr=False, retention_ms="1000")
    stage.write(2)
    stage.log(1).delete_records_before(2)
    stage.look(1)
    stage.logs.seats[1].copies[KEY].entries.clear()  # as when their segments are gone
    stage.elect(-1, [1], 1, 2, 3)
    stage.register(1, 90, fenced=True)
    stage.restart(1, "power", epoch=90)
    assert stage.log(1).end_offset < 2
    stage.commit(unfenced(stage, 1), stage.changed(leader=1, isr=[1]))
    stage.follow(1)
    assert stage.marks["lost-by-rule"] == 1


@pytest.mark.parametrize(
    ("kind", "resource", "name"), [(2, "t", "retention.ms"), (4, "", "log.retention.ms")]
)
def test_records_may_expire_in_the_last_event_of_a_process(kind, resource, name):
    """Seed 42010908: a broker deleted what had expired since the setting changed, its folder failed
    in that event, and it came back with metadata from before the change."""
    stage = Stage()
    stage.write(2)
    stage.change(isr=[1, 2])
    earlier = stage.image
    stage.commit(ConfigRecord(resource_type=kind, resource_name=resource, name=name, value="1000"))
    stage.log(3).delete_records_before(1)
    stage.image, newest = earlier, stage.image
    stage.restart(3, "crash", start=1, clean=True)
    stage.logs.seats[3].copies[KEY].entries.pop(0)  # as when its segment is gone
    stage.image = newest
    stage.change(isr=[1, 2, 3])


def test_l4_a_leader_that_lacks_what_is_committed():
    stage = Stage()
    stage.change(isr=[1, 2])
    stage.write(2, followers=(2,))
    stage.commit(stage.changed(leader=2, isr=[2]), stage.fence(1))
    copy = stage.logs.seats[2].copies[KEY]
    copy.entries.pop()  # as if the log had never had it
    assert violated(lambda: stage.follow(2)) == "L4"


def test_l4_a_replica_that_joins_without_all_of_it():
    stage = Stage()
    stage.change(isr=[1, 2])
    stage.write(2, followers=(2,))
    assert violated(lambda: stage.change(isr=[1, 2, 3])) == "L4"


def test_l4_a_replica_that_joins_with_what_was_never_committed():
    stage = two_histories()
    assert violated(lambda: stage.change(isr=[1, 2, 3])) == "L4"


def test_a_replica_may_join_with_what_was_committed_and_lost_before_it_was_deleted():
    """The last in-sync replica lost it, wrote other records, and deleted those."""
    stage = two_histories()
    own = stage.logs.seats[3].copies[KEY].entries[1]
    stage.logs.truths[KEY].losses.append(Loss(own, LAST_STANDING, 1))
    stage.change(isr=[1, 2, 3])


def test_a_replica_may_join_that_has_dropped_what_was_never_committed():
    stage = two_histories()
    stage.log(3).truncate_fully(3)
    stage.replica(3).high_watermark = 3
    stage.follow(3)
    stage.change(isr=[1, 2, 3])


def test_l4_an_election_from_outside_though_somebody_could_lead():
    stage = Stage(unclean_leader_election_enable="true")
    stage.change(isr=[1, 2])
    assert violated(lambda: stage.elect(3, [3], 1, leader_recovery_state=1)) == "L4"


def test_l4_an_unclean_election_that_is_not_recorded_as_one():
    stage = Stage(unclean_leader_election_enable="true")
    stage.change(isr=[1, 2])
    assert violated(lambda: stage.elect(3, [3], 1, 2)) == "L4"


def test_l4_an_unclean_election_that_nothing_allows():
    stage = Stage()
    stage.change(isr=[1, 2])
    assert violated(lambda: stage.elect(3, [3], 1, 2, leader_recovery_state=1)) == "L4"


@pytest.mark.parametrize("is_allowed", [True, False])
def test_a_cancelled_move_takes_away_who_could_lead(is_allowed):
    """As in Kafka, where unclean elections are allowed."""
    stage = Stage(elr=False, unclean_leader_election_enable=str(is_allowed).lower())
    stage.change(adding_replicas=[3], isr=[1, 3])
    stage.change(leader=3, isr=[3])

    def cancel():
        stage.change(
            leader=1, isr=[1], replicas=[1, 2], adding_replicas=[], leader_recovery_state=1
        )

    if is_allowed:
        cancel()
        assert stage.marks["unclean-election"] == 1
    else:
        assert violated(cancel) == "L4"


def test_an_operator_may_ask_for_what_the_settings_do_not_allow():
    stage = Stage()
    stage.asked.add(KEY)
    stage.change(isr=[1, 2])
    stage.elect(3, [3], 1, 2, leader_recovery_state=1)
    assert stage.marks["unclean-election"] == 1


def test_l4_a_replaced_leader_that_commits_alone():
    stage = Stage(min_isr=1)
    stage.write(1)
    stage.elect(2, [2, 3], 1)
    stage.follow(2, 3)
    stage.append(1)
    assert violated(lambda: stage.tell(1, 2)) == "L4"


def test_what_the_present_leader_s_disk_lost_since_was_there_when_the_replaced_one_counted_it():
    stage = Stage(min_isr=1)
    stage.write(1)
    stage.append(1)
    stage.look(1)
    stage.copy(1, 2, 3)
    stage.elect(2, [2, 3])
    stage.follow(2, 3)  # node 1 has not heard of it: followers had told it of their copies
    stage.nodes[2].disk.remove_tree("d/t-0")
    stage.logs.node_changed(stage.nodes[2], "wipe")
    stage.tell(1, 2)
    assert stage.logs.truths[KEY].high == 2


@pytest.mark.parametrize("isr", [[2], [3]])
def test_what_another_s_disk_lost_since_was_there_when_the_replaced_leader_counted_it(isr):
    stage = Stage(min_isr=3)
    stage.write(1)
    stage.append(1)
    stage.look(1)
    stage.copy(1, 2, 3)
    stage.elect(3, isr, 1, 2) if isr == [3] else stage.change(isr=isr, leader=-1)
    stage.follow(3)  # node 1 has not heard of it
    stage.nodes[2].disk.remove_tree("d/t-0")
    stage.logs.node_changed(stage.nodes[2], "wipe")
    stage.restart(2, "power")
    stage.tell(1, 2)
    assert stage.logs.truths[KEY].high == 2


@pytest.mark.parametrize("full", [True, False])
def test_a_leader_without_room_may_hand_over_to_who_joins(full):
    stage = Stage()
    stage.change(isr=[1])
    broker = stage.image.brokers[1]
    if full:
        stage.commit(
            BrokerRegistrationChangeRecord(
                broker_id=1, broker_epoch=broker.epoch, full_log_dirs=[bytes(range(100, 116))]
            )
        )
        stage.change(isr=[3], leader=3)
        assert not stage.logs.truths[KEY].resets
    else:
        assert violated(lambda: stage.change(isr=[3], leader=3)) == "L4"


def test_a_log_start_that_moves_by_itself_is_no_deletion():
    stage = Stage()
    stage.write(2)
    stage.logs.deletes_asked.clear()
    stage.log(1).delete_records_before(1)
    assert violated(lambda: stage.look(1)) == "L6"


# L5


def test_l5_a_high_watermark_that_goes_back():
    stage = Stage()
    stage.write(2)
    assert violated(lambda: stage.tell(1, 1)) == "L5"


def test_l5_a_follower_that_shows_more_than_is_committed():
    stage = Stage()
    stage.append(1)
    stage.look(1)
    stage.copy(1, 2)
    assert violated(lambda: stage.tell(2, 1)) == "L5"


def test_l5_a_consumer_that_is_shown_what_is_not_committed():
    stage = Stage()
    stage.append(1)
    stage.look(1)
    assert violated(lambda: stage.logs.shown(PLACE, 0, "reader")) == "L5"


# L6


def test_l6_a_committed_batch_that_is_cut_off():
    stage = Stage()
    stage.write(3)

    def cut() -> None:
        stage.log(2).truncate_to(1)
        stage.replica(2).truncated()
        stage.look(2)

    assert violated(cut) == "L6"


def test_l6_also_when_the_log_has_grown_again_within_the_event():
    stage = Stage()
    stage.write(3)

    def cut() -> None:
        stage.log(2).truncate_to(2)
        stage.append(2, epoch=7)
        stage.replica(2).truncated()
        stage.look(2)

    assert violated(cut) == "L6"


def test_records_that_were_deleted_may_be_dropped_by_a_follower():
    stage = Stage()
    stage.write(3)
    stage.log(1).delete_records_before(3)
    stage.look(1)
    stage.log(2).truncate_fully(3)
    stage.replica(2).truncated()
    stage.look(2)
    assert stage.marks["restart-at-leader-start"] == 1


# L7


def test_l7_acknowledged_and_not_committed():
    stage = Stage()
    stage.write(1)
    stage.append(1)
    stage.look(1)
    assert violated(lambda: acknowledged(stage, 1)) == "L7"
    acknowledged(stage, 1, acks=1)  # promises nothing


def test_l7_committed_on_too_few():
    stage = Stage(min_isr=2)
    stage.commit(stage.changed(isr=[1], eligible_leader_replicas=[2, 3]))
    stage.append(1)
    assert violated(lambda: stage.tell(1, 1)) == "L7"


def test_a_node_may_act_on_what_it_knew_between_two_looks():
    """One event brought three batches of metadata: for an instant one replica was enough."""
    stage = Stage(min_isr=3)
    for value in ("1", "2"):
        stage.commit(
            ConfigRecord(
                resource_type=2, resource_name="t", name="min.insync.replicas", value=value
            )
        )
    stage.commit(stage.changed(isr=[1], eligible_leader_replicas=[2, 3]))
    stage.append(1)
    stage.nodes[1].broker.image = stage.image
    stage.tell(1, 1)
    stage.append(1)
    assert violated(lambda: stage.tell(1, 2)) == "L7"


def test_l7_committed_before_it_is_flushed():
    stage = Stage(flush_messages="1")
    stage.append(1)
    stage.look(1)
    stage.copy(1, 2, 3)
    assert violated(lambda: stage.tell(1, 1)) == "L7"


def test_l7_committed_on_too_few_while_replicas_are_added():
    stage = Stage(min_isr=2)
    stage.change(isr=[1], eligible_leader_replicas=[2], replicas=[1, 2, 3], adding_replicas=[3])
    stage.append(1)
    stage.follow(1)
    assert violated(lambda: stage.tell(1, 1)) == "L7"


def test_l7_a_log_that_is_gone_while_its_partition_stays():
    stage = Stage()
    stage.write(2)
    stage.nodes[3].disk.rename("d/t-0", "d/t-0-stray")

    def come_back() -> None:
        stage.logs.node_changed(stage.nodes[3], "stop")
        stage.nodes[3].broker = SimpleNamespace(
            image=MetadataImage.empty(), partitions=Partitions(3), broker_epoch=13
        )
        stage.logs.node_changed(stage.nodes[3], "start")
        stage.look(3)
        stage.follow(3)

    assert violated(come_back) == "L7"


def test_l7_a_process_that_takes_records_with_it():
    stage = Stage()
    stage.write(3)
    inode = stage.nodes[2].disk.names["d/t-0/00000000000000000000.log"]
    assert inode is not None
    del inode.seen[len(inode.seen) // 2 :]
    assert violated(lambda: stage.restart(2, "crash")) == "L7"


# L8


def test_l8_a_sequence_number_that_stands_twice():
    stage = Stage()
    stage.append(1, producer=(7, 0, 0))
    stage.append(1, producer=(7, 0, 1))
    stage.append(1, producer=(7, 1, 0))  # a new epoch begins anew
    stage.look(1)
    stage.append(1, producer=(7, 1, 0))
    assert violated(lambda: stage.look(1)) == "L8"


def test_a_sequence_number_may_come_again_after_its_batch_was_cut():
    stage = Stage()
    stage.append(2, epoch=0, producer=(7, 0, 0))
    stage.look(2)
    stage.log(2).truncate_to(0)
    stage.look(2)
    stage.append(1, epoch=1, producer=(7, 0, 0))
    stage.look(1)
    stage.copy(1, 2)


@pytest.mark.parametrize("leader", [2, 3])
def test_a_leader_that_began_behind_deleted_records_knows_nothing_of_their_producers(leader):
    """Its followers may have them still; one of them, as a leader, refuses what they rule out."""
    stage = Stage()
    for sequence in (0, 1):
        stage.append(1, producer=(7, 0, sequence))
    stage.share(1, 2, 3)
    for node_id in (1, 2, 3):
        stage.log(node_id).delete_records_before(2)
        stage.look(node_id)
    stage.log(2).truncate_fully(2)
    stage.look(2)
    stage.elect(leader, [2, 3], 1)
    stage.follow(2, 3)
    stage.append(leader, producer=(7, 0, 1))
    if leader == 3:
        assert violated(lambda: stage.look(3)) == "L8"
        return
    stage.look(2)
    stage.copy(2, 3)


# M1, M2 on nodes


def test_m1_a_replica_whose_epoch_goes_back():
    stage = Stage()
    stage.change(isr=[1, 2])
    stage.follow(3)
    stage.replica(3).partition_epoch = 0
    assert violated(lambda: stage.look(3)) == "M1"


def test_m2_somebody_leads_who_was_not_elected():
    stage = Stage()
    replica = stage.replica(3)
    replica.is_leader = True
    replica.partition_epoch = 1
    assert violated(lambda: stage.look(3)) == "M2"


# Disks


def test_rot_is_not_taken_for_another_history():
    stage = Stage()
    stage.write(3)
    patch(stage, 2, 20, b"\x55")
    stage.logs.node_changed(stage.nodes[2], "rot")
    stage.restart(2, "crash", high=3)
    assert stage.logs.truths[KEY].high == 3


def test_rot_is_known_of_a_log_that_lay_beside_a_disk_that_was_lost():
    stage = Stage()
    stage.write(3)
    stage.logs.node_changed(stage.nodes[2], "wipe")
    patch(stage, 2, 20, b"\x55")
    stage.logs.node_changed(stage.nodes[2], "rot")
    stage.restart(2, "crash", high=3, clean=True)
    assert stage.logs.truths[KEY].high == 3


def test_an_older_copy_of_a_rotten_log_may_hold_the_branch_of_a_replaced_leader():
    stage = Stage()
    stage.write(3)
    stage.logs.node_changed(stage.nodes[2], "rot")
    stage.append(1, count=2)
    stage.look(1)
    stage.copy(1, 2)
    log = stage.log(2)
    replaced = bytes(log.read(3, max_bytes=1 << 20, upto=5, at_least_one=True))
    stage.elect(3, [2, 3], 1)
    stage.follow(2, 3)
    stage.append(3)
    stage.append(3)
    stage.look(3)
    log.truncate_to(3)
    stage.copy(3, 2)
    log.truncate_to(3)
    log.append_as_follower(replaced, now_ms=0)
    stage.restart(2, "older", high=3)
    copy = stage.logs.seats[2].copies[KEY]
    assert not copy.is_given_up
    assert [entry.base for entry in copy.entries] == [0, 1, 2, 3]


def led_by_a_log_that_nobody_can_read() -> Stage:
    """Node 2 leads, and so many bits of its log flipped that its batches cannot be told apart; it
    writes two records more, which node 3 has, too."""
    stage = Stage()
    stage.write(2)
    stage.log(2).roll(0)
    stage.write(1)
    stage.append(1)
    stage.look(1)
    stage.copy(1, 2)
    patch(stage, 2, 8, b"\x7f")
    stage.logs.node_changed(stage.nodes[2], "rot")
    stage.log(2).truncate_to(3)
    stage.look(2)
    assert stage.logs.seats[2].copies[KEY].is_given_up
    stage.elect(2, [2, 3], 1)
    stage.follow(2, 3)
    stage.append(2)
    stage.append(2)
    stage.look(2)
    stage.copy(2, 3)
    return stage


def test_what_a_leader_commits_whose_log_nobody_can_read_is_committed():
    """Seed 46000483: it was taken for what no leader had committed."""
    stage = led_by_a_log_that_nobody_can_read()
    stage.tell(2, 5)
    acknowledged(stage, 4)
    stage.logs.shown(PLACE, 4, "reader")
    stage.tell(3, 4)
    truth = stage.logs.truths[KEY]
    assert (truth.high, truth.losses) == (4, [])
    stage.elect(3, [3], 2)
    stage.follow(3)
    stage.tell(3, 5)
    assert truth.high == truth.entries[-1].end == 5


def test_l5_more_than_a_leader_committed_whose_log_nobody_can_read():
    stage = led_by_a_log_that_nobody_can_read()
    stage.tell(2, 4)
    assert violated(lambda: stage.logs.shown(PLACE, 4, "reader")) == "L5"
    assert violated(lambda: acknowledged(stage, 4)) == "L7"
    assert violated(lambda: stage.tell(3, 5)) == "L5"


def test_l4_who_joins_without_what_a_leader_committed_whose_log_nobody_can_read():
    stage = led_by_a_log_that_nobody_can_read()
    stage.tell(2, 5)
    stage.tell(3, 5)
    stage.commit(unfenced(stage, 1))
    assert violated(lambda: stage.change(isr=[2, 3, 1])) == "L4"


def test_who_leads_next_shows_what_a_leader_committed_whose_log_nobody_can_read():
    """After an unclean election no follower's word counts."""
    stage = led_by_a_log_that_nobody_can_read()
    truth = stage.logs.truths[KEY]
    truth.forks.append((4, UNCLEAN))
    stage.tell(2, 5)
    stage.tell(3, 5)
    assert truth.high == 3
    stage.elect(3, [3], 2)
    stage.follow(3)
    assert truth.high == truth.entries[-1].end == 5


def test_l3_what_a_leader_commits_whose_log_nobody_can_read_and_who_is_in_sync_lacks():
    stage = led_by_a_log_that_nobody_can_read()
    stage.append(2)
    stage.look(2)
    assert violated(lambda: stage.tell(2, 6)) == "L3"


def test_m2_a_log_that_nobody_can_read_leads_and_its_node_was_not_elected():
    stage = led_by_a_log_that_nobody_can_read()
    stage.replica(2).leader_epoch += 1
    assert violated(lambda: stage.look(2)) == "M2"


def test_a_leader_may_drop_what_is_to_be_deleted_also_when_nobody_can_read_its_log():
    stage = led_by_a_log_that_nobody_can_read()
    stage.tell(2, 5)
    stage.tell(3, 5)
    stage.log(2).delete_records_before(3)
    stage.look(2)
    stage.log(3).delete_records_before(3)
    stage.look(3)
    stage.elect(3, [3], 2)
    stage.follow(3)
    assert stage.logs.truths[KEY].start == 3


def test_what_a_log_that_nobody_can_read_commits_while_it_fails_is_committed():
    stage = led_by_a_log_that_nobody_can_read()
    stage.replica(2).high_watermark = 5
    stage.nodes[2].broker.partitions = Partitions(2)
    stage.nodes[2].broker.partitions.offline[PLACE] = TOPIC_ID
    stage.look(2)
    stage.logs.shown(PLACE, 4, "reader")


def test_looking_counts_no_call_of_the_disk():
    stage = Stage()
    stage.write(2)
    calls = [node.disk.calls for node in stage.nodes.values()]
    for copy in stage.logs.seats[1].copies.values():
        copy.end = -1
    stage.look(1, 2, 3)
    assert [node.disk.calls for node in stage.nodes.values()] == calls


@pytest.mark.parametrize("compacted", [True, False])
def test_a_copy_that_begins_within_a_batch_may_lack_it_only_where_logs_are_compacted(compacted):
    """Seed 20001237: a follower began anew at a start within a batch of which compaction had left
    nothing by then."""
    settings = {"cleanup_policy": "compact,delete"} if compacted else {}
    stage = Stage(**settings)
    stage.append(1, count=3)
    stage.write(2)
    for node_id in (1, 3):
        stage.log(node_id).delete_records_before(2)
        stage.look(node_id)
    assert copy_unrest(stage.nodes[3], stage.logs, KEY, 5) == ""
    del stage.logs.seats[3].copies[KEY].entries[0]
    wrong = "" if compacted else "has other batches than those that are committed"
    assert copy_unrest(stage.nodes[3], stage.logs, KEY, 5) == wrong


def test_who_was_elected_uncleanly_may_hear_of_it_when_another_is_elected():
    """Seed 20020563: the rule by which the later one was elected had taken the place of its own."""
    stage = Stage(unclean_leader_election_enable="true", min_isr=1)
    stage.write(1)
    stage.change(isr=[1, 2])
    stage.write(1, followers=(2,))
    stage.elect(3, [3], 1, 2, leader_recovery_state=1)
    late = stage.image.partition(*PLACE)
    assert late is not None
    stage.commit(unfenced(stage, 2))
    stage.elect(2, [2], 3, leader_recovery_state=1)
    stage.replica(3).take_state(late)
    stage.look(3)
    stage.follow(2)
    assert stage.logs.truths[KEY].led_by == 2


def test_an_in_sync_replica_may_have_let_more_expire_than_its_leader():
    """Seed 20022080: it had led before, and begins its log later than who was elected uncleanly."""
    stage = Stage(min_isr=1, retention_ms="1000")
    stage.write(3)
    stage.append(1)
    stage.look(1)
    stage.log(2).delete_records_before(2)
    stage.look(2)
    stage.copy(1, 2, 3)
    del stage.logs.seats[2].copies[KEY].entries[:2]  # as when their segments are gone
    truth = stage.logs.truths[KEY]
    truth.high, truth.entries = 1, truth.entries[:1]  # as an unclean election leaves it
    stage.tell(1, 4)
    assert truth.high == 4


@pytest.mark.parametrize("kept", [1, 0])
def test_who_let_more_expire_may_end_before_its_joining_is_committed(kept):
    """Seed 67010352: the store was slow, and the process gone when it told that the replica had
    joined; whether records of it are left or none."""
    stage = Stage(min_isr=1, retention_ms="1000")
    stage.write(3)
    stage.elect(2, [2], 1, 3)
    stage.follow(2, 1, 3)
    stage.commit(unfenced(stage, 1))
    stage.log(1).delete_records_before(3 - kept)
    stage.look(1)
    del stage.logs.seats[1].copies[KEY].entries[: 3 - kept]  # as when their segments are gone
    ended(stage, 1)
    stage.change(isr=[2, 1])


def test_who_lacks_what_did_not_expire_may_not_end_before_its_joining_is_committed():
    stage = Stage(min_isr=1, retention_ms="1000")
    stage.write(3)
    stage.elect(2, [2], 1, 3)
    stage.follow(2, 1, 3)
    stage.commit(unfenced(stage, 1))
    stage.log(1).delete_records_before(2)
    stage.look(1)
    stage.logs.seats[1].copies[KEY].entries.clear()
    ended(stage, 1)
    assert violated(lambda: stage.change(isr=[2, 1])) == "L4"


def ended(stage: Stage, node_id: int) -> None:
    """The process of a node crashes, and does not start again."""
    node = stage.nodes[node_id]
    node.state = State.CRASHED
    stage.logs.node_changed(node, "crash")
    stage.metadata.forget(node)
