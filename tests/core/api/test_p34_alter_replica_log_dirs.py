"""AlterReplicaLogDirs answers as Kafka 4.1 does, and DescribeLogDirs shows what moves."""

from __future__ import annotations

from types import SimpleNamespace

from tests.core.broker.test_folder_moves import PLACE, Moving

from anabranch.core.access.authorize import AllowAll
from anabranch.core.api.p34_alter_replica_log_dirs import HANDLER
from anabranch.core.api.p35_describe_log_dirs import HANDLER as DESCRIBE
from anabranch.core.errors import ErrorCode
from anabranch.core.types import TopicPartition
from anabranch.core.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from anabranch.core.wire.messages.describe_log_dirs import DescribeLogDirsRequest


class Denying(AllowAll):
    allows_all = False

    def authorize(self, request, operation, resource, name):
        return False


def alter(stage, *asked):
    """(topic, partition, code) of the answer to (folder, topic, partitions)."""
    body = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(path, [AlterReplicaLogDirTopic(topic, list(partitions))])
            for path, topic, partitions in asked
        ]
    )
    answer = HANDLER.broker(stage.broker, SimpleNamespace(body=body, version=2), 0)
    return [
        (topic.topic_name, each.partition_index, each.error_code)
        for topic in answer.results
        for each in topic.partitions
    ]


def described(stage):
    """(folder, partition, size, lag, is future) of all logs."""
    stage.broker.volume = lambda _path: (0, 0)
    request = SimpleNamespace(body=DescribeLogDirsRequest(topics=None), version=4)
    answer = DESCRIBE.broker(stage.broker, request, 0)
    return [
        (folder.log_dir, each.partition_index, each.offset_lag, each.is_future_key)
        for folder in answer.results
        for topic in folder.topics
        for each in topic.partitions
    ]


def test_a_replica_moves_and_is_shown_in_both_folders():
    stage = Moving(rate=5000)
    assert alter(stage, (stage.other, "t", [0])) == [("t", 0, 0)]
    home = (stage.home, 0, 0, False)
    assert described(stage) == [home, (stage.other, 0, 20, True)]
    stage.second()
    assert described(stage) == [home, (stage.other, 0, 15, True)]
    for _ in range(6):
        stage.second()
    assert described(stage) == [(stage.other, 0, 0, False)]


def test_nothing_moves_where_the_replica_lies_already():
    stage = Moving()
    assert alter(stage, (stage.home, "t", [0])) == [("t", 0, 0)]
    assert alter(stage, (stage.other, "t", [0]), (stage.home, "t", [0])) == [("t", 0, 0)]
    assert not stage.partitions.moves.wanted


def test_folders_and_partitions_that_are_not_here_are_named_by_their_codes():
    stage = Moving()
    stage.publish(stage.create("elsewhere"))
    stage.publish(stage.place("elsewhere", 0, 2))
    for asked, code in (
        (("/nowhere", "t", [0]), ErrorCode.LOG_DIR_NOT_FOUND),
        ((stage.other, "t", [9]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((stage.other, "nonesuch", [0]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((stage.other, "elsewhere", [0]), ErrorCode.REPLICA_NOT_AVAILABLE),
    ):
        assert alter(stage, asked) == [(asked[1], asked[2][0], code)]
    assert stage.partitions.moves.wanted == {TopicPartition("elsewhere", 0): stage.other}
    stage.failed.add(stage.other)
    stage.hosting.folders.save_high_watermarks()
    stage.run()
    assert alter(stage, (stage.other, "t", [0])) == [("t", 0, ErrorCode.KAFKA_STORAGE_ERROR)]


def test_a_stranger_is_refused():
    stage = Moving()
    stage.broker.authorizer = Denying()
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert alter(stage, (stage.other, "t", [0])) == [("t", 0, refused)]
    assert not stage.partitions.moves.wanted
    assert stage.replica.topic_partition == PLACE
