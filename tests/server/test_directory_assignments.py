"""What a broker tells about its folders: what nobody knows, and what it found; until it is taken."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from immutables import Map
from server_kit import eventually

from anabranch.core.controller.brokers.membership import LOST_DIRECTORY
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.metadata.features import METADATA_VERSION
from anabranch.core.metadata.image import (
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from anabranch.core.replication.partitions import Partitions
from anabranch.core.types import TopicPartition
from anabranch.core.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsResponse
from anabranch.server.directory_assignments import Assigning

TOPIC_ID = bytes([5]) * 16
A, B, GONE = (bytes([200 + each]) * 16 for each in range(3))
UNASSIGNED = bytes(16)
PLACE = TopicPartition("t", 0)


class Controller:
    """Takes what it is told; refuses as often as it is asked to."""

    def __init__(self, refusals=0):
        self.told, self.refusals = [], refusals

    def another(self, _purpose):
        return self

    async def send(self, request):
        if self.refusals:
            self.refusals -= 1
            raise ApiError(ErrorCode.NOT_CONTROLLER, "nobody")
        for directory in request.directories:
            for topic in directory.topics:
                self.told += [
                    (bytes(directory.id), each.partition_index) for each in topic.partitions
                ]
        return AssignReplicasToDirsResponse()

    async def close(self):
        pass


def image(directory, level=27, isr=(1, 2)):
    partition = PartitionImage(
        replicas=(1, 2), isr=isr, leader=1, leader_epoch=0, partition_epoch=0,
        directories=(directory, UNASSIGNED),
    )  # fmt: skip
    topic = TopicImage("t", TOPIC_ID, Map({0: partition}))
    return MetadataImage(
        topics_by_id=Map({TOPIC_ID: topic}),
        topic_ids_by_name=Map(t=TOPIC_ID),
        features=Map({METADATA_VERSION: level}),
    )


REPLICA = SimpleNamespace(topic_partition=PLACE, topic_id=TOPIC_ID, folder="/a")


@pytest.fixture
async def assigning(monkeypatch):
    controller = Controller()
    partitions = Partitions(1)
    monkeypatch.setattr(partitions, "get_by_id", lambda _topic_id, _index: REPLICA)
    broker = SimpleNamespace(broker_id=1, broker_epoch=7, partitions=partitions)
    telling = Assigning(broker, controller, {"/a": A, "/b": B})
    telling.controller, telling.partitions = controller, partitions
    yield telling
    await telling.stop()


async def test_a_folder_that_nobody_knows_is_told(assigning):
    assigning.follow(image(UNASSIGNED), None)
    assigning.hosted(REPLICA, found=False)
    await eventually(lambda: assigning.controller.told == [(A, 0)])


async def test_what_is_known_is_not_told(assigning):
    assigning.follow(image(A), None)
    assigning.hosted(REPLICA, found=True)
    assert assigning._task is None


async def test_a_log_that_was_found_elsewhere_is_told_and_one_begun_anew_is_not(assigning):
    assigning.follow(image(GONE), None)
    assigning.hosted(REPLICA, found=False)
    assert assigning._task is None
    assigning.hosted(REPLICA, found=True)
    await eventually(lambda: assigning.controller.told == [(A, 0)])


async def test_it_is_told_when_it_has_caught_up_in_its_new_folder(assigning):
    """The controller then forgets the folder that is gone."""
    assigning.follow(image(GONE), None)
    assigning.hosted(REPLICA, found=False)
    delta = MetadataDelta(changed_partitions={TOPIC_ID: (0,)})
    assigning.follow(image(UNASSIGNED), delta)
    await eventually(lambda: assigning.controller.told == [(A, 0)])


async def test_it_is_told_until_a_controller_takes_it(assigning):
    assigning.controller.refusals = 1
    assigning.follow(image(UNASSIGNED), None)
    assigning.hosted(REPLICA, found=False)
    await eventually(lambda: assigning.controller.told == [(A, 0)])


async def test_a_level_without_folders_is_waited_out(assigning):
    assigning.follow(image(UNASSIGNED, level=16), None)
    assigning.hosted(REPLICA, found=False)
    await eventually(lambda: assigning._task is not None)
    assert not assigning.controller.told
    assigning.follow(image(UNASSIGNED), None)
    await eventually(lambda: assigning.controller.told == [(A, 0)])


async def test_what_cannot_serve_is_told_while_others_are_in_sync(assigning):
    assigning.follow(image(A), None)
    assigning.partitions.give_up(PLACE, TOPIC_ID, is_rotten=True)
    assigning.tell_unusable()
    await eventually(lambda: assigning.controller.told == [(LOST_DIRECTORY, 0)])
    for known in (image(LOST_DIRECTORY), image(A, isr=(2,))):
        assigning.follow(known, None)
        assigning.tell_unusable()
        assert not assigning._placed, "told, and done"


async def test_what_nobody_else_is_in_sync_with_is_not_told_to_be_lost(assigning):
    assigning.follow(image(A, isr=(1,)), None)
    assigning.partitions.wait_for_room(PLACE, TOPIC_ID)
    assigning.tell_unusable()
    assert assigning._task is None


async def test_a_replica_that_was_opened_meanwhile_is_not_told_to_be_lost(assigning):
    assigning.controller.refusals = 1
    assigning.follow(image(A), None)
    assigning.partitions.wait_for_room(PLACE, TOPIC_ID)
    assigning.tell_unusable()
    assigning.hosted(REPLICA, found=True)
    await eventually(lambda: assigning._task.done())
    assert not assigning.controller.told
