"""Counts partitions of produce and fetch requests that are served in their client's rack.

What: of diskless topics alone, since any broker serves those: Metadata sends a client that names
its rack to a broker there (`metadata_view.py`), and these figures tell whether it went. A partition
counts when a batch of its was taken, or records of its were given; polls that found nothing do not.
Why so: what crosses racks is records. Rule kept: a request without diskless partitions costs one
look-up a topic. Metric: `kafka_broker_diskless_preferred_broker_hit_ratio`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.core.api.context import Broker
    from anabranch.core.api.fetch_sessions import Wanted
    from anabranch.core.request import Request
    from anabranch.core.wire.messages.fetch import PartitionData
    from anabranch.core.wire.messages.produce import PartitionProduceResponse


def count_taken(
    broker: Broker, request: Request, topic: str, answers: Iterable[PartitionProduceResponse]
) -> None:
    """Batches of one topic came, and these are the answers."""
    if topic in broker.diskless.topics:
        _count(broker, request, topic, sum(not each.error_code for each in answers))


def count_given(
    broker: Broker, request: Request, answers: Iterable[tuple[Wanted, PartitionData]]
) -> None:
    """A consumer gets these answers."""
    topics = broker.diskless.topics
    if not topics:
        return
    given = Counter(wanted.topic for wanted, answer in answers if answer.records)
    for topic in given.keys() & topics.keys():
        _count(broker, request, topic, given[topic])


def _count(broker: Broker, request: Request, topic: str, partitions: int) -> None:
    if partitions:
        cache, pairs = broker.metadata_cache, broker.config.diskless_client_az_listener_map
        zone = cache.zone(broker.image, request.client_id, request.listener, pairs)
        is_near = zone == cache.racks(broker.image).get(broker.broker_id)
        cache.served.count(topic, zone, partitions if is_near else 0, partitions)
