"""Where the leader is now, told together with an error, so that a client need not ask (KIP-951)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from anabranch.core.api.context import Broker

EndpointT = TypeVar("EndpointT")


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


def tell_leaders(
    broker: Broker,
    listener: str,
    refused: Iterable[tuple[str, int, Any]],
    leader: Callable[..., object],
    endpoint: Callable[..., EndpointT],
) -> list[EndpointT]:
    """Say in the answers of refused partitions (topic, index, answer) who leads them; where those
    leaders are. `leader` and `endpoint` are what the message has for that.

    Of a partition that nobody leads nothing is said, where Kafka tells the epoch of leader -1:
    librdkafka counts that partition among those that moved and reads memory that it never filled
    (its issue 5280), so that the client's process ends."""
    endpoints: dict[int, EndpointT] = {}
    for topic, index, answer in refused:
        hint = leader_hint(broker, listener, topic, index)
        if hint.leader_id < 0:
            continue
        answer.current_leader = leader(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)
        if hint.host is not None:
            endpoints[hint.leader_id] = endpoint(
                node_id=hint.leader_id, host=hint.host, port=hint.port, rack=hint.rack
            )
    return list(endpoints.values())
