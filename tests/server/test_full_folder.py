"""One full disk of three: nobody else stalls, the node lives on, and it returns by itself."""

from __future__ import annotations

import collections
import itertools
import os
import subprocess
import threading
import time
import urllib.request

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.members import until
from tests.server.node_kit import free_port
from tests.server.promql import fires, series_of
from tests.server.test_alerts import RULES

from anabranch.cli.cluster import command
from anabranch.testing import LocalCluster

SECONDS = 60
SMALL, LARGE = "24m", "400m"
SICK = 3
PARTITIONS = 6
VALUE = bytes(2048)
STALL_SECONDS = 5.0
"""It takes milliseconds; waiting for lag would take `replica.lag.time.max.ms`, 30 seconds."""
READ = "kafka_server_brokermetadatametrics_lastappliedrecordoffset"


@pytest.fixture
def small(tmp_path):
    """A small file system of its own."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def running(small):
    """Three processes, one of them with its only folder on the small file system."""
    running = Running(small)
    with running.cluster:
        yield running


class Running:
    """A cluster and what is asked of it."""

    def __init__(self, small):
        self.small, self.folder = small, small / "data"
        self.pages = {each: free_port() for each in (1, 2, 3)}
        own = {each: {"http.listener": f"127.0.0.1:{at}"} for each, at in self.pages.items()}
        own[SICK]["log.dirs"] = str(self.folder)
        settings = {"leader.imbalance.check.interval.seconds": 1, "min.insync.replicas": 2}
        self.cluster = LocalCluster(
            brokers=3, processes=True, config=settings, broker_config=own, controller=1
        )

    def create(self, name, *replicas):
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers})
        made = NewTopic(name, len(replicas), replica_assignment=[*map(list, replicas)])
        admin.create_topics([made])[name].result(SECONDS)
        return admin

    def scrape(self):
        return {
            str(each): urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
            for each, port in self.pages.items()
        }

    def is_told(self):
        """Whether the alert fires, and names broker and folder."""
        pages = self.scrape()
        full = [
            dict(labels)
            for labels, value in series_of(pages)["anabranch_log_folder_full"].items()
            if value
        ]
        if not fires(RULES["FullFolders"]["expr"], pages):
            assert not full
            return False
        assert [(each["broker"], each["folder"]) for each in full] == [
            (str(SICK), str(self.folder))
        ]
        return True

    def status(self):
        bootstrap = self.cluster.bootstrap_servers
        done = CliRunner().invoke(command, ["status", "--bootstrap-server", bootstrap])
        assert done.exit_code == 0, done.output
        return done.output

    def states(self, admin, topic):
        return admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions.values()


class Writer:
    """Records into every partition with acks=all, until it is told to stop."""

    def __init__(self, bootstrap):
        self.acks, self.failures = collections.defaultdict(list), []
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _done(self, error, message):
        if error:
            self.failures.append(error)
        else:
            self.acks[message.partition()].append(time.monotonic())

    def _write(self):
        while not self._ends.is_set():
            for index in range(PARTITIONS):
                self._producer.produce("u", VALUE, partition=index, on_delivery=self._done)
            self._producer.poll(0.002)
            while len(self._producer) > 10_000:
                self._producer.poll(0.1)
        self._producer.flush(SECONDS)

    def stop(self):
        self._ends.set()
        self._thread.join()

    def longest_gap(self):
        return max(
            after - before
            for times in self.acks.values()
            for before, after in itertools.pairwise(times)
        )


@pytest.mark.slow
def test_a_full_disk_stalls_nobody_and_its_broker_returns_by_itself(running):
    lists = [[1, 2, 3], [2, 3, 1], [3, 1, 2]] * 2
    admin = running.create("u", *lists)
    running.cluster.wait_in_sync("u", timeout_seconds=SECONDS)
    assert not running.is_told()
    writer = Writer(running.cluster.bootstrap_servers)
    try:
        until(running.is_told, "the alert", SECONDS)
        until(lambda: all(SICK not in each.isrs for each in running.states(admin, "u")))
        assert all(each.leader not in (-1, SICK) for each in running.states(admin, "u"))
        said = running.status()
        assert f"Broker {SICK} has no space in {running.folder}" in said
        assert f"broker {SICK} has no space in folder" in said
        counts = [len(times) for times in writer.acks.values()]
        until(lambda: min(map(len, writer.acks.values())) > max(counts) + 100)
    finally:
        writer.stop()
    assert not writer.failures
    assert len(writer.acks) == PARTITIONS and writer.longest_gap() < STALL_SECONDS
    assert SICK in running.cluster.pids

    subprocess.run(["mount", "-o", f"remount,size={LARGE}", str(running.small)], check=True)
    running.cluster.wait_in_sync("u", timeout_seconds=SECONDS)
    preferred = [each[0] for each in lists]
    until(lambda: [each.leader for each in running.states(admin, "u")] == preferred, "", SECONDS)
    assert not running.is_told()
    assert "has no space in /" not in running.status()


@pytest.mark.slow
def test_the_metadata_of_a_full_disk_finds_what_is_kept_for_it(running):
    """Another process fills the disk; no record is refused before metadata is."""
    filler = running.small / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass
    admin = running.create("m", *[[1, 2]] * 200)
    until(running.is_told, "the alert", SECONDS)
    for number in range(20):
        running.create(f"m{number}", *[[1, 2]] * 20)

    def read():
        pages = series_of(running.scrape())[READ]
        return len(set(pages.values())) == 1

    until(read, "all have read the metadata", SECONDS)
    assert len(running.states(admin, "m19")) == 20
    assert f"Broker {SICK} has no space in {running.folder}" in running.status()
    filler.unlink()
    until(lambda: not running.is_told(), "room again", SECONDS)
    running.create("again", [SICK, 1, 2])
    running.cluster.wait_in_sync("again", timeout_seconds=SECONDS)
