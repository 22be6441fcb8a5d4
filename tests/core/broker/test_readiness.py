"""When a broker that starts may be let in: once what its folders hold counts."""

from __future__ import annotations

import pytest
from tests.core.broker.hosting_kit import FOLDERS, Stage

from anabranch.core.broker.hosting.effects import Ready
from anabranch.core.errors import StorageFault
from anabranch.core.types import TopicPartition


def stage_with_tails(partitions: int) -> Stage:
    """A broker that starts on logs whose last records were never synced; each sync takes time."""
    stage = Stage()
    stage.settings["t"] = {"flush.messages": "1"}
    stage.publish(stage.create("t", partitions))
    for index in range(partitions):
        stage.append(TopicPartition("t", index))
    stage.start()
    stage.syncing = []
    return stage


def test_a_broker_without_logs_is_ready_once_when_all_is_followed():
    stage = Stage()
    stage.run()
    stage.tick()
    assert not stage.count(Ready)
    stage.publish()
    assert stage.count(Ready) == 1
    stage.publish(stage.create("t"))
    stage.sync()
    assert stage.count(Ready) == 1


def test_a_broker_is_ready_when_its_last_log_is_open():
    stage = stage_with_tails(0)
    stage.hosting.follow(stage.image, None)
    while stage.hosting.work_left:
        assert not stage.count(Ready)
        assert stage.hosting.advance()
        stage.perform()
    assert stage.count(Ready) == 1


def test_what_is_published_meanwhile_is_followed_first():
    stage = Stage()
    stage.hosting.follow(stage.image, None)
    assert stage.hosting.advance()
    stage.perform()
    delta = stage.create("t")
    stage.hosting.follow(stage.image, delta)
    stage.run()
    kinds = [type(effect).__name__ for effect in stage.done]
    assert kinds.index("CreateLog") < kinds.index("Ready")


def test_a_broker_is_ready_when_what_recovery_found_is_on_disk():
    stage = stage_with_tails(2)
    stage.publish()
    assert not stage.count(Ready), "its rounds begin at the end of the step"
    stage.sync()
    stage.end_sync()
    assert not stage.count(Ready)
    stage.end_sync()
    assert stage.count(Ready) == 1


def test_rounds_that_began_while_logs_were_opened_count():
    stage = stage_with_tails(2)
    stage.hosting.follow(stage.image, None)
    while len(stage.partitions) < 1:
        stage.hosting.advance()
        stage.perform()
    stage.sync()  # a step of its own between two slices; the second log is opened after it
    assert len(stage.syncing) == 1
    assert not stage.count(Ready)
    stage.end_sync()
    assert not stage.count(Ready)
    stage.end_sync()
    assert stage.count(Ready) == 1


def test_a_broker_that_appends_all_the_time_is_let_in():
    """It copies from its leaders meanwhile, for as long as they have more."""
    stage = stage_with_tails(2)
    stage.publish()
    stage.sync()
    for rounds in range(1, 4):
        assert len(stage.syncing) == 2, "some round is always under way"
        stage.append(stage.syncing[0].replica.topic_partition)
        stage.sync()
        stage.end_sync()
        assert stage.count(Ready) == (rounds > 1)


def test_a_log_that_is_never_synced_keeps_the_broker_out():
    stage = stage_with_tails(2)
    stage.publish()
    stage.sync()
    stuck = stage.syncing.pop()
    for _ in range(5):
        stage.end_sync()
        stage.append(TopicPartition("t", 1 - stuck.replica.topic_partition.partition))
        stage.sync()
        stage.tick()
    assert not stage.count(Ready)


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_folder_that_fails_keeps_no_broker_out(is_begun):
    stage = stage_with_tails(3)
    stage.publish()
    if is_begun:
        stage.sync()
    stage.failed.add(FOLDERS[0])
    stage.hosting.folders.failed(FOLDERS[0], StorageFault("no disk"))
    stage.sync()
    while stage.syncing:
        assert not stage.count(Ready)
        stage.end_sync()
    assert stage.count(Ready) == 1
    assert stage.partitions.offline_folders == {FOLDERS[0]}


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_replica_that_goes_keeps_no_broker_out(is_begun):
    stage = stage_with_tails(1)
    stage.publish()
    if is_begun:
        stage.sync()
    stage.publish(stage.delete("t"))
    stage.sync()
    assert stage.count(Ready) == (not is_begun)
    if is_begun:
        stage.end_sync()
    assert stage.count(Ready) == 1


def test_a_process_that_stops_before_all_is_followed_is_never_ready():
    stage = stage_with_tails(1)
    stage.hosting.follow(stage.image, None)
    stage.hosting.stop()
    stage.run()
    stage.sync()
    assert not stage.count(Ready)
