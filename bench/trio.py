"""Three brokers on this machine that are one cluster, looked at as one server.

Each node is a process in a folder of its own, broker and controller, as the product's own start
would have it: Anabranch commits its metadata in an SQLite file that the three share, or in
PostgreSQL, Apache Kafka by a quorum of the three. Both keep their defaults but for folders, ports,
`min.insync.replicas=2`, and the soon deletion of dropped topics. Figures are sums over the three;
PostgreSQL's own processes are not counted.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import lean
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from profiles import node_profile
from servers import ROOT, WORK, Anabranch, Kafka, Server

from anabranch.client.ports import free_ports
from anabranch.core.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    QuorumPartitionData,
    QuorumTopicData,
)

NODES = 3
NUMBERS = range(1, NODES + 1)
READY_SECONDS = 120.0
QUORUM_VERSION = 0


class Trio(Server):
    """Nodes 1 to 3 of one cluster."""

    replicas = NODES
    acks = "all"
    node: type[Server]
    """What each of the three is."""
    turn = 0
    """Counts victims, so that they take turns."""

    def __init__(self, settings: Mapping[str, object] | None = None, work: Path = WORK) -> None:
        self.folder = work / f"{self.name}-three-{time.monotonic_ns()}"
        self.folder.mkdir(parents=True)
        self.prepare()
        ports = free_ports(2 * NODES)
        controllers = {number: ports[NODES + number - 1] for number in NUMBERS}
        self.nodes: dict[int, Server] = {
            number: self.node(
                {
                    "node.id": number,
                    "min.insync.replicas": NODES - 1,
                    **self.membership(controllers),
                    **(settings or {}),
                },
                self.folder,
                (ports[number - 1], controllers[number]),
            )
            for number in NUMBERS
        }

    def membership(self, controllers: Mapping[int, int]) -> dict[str, object]:
        """The settings that make a node one of the three."""
        raise NotImplementedError

    @property
    def bootstrap(self) -> str:
        """Where clients find it: every node."""
        return ",".join(each.bootstrap for each in self.nodes.values())

    def launch(self) -> None:
        """Start the three processes without waiting for anything."""
        for each in self.nodes.values():
            each.launch()

    def await_port(self) -> None:
        """Wait until every node accepts connections."""
        for each in self.nodes.values():
            each.await_port()

    def settle(self) -> None:
        """Wait until every node is a broker of the cluster."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        deadline = time.perf_counter() + READY_SECONDS
        while time.perf_counter() < deadline:
            with suppress(KafkaException):
                if len(admin.list_topics(timeout=10).brokers) == NODES:
                    return
            time.sleep(0.02)
        raise SystemExit(f"{self.name}: not every node joined the cluster")

    def controller(self) -> int:
        """The node that is the active controller: who leads the metadata log."""
        partition = QuorumPartitionData(partition_index=0)
        topic = QuorumTopicData(topic_name="__cluster_metadata", partitions=[partition])
        with lean.dial(next(each for each in self.nodes.values() if each.is_alive).port) as line:
            answer = lean.ask(line, DescribeQuorumRequest(topics=[topic]), QUORUM_VERSION)
        return int(answer.topics[0].partitions[0].leader_id)

    @property
    def is_alive(self) -> bool:
        """Whether all three run."""
        return all(each.is_alive for each in self.nodes.values())

    def stop(self) -> None:
        """End the three at once, so that none waits for a quorum, and remove their folders."""
        for each in self.nodes.values():
            if each.is_alive:
                each.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def cpu_seconds(self) -> float:
        """User and system seconds of the three so far."""
        return sum(each.cpu_seconds() for each in self.nodes.values())

    def resident_bytes(self) -> int:
        """Resident memory of the three now."""
        return sum(each.resident_bytes() for each in self.nodes.values())


class AnabranchTrio(Trio):
    """Three combined nodes on one SQLite file, as `anabranch up --brokers 3` runs them."""

    name = "anabranch"
    node = Anabranch

    def membership(self, controllers: Mapping[int, int]) -> dict[str, object]:
        """The three controllers and the common store."""
        servers = ",".join(f"127.0.0.1:{port}" for port in controllers.values())
        return {
            "controller.quorum.bootstrap.servers": servers,
            "metadata.store.url": self.store_url(),
        }

    def launch(self) -> None:
        """Start the three processes, each with its own file of a profile."""
        for number, each in self.nodes.items():
            if isinstance(each, Anabranch) and Anabranch.profile is not None:
                each.profile = node_profile(Anabranch.profile, number)
        super().launch()

    def stop(self) -> None:
        """End the three; a node that is profiled needs a goodbye to leave its figures."""
        if Anabranch.profile is not None:
            for each in self.nodes.values():
                each.stop()
        super().stop()

    def store_url(self) -> str:
        """Where metadata is committed."""
        return f"sqlite://{self.folder.resolve()}/metadata-store.db"


class AnabranchOnPostgres(AnabranchTrio):
    """Three combined nodes whose metadata is committed in a PostgreSQL server on this machine."""

    def prepare(self) -> None:
        """Start PostgreSQL, with its own settings."""
        sys.path.insert(0, str(ROOT))
        from tests.stores.postgres_kit import PostgresServer

        self.postgres = PostgresServer().start()
        self._url = self.postgres.new_database()

    def store_url(self) -> str:
        """A database of its own."""
        return self._url

    def stop(self) -> None:
        """End the nodes, then PostgreSQL."""
        super().stop()
        self.postgres.remove()


class KafkaTrio(Trio):
    """Three combined KRaft nodes of Apache Kafka 4.1, 1 GB of heap each."""

    name = "kafka"
    node = Kafka

    def membership(self, controllers: Mapping[int, int]) -> dict[str, object]:
        """The quorum, and the internal topics' own defaults, which one node cannot have."""
        voters = ",".join(f"{each}@127.0.0.1:{port}" for each, port in controllers.items())
        return {
            "controller.quorum.voters": voters,
            "offsets.topic.replication.factor": 3,
            "transaction.state.log.replication.factor": 3,
            "transaction.state.log.min.isr": 2,
            "share.coordinator.state.topic.replication.factor": 3,
            "share.coordinator.state.topic.min.isr": 2,
        }


TRIOS: dict[str, type[Server]] = {"anabranch": AnabranchTrio, "kafka": KafkaTrio}
ON_POSTGRES: dict[str, type[Server]] = {"anabranch": AnabranchOnPostgres}
