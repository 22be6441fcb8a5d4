"""MirrorMaker 2 between two clusters that ask for logins over TLS: the peer, and Apache Kafka.

Both nodes are those of `secure.py`, each with an authority and a user of its own. MirrorMaker 2
only knows their listeners of SASL over TLS; records go in, and are looked at, by the plaintext one.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.mirrors import properties
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from compat.families.records import SECONDS
from compat.families.secure import SecurePeer, secured
from compat.families.topics import create
from compat.mirrors import (
    MIRROR_SECONDS,
    PARTITIONS,
    READER,
    await_records,
    commit,
    fetch,
    maker,
    same,
    send,
)
from compat.peer import Peer
from compat.row import row

COUNT = 300
MECHANISM = "SCRAM-SHA-512"


@dataclass(frozen=True)
class Flow:
    """A topic and a group that go from one cluster to the other."""

    name: str
    source: SecurePeer
    target: SecurePeer
    topic: str

    @property
    def alias(self) -> str:
        """The name of the source."""
        return self.name.partition("->")[0]

    @property
    def group(self) -> str:
        """A group that has read the topic to its end."""
        return f"readers-of-{self.topic}"

    @property
    def remote(self) -> str:
        """The topic's name at the target."""
        return f"{self.alias}.{self.topic}"

    def prepare(self) -> None:
        """Send records, some of them aborted: their offsets differ at the target."""
        create(self.source, self.topic, PARTITIONS)
        send(self.source, self.topic, 0, COUNT)
        commit(self.source, self.group, self.topic, ends(self.source, self.topic))

    def keys(self) -> dict[str, object]:
        """What MirrorMaker 2 has to know of the flow, and how it logs in to the source."""
        logs_in = self.source.properties(MECHANISM).read_text().splitlines()
        return {
            **dict(f"{self.alias}.{line}".split("=", 1) for line in logs_in),
            f"{self.alias}.consumer.isolation.level": "read_committed",
            f"{self.name}.enabled": "true",
            f"{self.name}.topics": self.topic,
            f"{self.name}.groups": self.group,
            f"{self.name}.sync.group.offsets.enabled": "true",
        }

    def arrive(self) -> None:
        """Wait for the records, and until the group is at their end."""
        await_records(self.target, self.remote, COUNT)
        admin = AdminClient({"bootstrap.servers": self.target.bootstrap})
        end = ends(self.target, self.remote)
        self.target.wait(
            lambda: committed(admin, self.group, self.remote) == end,
            f"{self.group} is at the end of {self.remote}",
            MIRROR_SECONDS,
        )


@row("secure-mirror-maker", prepare=fetch)
def mirrors_over_tls(peer: Peer) -> object:
    """MirrorMaker 2, which logs in with SCRAM over TLS, mirrors to a secured Apache Kafka and back:
    records arrive, and the offsets of groups."""
    with secured(peer) as east, secured(peer, "kafka") as west:
        flows = (Flow("east->west", east, west, "there"), Flow("west->east", west, east, "back"))
        more: dict[str, object] = {"offset.lag.max": 0}  # the offset behind any record translates
        for flow in flows:
            flow.prepare()
            more |= flow.keys()
        addresses = [each.address(MECHANISM) for each in (east, west)]
        text = properties(addresses[0], addresses[1], flows[0].topic, more=more)
        with maker(peer, peer.file("secure.properties", text)):
            for flow in flows:
                flow.arrive()
        return [
            (same(each.source, each.topic, each.target, each.remote),
             ends(each.source, each.topic), ends(each.target, each.remote))
            for each in flows
        ]  # fmt: skip


def ends(peer: Peer, topic: str) -> dict[int, int]:
    """The end of each partition, behind all records: the marker of a transaction may come later."""
    settings = {**READER, "isolation.level": "read_uncommitted"}
    consumer = Consumer({**settings, "bootstrap.servers": peer.bootstrap})
    try:
        return {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), SECONDS)[1]
            for number in range(PARTITIONS)
        }
    finally:
        consumer.close()


def committed(admin: AdminClient, group: str, topic: str) -> dict[int, int]:
    """The offsets of a group, of the partitions of a topic where it has one."""
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    places = asked[group].result(SECONDS).topic_partitions
    return {each.partition: each.offset for each in places if each.topic == topic}
