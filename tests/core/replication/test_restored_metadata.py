"""Metadata that was restored from a shorter copy knows fewer leader epochs than the logs have."""

from __future__ import annotations

import pytest
from tests.core.replication.peers import Peers


def set_back(elections: int) -> tuple[Peers, bytes]:
    """Broker 1 leads by metadata that has forgotten so many leader epochs, in each of which broker
    2 acknowledged records; and what the logs of 2 and 3 hold."""
    peers = Peers(3)
    peers[1].produce(3)
    peers.settle()
    forgotten = peers.state
    for _ in range(elections):
        peers.elect(2, isr=(2, 3))
        peers[2].produce(2)
        peers.settle()
    held = peers[2].bytes_upto(peers[2].end)
    assert peers[3].bytes_upto(peers[3].end) == held
    peers.lose_all()
    peers.states[0] = forgotten
    for broker_id in (1, 2, 3):
        peers.restart(broker_id)
    peers.publish()
    peers[1].produce(1, acks=1)
    peers.settle()
    return peers, held


@pytest.mark.parametrize("elections", [1, 2, 4])
def test_a_follower_that_knows_newer_epochs_than_the_metadata_keeps_its_log(elections: int) -> None:
    peers, held = set_back(elections)
    for broker_id in (2, 3):
        assert peers[broker_id].bytes_upto(peers[broker_id].end) == held
        obstacles = peers[broker_id].broker.replication.obstacles
        assert ["older than this log" in each.why for each in obstacles] == [True]


@pytest.mark.parametrize("elections", [1, 2])
def test_it_goes_on_to_refuse_when_the_metadata_reaches_its_epochs_another_time(
    elections: int,
) -> None:
    """Else epochs would be equal, and what was written in them would not."""
    peers, held = set_back(elections)
    for _ in range(elections + 2):
        peers.elect(1)
        peers[1].produce(1, acks=1)
        peers.settle()
    for broker_id in (2, 3):
        assert peers[broker_id].bytes_upto(peers[broker_id].end) == held
    peers.elect(2)
    assert not peers[2].replica.is_leader


def test_metadata_that_is_put_right_ends_the_refusal_with_the_process() -> None:
    peers, held = set_back(2)
    for _ in range(3):
        peers.change(leader=2, isr=(2, 3))
    for broker_id in (1, 2, 3):
        peers.restart(broker_id)
    peers.publish()
    peers.settle()
    assert [peers[each].bytes_upto(peers[2].end) for each in (1, 2, 3)] == [held] * 3
