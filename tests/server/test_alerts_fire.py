"""R19: each shipped rule fires on three real processes, from the cause that it is for, and ends with it."""

from __future__ import annotations

import urllib.request

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.members import until
from tests.server.node_kit import free_port
from tests.server.promql import fires
from tests.server.test_alerts import OF_THE_DOCUMENT, RULES, write

from anabranch.testing import LocalCluster

IDS = (1, 2, 3)
SECONDS = 60
QUIET = 0.5
SETTINGS = {
    "replica.lag.time.max.ms": 1500,
    "controller.socket.timeout.ms": 1000,
    "broker.session.timeout.ms": 4000,
    "broker.heartbeat.interval.ms": 500,
    "auto.leader.rebalance.enable": False,
    "offsets.topic.replication.factor": 3,
}


class Watched:
    """A cluster and a Prometheus that scrapes whoever answers."""

    def __init__(self, folder):
        self.ports = {each: free_port() for each in IDS}
        own = {each: {"http.listener": f"127.0.0.1:{port}"} for each, port in self.ports.items()}
        self.folders = [folder / each for each in ("one", "two")]
        own[3] |= {
            "log.dirs": ",".join(map(str, self.folders)),
            "metadata.log.dir": str(folder / "metadata"),
        }
        self.cluster = LocalCluster(
            brokers=3, processes=True, config=SETTINGS, broker_config=own, controller=1
        )
        self.began = {}

    def scrape(self):
        pages = {}
        for each, port in self.ports.items():
            try:
                with urllib.request.urlopen(
                    f"http://127.0.0.1:{port}/metrics", timeout=QUIET
                ) as page:
                    pages[str(each)] = page.read().decode()
            except OSError:
                continue
        return pages

    def window(self, *ids):
        """Begin one with the pages of these nodes, or of all: what is on none has not grown since,
        so that each has to answer in time."""
        wanted = {str(each) for each in ids or IDS}

        def every_page():
            pages = self.scrape()
            return pages if wanted <= set(pages) else None

        self.began = until(every_page, f"the pages of {sorted(wanted)}", SECONDS)

    def fire(self):
        """The alerts since the window began."""
        pages = self.scrape()
        return {alert for alert, rule in RULES.items() if fires(rule["expr"], pages, self.began)}

    def begin(self):
        """A new window, in which nothing is wrong."""
        self.cluster.wait_in_sync(timeout_seconds=SECONDS)
        until(self.is_quiet, "quiet", SECONDS)
        return self

    def is_quiet(self):
        """Whether a window that begins now has nothing in it; what just ended still counted."""
        self.window()
        return not self.fire()

    def fired(self, *alerts):
        until(lambda: set(alerts) <= self.fire(), str(alerts), SECONDS)

    def topic(self, name, *replicas, minimum=1, **settings):
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers})
        config = {each.replace("_", "."): value for each, value in settings.items()}
        config["min.insync.replicas"] = str(minimum)
        made = NewTopic(name, 1, replica_assignment=[list(replicas)], config=config)
        admin.create_topics([made])[name].result(SECONDS)
        self.cluster.wait_in_sync(name, timeout_seconds=SECONDS)

    def write(self, topic, *brokers):
        """The error of a write through these brokers."""
        known = {each.broker_id: f"{each.host}:{each.port}" for each in self.cluster.brokers}
        return write(",".join(known[each] for each in brokers or IDS), topic)

    def append(self, topic):
        """A record that its leader alone must have."""
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap_servers, "acks": 1})
        producer.produce(topic, b"x")
        assert producer.flush(SECONDS) == 0


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    watched = Watched(tmp_path_factory.mktemp("third"))
    watched.cluster.start()
    try:
        yield watched
    finally:
        watched.cluster.stop()


@pytest.fixture
def watched(shared):
    """Before and after each test nothing is wrong."""
    yield shared.begin()
    shared.begin()


def test_every_metric_of_the_document_is_on_a_page(watched):
    watched.topic("measured", 1, 2, 3)
    assert watched.write("measured") is None
    page = "".join(watched.scrape().values())
    assert not {each for each in OF_THE_DOCUMENT if f"\n{each}" not in page}


@pytest.mark.slow
def test_a_paused_follower(watched):
    watched.topic("flights", 2, 3, 1, minimum=3)
    watched.window()
    with watched.cluster.pause(3):
        watched.append("flights")
        watched.fired("IsrShrinks", "UnderReplicatedPartitions", "UnderMinIsrPartitions")
        watched.fired("FencedBrokers")
        assert watched.write("flights", 1, 2) is not None
        watched.window(1, 2)
        assert watched.write("flights", 1, 2) is not None
        watched.fired("FailedProduceRequests")
    watched.fired("IsrExpands")


@pytest.mark.slow
def test_a_follower_that_is_cut_off_from_its_leader_alone(watched):
    watched.topic("cut", 2, 3)
    with watched.cluster.cut(2, 3):
        watched.append("cut")
        watched.fired("IsrShrinks", "UnderReplicatedPartitions")
        assert "FencedBrokers" not in watched.fire(), "the controller hears both"


@pytest.mark.slow
def test_a_killed_broker_with_the_only_replica(watched):
    watched.topic("alone", 3)
    with watched.cluster.kill(3):
        watched.fired("OfflinePartitions", "FencedBrokers")


@pytest.mark.slow
def test_a_paused_controller(watched):
    """Until another takes the lease over."""
    with watched.cluster.pause(watched.cluster.controller()):
        watched.fired("NoSingleActiveController")
        until(lambda: "NoSingleActiveController" not in watched.fire(), "another", SECONDS)


@pytest.mark.slow
def test_an_unclean_election(watched):
    watched.topic("clicks", 3, 2, unclean_leader_election_enable="true")
    cluster = watched.cluster
    cluster.stop_broker(2)
    watched.append("clicks")
    cluster.stop_broker(3)
    cluster.start_broker(2)
    watched.fired("UncleanLeaderElections", "LeaderElections")
    cluster.start_broker(3)


@pytest.mark.slow
def test_a_log_that_lost_what_was_synced(watched):
    """One of two: the broker serves on, without the replica that lies there."""
    watched.topic("broken", 1, 3)
    watched.append("broken")
    watched.cluster.stop_broker(3)
    place = next(each for each in watched.folders if (each / "broken-0").exists()) / "broken-0"
    log = place / "00000000000000000000.log"
    records = log.read_bytes()
    log.write_bytes(b"")
    watched.cluster.start_broker(3)
    watched.fired("OfflineReplicas", "UnderReplicatedPartitions")
    watched.cluster.stop_broker(3)
    log.write_bytes(records)
    watched.cluster.start_broker(3)


def test_a_leader_whose_changes_of_the_isr_reach_nobody(watched):
    """It hears its followers and no controller, and one of them lags."""
    cluster = watched.cluster
    active = cluster.controller()
    leader, follower = (each for each in IDS if each != active)
    watched.topic("islands", leader, follower, active)
    with cluster.cut(leader, follower), cluster.cut(leader, active, one_way=True):
        watched.append("islands")
        watched.fired("FailedIsrUpdates")


def test_a_group_that_stops_reading(watched):
    """Its records wait, and more come; once it reads on, nothing is wrong."""
    watched.topic("read", 1, 2, 3)
    watched.append("read")
    settings = {
        "bootstrap.servers": watched.cluster.bootstrap_servers, "group.id": "stopped",
        "auto.offset.reset": "earliest", "enable.auto.commit": False,
    }  # fmt: skip
    consumer = Consumer(settings)
    consumer.subscribe(["read"])

    def read():
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            consumer.commit(message, asynchronous=False)
            return True
        return False

    until(read, "the first record", SECONDS)
    lag = 'kafka_consumergroup_lag{consumergroup="stopped",partition="0",topic="read"} 0.0'
    until(lambda: lag in "".join(watched.scrape().values()), "a group without lag", SECONDS)
    watched.window()
    watched.append("read")
    watched.fired("ConsumerGroupStopped", "ConsumerGroupLagGrows")
    until(read, "the second record", SECONDS)
    until(lambda: "ConsumerGroupStopped" not in watched.fire(), "progress", SECONDS)
    consumer.close()
    watched.cluster.delete_topic("read")
