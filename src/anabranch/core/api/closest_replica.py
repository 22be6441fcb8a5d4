"""Fetch's answer to a consumer that should read nearer: the replica's id and no records (KIP-392).

The rule it keeps: only a leader with `replica.selector.class` set to Kafka's rack-aware one sends
consumers away, and only those that say in which rack they are (`client.rack`, version 11 on). The
consumer comes back to the leader when the replica cannot serve it, and by itself after
`metadata.max.age.ms`. Not here: who is the closest (`core.replication.selection`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.replication.selection import RACK_AWARE_SELECTOR, closest_replica
from anabranch.core.wire.messages.fetch import PartitionData

if TYPE_CHECKING:
    from anabranch.core.api.context import Broker
    from anabranch.core.api.fetch_sessions import Wanted
    from anabranch.core.replication.replica import Replica
    from anabranch.core.request import Request

_RACK_SINCE = 11


def sends_away(broker: Broker) -> bool:
    """Whether consumers may read from followers."""
    return broker.config.replica_selector_class == RACK_AWARE_SELECTOR


def rack_of(broker: Broker, request: Request) -> str:
    """The consumer's rack, "" when it said none or this broker sends nobody away."""
    if request.version < _RACK_SINCE:
        return ""
    if not sends_away(broker):
        return ""
    rack: str = request.body.rack_id
    return rack


def sent_nearer(
    broker: Broker, request: Request, replica: Replica, wanted: Wanted, rack: str
) -> PartitionData | None:
    """The answer that names a nearer replica, None when the leader should serve this itself."""
    broker_id = closest_replica(
        replica,
        broker.image,
        wanted.fetch_offset,
        rack=rack,
        listener=request.listener,
        now_ms=broker.steady_ms,
        longest_lag_ms=broker.config.replica_lag_time_max_ms,
    )
    if broker_id is None:
        return None
    return PartitionData(
        partition_index=wanted.index,
        high_watermark=replica.high_watermark,
        last_stable_offset=replica.last_stable_offset,
        log_start_offset=replica.start_offset,
        aborted_transactions=None,
        preferred_read_replica=broker_id,
        records=b"",
    )
