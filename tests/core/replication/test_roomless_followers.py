"""A follower whose folder has no room: its leader does not ask for it again and again."""

from __future__ import annotations

from msgspec.structs import replace
from tests.core.replication.peers import Peers

from anabranch.core.errors import ErrorCode
from anabranch.core.replication.effects import SendAlterPartition

FOLDER_ID = b"2" * 16


def with_full_folder(peers: Peers, broker_id: int, *, is_full: bool) -> None:
    """The metadata tells whether the broker's one folder has room."""
    full = (FOLDER_ID,) if is_full else ()
    peers.brokers[broker_id] = replace(
        peers.brokers[broker_id], log_dirs=(FOLDER_ID,), full_log_dirs=full
    )


def asked_for(peers: Peers) -> int:
    return sum(isinstance(effect, SendAlterPartition) for _, _, effect in peers.mail)


def test_a_leader_asks_for_no_follower_that_has_no_room_until_it_has():
    """Its session of fetches says that it has everything, however long nothing is written."""
    peers = Peers(3)
    peers[1].produce(2)
    peers.run(4)
    with_full_folder(peers, 2, is_full=True)
    peers.change(isr=(1, 3), directories=(bytes(16), FOLDER_ID, bytes(16)))
    peers.publish()
    peers.refusals = [ErrorCode.INELIGIBLE_REPLICA] * 100
    for _ in range(10):
        peers.run(2)
        assert not asked_for(peers)
    assert len(peers.refusals) == 100
    peers.refusals.clear()
    with_full_folder(peers, 2, is_full=False)
    peers.publish()
    peers.settle()
    assert set(peers.state.isr) == {1, 2, 3}
