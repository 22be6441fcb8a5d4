"""What a broker tells about its folders: what nobody knows, and what it found; until it is taken."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from immutables import Map
from tests.core.broker.assignments_kit import (
    GONE,
    PLACE,
    REPLICA,
    TOPIC_ID,
    UNASSIGNED,
    A,
    B,
    image,
)

from anabranch.core.broker.directory_assignments import MOST, RETRY_MS, DirectoryAssignments
from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.directories import LOST_DIRECTORY
from anabranch.core.metadata.image import RESOURCE_TOPIC, MetadataDelta
from anabranch.core.replication.partitions import Partitions
from anabranch.core.types import NEVER_MS, TopicPartition
from anabranch.core.wire.messages.assign_replicas_to_dirs import (
    AssignedDirectoryData,
    AssignedPartitionData,
    AssignedTopicData,
    AssignReplicasToDirsResponse,
)

CHANGED = MetadataDelta(changed_partitions={TOPIC_ID: (0,)})


class Telling:
    """A broker and the time."""

    def __init__(self):
        self.partitions = Partitions(1)
        self.partitions.get_by_id = lambda _topic_id, _index: REPLICA
        self.broker = SimpleNamespace(broker_id=1, broker_epoch=7, partitions=self.partitions)
        self.machine = DirectoryAssignments(self.broker, {"/a": A, "/b": B})
        self.now_ms = 0

    def tells(self):
        """What is sent now."""
        return self.machine.take_effects(self.now_ms)

    def told(self):
        """(directory, partition) of what is sent now, and taken."""
        found = []
        for tell in self.tells():
            found += [
                (bytes(directory.id), each.partition_index)
                for directory in tell.request.directories
                for topic in directory.topics
                for each in topic.partitions
            ]
            assert self.answer(tell) == []
        return found

    def answer(self, tell, answer=None):
        return self.machine.answered(tell, answer or AssignReplicasToDirsResponse(), self.now_ms)


@pytest.fixture
def telling():
    return Telling()


def test_of_a_topic_that_became_diskless_no_folder_is_told(telling):
    """The controller would refuse it: replicas of such topics lie nowhere."""
    of = image(UNASSIGNED)
    own = {(RESOURCE_TOPIC, PLACE.topic): {"diskless.enable": "true"}}
    of = msgspec.structs.replace(of, configs=Map(own))
    telling.machine.follow(of, CHANGED)
    telling.machine.hosted(REPLICA, found=True)
    assert telling.told() == []
    assert telling.machine.next_tick_ms == NEVER_MS


def test_a_folder_that_nobody_knows_is_told_once(telling):
    telling.machine.follow(image(UNASSIGNED), None)
    telling.machine.hosted(REPLICA, found=False)
    assert telling.machine.next_tick_ms <= telling.now_ms
    assert telling.told() == [(A, 0)]
    assert telling.told() == []
    assert telling.machine.next_tick_ms == NEVER_MS


def test_what_is_known_is_not_told(telling):
    telling.machine.follow(image(A), None)
    telling.machine.hosted(REPLICA, found=True)
    assert telling.tells() == []


def test_a_log_that_was_found_elsewhere_is_told_and_one_begun_anew_is_not(telling):
    telling.machine.follow(image(GONE), None)
    telling.machine.hosted(REPLICA, found=False)
    assert telling.tells() == []
    telling.machine.hosted(REPLICA, found=True)
    assert telling.told() == [(A, 0)]


def test_it_is_told_when_it_has_caught_up_in_its_new_folder(telling):
    """The controller then forgets the folder that is gone."""
    telling.machine.follow(image(GONE), None)
    telling.machine.hosted(REPLICA, found=False)
    telling.machine.follow(image(UNASSIGNED), CHANGED)
    assert telling.told() == [(A, 0)]


@pytest.mark.parametrize("answer", [None, AssignReplicasToDirsResponse(error_code=1)])
def test_it_is_told_until_a_controller_takes_it(telling, answer):
    telling.machine.follow(image(UNASSIGNED), None)
    telling.machine.hosted(REPLICA, found=False)
    (tell,) = telling.tells()
    assert telling.tells() == [], "one request at a time"
    assert telling.machine.answered(tell, answer, telling.now_ms) == []
    assert telling.tells() == [], "not at once"
    telling.now_ms += RETRY_MS
    assert telling.told() == [(A, 0)]


@pytest.mark.parametrize(("level", "epoch"), [(16, 7), (27, -1)])
def test_a_level_without_folders_and_a_missing_registration_are_waited_out(telling, level, epoch):
    telling.broker.broker_epoch = epoch
    telling.machine.follow(image(UNASSIGNED, level=level), None)
    telling.machine.hosted(REPLICA, found=False)
    assert telling.tells() == []
    telling.broker.broker_epoch = 7
    telling.machine.follow(image(UNASSIGNED), None)
    telling.now_ms = telling.machine.next_tick_ms
    assert telling.told() == [(A, 0)]


def test_what_cannot_serve_is_told_while_others_are_in_sync(telling):
    telling.machine.follow(image(A), None)
    telling.partitions.give_up(PLACE, TOPIC_ID, is_rotten=True)
    telling.machine.tell_unusable()
    assert telling.told() == [(LOST_DIRECTORY, 0)]
    for known in (image(LOST_DIRECTORY), image(A, isr=(2,))):
        telling.machine.follow(known, None)
        telling.machine.tell_unusable()
        assert telling.tells() == [], "told, and done"


def test_what_nobody_else_is_in_sync_with_is_not_told_to_be_lost(telling):
    telling.machine.follow(image(A, isr=(1,)), None)
    telling.partitions.wait_for_room(PLACE, TOPIC_ID)
    telling.machine.tell_unusable()
    assert telling.tells() == []


def test_a_replica_that_was_opened_meanwhile_is_not_told_to_be_lost(telling):
    telling.machine.follow(image(A), None)
    telling.partitions.wait_for_room(PLACE, TOPIC_ID)
    telling.machine.tell_unusable()
    (tell,) = telling.tells()
    telling.machine.hosted(REPLICA, found=True)
    telling.machine.answered(tell, None, telling.now_ms)
    telling.now_ms += RETRY_MS
    assert telling.tells() == []


def test_what_the_controller_does_not_note_is_named_and_not_told_again(telling):
    telling.machine.follow(image(UNASSIGNED), None)
    telling.machine.hosted(REPLICA, found=False)
    (tell,) = telling.tells()
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    refused = AssignedPartitionData(partition_index=0, error_code=code)
    topic = AssignedTopicData(topic_id=TOPIC_ID, partitions=[refused])
    answer = AssignReplicasToDirsResponse(directories=[AssignedDirectoryData(id=A, topics=[topic])])
    assert telling.answer(tell, answer) == [(PLACE, code)]
    assert telling.tells() == []


def test_many_replicas_are_told_in_several_requests(telling):
    count = MOST + 10
    telling.machine.follow(image(UNASSIGNED, partitions=count), None)
    for index in range(count):
        place = TopicPartition("t", index)
        replica = SimpleNamespace(topic_partition=place, topic_id=TOPIC_ID, folder="/b")
        telling.machine.hosted(replica, found=False)
    assert [len(telling.told()), len(telling.told()), telling.told()] == [MOST, 10, []]
