"""Three nodes over real sockets: followers copy, a leader's death loses nothing (R1, R2, R17)."""

from __future__ import annotations

import shutil
import threading
import time

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.members import until
from tests.server.node_kit import ProcessNode, ThreadNode, free_port

IDS = (1, 2, 3)
RECORDS = 500
LONGEST_GAP_S = 5.0
"""Well below the session timeout of 9 s: a process that is gone is not waited for."""


def settings_of_three(tmp_path, store_url=None):
    """Node id -> settings of three combined nodes with one store."""
    controllers = {each: free_port() for each in IDS}
    servers = ",".join(f"127.0.0.1:{port}" for port in controllers.values())
    return {
        each: {
            "node_id": each,
            "controller_quorum_bootstrap_servers": servers,
            "metadata_store_url": store_url or f"sqlite://{tmp_path}/metadata.db",
            "listeners": f"PLAINTEXT://127.0.0.1:{{}},CONTROLLER://127.0.0.1:{port}",
        }
        for each, port in controllers.items()
    }


@pytest.fixture
def nodes(tmp_path):
    started = []
    for each, settings in settings_of_three(tmp_path).items():
        settings["listeners"] = settings["listeners"].format(0)
        started.append(ThreadNode(tmp_path / str(each), **settings).start())
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
    log = tmp_path / str(node_id) / "t-0" / "00000000000000000000.log"
    return log.read_bytes() if log.exists() else b""


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


def test_a_follower_that_lost_a_log_copies_it_anew(nodes, tmp_path):
    bootstrap = ",".join(node.bootstrap for node in nodes)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 1, 3)])["t"].result(20)
    produce(bootstrap, [b"first-%d" % each for each in range(RECORDS)])
    leader = admin.list_topics("t").topics["t"].partitions[0].leader
    follower = next(each for each in nodes if each.config.node_id != leader)
    follower.stop()
    node_id = follower.config.node_id
    shutil.rmtree(tmp_path / str(node_id) / "t-0")
    back = ThreadNode.again(follower).start()
    nodes[nodes.index(follower)] = back
    until(lambda: len({log_bytes(tmp_path, each) for each in IDS}) == 1)
    until(lambda: len(admin.list_topics("t").topics["t"].partitions[0].isrs) == len(IDS))
    assert log_bytes(tmp_path, node_id)


@pytest.fixture(params=["sqlite", "postgres"])
def processes(tmp_path, request):
    url = None
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").new_database()
    started = {}
    for each, settings in settings_of_three(tmp_path, url).items():
        port = free_port()
        settings["listeners"] = settings["listeners"].format(port)
        started[each] = ProcessNode(tmp_path / str(each), port, **settings).start()
    for node in started.values():
        node.ready()
    yield started
    for node in started.values():
        node.close()


class Acks:
    """One record at a time with acks=all, for as long as it is asked; when each was acknowledged."""

    def __init__(self, bootstrap):
        self.times, self.failures, self.sent = [], [], 0
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0}
        )
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self._ended.is_set():
            self._producer.produce("t", b"%d" % self.sent, on_delivery=self._delivered)
            self.sent += 1
            self._producer.flush()

    def _delivered(self, error, _message):
        if error is None:
            self.times.append(time.monotonic())
        else:
            self.failures.append(error)

    def stop(self):
        self._ended.set()
        self._thread.join()

    def longest_gap_s(self):
        pairs = zip(self.times, self.times[1:], strict=False)
        return max(after - before for before, after in pairs)


def count_of(bootstrap):
    reader = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "count"})
    try:
        return reader.get_watermark_offsets(confluent_kafka.TopicPartition("t", 0), 10)[1]
    finally:
        reader.close()


def test_r17_a_killed_leader_is_replaced_at_once_and_nothing_is_lost(processes, tmp_path):
    bootstrap = ",".join(node.bootstrap for node in processes.values())
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic("t", 1, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])["t"].result(20)
    until(lambda: len(admin.list_topics("t").topics["t"].partitions[0].isrs) == len(IDS))
    leader = admin.list_topics("t").topics["t"].partitions[0].leader
    acks = Acks(bootstrap)
    until(lambda: len(acks.times) > RECORDS)
    processes[leader].kill()
    before = len(acks.times)
    until(lambda: len(acks.times) > before + RECORDS)
    acks.stop()
    assert not acks.failures
    assert acks.longest_gap_s() < LONGEST_GAP_S
    rest = ",".join(node.bootstrap for each, node in processes.items() if each != leader)
    assert count_of(rest) == len(acks.times)
    print(f"longest gap {acks.longest_gap_s():.3f} s")
