"""Managed replicas on three real processes in three racks: created, lost and found again, moved by hand, shown."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from itertools import count
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.members import until
from tests.server.node_kit import free_port
from tests.server.promql import fires
from tests.server.test_alerts import RULES

from anabranch.cli.main import main
from anabranch.testing import LocalCluster

IDS = (1, 2, 3)
SECONDS = 60
PARTITIONS = 12
SETTINGS = {
    "broker.session.timeout.ms": 2500,
    "broker.heartbeat.interval.ms": 250,
    "diskless.storage.system.enable": True,
    "diskless.managed.rf.rack.unavailable.threshold.ms": 3000,
}
PACE, RECONCILE = "diskless.managed.rf.max.moves.per.sec", "diskless.managed.rf.auto.reconcile"
NAMES = map("managed{}".format, count())


class Racks:
    """The cluster, its pages, and verbs against it."""

    def __init__(self, folder):
        (folder / "objects").mkdir()
        self.ports = {each: free_port() for each in IDS}
        own = {each: {"http.listener": f"127.0.0.1:{port}"} for each, port in self.ports.items()}
        self.cluster = LocalCluster(
            brokers=3, racks=["a", "b", "c"], processes=True,
            config={
                **SETTINGS,
                "diskless.storage.url": f"file://{folder}/objects",
                "diskless.coordinator.url": f"sqlite://{folder}/diskless.db",
            },
            broker_config=own,
            controller=1,
        )  # fmt: skip

    @property
    def servers(self):
        return self.cluster.bootstrap_servers

    def admin(self, client_id="tests"):
        return AdminClient({"bootstrap.servers": self.servers, "client.id": client_id})

    def create(self, name, factor=-1, partitions=PARTITIONS, **how):
        topic = NewTopic(name, partitions, replication_factor=factor,
                         config={"diskless.enable": "true"}, **how)  # fmt: skip
        admin = self.admin()
        admin.create_topics([topic])[name].result(SECONDS)
        return name

    def seen(self, name, client_id="tests"):
        """Partition -> leader, replicas, in sync: as a client of that id sees them."""
        admin = self.admin(client_id)
        topics = admin.list_topics(name, timeout=SECONDS).topics
        return {i: (p.leader, sorted(p.replicas), sorted(p.isrs))
                for i, p in topics[name].partitions.items()}  # fmt: skip

    def preferred(self):
        """Partitions by the broker that is preferred to lead them, over all topics."""
        topics = self.admin().list_topics(timeout=SECONDS).topics.values()
        return Counter(part.replicas[0] for topic in topics for part in topic.partitions.values())

    def placement(self, name):
        return self.verb("placement", name, "--json")

    def until_on(self, name, *brokers):
        """Wait until each partition has a replica on exactly these brokers, one in each rack."""
        wanted = sorted("abc"[each - 1] for each in brokers)

        def is_there():
            parts = self.placement(name)["partitions"]
            return all(sorted(each["assigned_racks"]) == wanted for each in parts)

        until(is_there, f"{name} on {brokers}", SECONDS)
        return self.placement(name)

    def verb(self, *words):
        environment = {"ANABRANCH_BOOTSTRAP_SERVER": self.servers}
        result = CliRunner().invoke(main, words, env=environment)
        assert result.exit_code == 0, result.output
        return json.loads(result.output) if "--json" in words else result.output

    def page(self, broker_id, path):
        url = f"http://127.0.0.1:{self.ports[broker_id]}{path}"
        with urllib.request.urlopen(url, timeout=30) as page:
            return page.read().decode()

    def pages(self):
        found = {}
        for each in IDS:
            try:
                found[str(each)] = self.page(each, "/metrics")
            except OSError:
                continue
        return found

    def firing(self, before=None):
        """The rules about diskless topics that say something."""
        pages = self.pages()
        return {alert for alert, rule in RULES.items()
                if alert.startswith("Diskless") and fires(rule["expr"], pages, before)}  # fmt: skip

    def set(self, name, value):
        self.verb("configs", "alter", "--entity-type", "brokers", "--entity-default",
                  "--add-config", f"{name}={value}")  # fmt: skip


@pytest.fixture(scope="module")
def racks(tmp_path_factory):
    made = Racks(tmp_path_factory.mktemp("diskless"))
    made.cluster.start()
    try:
        yield made
    finally:
        made.cluster.stop()


@pytest.mark.slow
def test_creation_is_managed_and_whoever_chooses_is_refused(racks):
    for factor in (-1, 1):
        name = racks.create(next(NAMES), factor)
        assert {tuple(each[1]) for each in racks.seen(name).values()} == {(1, 2, 3)}
        counts = [racks.preferred()[each] for each in IDS]
        assert max(counts) - min(counts) <= 1, "whatever other topics there are"
    with pytest.raises(KafkaException, match="replication factor is system-managed"):
        racks.create(next(NAMES), 3)
    topic = NewTopic("by-hand", 1, replica_assignment=[[1]], config={"diskless.enable": "true"})
    admin = racks.admin()
    refused = admin.create_topics([topic])["by-hand"]
    with pytest.raises(KafkaException, match="placement is system-managed"):
        refused.result(SECONDS)


def test_a_client_sees_the_replica_in_its_rack(racks):
    name = racks.create(next(NAMES))
    for broker_id, rack in zip(IDS, "abc", strict=True):
        seen = racks.seen(name, f"app,diskless_az={rack}")
        assert set(map(str, seen.values())) == {str((broker_id, [broker_id], [broker_id]))}
    assert {tuple(each[1]) for each in racks.seen(name, "app").values()} == {(1, 2, 3)}
    pages = "".join(racks.pages().values())
    assert f'anabranch_diskless_client_az_hit_total{{topic="{name}"}}' in pages
    assert f'kafka_broker_diskless_preferred_broker_hit_ratio{{topic="{name}"}}' not in pages


def test_what_is_written_to_the_near_replica_is_read_from_another(racks):
    name = racks.create(next(NAMES), partitions=3)
    writer = Producer({"bootstrap.servers": racks.servers, "client.id": "w,diskless_az=c"})
    for index in range(3):
        writer.produce(name, f"record {index}".encode(), partition=index)
    assert writer.flush(SECONDS) == 0
    for client_id in ("r", "r|diskless_az=a"):
        reader = Consumer({"bootstrap.servers": racks.servers, "client.id": client_id,
                           "group.id": "unused", "enable.auto.commit": False})  # fmt: skip
        reader.assign([TopicPartition(name, index, 0) for index in range(3)])
        found = reader.consume(3, timeout=SECONDS)
        assert sorted(each.value() for each in found) == [b"record 0", b"record 1", b"record 2"]
        reader.close()
    ratio = f'kafka_broker_diskless_preferred_broker_hit_ratio{{topic="{name}"}} 1.0'
    pages = racks.pages()
    assert ratio in pages["3"] and ratio in pages["1"], "written in c, read in a"
    assert ratio not in pages["2"]
    folders = [Path(each.folder) for each in racks.cluster.brokers]
    assert not [found for each in folders for found in each.rglob(f"{name}-*")], "no logs"


def test_every_surface_tells_the_same(racks):
    name = racks.create(next(NAMES))
    told = racks.placement(name)
    assert told["is_diskless"]
    assert (told["effective_rf"], told["target_racks"]) == (3, ["a", "b", "c"])
    assert told["partitions"][0] == {
        "partition": 0, "target_racks": ["a", "b", "c"], "assigned_racks": ["a", "b", "c"],
        "rack_coverage": 100, "placement_state": "steady", "placement_drift": False,
        "exceptions": ["none"], "reasons": [],
    }  # fmt: skip
    for each in IDS:
        until(lambda each=each: name in racks.page(each, "/placement"), "known", SECONDS)
        assert json.loads(racks.page(each, f"/placement/{name}")) == told
        assert json.loads(racks.page(each, "/placement"))["racks"]["a"]["state"] == "HEALTHY"
    [topic] = racks.verb("topics", "describe", "--topic", name, "--json")
    assert (topic["is_diskless"], topic["effective_rf"]) == (True, 3)
    assert topic["partitions"][0]["placement"] == told["partitions"][0]
    assert "diskless, effective replication factor 3" in racks.verb(
        "topics", "describe", "--topic", name
    )
    assert "100%" in racks.verb("placement", name)
    assert "copies no records" in racks.verb("explain", f"{name}-0")


@pytest.mark.slow
def test_a_rack_goes_past_the_threshold_and_comes_back(racks):
    name = racks.create(next(NAMES))
    for _ in range(5):  # more work than one round at the slowest pace takes
        racks.create(next(NAMES))
    assert not racks.firing()
    with racks.cluster.kill(3):
        until(lambda: "DisklessRackDegraded" in racks.firing(), "half of the threshold", SECONDS)
        told = racks.until_on(name, 1, 2)
        assert {each["rack_coverage"] for each in told["partitions"]} == {100}
        assert told["effective_rf"] == 2
        assert {each[0] for each in racks.seen(name, "app,diskless_az=c").values()} <= {1, 2}
        assert not racks.firing()
        racks.set(PACE, "1")
        before = racks.pages()
    until(lambda: {"DisklessBacklogGrows", "DisklessRackCoverage", "DisklessPlacementDrift"}
          <= racks.firing(before), "work that piles up", SECONDS)  # fmt: skip
    racks.set(PACE, "5000")
    racks.until_on(name, *IDS)
    until(lambda: not racks.firing(), "quiet", SECONDS)


def test_what_is_moved_by_hand_is_drift_and_is_mended(racks, tmp_path):
    name = racks.create(next(NAMES), partitions=1)
    racks.set(RECONCILE, "false")
    moves = {"version": 1, "partitions": [{"topic": name, "partition": 0, "replicas": [2]}]}
    file = tmp_path / "moves.json"
    file.write_text(json.dumps(moves))
    racks.verb("partitions", "reassign", "--execute", "--file", str(file))
    until(lambda: racks.firing() >= {"DisklessPlacementDrift", "DisklessRackCoverage"}, "drift",
          SECONDS)  # fmt: skip
    [told] = racks.placement(name)["partitions"]
    assert (told["assigned_racks"], told["placement_state"]) == (["b"], "frozen")
    assert racks.seen(name, "app,diskless_az=a") == {0: (2, [2], [2])}
    racks.set(RECONCILE, "true")
    racks.until_on(name, *IDS)
    until(lambda: not racks.firing(), "quiet", SECONDS)
