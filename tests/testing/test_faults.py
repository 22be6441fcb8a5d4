"""B6: what a test can do to a cluster's brokers, the same on threads and as processes."""

from __future__ import annotations

import math
import os
import threading
import time

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from tests.clients.members import until
from tests.testing.cluster_kit import offsets, produce, producer

from anabranch.testing import ClusterError, LocalCluster

IDS = (1, 2, 3)
CONFIG = {
    "replica.lag.time.max.ms": 1000,
    "broker.session.timeout.ms": 3000,  # who stands still for a moment keeps what it leads
    "broker.heartbeat.interval.ms": 200,
}
NEEDS_NO_ID = {"enable.idempotence": False}
"""A client may ask any broker for a producer id, also one that is cut off from the controller."""


@pytest.fixture(scope="module", params=[False, True], ids=["threads", "processes"])
def processes(request):
    return request.param


@pytest.fixture(scope="module")
def shared(processes):
    """Three brokers for all tests of a mode that leave them whole."""
    racks = ["a", "b", "c"]
    with LocalCluster(brokers=3, racks=racks, processes=processes, config=CONFIG) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared):
    """The brokers; whatever a test leaves of a fault is mended."""
    yield shared
    shared.heal()
    for broker_id in IDS:
        shared.heal_disk(broker_id)
        if shared.state(broker_id) == "paused":
            shared.resume(broker_id)
        if shared.state(broker_id) in ("killed", "stopped", "ended"):
            shared.start_broker(broker_id)
    for topic in shared.topics():
        shared.delete_topic(topic)


def topic(cluster, name="t", **config):
    """A topic, and its leader: not the controller, whose absence takes longer to be noticed."""
    controller = cluster.controller()
    while True:
        cluster.create_topic(name, config=config)
        cluster.wait_in_sync(name)
        leader = cluster.leader(name)
        if leader != controller:
            return leader
        cluster.delete_topic(name)


def known(cluster, broker_id):
    """The topics that one broker knows of: a new client asks whom it is given."""
    [asked] = [each for each in cluster.brokers if each.broker_id == broker_id]
    admin = AdminClient({"bootstrap.servers": f"{asked.host}:{asked.port}", "log_level": 0})
    return set(admin.list_topics(timeout=20).topics)


def others(broker_id):
    return [each for each in IDS if each != broker_id]


def test_a_deleted_topic_is_shown_by_no_broker(cluster):
    """Else a test that lists topics next finds it where the metadata came late."""
    topic(cluster)
    late = others(cluster.controller())[-1]  # the first broker is asked to delete it
    with cluster.delay(late, ms=300):
        cluster.delete_topic("t")
        assert "t" not in known(cluster, late)


def test_a_killed_leader_loses_nothing_and_comes_back(cluster):
    leader = topic(cluster)
    produce(cluster, 5)
    with cluster.kill(leader):
        assert cluster.state(leader) == "killed"
        until(lambda: cluster.leader("t") != leader)
        produce(cluster, 5)
    assert cluster.state(leader) == "running"
    cluster.wait_in_sync()
    assert offsets(cluster) == (0, 10)


def test_all_of_them_crash_and_nothing_acknowledged_is_lost(cluster):
    topic(cluster)
    produce(cluster, 10)
    addresses = cluster.brokers
    cluster.crash()
    assert [cluster.state(each) for each in IDS] == ["killed"] * 3
    with pytest.raises(ClusterError, match="No broker is running that could crash"):
        cluster.crash()
    with pytest.raises(ClusterError, match=r"Broker 1 was killed\. Broker 2 was killed\."):
        cluster.topics()
    for broker_id in IDS:
        cluster.start_broker(broker_id, wait=False)
    for broker_id in IDS:
        cluster.wait_serving(broker_id)
    assert cluster.brokers == addresses
    cluster.wait_in_sync()
    assert offsets(cluster) == (0, 10)


def test_a_stop_and_a_crash_end_with_their_block(cluster):
    topic(cluster)
    with cluster.stop_broker(2):
        assert cluster.state(2) == "stopped"
    assert cluster.state(2) == "running"
    with cluster.crash():
        assert [cluster.state(each) for each in IDS] == ["killed"] * 3
    assert [cluster.state(each) for each in IDS] == ["running"] * 3
    cluster.wait_in_sync()


@pytest.mark.slow
def test_a_paused_leader_is_replaced_and_follows_when_it_goes_on(cluster):
    leader = topic(cluster)
    with cluster.pause(leader):
        assert cluster.state(leader) == "paused"
        with pytest.raises(ClusterError, match=f"Broker {leader} is paused already"):
            cluster.pause(leader)
        with pytest.raises(ClusterError, match="is paused: resume it first, or kill it"):
            cluster.stop_broker(leader)
        until(lambda: cluster.leader("t") != leader)
        produce(cluster, 3)
        with pytest.raises(ClusterError, match=r"Not in sync after 0\.1 seconds: t-0 has replicas"):
            cluster.wait_in_sync("t", timeout_seconds=0.1)
    cluster.wait_in_sync()
    assert cluster.state(leader) == "running"


def test_a_paused_broker_can_be_killed(cluster):
    cluster.pause(3)
    cluster.kill(3)
    assert cluster.state(3) == "killed"
    with pytest.raises(ClusterError, match=r"No broker 3 is running: .* Broker 3 was killed"):
        cluster.resume(3)
    cluster.start_broker(3)
    assert cluster.state(3) == "running"


def in_sync_elsewhere(cluster, broker_id):
    """Whether the others have gone on without a broker."""
    try:
        cluster.wait_in_sync("t", timeout_seconds=0)
    except ClusterError as fault:
        return f"in sync {others(broker_id)}" in str(fault)
    return False


def test_a_follower_behind_a_cut_leaves_and_returns_when_it_heals(cluster):
    leader = topic(cluster)
    (follower,) = set(others(leader)) - {cluster.controller()}
    with cluster.cut(leader, follower):
        assert produce(cluster, 3) > 0
        until(lambda: in_sync_elsewhere(cluster, follower))
        assert cluster.state(follower) == "running"
    produce(cluster, 1)
    cluster.wait_in_sync()
    assert offsets(cluster) == (0, 4)


def test_a_cut_in_one_direction_is_enough(cluster):
    leader = topic(cluster)
    (follower,) = set(others(leader)) - {cluster.controller()}
    cluster.cut(follower, leader, one_way=True)
    produce(cluster, 3)
    until(lambda: in_sync_elsewhere(cluster, follower))
    cluster.heal(leader, follower)
    produce(cluster, 1)
    cluster.wait_in_sync()


def test_a_leader_cut_off_from_everybody_is_replaced(cluster):
    leader = topic(cluster)
    cluster.cut(leader)
    apart = others(leader)[0]
    seen = f"{cluster.brokers[apart - 1].host}:{cluster.brokers[apart - 1].port}"
    until(lambda: leader_by(seen) != leader)
    cluster.heal(leader)
    cluster.wait_in_sync()
    produce(cluster, 1, **NEEDS_NO_ID)


def leader_by(bootstrap):
    """Who leads, as one broker sees it."""
    metadata = Producer({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics("t", 20)
    return metadata.topics["t"].partitions[0].leader


def test_a_broker_starts_behind_a_cut_and_serves_once_it_heals(cluster):
    topic(cluster)
    broker_id = others(cluster.controller())[0]
    cluster.kill(broker_id)
    cluster.cut(broker_id)
    cluster.start_broker(broker_id, wait=False)
    with pytest.raises(ClusterError, match=r"did not serve within 1 seconds; its log says"):
        cluster.wait_serving(broker_id, timeout_seconds=1)
    assert cluster.state(broker_id) == "starting"
    cluster.heal()
    cluster.wait_serving(broker_id)
    cluster.wait_in_sync()


def test_a_broker_that_nobody_waits_for_is_seen_to_run(cluster):
    cluster.kill(2)
    cluster.start_broker(2, wait=False)
    until(lambda: cluster.state(2) == "running")
    assert sorted(cluster.statistics()) == [1, 2, 3]
    cluster.stop_broker(1)
    cluster.stop_broker(2)


def test_a_kill_ends_a_start_that_another_thread_waits_for(cluster):
    broker_id = others(cluster.controller())[0]
    cluster.kill(broker_id)
    cluster.cut(broker_id)
    said = []

    def start():
        with pytest.raises(ClusterError) as caught:
            cluster.start_broker(broker_id)
        said.append(str(caught.value))

    starting = threading.Thread(target=start)
    starting.start()
    until(lambda: cluster.state(broker_id) == "starting")
    cluster.kill(broker_id)
    starting.join(20)
    assert said == [
        f"Broker {broker_id} did not start: Broker {broker_id} does not serve: it was killed."
    ]


def test_a_cut_holds_for_a_broker_that_was_paused_when_it_was_made(cluster):
    leader = topic(cluster)
    (follower,) = set(others(leader)) - {cluster.controller()}
    cluster.pause(follower)
    cluster.cut(follower)
    cluster.resume(follower)
    produce(cluster, 3, **NEEDS_NO_ID)
    until(lambda: in_sync_elsewhere(cluster, follower))
    cluster.heal(follower)
    cluster.wait_in_sync()


def test_a_delay_takes_its_time_in_each_direction(cluster):
    leader = topic(cluster)
    produce(cluster)
    with cluster.delay(leader, ms=100):
        assert produce(cluster) >= 0.1
        cluster.wait_in_sync()
    with pytest.raises(ClusterError, match="A delay of -1 ms cannot be"):
        cluster.delay(1, 2, ms=-1)


def test_a_slow_disk_slows_down_whoever_waits_for_it(cluster):
    leader = topic(cluster)
    produce(cluster)
    with cluster.slow_disk(leader, ms=200):
        assert produce(cluster) >= 0.2
    with cluster.slow_disk(others(leader)[0], ms=200):
        assert produce(cluster) >= 0.2
    with pytest.raises(ClusterError, match="slower by -1 ms cannot be"):
        cluster.slow_disk(1, ms=-1)


@pytest.mark.slow
def test_a_full_disk_of_the_leader_loses_nothing(cluster):
    leader = topic(cluster)
    produce(cluster, 3)
    failures = []
    writes = producer(cluster, **{"delivery.timeout.ms": 1500})
    with cluster.full_disk(leader):
        writes.produce("t", b"no room", on_delivery=lambda error, _: failures.append(bool(error)))
        assert writes.flush(20) == 0
    assert cluster.state(leader) == "running"
    produce(cluster, 2)
    cluster.wait_in_sync()
    assert offsets(cluster) in ((0, 5 + failures.count(False)), (0, 6))


def test_a_node_on_a_full_disk_lives_on_its_reserve_and_does_not_start_without(cluster):
    follower = others(cluster.controller())[0]
    cluster.full_disk(follower)
    names = {f"x{number}" for number in range(3)}
    for name in names:
        cluster.create_topic(name, replication_factor=2)
    until(lambda: known(cluster, follower) >= names, "the metadata in the reserve")
    until(lambda: all(cluster.leader(name) != follower for name in names), "leaders with room")
    assert cluster.state(follower) == "running"
    cluster.kill(follower)
    with pytest.raises(ClusterError, match=rf"Broker {follower} did not start: .*No space left"):
        cluster.start_broker(follower)
    cluster.heal_disk(follower)
    cluster.start_broker(follower)
    cluster.wait_in_sync()


def test_clocks_that_advance_make_records_old(cluster):
    topic(cluster, **{"retention.ms": 3_600_000})
    produce(cluster, 3)
    cluster.advance_clock(4_000)
    until(lambda: offsets(cluster) == (3, 3))
    assert [cluster.state(each) for each in IDS] == ["running"] * 3


def test_the_clock_of_one_broker_stamps_what_it_leads(cluster):
    leader = topic(cluster, **{"message.timestamp.type": "LogAppendTime"})
    stamps = []

    def heard(_, message):
        stamps.append(message.timestamp()[1] / 1000 - time.time())

    writes = producer(cluster)
    with cluster.advance_clock(86_400, leader):
        writes.produce("t", b"x", on_delivery=heard)
        assert writes.flush(20) == 0
    writes.produce("t", b"x", on_delivery=heard)
    assert writes.flush(20) == 0
    assert stamps[0] > 80_000 > stamps[1]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda cluster: cluster.kill(7), "No broker 7 is running: the brokers are 1 to 3"),
        (lambda cluster: cluster.pause(0), "No broker 0 is running"),
        (lambda cluster: cluster.start_broker(7), "There is no broker 7"),
        (lambda cluster: cluster.start_broker(1), "Broker 1 is running already"),
        (lambda cluster: cluster.resume(1), "Broker 1 is not paused"),
        (lambda cluster: cluster.cut(1, 1), "Broker 1 has no link to itself"),
        (lambda cluster: cluster.cut(1, 9), "There is no broker 9"),
        (lambda cluster: cluster.heal(9), "There is no broker 9"),
        (lambda cluster: cluster.delay(9, ms=1), "There is no broker 9"),
        (lambda cluster: cluster.slow_disk(9, ms=1), "There is no broker 9"),
        (lambda cluster: cluster.full_disk(9), "There is no broker 9"),
        (lambda cluster: cluster.heal_disk(9), "There is no broker 9"),
        (lambda cluster: cluster.advance_clock(1, 9), "There is no broker 9"),
        (lambda cluster: cluster.advance_clock(math.nan), "A clock cannot be set by nan seconds"),
        (lambda cluster: cluster.advance_clock(math.inf), "A clock cannot be set by inf seconds"),
        (lambda cluster: cluster.advance_clock(1e300, 1), "A clock cannot be set by 1e.300 sec"),
        (lambda cluster: cluster.advance_clock(-1e12), "A clock cannot be set by -1000000000000"),
        (lambda cluster: cluster.state(9), "There is no broker 9"),
        (lambda cluster: cluster.leader("none", timeout_seconds=0.5), "Cannot find the leader"),
        (
            lambda cluster: cluster.wait_in_sync("none", timeout_seconds=0.1),
            "there is no topic 'none'",
        ),
    ],
)
def test_what_cannot_be_done_is_one_sentence(cluster, call, said):
    with pytest.raises(ClusterError, match=said):
        call(cluster)


@pytest.mark.parametrize(
    "call",
    [
        lambda cluster: cluster.kill(1),
        lambda cluster: cluster.crash(),
        lambda cluster: cluster.pause(1),
        lambda cluster: cluster.resume(1),
        lambda cluster: cluster.cut(1),
        lambda cluster: cluster.heal(),
        lambda cluster: cluster.delay(1, ms=1),
        lambda cluster: cluster.slow_disk(1, ms=1),
        lambda cluster: cluster.full_disk(1),
        lambda cluster: cluster.heal_disk(1),
        lambda cluster: cluster.advance_clock(1),
        lambda cluster: cluster.start_broker(1),
        lambda cluster: cluster.stop_broker(1),
        lambda cluster: cluster.state(1),
        lambda cluster: cluster.leader("t"),
        lambda cluster: cluster.controller(),
        lambda cluster: cluster.wait_in_sync(),
    ],
)
def test_a_stopped_cluster_says_so(call):
    with pytest.raises(ClusterError, match="The cluster is not running: use it within `with`"):
        call(LocalCluster(brokers=3))


def test_pids_are_of_processes(cluster, processes):
    if not processes:
        with pytest.raises(ClusterError, match=r"LocalCluster\(processes=True\) gives"):
            _ = cluster.pids
        return
    pids = cluster.pids
    assert sorted(pids) == [1, 2, 3]
    assert all(psutil.Process(pid).ppid() == os.getpid() for pid in pids.values())
    cluster.kill(2)
    assert sorted(cluster.pids) == [1, 3]


def test_statistics_come_from_every_broker_that_runs(cluster):
    topic(cluster)
    cluster.kill(2)
    counts = cluster.statistics()
    assert sorted(counts) == [1, 3]
    assert all(each["partitions"]["hosted"] >= 1 for each in counts.values())
