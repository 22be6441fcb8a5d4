"""Topics and partitions as a client on one listener may see them.

What: the part of Metadata and DescribeTopicPartitions that is the same: leaders that can be
reached, offline replicas, errors. Why cached: a topic's image is immutable, so that its answer is
made once for an image of the brokers and asked for ever after. Making it must not hold up others
either: a client may ask for all of a hundred thousand partitions. Rule kept: Metadata names
observers after the replicas, since Java clients fetch only from brokers that it names;
DescribeTopicPartitions does not, since tools take a replica that is not in sync for a failure
(decision 13). Of a diskless topic a client sees what is near it
(`core/diskless/client_zone.py`); whom it is shown is counted. Source: Kafka's KRaftMetadataCache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from anabranch.core.diskless.client_zone import NO_ZONE, racks_of, shown, zone_of
from anabranch.core.diskless.topics import is_diskless
from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.directories import emptied
from anabranch.core.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from anabranch.core.types import NO_LEADER
from anabranch.core.wire.messages.metadata import MetadataResponsePartition

CACHED_TOPICS = 10_000
"""Topics whose partitions are kept ready; a bound on memory."""
CACHED_CLIENTS, LONGEST_CACHED = 10_000, 200
"""Client ids whose racks are kept ready, and the longest of them."""


class View(NamedTuple):
    """What decides how a partition looks, besides its own image."""

    listener: str
    hides_dead_replicas: bool = False
    """Version 0: replicas that are not alive are left out, with an error."""
    names_missing_listeners: bool = True
    """Version 6 on: a leader without the listener is LISTENER_NOT_FOUND."""
    zone: str | None = None
    """Of a diskless topic: the rack of the client, "" where it is not known."""


class _Cached(NamedTuple):
    topic: TopicImage
    brokers: Mapping[int, BrokerImage]
    partitions: list[MetadataResponsePartition]
    local: int
    """Those of them that are shown in the zone of the client."""


class Zones:
    """Partitions of diskless topics that clients were told of, or served: `hits` in the client's
    rack, `misses` in another one, and of the `unaware` no rack is known."""

    def __init__(self) -> None:
        self.hits: Counter[str] = Counter()
        self.misses: Counter[str] = Counter()
        self.unaware: Counter[str] = Counter()

    def count(self, topic: str, zone: str, local: int, partitions: int) -> None:
        """A request was about so many partitions, `local` of them in the client's zone."""
        if len(self.hits) + len(self.unaware) >= 2 * CACHED_TOPICS:
            self.__init__()  # type: ignore[misc]
        if zone == NO_ZONE:
            self.unaware[topic] += partitions
        else:
            self.hits[topic] += local
            self.misses[topic] += partitions - local

    def forget(self, topic: str) -> None:
        """It was deleted."""
        for counts in (self.hits, self.misses, self.unaware):
            counts.pop(topic, None)


class MetadataCache:
    """Answers for whole topics, by view and topic; forgotten when the topic or a broker changed."""

    def __init__(self) -> None:
        self._topics: dict[tuple[View, bytes], _Cached] = {}
        self._racks: tuple[object, dict[int, str]] = None, {}
        self._diskless: dict[bytes, tuple[TopicImage, bool]] = {}
        """By topic id. A classic topic that becomes diskless has another image then."""
        self.zones = Zones()
        """Of answers to Metadata."""
        self.served = Zones()
        """Of produce and fetch requests (`near_clients.py`)."""
        self._clients: dict[tuple[str | None, str], str] = {}
        self._clients_of: tuple[object, Sequence[str]] = None, ()

    def is_diskless(self, image: MetadataImage, topic: TopicImage) -> bool:
        """Whether a topic is diskless, looked up once: Metadata asks for each topic each time."""
        known = self._diskless.get(topic.topic_id)
        if known is None or known[0] is not topic:
            if len(self._diskless) >= 10 * CACHED_TOPICS:
                self._diskless.clear()
            known = self._diskless[topic.topic_id] = topic, is_diskless(image, topic.name)
        return known[1]

    def racks(self, image: MetadataImage) -> dict[int, str]:
        """Broker -> rack, made once for the brokers of an image."""
        if self._racks[0] is not image.brokers:
            self._racks = image.brokers, racks_of(image)
        return self._racks[1]

    def zone(
        self, image: MetadataImage, client_id: str | None, listener: str, pairs: Sequence[str]
    ) -> str:
        """The rack of a client; see `zone_of`. Kept, since produce and fetch ask too."""
        if self._clients_of[0] is not image.brokers or self._clients_of[1] != pairs:
            self._clients_of = image.brokers, pairs
            self._clients.clear()
        key = client_id, listener
        found = self._clients.get(key)
        if found is None:
            found = zone_of(client_id, listener, pairs, self.racks(image).values())
            if len(client_id or "") <= LONGEST_CACHED:
                if len(self._clients) >= CACHED_CLIENTS:
                    self._clients.clear()
                self._clients[key] = found
        return found

    def partitions(
        self, image: MetadataImage, topic: TopicImage, view: View
    ) -> list[MetadataResponsePartition]:
        """Every partition of a topic; the list is shared and must not be changed."""
        key = (view, topic.topic_id)
        cached = self._topics.get(key)
        if cached is None or cached.topic is not topic or cached.brokers is not image.brokers:
            cached = self._made(image, topic, view)
            if len(self._topics) >= CACHED_TOPICS:
                self._topics.clear()
            self._topics[key] = cached
        if view.zone is not None:
            self.zones.count(topic.name, view.zone, cached.local, len(cached.partitions))
        return cached.partitions

    def _made(self, image: MetadataImage, topic: TopicImage, view: View) -> _Cached:
        """Partitions on the same brokers look alike but for their number and epoch: of thousands
        that are made at once a few are looked at."""
        racks = None if view.zone is None else self.racks(image)
        alike: dict[Hashable, tuple[MetadataResponsePartition, bool]] = {}
        partitions, local = [], 0
        for index, state in sorted(topic.partitions.items()):
            brokers = (
                state.leader, state.replicas, state.isr, state.observers, state.missing,
                state.directories,
            )  # fmt: skip
            found = alike.get(brokers)
            if found is None:
                found = alike[brokers] = _look(image, state, view, racks)
            like, is_local = found
            partitions.append(replace(like, partition_index=index, leader_epoch=state.leader_epoch))
            local += is_local
        return _Cached(topic, image.brokers, partitions, local)


def _look(
    image: MetadataImage, state: PartitionImage, view: View, racks: dict[int, str] | None
) -> tuple[MetadataResponsePartition, bool]:
    """How a partition looks, and whether a client in the view's zone has a replica of it there;
    `racks` is None for a classic topic."""
    is_local = False
    if racks is not None:
        state, is_local = as_seen_near(image, state, view, racks)
    return partition_view(image, 0, state, view), is_local


def as_seen_near(
    image: MetadataImage, state: PartitionImage, view: View, racks: dict[int, str]
) -> tuple[PartitionImage, bool]:
    """A diskless partition as a client in the view's zone sees it, and whether it has a living
    replica there."""
    near = shown(
        state.replicas,
        state.leader,
        view.zone or NO_ZONE,
        racks,
        lambda broker_id: _alive(image, broker_id, view.listener),
    )
    seen = replace(state, replicas=near.replicas, isr=near.replicas, leader=near.leader)
    return seen, near.is_local


def partition_view(
    image: MetadataImage, index: int, state: PartitionImage, view: View
) -> MetadataResponsePartition:
    """One partition, with the error that Kafka gives when its leader cannot be reached."""
    leader, error = reachable_leader(image, state, view)
    replicas = [*state.replicas, *awaited_replicas(state), *state.observers]
    isr = list(state.isr)
    listed = len(replicas)
    if view.hides_dead_replicas:
        replicas = [broker for broker in replicas if _alive(image, broker, view.listener)]
        isr = [broker for broker in isr if _alive(image, broker, view.listener)]
        dead = len(replicas) < listed or len(isr) < len(state.isr)
        if error == ErrorCode.NONE and dead:
            error = ErrorCode.REPLICA_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=offline_replicas(image, state, view.listener, state.observers),
    )


def awaited_replicas(state: PartitionImage) -> tuple[int, ...]:
    """Ids that stand for replicas which no broker has yet: -1, -2, … (KIP-409).

    They exist in answers alone, after every real id, and are always offline.
    """
    return tuple(range(-1, -state.missing - 1, -1))


def reachable_leader(
    image: MetadataImage, state: PartitionImage, view: View
) -> tuple[int, ErrorCode]:
    """The leader's id, or -1 and why it cannot be told."""
    leader = image.brokers.get(state.leader)
    if leader is None:
        return NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE
    if leader.endpoint(view.listener) is None:
        if view.names_missing_listeners:
            return NO_LEADER, ErrorCode.LISTENER_NOT_FOUND
        return NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE
    return state.leader, ErrorCode.NONE


def offline_replicas(
    image: MetadataImage, state: PartitionImage, listener: str, observers: Sequence[int] = ()
) -> list[int]:
    """Replicas whose broker is gone or fenced, or cannot be reached on this listener, and those
    that lie in a folder of it that failed (KIP-858)."""
    named = (*state.replicas, *awaited_replicas(state), *observers)
    lost = emptied(image, state)
    return [
        broker
        for broker in named
        if not _alive(image, broker, listener)
        or (broker in lost and image.brokers[broker].log_dirs)
    ]


def listed_brokers(
    image: MetadataImage,
    listener: str,
    own_id: int,
    stays_listed: Callable[[BrokerImage], bool],
) -> list[BrokerImage]:
    """Brokers that have the listener and are not fenced, or stay listed for a while, by id.

    When there is none (one node that is about to stop) the broker that answers is named: librdkafka
    forgets each broker that is missing from an answer, and with the last one its way back.
    """
    listed = [
        broker
        for broker_id, broker in sorted(image.brokers.items())
        if _alive(image, broker_id, listener)
        or (broker.endpoint(listener) is not None and stays_listed(broker))
    ]
    own = image.brokers.get(own_id)
    if listed or own is None or own.endpoint(listener) is None:
        return listed
    return [own]


def some_alive_broker(image: MetadataImage, preferred: int) -> int:
    """A broker to be named as the controller: it forwards. -1 when none is alive."""
    broker = image.brokers.get(preferred)
    if broker is not None and not broker.fenced:
        return preferred
    alive = (broker_id for broker_id, broker in image.brokers.items() if not broker.fenced)
    return min(alive, default=-1)


def _alive(image: MetadataImage, broker_id: int, listener: str) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.fenced and broker.endpoint(listener) is not None
