"""Where the leader is now, told together with an error, so that a client need not ask (KIP-951)."""

from __future__ import annotations

from typing import NamedTuple

from anabranch.core.api.context import Broker


class LeaderHint(NamedTuple):
    """A leader and its epoch, -1 when not known; its address on the asking client's listener."""

    leader_id: int
    leader_epoch: int
    host: str | None
    port: int
    rack: str | None


def leader_hint(broker: Broker, listener: str, topic: str, index: int) -> LeaderHint:
    """The current leader: as the hosted replica knows it, else as the metadata does."""
    leader_id, epoch = -1, -1
    replica = broker.partitions.get(topic, index)
    if replica is not None:
        leader_id, epoch = replica.leader_id, replica.leader_epoch
    else:
        state = broker.image.partition(topic, index)
        if state is not None:
            leader_id, epoch = state.leader, state.leader_epoch
    leader = broker.image.brokers.get(leader_id)
    endpoint = None if leader is None or leader.fenced else leader.endpoint(listener)
    if leader is None or endpoint is None:
        return LeaderHint(leader_id, epoch, None, -1, None)
    return LeaderHint(leader_id, epoch, endpoint.host, endpoint.port, leader.rack)
