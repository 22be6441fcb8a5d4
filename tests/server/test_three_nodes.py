"""Three nodes over real sockets: followers copy, a leader's death loses nothing (R1, R2, R17)."""

from __future__ import annotations

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.members import until
from tests.server.node_kit import ThreadNode, free_port

IDS = (1, 2, 3)
RECORDS = 500


@pytest.fixture
def nodes(tmp_path):
    controllers = {each: free_port() for each in IDS}
    servers = ",".join(f"127.0.0.1:{port}" for port in controllers.values())
    started = []
    for each in IDS:
        node = ThreadNode(
            tmp_path / str(each),
            node_id=each,
            listeners=f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{controllers[each]}",
            controller_quorum_bootstrap_servers=servers,
            metadata_store_url=f"sqlite://{tmp_path}/metadata.db",
        )
        started.append(node.start())
    yield started
    for node in started:
        node.stop()


def produce(bootstrap, values):
    failures = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5}
    )
    for value in values:
        producer.produce("t", value, on_delivery=lambda error, _: error and failures.append(error))
    assert producer.flush(30) == 0
    assert not failures


def log_bytes(tmp_path, node_id):
    return (tmp_path / str(node_id) / "t-0" / "00000000000000000000.log").read_bytes()


def test_followers_are_byte_identical_and_another_leads_when_the_leader_leaves(nodes, tmp_path):
    bootstrap = ",".join(node.bootstrap for node in nodes)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic("t", 1, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])["t"].result(20)
    produce(bootstrap, [b"first-%d" % each for each in range(RECORDS)])
    logs = [log_bytes(tmp_path, each) for each in IDS]
    until(lambda: len({log_bytes(tmp_path, each) for each in IDS}) == 1)
    assert logs[0]

    leader = admin.list_topics("t").topics["t"].partitions[0].leader
    leaving = next(each for each in nodes if each.config.node_id == leader)
    leaving.stop()
    produce(bootstrap, [b"second-%d" % each for each in range(RECORDS)])
    partition = admin.list_topics("t").topics["t"].partitions[0]
    assert partition.leader != leader
    assert leader not in partition.isrs
    left = [each for each in IDS if each != leader]
    until(lambda: len({log_bytes(tmp_path, each) for each in left}) == 1)
