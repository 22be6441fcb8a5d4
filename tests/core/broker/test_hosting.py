"""Which logs a broker opens, creates, sets aside and deletes, and what its folders do to them."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace
from tests.core.broker.hosting_kit import FOLDERS, WALL_MS, Stage

from anabranch.core.broker.hosting import effects as does
from anabranch.core.broker.hosting import states, syncs
from anabranch.core.broker.hosting.events import LogOpened, SyncEnded
from anabranch.core.broker.hosting.states import HostedEvent, HostedState
from anabranch.core.errors import Bug, CorruptLog, StorageFault
from anabranch.core.log.checkpoints import PARTITION_METADATA, parse_partition_metadata
from anabranch.core.log.files import DiskFull
from anabranch.core.metadata.image import UNASSIGNED_DIRECTORY
from anabranch.core.types import TopicPartition
from anabranch.sim.disk import SimDisk

PLACE = TopicPartition("t", 0)
NAMES = ("t", "u")
AT_REST = set(HostedState) - {HostedState.OPENING, HostedState.CREATING}


@pytest.mark.parametrize(("before", "happening"), list(product(HostedState, HostedEvent)))
def test_what_the_table_does_not_name_is_a_bug(before, happening):
    following = states.TRANSITIONS.get((before, happening))
    if following is None:
        with pytest.raises(Bug):
            states.after(before, happening)
    else:
        assert states.after(before, happening) is following


@pytest.mark.parametrize("lost", [HostedState.ROTTEN, HostedState.OFFLINE])
def test_what_is_lost_is_never_opened_again_as_long_as_the_process_lives(lost):
    assert {happening for before, happening in states.TRANSITIONS if before is lost} == {
        HostedEvent.REMOVE
    }


@pytest.mark.parametrize(("state", "event"), list(product(syncs.State, syncs.Event)))
def test_the_table_of_syncs_is_the_machine(state, event):
    machine = Stage().hosting.syncs
    if state is not syncs.State.IDLE:
        machine._states[PLACE] = state
    following = syncs.TRANSITIONS.get((state, event))
    if following is None:
        with pytest.raises(Bug):
            machine._step(PLACE, event)
    else:
        assert machine._step(PLACE, event) is following
        assert (PLACE not in machine.under_way) is (following is syncs.State.IDLE)


def test_an_answer_that_nothing_asked_for_is_a_bug():
    stage = Stage()
    stage.publish(stage.create("t"))
    replica = stage.partitions.get(*PLACE)
    with pytest.raises(Bug):
        stage.hosting.step(LogOpened(PLACE, replica.log), 0)
    with pytest.raises(Bug):
        stage.hosting.step(SyncEnded(does.SyncLog(replica, 0, ()), None), 0)


def test_nothing_goes_on_while_a_log_is_being_opened():
    stage = Stage()
    stage.hosting.follow(stage.image, None)
    stage.run()
    stage.hosting.follow(stage.image, stage.create("t", 2))
    stage.hosting.follow(stage.image, None)
    with pytest.raises(Bug, match="answer first"):
        list(iter(stage.hosting.advance, False))


def test_a_change_costs_what_it_touches():
    """A thousand hosted logs are not looked at for one partition."""
    stage = Stage()
    stage.publish(stage.create("u", 1000))
    steps = 0
    delta = stage.create("t")
    stage.hosting.follow(stage.image, delta)
    while stage.hosting.advance():
        stage.perform()
        steps += 1
    assert steps <= 3
    assert stage.hosting.take_touched()[-1] == PLACE


def test_deleting_a_topic_costs_nothing_for_the_others_that_are_offline(monkeypatch):
    stage = Stage()
    stage.publish(stage.create("u", 300))
    stage.publish(stage.create("t"))
    for path in FOLDERS[:2]:
        stage.failed.add(path)
        stage.hosting.folders.failed(path, StorageFault("no disk"))
    stage.run()
    assert len(stage.partitions.offline) > 150
    looked_at = []
    monkeypatch.setattr(
        stage.partitions, "no_more", lambda place: looked_at.append(place), raising=True
    )
    done = len(stage.done)
    stage.publish(stage.delete("t"))
    assert not looked_at
    assert len(stage.done) - done < 8


def test_a_sync_that_failed_is_never_tried_again():
    stage = Stage()
    stage.publish(stage.create("t"))
    path = stage.folder_of(PLACE)
    stage.append(PLACE)
    stage.failed.add(path)
    stage.sync()
    assert stage.count(does.SyncLog) == 1
    stage.failed.clear()
    stage.broker.unsynced.add(PLACE)
    stage.sync()
    stage.tick()
    assert stage.count(does.SyncLog) == 1
    assert stage.partitions.offline_folders == {path}
    assert stage.hosting.standing(PLACE) is HostedState.OFFLINE


def test_what_is_appended_during_a_sync_waits_for_the_next():
    stage = Stage()
    stage.publish(stage.create("t"))
    stage.append(PLACE)
    stage.hosting.start_syncs()
    (first,) = stage.hosting.take_effects()
    stage.append(PLACE)
    stage.hosting.start_syncs()
    assert not stage.hosting.take_effects()
    stage.hosting.step(SyncEnded(first, None), 0)
    assert stage.partitions.get(*PLACE).log.flushed_offset == 1
    stage.sync()
    assert stage.partitions.get(*PLACE).log.flushed_offset == 2


def test_a_round_that_a_full_disk_keeps_from_beginning_begins_when_there_is_room(monkeypatch):
    """Without the epoch table the recovery point may not move; the folder is full, not lost."""

    def refuse(path, *_, sync):
        raise DiskFull(path)

    stage = Stage()
    stage.publish(stage.create("t"))
    stage.append(PLACE)
    replica = stage.partitions.get(*PLACE)
    replica.log.roll(WALL_MS)
    with monkeypatch.context() as disk:
        disk.setattr(stage.files, "write_atomic", refuse)
        stage.sync()
        stage.hosting.take_faults(0)
    assert stage.partitions.full_folders == {replica.folder}
    assert stage.count(does.SyncLog) == 0
    stage.tick()
    stage.sync()
    assert replica.log.flushed_offset == 1
    assert not stage.partitions.offline_folders
    stage.tick()
    assert not stage.broker.unsynced


def test_a_sync_of_a_topic_that_was_deleted_meanwhile_harms_no_folder():
    stage = Stage()
    stage.publish(stage.create("t"))
    stage.append(PLACE)
    stage.hosting.start_syncs()
    (asked,) = stage.hosting.take_effects()
    stage.publish(stage.delete("t"))
    stage.hosting.step(SyncEnded(asked, StorageFault("no such file")), 0)
    assert not stage.partitions.offline_folders


@pytest.mark.parametrize("is_synced", [False, True])
def test_a_log_of_an_older_topic_is_set_aside_and_never_opened(is_synced):
    """What was promised of the older topic's records does not hold the new one's log up."""
    stage = Stage()
    stage.publish(stage.create("t"))
    stage.append(PLACE)
    if is_synced:
        stage.sync()
        stage.hosting.folders.by_path[stage.folder_of(PLACE)].checkpoint()
    stage.topics.clear()
    stage.create("t")
    stage.start()
    stage.publish()
    assert stage.count(does.OpenLog) == 0
    assert stage.count(does.SetAside) == 1
    replica = stage.partitions.get(*PLACE)
    assert replica is not None and replica.log.end_offset == 0


def stage_with_a_log_without_a_name(is_synced):
    """One of a topic that is deleted while the broker is away."""
    stage = Stage()
    stage.publish(stage.create("t"))
    folder = stage.folder_of(PLACE)
    stage.append(PLACE)
    if is_synced:
        stage.sync()
        stage.hosting.folders.by_path[folder].checkpoint()
    stage.files.remove(f"{folder}/{PLACE}/{PARTITION_METADATA}")
    stage.topics.clear()
    return stage


@pytest.mark.slow
@pytest.mark.parametrize(
    ("leader", "isr", "is_synced", "end_offset"),
    [
        (2, (2,), False, 0),
        (-1, (2,), False, 0),
        (2, (2,), True, 1),
        (2, (2, 1), False, 1),
        (1, (1,), False, 1),
    ],
)
def test_a_log_without_a_name_may_be_an_older_topic_s(leader, isr, is_synced, end_offset):
    stage = stage_with_a_log_without_a_name(is_synced)
    stage.create("t")
    stage.place("t", 0, *isr, *({1} - set(isr)))
    topic = stage.topics["t"]
    state = replace(topic.partitions[0], leader=leader, isr=isr)
    stage.topics["t"] = replace(topic, partitions=topic.partitions.set(0, state))
    stage.start()
    stage.publish()
    assert stage.partitions.get(*PLACE).log.end_offset == end_offset


@pytest.mark.parametrize(
    ("folders", "is_told", "is_synced", "end_offset"),
    [(3, False, False, 0), (3, True, False, 1), (3, False, True, 1), (1, False, False, 1)],
)
def test_what_a_broker_of_several_folders_never_told_of_is_not_its_own(
    folders, is_told, is_synced, end_offset
):
    """A topic that is made again while its broker has no power counts on a replica that never was:
    the broker would have told in which of its folders it lies."""
    stage = stage_with_a_log_without_a_name(is_synced)
    stage.create("t")
    topic, directory = stage.topics["t"], b"a" * 16 if is_told else UNASSIGNED_DIRECTORY
    state = replace(topic.partitions[0], directories=(directory,))
    stage.topics["t"] = replace(topic, partitions=topic.partitions.set(0, state))
    stage.start()
    ids = {path: path[1:].encode() * 16 for path in FOLDERS[:folders]}
    stage.partitions.folders, stage.partitions.directory_ids = list(ids), ids
    stage.publish()
    assert stage.partitions.get(*PLACE).log.end_offset == end_offset


@pytest.mark.parametrize(
    ("deleted", "is_synced", "end_offset"), [("t", False, 0), ("u", False, 1), ("t", True, 1)]
)
def test_a_log_without_a_name_may_be_that_of_a_topic_which_was_seen_to_go(
    deleted, is_synced, end_offset
):
    """Seed 68010004: a topic was made again while its broker, with one folder, had no power. The
    broker's copy of the metadata knew the older one."""
    stage = stage_with_a_log_without_a_name(is_synced)
    stage.create("t")
    stage.start()
    stage.publish(None, deleted)
    assert stage.partitions.get(*PLACE).log.end_offset == end_offset
    assert stage.count(does.SetAside) == (end_offset == 0)


@pytest.mark.parametrize("is_synced", [False, True])
@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("folders", [1, 2, 3])
def test_a_log_without_a_name_is_of_no_partition_that_comes_later(is_synced, moved, folders):
    """What was deleted, or went elsewhere, while the broker was away is not what comes afterwards,
    in however many folders it lies."""
    stage = stage_with_a_log_without_a_name(is_synced)
    for path in FOLDERS[1:folders]:
        for name in list(stage.files.contents):
            stage.files.contents[path + name[2:]] = bytearray(stage.files.contents[name])
        stage.files.folders |= {path, f"{path}/{PLACE}"}
    if moved:
        stage.create("t")
        stage.place("t", 0, 2)
    stage.start()
    stage.publish()
    assert stage.count(does.SetAside) == 0
    stage.publish(stage.place("t", 0, 1) if moved else stage.create("t"))
    assert stage.partitions.get(*PLACE).log.end_offset == 0
    assert stage.count(does.SetAside) == folders


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("is_away", [False, True])
def test_no_power_cut_brings_an_older_log_back_beside_one_in_another_folder(seed, is_away):
    """The topic that is created again gets a log in another folder, and no name was ever synced. The
    older one is deleted or, where the broker `is_away` then, set aside."""
    stage = Stage()
    stage.files = disk = SimDisk(Random(seed))
    for path in FOLDERS:
        disk.mount(path)
    for name in ("t", "u", "v", "w"):
        stage.publish(stage.create(name))
    before = stage.folder_of(PLACE)
    stage.append(PLACE)
    disk.stored_names.update(disk.names)  # its names reached the disk by themselves
    if is_away:
        disk.remove(f"{before}/{PLACE}/{PARTITION_METADATA}")
        disk.sync_all()
        stage.topics.pop("v")
        stage.topics.pop("t")
        stage.start()
        stage.publish()
    else:
        stage.publish(stage.delete("v"))
        stage.publish(stage.delete("t"))
    stage.publish(stage.create("t"))
    assert stage.folder_of(PLACE) != before
    disk.cut_power()
    stage.start()
    stage.publish()
    assert stage.partitions.get(*PLACE).log.end_offset == 0


@pytest.mark.parametrize("folders", [1, 3])
@pytest.mark.parametrize("is_made_again", [False, True])
@pytest.mark.parametrize("is_told", [False, True])
def test_what_was_deleted_while_the_broker_was_away_is_removed(is_told, is_made_again, folders):
    """In whichever folders it lies; what no record tells of stays, and what never went does."""
    stage = Stage()
    for name in ("t", "u"):
        stage.publish(stage.create(name))
    stage.append(PLACE)
    stage.sync()
    (gone,) = stage.delete("t").deleted_topics
    here = stage.folder_of(PLACE)
    copies = {each for each in FOLDERS if each != here}
    for path in sorted(copies)[: folders - 1]:
        for name in list(stage.files.contents):
            if name.startswith(f"{here}/{PLACE}/"):
                copied = bytearray(stage.files.contents[name])
                stage.files.contents[path + name[len(here) :]] = copied
        stage.files.folders |= {path, f"{path}/{PLACE}"}
    if is_made_again:
        stage.create("t")
    stage.start()
    stage.publish(deleted_ids=[gone.topic_id] if is_told else [])
    assert stage.count(does.DeleteLog) == (folders if is_told else 0)
    assert stage.count(does.SetAside) == (folders if is_made_again and not is_told else 0)
    assert stage.partitions.get("u", 0) is not None
    if is_told:
        assert not stage.hosting.logs.found
    if is_made_again:
        assert stage.partitions.get(*PLACE).log.end_offset == 0


def test_a_topic_that_the_metadata_has_is_not_removed_whatever_is_told():
    stage = Stage()
    stage.publish(stage.create("t"))
    topic_id = stage.topics["t"].topic_id
    stage.append(PLACE)
    stage.sync()
    stage.start()
    stage.publish(deleted_ids=[topic_id])
    assert stage.count(does.DeleteLog) == 0
    assert stage.partitions.get(*PLACE).log.end_offset == 1


def test_a_replica_that_moved_away_meanwhile_is_set_aside():
    stage = Stage()
    stage.publish(stage.create("t"))
    stage.place("t", 0, 2)
    stage.start()
    stage.publish()
    assert stage.count(does.SetAside) == 1
    assert not stage.hosting.logs.found
    stage.publish(stage.place("t", 0, 2, 1))
    assert stage.count(does.OpenLog) == 0, "its old log is not taken for the new one"


@pytest.mark.parametrize("away", FOLDERS)
def test_a_topic_made_again_while_a_folder_was_away_is_opened_where_it_lies(away):
    """What the folder brings back is of the deleted topic."""
    stage = Stage()
    stage.publish(stage.create("t", partitions=len(FOLDERS)))
    old = next(each.topic_partition for each in stage.partitions if each.folder == away)
    stage.hosting.folders.failed(away, StorageFault("no disk"))
    stage.publish(stage.delete("t"))
    stage.publish(stage.create("t", partitions=len(FOLDERS)))
    stage.append(old)
    folder = stage.folder_of(old)
    stage.start()
    stage.publish()
    assert (stage.folder_of(old), stage.partitions.get(*old).log.end_offset) == (folder, 1)
    assert [each.path for each in stage.done if isinstance(each, does.SetAside)] == [away]


@pytest.mark.parametrize("named", [None, "/a", "/b"])
def test_of_two_copies_of_a_replica_the_one_that_the_metadata_names_is_opened(named):
    """Else the one of which more was synced; the other is set aside."""
    stage = Stage()
    stage.partitions.folders = ["/b"]
    stage.publish(stage.create("t"))
    stage.append(PLACE)
    stage.files.make_dirs(f"/a/{PLACE}")
    for name in stage.files.list(f"/b/{PLACE}"):
        stage.files.write_atomic(
            f"/a/{PLACE}/{name}", stage.files.read(f"/b/{PLACE}/{name}"), sync=True
        )
    stage.append(PLACE)
    stage.sync()
    stage.hosting.folders.by_path["/b"].checkpoint()
    topic = stage.topics["t"]
    ids = {"/a": b"a" * 16, "/b": b"b" * 16}
    directories = (ids.get(named, bytes(16)),)
    state = replace(topic.partitions[0], directories=directories)
    stage.topics["t"] = replace(topic, partitions=topic.partitions.set(0, state))
    stage.start()
    stage.partitions.directory_ids = ids
    stage.publish()
    assert stage.folder_of(PLACE) == (named or "/b")
    assert stage.count(does.SetAside) == 1


@pytest.mark.parametrize("kind", ["full", "failed"])
def test_what_cannot_be_set_aside_is_neither_opened_nor_removed(kind):
    """A full or failed disk refuses to rename what lies where a new log is to begin."""
    stage = Stage()
    stage.publish(stage.create("t"))
    stage.append(PLACE)
    path = stage.folder_of(PLACE)
    stage.topics.clear()
    stage.create("t")
    stage.start()
    stage.stuck[path] = kind
    stage.partitions.folders = [path]
    stage.publish()
    lost = {"full": HostedState.ROOMLESS, "failed": HostedState.OFFLINE}
    assert stage.hosting.standing(PLACE) is lost[kind]
    assert not stage.count(does.OpenLog) and not stage.count(does.RemoveLeftover)
    assert stage.files.exists(f"{path}/{PLACE}")
    stage.stuck.clear()
    stage.tick()
    stage.tick()
    assert (stage.folder_of(PLACE) == path) is (kind == "full")


def test_a_long_image_delays_no_sync_that_time_causes():
    stage = Stage()
    stage.publish(stage.create("t"))
    replica = stage.partitions.get(*PLACE)
    replica.log.config = replica.log.config.__class__(flush_interval_ms=1)
    stage.hosting.logs.note_config(replica)
    stage.append(PLACE)
    stage.broker.unsynced.clear()
    stage.hosting.follow(stage.image, stage.create("u", 100))
    stage.hosting.tick(10, 1 << 62)
    stage.hosting.tick(20, 1 << 62)
    for _ in range(2):
        stage.hosting.advance()
    assert stage.broker.unsynced == {PLACE}


def test_while_a_folder_is_away_no_log_begins_in_its_place():
    stage = Stage()
    stage.publish(stage.create("t", 3))
    away = stage.folder_of(PLACE)
    stage.failed.add(away)
    stage.start()
    stage.publish()
    assert stage.count(does.CreateLog) == 0
    assert stage.hosting.standing(PLACE) is HostedState.OFFLINE
    assert len(stage.partitions) == 2


def test_no_full_folder_holds_up_what_waits_for_another():
    stage = Stage()
    stage.publish(stage.create("t", 3))
    places = sorted(stage.partitions.offline) or [TopicPartition("t", n) for n in range(3)]
    folders = {place: stage.folder_of(place) for place in places}
    stage.start()
    stage.full = set(FOLDERS)
    stage.publish()
    assert [*stage.partitions.roomless] == places
    stage.full = {folders[places[0]]}
    stage.tick()
    assert [*stage.partitions.roomless] == places[:1]
    attempts = stage.count(does.OpenLog)
    stage.tick()
    assert stage.count(does.OpenLog) == attempts + 1, "a full folder costs one attempt"
    stage.full.clear()
    stage.tick()
    stage.tick()
    assert not stage.partitions.offline and not stage.partitions.full_folders


def test_a_log_that_is_found_to_be_rotten_keeps_its_folder_from_being_marked_clean():
    stage = Stage()
    stage.publish(stage.create("t", 2))
    replica = stage.partitions.get(*PLACE)
    fault = CorruptLog("rot", path="", position=0, first_offset=0, last_offset=0)
    stage.broker.faults.append((replica, fault))
    stage.hosting.take_faults(0)
    assert stage.hosting.standing(PLACE) is HostedState.ROTTEN
    clean = {
        path: stage.hosting.may_be_marked_clean(folder)
        for path, folder in stage.hosting.folders.by_path.items()
    }
    assert clean == {path: path != replica.folder for path in FOLDERS}


def stop(stage: Stage) -> None:
    for folder in stage.hosting.folders.by_path.values():
        stage.hosting.close(folder)


@pytest.mark.parametrize("why", ["not in the metadata", "moved away", "deleted", "no room"])
def test_a_log_left_unread_after_a_power_cut_is_checked_by_the_next(why):
    """Though that process stopped in order, and the log was never opened by it."""
    stage = Stage()
    stage.publish(stage.create("t"))
    stage.append(PLACE)
    path = stage.folder_of(PLACE)
    known = dict(stage.topics)
    stage.start()
    match why:
        case "not in the metadata":
            stage.topics.clear()
        case "moved away":
            stage.place("t", 0, 2)
            stage.stuck[path] = "full"
        case "no room" | "deleted":
            stage.full.add(path)
    stage.publish()
    if why == "deleted":
        stage.stuck[path] = "full"
        stage.publish(stage.delete("t"))
    assert stage.partitions.get(*PLACE) is None
    stage.stuck.clear()
    stage.full.clear()
    stop(stage)
    stage.topics = known
    stage.start()
    stage.publish()
    assert stage.folder_of(PLACE) == path
    assert not stage.hosting.folders.by_path[path].clean


def test_an_open_log_that_cannot_be_taken_away_is_checked_by_the_next_process():
    """It was closed without a sync, and may be placed here again."""
    stage = Stage()
    stage.publish(stage.create("t"))
    stage.append(PLACE)
    path = stage.folder_of(PLACE)
    known = dict(stage.topics)
    stage.stuck[path] = "full"
    stage.publish(stage.place("t", 0, 2))
    stop(stage)
    stage.stuck.clear()
    stage.topics = known
    stage.start()
    stage.publish()
    assert stage.folder_of(PLACE) == path
    assert not stage.hosting.folders.by_path[path].clean


def test_a_log_that_was_clean_and_is_left_unread_stays_clean():
    stage = Stage()
    stage.publish(stage.create("t"))
    stage.append(PLACE)
    stop(stage)
    known = dict(stage.topics)
    stage.topics.clear()
    stage.start()
    stage.publish()
    stop(stage)
    stage.topics = known
    stage.start()
    stage.publish()
    assert all(folder.clean for folder in stage.hosting.folders.by_path.values())


def test_the_process_stops_when_no_folder_is_left():
    stage = Stage()
    stage.publish(stage.create("t", 3))
    stage.failed = set(FOLDERS)
    for index in range(3):
        stage.append(TopicPartition("t", index))
    stage.sync()
    assert stage.count(does.Stop) == 1


class Life(RuleBasedStateMachine):
    """Topics come, go and move while disks fill up, fail, rot and processes start again."""

    def __init__(self):
        super().__init__()
        self.stage = Stage()
        self.stage.publish()
        self.ends = {}
        """(topic id, partition) -> where its log ends."""

    def _places(self):
        return [
            TopicPartition(name, index)
            for name, topic in self.stage.topics.items()
            for index, state in topic.partitions.items()
            if 1 in state.replicas
        ]

    @rule(name=st.sampled_from(NAMES), partitions=st.integers(1, 3), first=st.booleans())
    def create(self, name, partitions, first):
        """Also again: the older one is deleted in the same breath or before."""
        if name in self.stage.topics:
            delta = self.stage.delete(name)
            if first:
                self.stage.publish(delta)
            else:
                made = self.stage.create(name, partitions)
                self.stage.publish(
                    type(delta)(
                        deleted_topics=delta.deleted_topics,
                        changed_partitions=made.changed_partitions,
                    )
                )
                return
        self.stage.publish(self.stage.create(name, partitions))

    @precondition(lambda self: self.stage.topics)
    @rule(data=st.data(), sees=st.booleans())
    def delete(self, data, sees):
        name = data.draw(st.sampled_from(sorted(self.stage.topics)))
        delta = self.stage.delete(name)
        if sees:
            self.stage.publish(delta)
        else:  # while the process is down
            self.restart()

    @precondition(lambda self: self.stage.topics)
    @rule(data=st.data(), brokers=st.sampled_from([(2,), (2, 1), (1, 2)]), sees=st.booleans())
    def move(self, data, brokers, sees):
        topic = self.stage.topics[data.draw(st.sampled_from(sorted(self.stage.topics)))]
        index = data.draw(st.sampled_from(sorted(topic.partitions)))
        delta = self.stage.place(topic.name, index, *brokers)
        if 1 not in brokers:
            self.ends.pop((topic.topic_id, index), None)
        if sees:
            self.stage.publish(delta)
        else:
            self.restart()

    @precondition(lambda self: len(self.stage.partitions))
    @rule(data=st.data())
    def append(self, data):
        places = sorted(replica.topic_partition for replica in self.stage.partitions)
        place = data.draw(st.sampled_from(places))
        replica = self.stage.partitions.get(*place)
        if replica.is_leader and not replica.log.room.is_full:
            self.stage.append(place)
            self.ends[replica.topic_id, place.partition] = replica.log.end_offset

    @rule()
    def sync(self):
        self.stage.sync()

    @rule(path=st.sampled_from(FOLDERS))
    def fail(self, path):
        """A folder fails alone: it takes what lies in it, and nothing else."""
        stage = self.stage
        if len(stage.partitions.offline_folders | {path}) == len(FOLDERS):
            return
        before = {replica.topic_partition: replica.folder for replica in stage.partitions}
        stage.hosting.folders.failed(path, StorageFault("no disk"))
        stage.run()
        for place, folder in before.items():
            assert (stage.partitions.get(*place) is None) is (folder == path)

    @rule(path=st.sampled_from(FOLDERS), is_full=st.booleans())
    def fill(self, path, is_full):
        self.stage.full -= {path}
        self.stage.full |= {path} if is_full else set()

    @rule(data=st.data())
    def rot(self, data):
        places = self._places()
        if places:
            self.stage.rotten ^= {data.draw(st.sampled_from(places))}

    @rule()
    def tick(self):
        self.stage.tick()

    @rule()
    def restart(self):
        self.stage.start()
        self.stage.publish()

    @rule()
    def there_is_room(self):
        """Everything that waited is served."""
        self.stage.full.clear()
        for _ in range(3):
            self.stage.tick()
        assert not self.stage.partitions.roomless
        assert self.stage.partitions.full_folders <= self.stage.partitions.offline_folders

    @invariant()
    def what_is_placed_here_is_hosted_or_offline(self):
        partitions, hosting = self.stage.partitions, self.stage.hosting
        placed = set(self._places())
        hosted = {replica.topic_partition for replica in partitions}
        assert not hosted & partitions.offline.keys()
        assert hosted <= placed <= hosted | partitions.offline.keys()
        for place in placed:
            assert hosting.standing(place) in AT_REST - {HostedState.ABSENT}

    @invariant()
    def a_hosted_log_is_of_the_topic_that_the_metadata_knows(self):
        for replica in self.stage.partitions:
            topic = self.stage.topics[replica.topic_partition.topic]
            marker = self.stage.files.read(
                f"{replica.folder}/{replica.topic_partition}/{PARTITION_METADATA}"
            )
            assert replica.topic_id == topic.topic_id == parse_partition_metadata(marker)
            assert replica.folder not in self.stage.partitions.offline_folders
            assert replica.log.fault is None

    @invariant()
    def a_hosted_log_has_what_was_appended(self):
        """Whatever lay in another folder under its name meanwhile."""
        for replica in self.stage.partitions:
            term = replica.topic_id, replica.topic_partition.partition
            assert replica.log.end_offset == self.ends.get(term, replica.log.end_offset)

    @invariant()
    def folders_are_known_to_be_full_as_their_logs_know_it(self):
        partitions = self.stage.partitions
        for path, folder in self.stage.hosting.folders.by_path.items():
            if folder.fault is None:
                assert (path in partitions.full_folders) is folder.room.is_full

    @invariant()
    def what_is_offline_is_found_by_its_topic(self):
        partitions = self.stage.partitions
        for place, topic_id in partitions.offline.items():
            assert place in partitions.offline_of(topic_id)
        assert {*partitions.roomless} | partitions.rotten <= partitions.offline.keys()


Life.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLife = Life.TestCase
