"""Three nodes over real sockets: followers copy, a leader's death loses nothing (R1, R2, R17)."""

from __future__ import annotations

import shutil

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.members import until
from tests.server.node_kit import ThreadNode
from tests.server.three_kit import (
    IDS,
    LONGEST_GAP_S,
    Acks,
    bootstrap_of,
    count_of,
    partitions_of,
    produce,
    running,
    three_processes,
    three_threads,
)

RECORDS = 500


@pytest.fixture
def nodes(tmp_path):
    with running(three_threads(tmp_path)) as started:
        yield started


def log_bytes(tmp_path, node_id):
    log = tmp_path / str(node_id) / "t-0" / "00000000000000000000.log"
    return log.read_bytes() if log.exists() else b""


def test_followers_are_byte_identical_and_another_leads_when_the_leader_leaves(nodes, tmp_path):
    bootstrap = bootstrap_of(nodes)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic("t", 1, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])["t"].result(20)
    produce(bootstrap, [b"first-%d" % each for each in range(RECORDS)])
    logs = [log_bytes(tmp_path, each) for each in IDS]
    until(lambda: len({log_bytes(tmp_path, each) for each in IDS}) == 1)
    assert logs[0]

    leader = partitions_of(admin)[0].leader
    nodes[leader].stop()
    produce(bootstrap, [b"second-%d" % each for each in range(RECORDS)])
    until(lambda: partitions_of(admin)[0].leader not in (leader, -1))
    until(lambda: leader not in partitions_of(admin)[0].isrs)
    left = [each for each in IDS if each != leader]
    until(lambda: len({log_bytes(tmp_path, each) for each in left}) == 1)


def test_a_follower_that_lost_a_log_copies_it_anew(nodes, tmp_path):
    bootstrap = bootstrap_of(nodes)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 1, 3)])["t"].result(20)
    produce(bootstrap, [b"first-%d" % each for each in range(RECORDS)])
    leader = partitions_of(admin)[0].leader
    node_id = next(each for each in IDS if each != leader)
    nodes[node_id].stop()
    shutil.rmtree(tmp_path / str(node_id) / "t-0")
    nodes[node_id] = ThreadNode.again(nodes[node_id]).start()
    until(lambda: len({log_bytes(tmp_path, each) for each in IDS}) == 1)
    until(lambda: len(partitions_of(admin)[0].isrs) == len(IDS))
    assert log_bytes(tmp_path, node_id)


@pytest.fixture(params=["sqlite", "postgres"])
def processes(tmp_path, request):
    url = None
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").new_database()
    with running(three_processes(tmp_path, url)) as started:
        yield started


def test_r17_a_killed_leader_is_replaced_at_once_and_nothing_is_lost(processes, tmp_path):
    bootstrap = bootstrap_of(processes)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic("t", 1, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])["t"].result(20)
    until(lambda: len(partitions_of(admin)[0].isrs) == len(IDS))
    leader = partitions_of(admin)[0].leader
    acks = Acks(bootstrap)
    until(lambda: len(acks.times) > RECORDS)
    processes[leader].kill()
    before = len(acks.times)
    until(lambda: len(acks.times) > before + RECORDS)
    acks.stop()
    assert not acks.failures
    assert acks.longest_gap_s() < LONGEST_GAP_S
    rest = bootstrap_of(processes, [each for each in IDS if each != leader])
    assert count_of(rest) == len(acks.times)
    print(f"longest gap {acks.longest_gap_s():.3f} s")
