"""B6: a cluster in the process of a test, as its users use it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer
from tests.clients.members import until
from tests.testing.cluster_kit import new_threads

from anabranch.testing import ClusterError, LocalCluster
from anabranch.testing.queries import UNKNOWN_TOPIC_SECONDS


@pytest.fixture(scope="module")
def shared():
    """A cluster that tests only ask."""
    with LocalCluster() as cluster:
        cluster.create_topic("orders")
        yield cluster


def roundtrip(cluster, topic="t", value=b"x"):
    """A record through a producer and a consumer group."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce(topic, value)
    assert producer.flush(10) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None and message.error() is None
    return message.value()


def test_a_record_goes_in_and_comes_out():
    with LocalCluster() as cluster:
        cluster.create_topic("t", partitions=3, config={"retention.ms": 60_000})
        assert cluster.topics() == ["t"]
        assert roundtrip(cluster) == b"x"
        (counts,) = cluster.statistics().values()
        assert counts["groups"]["groups"] == 1
        cluster.delete_topic("t")
        assert cluster.topics() == []


@pytest.mark.parametrize("name", ["a,b", "a "])
def test_a_folder_that_log_dirs_would_take_for_others_is_refused(tmp_path, name):
    with pytest.raises(ClusterError, match="cannot be used"):
        LocalCluster(folder=tmp_path / name)


@pytest.mark.parametrize("times", [1, 2])
async def test_a_task_that_is_cancelled_while_it_starts_leaves_nothing_behind(tmp_path, times):
    """The thread that starts it cannot be cancelled: it went on, and nobody stopped the cluster."""

    async def enter():
        async with cluster:
            raise AssertionError("it was cancelled before")

    def brokers():
        return [each for each in threading.enumerate() if each.name.startswith("anabranch-broker")]

    before = len(brokers())
    cluster = LocalCluster(brokers=2, folder=tmp_path)
    entering = asyncio.create_task(enter())
    while len(brokers()) == before:  # noqa: ASYNC110 - no event tells of a thread
        await asyncio.sleep(0.001)
    for _ in range(times):
        entering.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert len(brokers()) == before
    with pytest.raises(ClusterError, match="is not running"):
        cluster.topics()


async def test_asynchronous_tests_use_it_the_same_way():
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async with LocalCluster() as cluster:
        cluster.create_topic("t")
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"x")
        consumer = AIOKafkaConsumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
        )
        async with consumer:
            message = await asyncio.wait_for(consumer.getone(), 20)
        assert message.value == b"x"


def test_two_clusters_know_nothing_of_each_other():
    with LocalCluster() as one, LocalCluster(config={"num.partitions": 4}) as other:
        assert one.cluster_id != other.cluster_id
        assert roundtrip(one, value=b"1") == b"1"
        assert roundtrip(other, value=b"2") == b"2"
        other.create_topic("more", partitions=-1)
        (counts,) = other.statistics().values()
        assert counts["partitions"]["hosted"] >= 4 + 1
        assert one.topics() == ["t"]
        assert one.log != other.log
        assert "ready" in one.log


def test_nothing_is_left():
    LocalCluster().start().stop()  # libuv opens a pipe of the process with its first loop
    before = set(threading.enumerate())
    files = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    handlers = list(logging.getLogger("anabranch").handlers)
    on_interrupt = signal.getsignal(signal.SIGINT)
    with LocalCluster() as cluster:
        folder = Path(cluster.brokers[0].folder)
        assert folder.is_dir()
        cluster.create_topic("t")
    assert not folder.exists()
    assert new_threads(before) == set()
    assert logging.getLogger("anabranch").handlers == handlers
    assert signal.getsignal(signal.SIGINT) is on_interrupt
    if files:
        assert len(os.listdir("/proc/self/fd")) <= files
    assert "stopped" in cluster.log


def test_the_process_that_compacts_ends_with_the_cluster():
    own = psutil.Process()
    others = {each.pid for each in own.children()}  # times of start move with the clock
    with LocalCluster() as cluster:
        config = {"cleanup.policy": "compact", "segment.ms": 100, "min.cleanable.dirty.ratio": 0}
        cluster.create_topic("t", config=config)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0})
        for number in range(3):
            producer.produce("t", b"x", b"key", timestamp=1_700_000_000_000 + 1000 * number)
            assert producer.flush(10) == 0
        folder = Path(cluster.brokers[0].folder)
        until = time.monotonic() + 30
        while not (folder / "cleaner-offset-checkpoint").exists():
            assert time.monotonic() < until, cluster.log
            time.sleep(0.01)
        working = [each for each in own.children() if each.pid not in others]
        assert working
        del producer
    assert [each for each in working if each.is_running()] == []


@pytest.mark.usefixtures("anabranch_session_cluster")  # a cluster that began before the capture
def test_what_nodes_log_stays_out_of_the_process_log(caplog):
    found = logging.getLogger("anabranch")
    before = (found.level, found.propagate, list(found.handlers))
    one, other = LocalCluster().start(), LocalCluster().start()
    one.stop()
    other.create_topic("t")
    assert "TOPIC_CREATED" in other.log
    assert "TOPIC_CREATED" not in one.log
    other.stop()
    assert caplog.records == []
    assert (found.level, found.propagate, found.handlers) == before


@pytest.mark.usefixtures("anabranch_session_cluster")
def test_warnings_go_where_warnings_of_the_process_go(caplog):
    odd = "log.recovery.threads.per.data.dir"
    with LocalCluster(config={odd: 1}) as cluster:
        assert odd in cluster.log
    assert [odd in each.getMessage() for each in caplog.records] == [True]


def test_settings_have_any_type():
    config = {"num.partitions": 2, "auto.create.topics.enable": False}
    config |= {"log.cleanup.policy": ["compact", "delete"], "group.min.session.timeout.ms": None}
    cluster = LocalCluster(config=config)
    assert cluster.config["num.partitions"] == "2"
    assert cluster.config["auto.create.topics.enable"] == "false"
    assert cluster.config["log.cleanup.policy"] == "compact,delete"
    assert "group.min.session.timeout.ms" not in cluster.config
    with cluster:
        assert "ready" in cluster.log


def test_a_start_that_takes_too_long_leaves_nothing():
    before = set(threading.enumerate())
    with pytest.raises(ClusterError, match=r"within 0\.001 seconds.*start_timeout_seconds"):
        LocalCluster(start_timeout_seconds=0.001).start()
    assert new_threads(before) == set()


def test_a_cluster_that_ended_says_why():
    with LocalCluster() as cluster:
        cluster.create_topic("t")
        life = cluster._cluster.nodes[1]._life
        life._loop.call_soon_threadsafe(life.node.stop_because, "the disk is gone")
        life._thread.join(20)
        with pytest.raises(ClusterError, match="has ended: the disk is gone"):
            cluster.topics()
        with pytest.raises(ClusterError, match="has ended: the disk is gone"):
            cluster.statistics()


def test_it_starts_again_in_its_own_folder(tmp_path):
    cluster = LocalCluster(folder=str(tmp_path))
    with cluster:
        cluster.create_topic("kept")
        first = cluster.cluster_id
    with cluster:
        assert cluster.topics() == ["kept"]
        assert cluster.cluster_id == first
    assert tmp_path.exists()


def test_a_later_broker_starts_when_it_is_told_to():
    with LocalCluster(brokers=2, later=[2]) as cluster:
        assert [cluster.state(each) for each in (1, 2)] == ["running", "stopped"]
        cluster.create_topic("t", replication_factor=1)
        with pytest.raises(ClusterError, match="replication factor"):
            cluster.create_topic("two", replication_factor=2)
        cluster.start_broker(2)
        cluster.create_topic("two", replication_factor=2)
        cluster.wait_in_sync("two")


@pytest.mark.parametrize("more", [{"later": [1]}, {"later": [2], "controller": 2}, {"later": [3]}])
def test_not_all_brokers_are_later(more):
    with pytest.raises(ClusterError):
        LocalCluster(brokers=2 if more["later"] != [1] else 1, **more)


def test_a_broker_says_where_it_is():
    with LocalCluster(racks=["a"]) as cluster:
        (broker,) = cluster.brokers
        assert (broker.broker_id, broker.rack) == (1, "a")
        assert cluster.bootstrap_servers == f"127.0.0.1:{broker.port}"
        assert repr(cluster) == f"<LocalCluster {cluster.bootstrap_servers}>"
    assert repr(cluster) == "<LocalCluster stopped>"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: LocalCluster(brokers=0), "1 to 100 brokers, not 0"),
        (lambda: LocalCluster(racks=["a", "b"]), "2 racks do not fit 1 broker"),
        (lambda: LocalCluster(racks=[]), "0 racks do not fit 1 broker"),
        (lambda: LocalCluster().bootstrap_servers, "not running: use it within `with`"),
        (lambda: LocalCluster(config={"num.partitions": "many"}).start(), "num.partitions"),
        (lambda: LocalCluster(folder="/proc/nowhere").start(), "/proc/nowhere"),
        (lambda: LocalCluster(config={"num.partition": 3}), "did you mean num.partitions?"),
        (lambda: LocalCluster(broker_config={1: {"no.such": 1}}), "'no.such' is not a setting"),
    ],
)
def test_what_cannot_be_says_why(make, said):
    before = set(threading.enumerate())
    with pytest.raises(ClusterError, match=said):
        make()
    assert new_threads(before) == set()


def test_a_port_that_is_taken_is_named():
    with LocalCluster() as cluster:
        port = cluster.brokers[0].port
        with pytest.raises(ClusterError, match=str(port)):
            LocalCluster(port=port).start()
        assert roundtrip(cluster) == b"x"


def test_what_the_controller_refuses_is_one_exception():
    with LocalCluster() as cluster:
        with pytest.raises(ClusterError, match=r"Cannot create topic 'a/b': .*INVALID_TOPIC"):
            cluster.create_topic("a/b")
        with pytest.raises(ClusterError, match="running already"):
            cluster.start()


@pytest.mark.parametrize(
    "ask",
    [
        lambda cluster: cluster.leader("ordres"),
        lambda cluster: cluster.wait_in_sync("ordres"),
        lambda cluster: cluster.delete_topic("ordres"),
        lambda cluster: cluster.hang_transaction("ordres"),
    ],
)
def test_a_topic_that_is_not_there_is_told_at_once(shared, ask):
    begin = time.monotonic()
    with pytest.raises(ClusterError, match=r"no topic 'ordres'; did you mean 'orders'\?"):
        ask(shared)
    assert time.monotonic() - begin < 10 * UNKNOWN_TOPIC_SECONDS


def test_a_transaction_in_a_diskless_topic_is_refused_with_a_remedy(shared):
    shared.create_topic("objects", config={"diskless.enable": True})
    with pytest.raises(ClusterError, match=r"objects is diskless .* use a classic topic"):
        shared.hang_transaction("objects")
    shared.delete_topic("objects")


def test_a_setting_that_no_topic_has_is_told_at_once(shared):
    with pytest.raises(ClusterError, match=r"retention\.m.*INVALID_CONFIG"):
        shared.create_topic("odd", config={"retention.m": 1})


@pytest.mark.slow
@pytest.mark.parametrize("processes", [False, True])
def test_no_loop_complains_of_being_closed(tmp_path, processes):
    """Killed, crashed and stopped while clients are connected: standard error stays empty."""
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(f"""
        import gc
        from confluent_kafka import Producer
        from anabranch.testing import LocalCluster

        with LocalCluster(brokers=2, processes={processes}) as cluster:
            cluster.create_topic("orders")
            producer = Producer({{"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}})
            producer.produce("orders", b"x")
            assert producer.flush(20) == 0
            with cluster.kill(2):
                pass
            cluster.wait_in_sync("orders")
            cluster.crash()
        gc.collect()
        """)
    )
    done = subprocess.run(
        [sys.executable, "-X", "dev", str(program)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "Event loop is closed" not in done.stderr
    assert "Traceback" not in done.stderr


def test_importing_the_package_and_the_plugin_is_cheap():
    program = (
        "import sys, anabranch.testing, anabranch.testing.pytest_plugin as p;"
        "print([m for m in sys.modules if m.startswith('anabranch.')])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "['anabranch.testing', 'anabranch.testing.pytest_plugin']"


def test_three_brokers_in_three_racks_go_on_without_one_of_them(tmp_path):
    with LocalCluster(brokers=3, racks=["a", "b", "c"], folder=tmp_path) as cluster:
        assert [(each.broker_id, each.rack) for each in cluster.brokers] == [
            (1, "a"),
            (2, "b"),
            (3, "c"),
        ]
        cluster.create_topic("t", partitions=3)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        address = cluster.brokers[1]
        cluster.stop_broker(2)
        failures = []
        for number in range(30):
            producer.produce(
                "t",
                b"%d" % number,
                partition=0,
                on_delivery=lambda error, _: failures.append(error),
            )
        assert producer.flush(20) == 0
        assert failures == [None] * 30
        cluster.start_broker(2)
        assert cluster.brokers[1] == address
        with pytest.raises(ClusterError, match="running already"):
            cluster.start_broker(2)
        with pytest.raises(ClusterError, match="No broker 7 is running"):
            cluster.stop_broker(7)
        logs = [Path(each.folder) / "t-0" / "00000000000000000000.log" for each in cluster.brokers]
        until(lambda: all(log.exists() for log in logs))
        until(lambda: len({log.read_bytes() for log in logs}) == 1)


def test_a_partition_without_a_leader_hides_the_leaders_of_others():
    with LocalCluster(brokers=2) as cluster:
        cluster.create_topic("t", partitions=2, replication_factor=1)
        first, second = cluster.leader("t", 0), cluster.leader("t", 1)
        assert first != second
        cluster.stop_broker(second)
        assert cluster.leader("t", 0, timeout_seconds=5) == first
        with pytest.raises(ClusterError, match="has no partition 7: it has 2"):
            cluster.leader("t", 7)


A_SCRIPT = """
from anabranch.testing import LocalCluster

with LocalCluster(brokers=2) as cluster:
    cluster.create_topic("t")
    with cluster.kill(cluster.leader("t")):
        pass
    assert "the node must stop" in cluster.log
"""


def test_a_script_that_configured_no_logging_prints_nothing():
    done = subprocess.run([sys.executable, "-c", A_SCRIPT], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
