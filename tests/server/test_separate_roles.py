"""Controllers and brokers as processes of their own (process.roles), with real clients. R17."""

from __future__ import annotations

import asyncio
import re

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.members import until
from tests.server.node_kit import ProcessNode, free_port
from tests.server.test_three_nodes import RECORDS
from tests.server.three_kit import LONGEST_GAP_S, Acks, count_of, partitions_of

from anabranch.client.cluster import Cluster
from anabranch.client.connection import Connection
from anabranch.client.overview import controller_of
from anabranch.core.wire.messages.describe_cluster import DescribeClusterRequest

BROKERS = (1, 2, 3)
CONTROLLERS = 2
"""DescribeCluster's endpoint type."""


class Controller(ProcessNode):
    """A node that decides and serves no client; its port is the controllers' one."""

    def __init__(self, tmp_path, node_id, port, servers):
        super().__init__(
            tmp_path / f"controller-{node_id}",
            port,
            node_id=str(node_id),
            process_roles="controller",
            listeners=f"CONTROLLER://127.0.0.1:{port}",
            controller_quorum_bootstrap_servers=servers,
            metadata_store_url=f"sqlite://{tmp_path}/metadata.db",
        )


class Broker(ProcessNode):
    """A node that keeps partitions and decides nothing."""

    def __init__(self, tmp_path, node_id, servers, **settings):
        port = free_port()
        super().__init__(
            tmp_path / f"broker-{node_id}",
            port,
            node_id=str(node_id),
            process_roles="broker",
            listeners=f"PLAINTEXT://127.0.0.1:{port}",
            controller_quorum_bootstrap_servers=servers,
            **settings,
        )


class Roles:
    """A cluster whose controllers and brokers are different processes."""

    def __init__(self, tmp_path, controllers):
        ids = range(101, 101 + controllers)
        ports = {each: free_port() for each in ids}
        self.servers = ",".join(f"127.0.0.1:{port}" for port in ports.values())
        self.controllers = {
            each: Controller(tmp_path, each, port, self.servers) for each, port in ports.items()
        }
        self.brokers = {each: Broker(tmp_path, each, self.servers) for each in BROKERS}
        self.nodes = {**self.controllers, **self.brokers}

    def start(self):
        for node in self.brokers.values():  # they wait for a controller
            node.start()
        for node in self.controllers.values():
            node.start()
        for node in self.nodes.values():
            node.ready()
        return self

    def close(self):
        for node in self.nodes.values():
            node.close()

    @property
    def bootstrap(self):
        return ",".join(node.bootstrap for node in self.brokers.values())

    def active(self):
        """Which controller is active, as a broker says."""

        async def ask():
            async with Cluster(self.bootstrap) as cluster:
                return (await controller_of(cluster)).controller_id

        return asyncio.run(ask())

    def told_by(self, node_id):
        """(cluster id, active controller, all controllers) as one controller says."""

        async def ask():
            connection = await Connection.open("127.0.0.1", self.controllers[node_id].port)
            answer = await connection.send(DescribeClusterRequest(endpoint_type=CONTROLLERS))
            await connection.close()
            places = {each.broker_id: each.port for each in answer.brokers}
            return answer.cluster_id, answer.controller_id, places

        return asyncio.run(ask())

    def create(self):
        """A topic with three replicas; the client, when all of them are in sync."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        until(lambda: len(admin.list_topics(timeout=30).brokers) == len(BROKERS))
        topic = NewTopic("t", 1, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])["t"].result(20)
        until(lambda: len(self.partition(admin).isrs) == len(BROKERS))
        return admin

    def partition(self, admin):
        return partitions_of(admin)[0]


@pytest.fixture(params=[3, 1], ids=["three controllers", "one controller"])
def roles(tmp_path, request):
    cluster = Roles(tmp_path, request.param)
    try:
        yield cluster.start()
    finally:
        cluster.close()


@pytest.mark.slow
def test_brokers_learn_their_cluster_and_outlive_a_leader(roles, tmp_path):
    admin = roles.create()
    clusters = {
        re.search("cluster.id=(.*)", path.read_text())[1]
        for path in tmp_path.glob("*/meta.properties")
    }
    assert len(clusters) == 1
    leader = roles.partition(admin).leader
    acks = Acks(roles.bootstrap)
    until(lambda: len(acks.times) > RECORDS)
    roles.brokers[leader].kill()
    before = len(acks.times)
    until(lambda: len(acks.times) > before + RECORDS)
    acks.stop()
    assert not acks.failures
    assert acks.longest_gap_s() < LONGEST_GAP_S
    print(f"{len(acks.times)} acks, longest gap {acks.longest_gap_s():.3f} s")
    rest = ",".join(node.bootstrap for each, node in roles.brokers.items() if each != leader)
    assert count_of(rest) == len(acks.times)


@pytest.mark.slow
@pytest.mark.parametrize("roles", [1], indirect=True, ids=["one controller"])
def test_brokers_find_controllers_that_took_the_place_of_all_that_they_were_given(roles, tmp_path):
    """The metadata names them, also after a restart, when the copy on disk is all that does."""
    admin = roles.create()
    ((first, given),) = roles.controllers.items()
    port = free_port()
    servers = f"{roles.servers},127.0.0.1:{port}"
    roles.nodes[102] = roles.controllers[102] = Controller(tmp_path, 102, port, servers)
    roles.nodes[102].start()
    roles.nodes[102].ready()
    until(lambda: roles.told_by(first)[2].keys() == {first, 102})
    admin.create_topics([NewTopic("before", 1, 3)])["before"].result(20)
    for each in roles.brokers.values():  # who knows of the topic knows what came before it
        asks = AdminClient({"bootstrap.servers": each.bootstrap})
        until(lambda: "before" in asks.list_topics(timeout=30).topics)  # noqa: B023
    given.kill()
    admin.create_topics([NewTopic("after", 3, 3)], request_timeout=30)["after"].result(30)
    broker = roles.brokers[1]
    broker.kill()
    broker.start()
    broker.ready()
    until(lambda: 1 in roles.partition(admin).isrs)


@pytest.mark.parametrize("roles", [3], indirect=True, ids=["three controllers"])
def test_the_active_controller_is_killed_and_another_decides(roles):
    admin = roles.create()
    places = {each: node.port for each, node in roles.controllers.items()}
    first = roles.active()
    cluster_id = roles.told_by(first)[0]
    for each in roles.controllers:
        until(lambda: roles.told_by(each) == (cluster_id, first, places))  # noqa: B023
    acks = Acks(roles.bootstrap)
    until(lambda: len(acks.times) > RECORDS)
    roles.controllers[first].kill()
    admin.create_topics([NewTopic("after", 3, 3)], request_timeout=30)["after"].result(30)
    second = roles.active()
    assert second in roles.controllers and second != first
    left = next(each for each in roles.controllers if each not in (first, second))
    until(lambda: roles.told_by(left)[1] == second)
    roles.brokers[roles.partition(admin).leader].kill()  # and the new one can elect
    before = len(acks.times)
    until(lambda: len(acks.times) > before + RECORDS)
    acks.stop()
    assert not acks.failures
    assert acks.longest_gap_s() < LONGEST_GAP_S
    print(f"{len(acks.times)} acks, longest gap {acks.longest_gap_s():.3f} s")


@pytest.fixture
def one(tmp_path):
    port = free_port()
    node = Controller(tmp_path, 101, port, f"127.0.0.1:{port}").start().ready()
    yield node
    node.close()


def test_a_broker_of_another_cluster_is_refused(one, tmp_path):
    folder = tmp_path / "broker-1"
    folder.mkdir()
    meta = "version=1\ncluster.id=AnotherClusterAAAAAAAA\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAaQ\n"
    (folder / "meta.properties").write_text(meta)
    code, errors = Broker(tmp_path, 1, one.bootstrap).start().ended()
    assert code == 1
    said = errors.splitlines()[-1]
    assert re.fullmatch(
        rf"Error: folder {folder} belongs to cluster AnotherClusterAAAAAAAA, and the controllers to "
        r"cluster \S+; correct log.dirs or controller.quorum.bootstrap.servers",
        said,
    ), errors
    assert (folder / "meta.properties").read_text() == meta


def test_a_broker_without_controllers_waits_and_then_says_so(tmp_path):
    port = free_port()
    settings = {"initial_broker_registration_timeout_ms": "1500"}
    code, errors = Broker(tmp_path, 1, f"127.0.0.1:{port}", **settings).start().ended()
    assert code == 1
    said = errors.splitlines()[-1]
    assert "node 1 found no controller within 1500 ms" in said
    assert f"127.0.0.1:{port} cannot be reached" in said
    assert not (tmp_path / "broker-1" / "meta.properties").exists()


def test_a_client_listener_in_the_place_of_the_controllers_is_named(one, tmp_path):
    broker = Broker(tmp_path, 1, one.bootstrap).start().ready()
    try:
        code, errors = Broker(tmp_path, 2, broker.bootstrap).start().ended()
    finally:
        broker.close()
    assert code == 1
    assert "is not a controller (MISMATCHED_ENDPOINT_TYPE)" in errors.splitlines()[-1]
