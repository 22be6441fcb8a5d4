"""B6: a cluster's brokers over their lives: what is left of them, who outlives whom."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.clients.members import until
from tests.testing.cluster_kit import new_threads, offsets, produce, producer

from anabranch.client.ports import free_ports
from anabranch.testing import ClusterError, LocalCluster


def left(before):
    """Threads and children of this process that were not there before."""
    threads, children = before
    return new_threads(threads), pids_of_children() - children


def pids_of_children():
    """Not those of a database that other tests share: its server starts and ends workers as it
    likes."""
    return {each.pid for each in psutil.Process().children()}


@pytest.mark.parametrize("processes", [False, True])
def test_nothing_is_left_of_brokers_in_any_state(processes):
    LocalCluster().start().stop()
    before = set(threading.enumerate()), pids_of_children()
    free_ports(1)  # opens the file in which this process keeps its ports until it ends
    files = len(os.listdir("/proc/self/fd"))
    with LocalCluster(brokers=3, processes=processes) as cluster:
        folder = Path(cluster.brokers[0].folder).parent
        cluster.create_topic("t", partitions=6)
        cluster.cut(1)
        cluster.slow_disk(1, ms=1)
        cluster.full_disk(2)
        cluster.pause(2)
        cluster.kill(3)
    assert left(before) == (set(), set())
    assert not folder.exists()
    assert len(os.listdir("/proc/self/fd")) <= files
    assert "ready" in cluster.log


def test_a_broker_on_a_thread_takes_its_death_for_no_fault_of_its_disk():
    """It was told to die, and its loop still had something to do: it said that its folder was
    offline, to clients and to the controller."""
    with LocalCluster(brokers=2) as cluster:
        life = cluster._cluster.nodes[2]._life
        stands, goes_on, written = threading.Event(), threading.Event(), []

        def write():
            stands.set()
            assert goes_on.wait(20)
            written.append(life._files.write_atomic(f"{folder}/last", b"", sync=True))

        folder = cluster.brokers[1].folder
        life._loop.call_soon_threadsafe(write)
        assert stands.wait(20)
        life.strike()
        goes_on.set()
        life.kill()
        assert written == [None]
        assert "offline" not in cluster.log


@pytest.mark.parametrize("processes", [False, True])
def test_one_broker_is_killed_and_keeps_its_address_and_its_records(processes, tmp_path):
    with LocalCluster(processes=processes, folder=tmp_path) as cluster:
        cluster.create_topic("t")
        produce(cluster, 4)
        address = cluster.bootstrap_servers
        cluster.kill(1)
        with pytest.raises(ClusterError, match="Broker 1 was killed"):
            cluster.topics()
        cluster.start_broker(1)
        assert cluster.bootstrap_servers == address
        assert offsets(cluster) == (0, 4)
        with pytest.raises(ClusterError, match="the cluster has only one"):
            cluster.cut(1)
        with pytest.raises(ClusterError, match="The last broker stays"):
            cluster.stop_broker(1)
    with LocalCluster(processes=not processes, folder=tmp_path) as cluster:
        assert offsets(cluster) == (0, 4)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [False, True])
def test_a_full_disk_takes_no_record_until_it_heals(processes):
    with LocalCluster(processes=processes) as cluster:
        cluster.create_topic("t")
        failures = []
        writes = producer(cluster, **{"delivery.timeout.ms": 1000})
        with cluster.full_disk(1):
            writes.produce(
                "t", b"no room", on_delivery=lambda error, _: failures.append(bool(error))
            )
            assert writes.flush(20) == 0
        assert failures == [True]
        assert cluster.state(1) == "running"
        produce(cluster, 2)
        assert offsets(cluster) == (0, 2)


@pytest.mark.parametrize("processes", [False, True])
def test_a_clock_moves_ages_and_leaves_sessions_alone(processes):
    with LocalCluster(processes=processes) as cluster:
        cluster.create_topic("t")
        produce(cluster, 1)
        servers = {"bootstrap.servers": cluster.bootstrap_servers, "enable.auto.commit": False}
        stays, gone = (Consumer({**servers, "group.id": each}) for each in ("stays", "gone"))
        first = [TopicPartition("t", 0, 1)]
        gone.commit(offsets=first, asynchronous=False)
        stays.subscribe(["t"])
        until(lambda: stays.poll(0.1) or stays.assignment())
        stays.commit(offsets=first, asynchronous=False)
        cluster.advance_clock(8 * 86_400)
        until(lambda: gone.committed([TopicPartition("t", 0)], 20)[0].offset < 0)
        assert stays.committed([TopicPartition("t", 0)], 20)[0].offset == 1
        assert cluster.statistics()[1]["groups"]["groups"] >= 1
        stays.close()
        gone.close()


@pytest.mark.filterwarnings("error")
def test_a_kill_on_a_thread_warns_of_nothing(recwarn):
    gc.collect()
    recwarn.clear()  # of what other tests left to be collected
    with LocalCluster(brokers=2) as cluster:
        cluster.create_topic("t")
        cluster.kill(2)
        gc.collect()
        cluster.start_broker(2)
        cluster.crash()
    gc.collect()
    assert [str(each.message) for each in recwarn] == []


def test_processes_have_one_log_each_over_all_their_lives(tmp_path):
    with LocalCluster(processes=True, folder=tmp_path) as cluster:
        cluster.kill(1)
        cluster.start_broker(1)
        assert (tmp_path / "broker-1.log").read_text().count("INFO node: ready") == 2
        assert cluster.log.count("broker 1: ") >= 2
    assert "stopped" in cluster.log


def test_a_process_that_cannot_start_says_why():
    with pytest.raises(ClusterError, match=r"did not start: .*num\.partitions"):
        LocalCluster(processes=True, config={"num.partitions": "many"}).start()
    with pytest.raises(ClusterError, match=r"within 0\.01 seconds"):
        LocalCluster(processes=True, start_timeout_seconds=0.01).start()


def test_a_process_that_somebody_else_kills_has_ended():
    with LocalCluster(processes=True) as cluster:
        os.kill(cluster.pids[1], signal.SIGKILL)
        until(lambda: cluster.state(1) == "ended")
        with pytest.raises(ClusterError, match="has ended: it was killed by signal 9"):
            cluster.topics()
        cluster.start_broker(1)
        assert cluster.topics() == []


def test_settings_of_one_broker_and_the_first_controller(tmp_path):
    several = LocalCluster(
        brokers=2, broker_config={2: {"broker.rack": "own"}}, controller=2, folder=tmp_path
    )
    with several as cluster:
        assert [each.rack for each in cluster.brokers] == [None, "own"]
        assert cluster.controller() == 2
    for wrong in ({"broker_config": {3: {}}}, {"controller": 3}):
        with pytest.raises(ClusterError, match="There is no broker 3: the ids are 1 to 2"):
            LocalCluster(brokers=2, **wrong)


def test_a_broker_that_still_starts_ends_with_its_test(tmp_path):
    """One that waits for a controller, which is nowhere."""
    settings = {
        "node.id": "1", "process.roles": "broker", "log.dirs": str(tmp_path / "data"),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "controller.quorum.bootstrap.servers": "127.0.0.1:1",
    }  # fmt: skip
    with tempfile.TemporaryFile() as table:
        order = {
            "settings": settings,
            "peers": {},
            "controllers": [],
            "faults": table.fileno(),
            "log_level": "info",
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "anabranch.testing.node_process"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            pass_fds=(table.fileno(),), text=True,
        )  # fmt: skip
    with process:
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        try:
            until(lambda: (tmp_path / "data").exists())
            process.stdin.close()
            assert process.wait(20) == 1
            assert process.stdout.read() == ""
        finally:
            process.kill()


@pytest.mark.slow
def test_brokers_end_with_the_test_that_forgot_them(tmp_path):
    """Also a paused one, and though the test's process was killed."""
    program = """
        import os, signal, sys
        from anabranch.testing import LocalCluster
        cluster = LocalCluster(brokers=2, processes=True, folder=sys.argv[1]).start()
        cluster.pause(2)
        print(*cluster.pids.values(), flush=True)
        if sys.argv[2] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
    """
    for way in ("kill", "return"):
        ran = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / way), way],
            stdout=subprocess.PIPE, text=True, timeout=60,
        )  # fmt: skip
        pids = [int(each) for each in ran.stdout.split()]
        assert len(pids) == 2
        until(lambda pids=pids: not any(map(psutil.pid_exists, pids)))
