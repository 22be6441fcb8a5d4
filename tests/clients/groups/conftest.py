"""Nodes with small group timeouts, members of every client, and a wire that can be cut.

With ANABRANCH_TEST_PEER=kafka the nodes are Apache Kafka's (from the jars of `scripts/kafka-jars`),
so that the same tests say that what they ask for is what Kafka does.
"""

from __future__ import annotations

import os
import re
import signal

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from tests.clients.adapters import SECONDS, Confluent
from tests.clients.member_clients import MEMBERS
from tests.clients.members import until
from tests.clients.wire import Wire
from tests.server.node_kit import ProcessNode, free_port

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
}

NO_COORDINATOR = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._DESTROY,  # the client threw the connection away that it bootstrapped with
}


def kafka_process(folder, settings):
    """A broker of Apache Kafka's that looks like a ProcessNode."""
    from bench.servers import Kafka

    class KafkaProcess(Kafka):
        def ready(self):
            self.await_port()
            return self

        def close(self):
            self.stop()

    return KafkaProcess(settings, folder)


class GroupNode:
    """A node, and a listener of it that the wire stands before."""

    def __init__(self, folder, **settings):
        inner = free_port()
        self.wire = Wire(inner).start()
        self.settings = {**SETTINGS, **settings}
        port = free_port()
        controller = free_port()
        names = f"PLAINTEXT://127.0.0.1:{port},WIRE://127.0.0.1"
        self.settings |= {
            "listeners": f"{names}:{inner},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"{names}:{self.wire.port}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,WIRE:PLAINTEXT,CONTROLLER:PLAINTEXT"
            ),
            "inter.broker.listener.name": "PLAINTEXT",
        }
        if os.environ.get("ANABRANCH_TEST_PEER") == "kafka":
            self.settings["controller.quorum.voters"] = f"1@127.0.0.1:{controller}"
            self.process = kafka_process(folder, self.settings)
            self.process.port = port
        else:
            self.process = ProcessNode(folder, port, **self.settings)
        self.bootstrap = f"127.0.0.1:{port}"

    def start(self):
        self.process.start()
        self.process.ready()
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self

    def kill(self):
        self.process.kill()

    def stop(self):
        """An orderly stop."""
        self.process.process.send_signal(signal.SIGTERM)
        self.process.process.wait(SECONDS)

    def close(self):
        self.process.close()
        self.wire.stop()

    def describe(self, group):
        return self.admin.describe_consumer_groups([group])[group].result(SECONDS)

    def state(self, group):
        """The state of a group and how many members it has; None without a coordinator."""
        try:
            found = self.describe(group)
        except KafkaException as fault:
            if fault.args[0].code() not in NO_COORDINATOR:
                raise
            return None
        return found.state.name, len(found.members)

    def settled(self, group, members):
        """Wait until the group is stable with so many members."""
        until(lambda: self.state(group) == ("STABLE", members), f"{group} with {members} members")


@pytest.fixture(scope="session")
def node(tmp_path_factory):
    running = GroupNode(tmp_path_factory.mktemp("groups"))
    try:
        yield running.start()
    finally:
        running.close()


@pytest.fixture(scope="session")
def admin(node):
    return node.admin


@pytest.fixture
def start(tmp_path):
    """Start a node of the test's own."""
    started = []

    def begin(**settings):
        started.append(GroupNode(tmp_path / "node", **settings))
        return started[-1].start()

    yield begin
    for running in started:
        running.close()


@pytest.fixture
def new_topic(new_topic, admin):
    """Create a topic, and wait until clients are told of its partitions."""

    def create(partitions=1, **configs):
        name = new_topic(partitions, **configs)
        until(lambda: len(admin.list_topics(name, SECONDS).topics[name].partitions) == partitions)
        return name

    return create


@pytest.fixture
def group(request):
    """A name for the test's group."""
    return re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)


@pytest.fixture
def join(node, group):
    """Add a member to the test's group; whoever has not left at the end leaves then."""
    members = []

    def add(kind, *topics, at=node, wired=True, **options):
        bootstrap, wire = (at.wire.bootstrap, at.wire) if wired else (at.bootstrap, None)
        member = kind(bootstrap, group, *topics, wire=wire, **options).start()
        members.append(member)
        return member

    yield add
    for member in members:
        member.leave()
    assert [fault for member in members for fault in member.faults] == []


@pytest.fixture(params=MEMBERS, ids=lambda each: each.name)
def kind(request):
    """Each client in turn."""
    return request.param


@pytest.fixture
def produce(node):
    """Write records through confluent-kafka, which other tests hold to account."""
    return Confluent(node.bootstrap).produce
