"""R9: observers copy and serve reads; they never count, never join and are never counted as late."""

from tests.core.replication.peers import Peers
from tests.core.replication.test_in_sync import only

from anabranch.core.errors import ErrorCode
from anabranch.core.replication.effects import SendAlterPartition
from anabranch.core.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from anabranch.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.core.wire.messages.metadata import MetadataRequest, MetadataRequestTopic


def read(peer, offset, *, version=12):
    """What a consumer gets from a broker: error, offsets' bytes, high watermark."""
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        topics=[FetchTopic(topic="t", partitions=[partition])], max_bytes=1 << 20
    )
    answer = peer.ask(request, version).responses[0].partitions[0]
    return answer.error_code, bytes(answer.records or b""), answer.high_watermark


def observed():
    peers = Peers(3, observers=(3,))
    peers[1].produce(2)
    peers.run(4)
    return peers


def test_an_observer_copies_and_serves_reads():
    peers = observed()
    assert peers[3].bytes_upto(2) == peers[1].bytes_upto(2)
    assert read(peers[3], 0) == (0, peers[1].bytes_upto(2), 2)


def test_an_observer_is_never_proposed_and_holds_nothing():
    peers = observed()
    assert 3 in peers[1].replica.followers
    assert only(peers, SendAlterPartition) == []
    assert [each.broker_id for each in peers[1].replica.holders] == [2]


def test_a_dead_observer_holds_nobody_up_and_is_not_taken_out_of_anything():
    peers = Peers(3, observers=(3,), publish=False)
    peers.publish(1, 2)
    peers[1].produce(1)
    peers.run(4)
    assert peers[1].high_watermark == 1
    peers.wait(100_000)
    assert only(peers, SendAlterPartition) == []


def test_what_an_observer_does_not_know_to_be_committed_it_does_not_show():
    peers = Peers(3, observers=(3,))
    peers[1].produce(1)
    peers.run(4)
    peers.mail = [each for each in peers.mail if each[0].broker_id == 3]  # 2 falls silent
    peers[1].produce(1)
    peers.run(3)
    assert (peers[3].end, peers[3].high_watermark) == (2, 1)
    assert read(peers[3], 0)[1] == peers[1].bytes_upto(1)
    assert read(peers[3], 1) == (0, b"", 1)
    assert read(peers[3], 2)[0] == ErrorCode.OFFSET_NOT_AVAILABLE
    assert read(peers[3], 3)[0] == ErrorCode.OFFSET_NOT_AVAILABLE, "the leader decides"
    assert read(peers[1], 2)[0] == ErrorCode.NONE, "the leader knows that it is there"


def test_old_consumers_are_sent_to_the_leader():
    peers = observed()
    assert read(peers[3], 0, version=10)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_observer_follows_a_new_leader_and_drops_what_parts_from_it():
    peers = Peers(3, observers=(3,))
    peers[1].produce(2, acks=1)
    peers.mail = [each for each in peers.mail if each[0].broker_id == 3]
    peers.run(2)
    assert peers[3].end == 2
    peers.elect(2, isr=(2,))
    peers[2].produce(1)
    peers.settle()
    assert peers[3].bytes_upto(1) == peers[2].bytes_upto(1)
    assert (peers[3].end, peers[3].high_watermark) == (1, 1)


def test_metadata_names_observers_among_the_replicas():
    """Decision 13: Java consumers fetch only from replicas that Metadata lists."""
    peers = observed()
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    partition = peers[1].ask(request, 9).topics[0].partitions[0]
    assert (partition.replica_nodes, partition.isr_nodes) == ([1, 2, 3], [1, 2])
    assert partition.offline_replicas == []
    del peers.brokers[3]
    peers.publish(1)
    assert peers[1].ask(request, 9).topics[0].partitions[0].offline_replicas == [3]


def test_describing_partitions_leaves_observers_out():
    """Decision 13: tools call a listed replica that is not in sync under-replicated."""
    peers = observed()
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name="t")], response_partition_limit=10
    )
    partition = peers[1].ask(request, 0).topics[0].partitions[0]
    assert (partition.replica_nodes, partition.isr_nodes) == ([1, 2], [1, 2])
