"""Which replica a consumer should read from: the leader, or one in the consumer's own rack.

What: what `replica.selector.class` names. Kafka loads a Java class of that name; the two that it
ships are known here by their names, and no other. Rules kept, as Kafka's: the leader itself when it
is in the consumer's rack, or nobody else there has the offset; otherwise of those in the rack the
one with the longest log, then the one that was caught up last, then the highest id. Only in-sync
replicas are named, so that nobody is sent after a follower that falls behind; an observer is named
while it was caught up within `replica.lag.time.max.ms`, which is what keeps a follower in sync.
Source: KIP-392. Not here: how it is told (`core.api.closest_replica`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.core.metadata.image import MetadataImage
    from anabranch.core.replication.progress import Progress
    from anabranch.core.replication.replica import Replica

LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
SELECTORS = (LEADER_SELECTOR, RACK_AWARE_SELECTOR)


def closest_replica(
    replica: Replica,
    image: MetadataImage,
    offset: int,
    *,
    rack: str,
    listener: str,
    now_ms: int,
    longest_lag_ms: int,
) -> int | None:
    """The broker to send a consumer in `rack` to that wants `offset`; None: read here.

    `replica` is led here. `now_ms` is the steady clock, as of the followers' fetches.
    """
    own = image.brokers.get(replica.broker_id)
    if not rack or (own is not None and own.rack == rack):
        return None
    for follower in replica.followers.values():
        follower.stayed(replica.log.end_offset)
    near = [
        follower
        for follower in replica.followers.values()
        if _is_reachable(image, follower.broker_id, rack, listener)
        and follower.start_offset <= offset <= follower.end_offset
        and _keeps_up(replica, follower, now_ms - longest_lag_ms)
    ]
    if not near:
        return None
    return max(near, key=_worth).broker_id


def _worth(follower: Progress) -> tuple[int, int, int]:
    return follower.end_offset, follower.caught_up_ms, follower.broker_id


def _is_reachable(image: MetadataImage, broker_id: int, rack: str, listener: str) -> bool:
    broker = image.brokers.get(broker_id)
    if broker is None or broker.rack != rack or not broker.active:
        return False
    return broker.endpoint(listener) is not None


def _keeps_up(replica: Replica, follower: Progress, since_ms: int) -> bool:
    if follower.broker_id in replica.in_sync_replicas:
        return True
    return follower.broker_id in replica.observers and follower.caught_up_ms >= since_ms
