"""Replication throttles (KIP-73): who is left out, for how long, and who never is."""

from __future__ import annotations

import pytest
from tests.core.replication.peers import Peers

from anabranch.core.replication.throttles import LONGEST_REST_MS, Throttle, is_listed
from anabranch.core.settings.broker import BrokerConfig

LEADER, FOLLOWER = "leader.replication.throttled", "follower.replication.throttled"
BATCHES = 20


@pytest.mark.parametrize(
    ("listed", "is_meant"),
    [
        ((), False),
        (("*",), True),
        (("0:2",), True),
        (("1:2", "0:3"), False),
        (("1:1", "0:2"), True),
    ],
)
def test_a_topic_lists_replicas_by_partition_and_broker(listed, is_meant):
    assert is_listed(listed, partition=0, broker_id=2) == is_meant


def test_a_rate_is_of_eleven_samples_of_a_second():
    throttle, config = Throttle(), BrokerConfig.of({})
    throttle.record(1500, 0, config)
    assert throttle.rest_ms(1000, 0, config) == LONGEST_REST_MS
    assert (throttle.rest_ms(1000, 1000, config), throttle.rest_ms(1000, 1001, config)) == (
        500,
        499,
    )
    assert throttle.rest_ms(1000, 1500, config) == 0
    throttle.record(20_000, 1500, config)
    assert throttle.rest_ms(1000, 1500, config) == LONGEST_REST_MS
    assert throttle.rest_ms(1000, 10_999, config) > 0
    assert throttle.rest_ms(1000, 12_500, config) == 0


def test_a_rate_of_nothing_lets_the_first_bytes_through_alone():
    throttle, config = Throttle(), BrokerConfig.of({})
    assert throttle.rest_ms(0, 0, config) == 0
    throttle.record(1, 0, config)
    assert throttle.rest_ms(0, 0, config) > 0


def behind(side: str, rate: int, listed: str = "*") -> Peers:
    """Broker 3 is no in-sync replica and has nothing of some batches that 1 and 2 have."""
    peers = Peers(
        3,
        config={f"{side}.rate": str(rate), "replica.fetch.max.bytes": "1"},
        topic_config={f"{side}.replicas": listed},
        publish=False,
    )
    peers.change(isr=(1, 2))
    peers.publish(1, 2)
    for _ in range(BATCHES):
        peers[1].produce(1)
        peers.run(4)
    peers.wait(12_000)  # what broker 2 has copied counts too: it has left the samples
    peers.run(2)
    peers.publish(3)
    return peers


@pytest.mark.parametrize("side", [LEADER, FOLLOWER])
def test_who_catches_up_does_so_at_the_rate(side):
    size = len(behind(side, 2**60)[1].bytes_upto(BATCHES)) // BATCHES
    peers = behind(side, size)
    peers.run(10)
    assert 0 < peers[3].end < 4
    for _ in range(5):
        peers.wait(1000)
        peers.run(10)
    assert 4 <= peers[3].end <= 9
    for _ in range(20):
        peers.wait(1000)
        peers.run(10)
    assert peers[3].end == BATCHES
    assert peers[3].bytes_upto(BATCHES) == peers[1].bytes_upto(BATCHES)


@pytest.mark.parametrize("side", [LEADER, FOLLOWER])
def test_who_is_in_sync_is_never_held_back(side):
    peers = behind(side, 1)
    first = peers[1].end
    for _ in range(5):
        peers[1].produce(1)
        peers.run(4)
    assert (peers[2].end, peers[1].high_watermark) == (first + 5, first + 5)


@pytest.mark.parametrize("side", [LEADER, FOLLOWER])
def test_a_replica_that_is_not_listed_is_not_throttled(side):
    peers = behind(side, 1, listed="0:2,1:3")
    peers.run(60)
    assert peers[3].end == BATCHES
