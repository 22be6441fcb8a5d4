"""Three nodes as a user runs them, and records that must survive whatever is done to them."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import confluent_kafka
from bad_kit import SECONDS, Raw, RunningNode, eventually
from confluent_kafka.admin import AdminClient, NewTopic
from node_kit import free_port

from anabranch.core.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    QuorumPartitionData,
    QuorumTopicData,
)
from anabranch.core.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

IDS = (1, 2, 3)
TOPIC = "kept"


class ThreeNodes:
    """Combined nodes on one SQLite store; clients have a listener of their own, EXTERNAL."""

    def __init__(self, folder, controller_host="127.0.0.1", **settings):
        self.folder = folder
        self.controller_host = controller_host
        self.store = folder / "store" / "metadata.db"
        self.store.parent.mkdir(exist_ok=True)
        self.controllers = {each: free_port() for each in IDS}
        self.external = {each: free_port() for each in IDS}
        self.extra = settings
        self.nodes = {each: self.made(each) for each in IDS}
        self.acked = []
        self._numbers = itertools.count()

    def settings(self, node_id, folder=None):
        """Settings of a node; one from elsewhere gets ports of its own."""
        own = folder is None
        port = free_port()
        controller = self.controllers[node_id] if own else free_port()
        external = self.external[node_id] if own else free_port()
        listeners = ",".join((
            f"PLAINTEXT://127.0.0.1:{port}",
            f"EXTERNAL://127.0.0.1:{external}",
            f"CONTROLLER://{self.controller_host}:{controller}",
        ))  # fmt: skip
        servers = ",".join(f"127.0.0.1:{each}" for each in self.controllers.values())
        return {
            "port": port,
            "node.id": str(node_id),
            "listeners": listeners,
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
            ),
            "controller.quorum.bootstrap.servers": servers,
            "metadata.store.url": f"sqlite://{self.store}",
            "offsets.topic.replication.factor": "1",
            **self.extra,
        }

    def made(self, node_id, folder=None, **settings):
        """A node of the cluster, or one in another folder that says it is."""
        place = folder or self.folder / str(node_id)
        return RunningNode(place, **{**self.settings(node_id, folder), **settings})

    @property
    def bootstrap(self):
        return ",".join(node.bootstrap for node in self.nodes.values())

    def start(self):
        for node in self.nodes.values():
            node.start()
        for node in self.nodes.values():
            node.ready()
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        settings = {"min.insync.replicas": "2"}
        topic = NewTopic(TOPIC, replica_assignment=[list(IDS)], num_partitions=1, config=settings)
        admin.create_topics([topic])[TOPIC].result(SECONDS)
        self.in_sync()
        return self

    def close(self):
        for node in self.nodes.values():
            node.close()

    def partition(self, asked=None):
        """The topic's only partition, as one node tells it."""
        with Raw(asked or self.nodes[1]) as client:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
            found = client.ask(request, 12).topics[0]
            self.topic_id = found.topic_id
            return found.partitions[0] if found.partitions else None

    def in_sync(self, *brokers):
        """Wait until these, or all, are in sync."""
        wanted = set(brokers or IDS)
        eventually(
            lambda: (
                (found := self.partition()) is not None
                and wanted <= set(found.isr_nodes)
                and found.leader_id >= 0
            ),
            f"{wanted} in sync",
        )

    def write(self, count=20, *, idempotent=True):
        """Records that are acknowledged by all in-sync replicas."""
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.bootstrap, "acks": "all", "enable.idempotence": idempotent}
        )
        values = [b"%d" % next(self._numbers) for _ in range(count)]
        errors = []
        for value in values:
            producer.produce(TOPIC, value, on_delivery=lambda fault, _: errors.append(fault))
        assert producer.flush(SECONDS) == 0
        assert errors == [None] * count
        self.acked += values

    def kept(self):
        """Whether every acknowledged record can be read, once and in order."""
        reader = confluent_kafka.Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "kept", "enable.auto.commit": False}
        )
        reader.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
        try:
            found = []
            while len(found) < len(self.acked):
                messages = reader.consume(len(self.acked) - len(found), SECONDS)
                assert messages, f"{len(found)} of {len(self.acked)} records"
                found += [message.value() for message in messages if not message.error()]
        finally:
            reader.close()
        return found == self.acked

    def is_well(self):
        """All in sync, nothing lost, writes are taken."""
        self.write()
        self.in_sync()
        return self.kept()

    # Controllers

    def active(self):
        """The id of the active controller."""
        partition = QuorumTopicData(
            topic_name="__cluster_metadata", partitions=[QuorumPartitionData()]
        )
        with Raw(self.nodes[1]) as client:
            answer = client.ask(DescribeQuorumRequest(topics=[partition]), 2)
        return answer.topics[0].partitions[0].leader_id

    def controller(self, node_id=None):
        """A raw connection to a controller's listener, the active one's unless another is named."""
        return Raw(SimpleNamespace(port=self.controllers[node_id or self.active()]))

    def client(self, node_id):
        """A raw connection to the listener that is only for clients."""
        return Raw(SimpleNamespace(port=self.external[node_id]))


def refusal(node):
    """Starts a node that must end by itself: its one line."""
    node.start()
    return ended(node)


def ended(node):
    """The one line with which a running node ends."""
    assert node.process.wait(60) == 1, node.lines
    eventually(lambda: any(each.startswith("Error: ") for each in node.lines), "a last line")
    assert not [line for line in node.lines if "Traceback" in line]
    (line,) = [line for line in node.lines if line.startswith("Error: ")]
    return line
