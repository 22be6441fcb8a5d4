"""Three nodes that are one cluster, in threads or as processes, and clients that watch them."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.members import until
from tests.server.node_kit import ProcessNode, ThreadNode, free_port

from anabranch.client.cluster import Cluster
from anabranch.client.connection import ConnectionLost
from anabranch.client.partitions import Illness, describe_topics
from anabranch.core.errors import ApiError

IDS = (1, 2, 3)
RACKS = {1: "a", 2: "b", 3: "c"}
PARTITIONS = 12
LONGEST_GAP_S = 5.0
"""Well below the session timeout of 9 s: a process that is gone is not waited for."""
LOOK_SECONDS = 0.02


# Nodes.


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


def three_threads(tmp_path, racks=None, *, pages=False, **settings):
    """Node id -> node in a thread, not started; with `racks` of each, with a page of metrics."""
    made = {}
    for each, own in settings_of_three(tmp_path).items():
        own |= settings
        own["listeners"] = own["listeners"].format(0)
        if racks:
            own["broker_rack"] = racks[each]
        if pages:
            own["http_listener"] = f"127.0.0.1:{free_port()}"
        made[each] = ThreadNode(tmp_path / str(each), **own)
    return made


def three_processes(tmp_path, store_url=None, folders="", **settings):
    """Node id -> node as a process, not started; `folders` are below each one's own."""
    made = {}
    for each, own in settings_of_three(tmp_path, store_url).items():
        own |= settings
        port = free_port()
        own["listeners"] = own["listeners"].format(port)
        logs = ",".join(str(tmp_path / str(each) / name) for name in folders.split(","))
        made[each] = ProcessNode(logs, port, **own)
    return made


@contextmanager
def running(nodes, ids=IDS):
    """These of the nodes serve; all that were started are ended, whatever happens."""
    try:
        for each in ids:
            nodes[each].start()
        for each in ids:
            nodes[each].ready()
        yield nodes
    finally:
        for node in nodes.values():
            node.close()


def serving(nodes):
    """The nodes in threads that serve now, without what starts and stops them."""
    return [each.node for each in nodes.values() if each.node is not None and each.node.is_ready]


def followed(nodes):
    """Wait until these nodes know what the active controller among them has committed: what one
    verb changed, the next one sees then, whomever it asks."""
    controllers = [each.controller.controller for each in nodes if each.controller is not None]
    end = max((each.log.end_offset for each in controllers if each.active), default=0)
    until(lambda: all(each.broker.broker.image.next_offset >= end for each in nodes))


def bootstrap_of(nodes, ids=IDS):
    return ",".join(nodes[each].bootstrap for each in ids)


def is_whole(bootstrap, *names):
    """Whether all three are there and every replica is in sync, as one that knows these topics
    says: it may be behind the controller that created them."""

    async def look():
        async with Cluster(bootstrap) as cluster:
            topics = await describe_topics(cluster, None)
            if len(cluster.brokers) < len(IDS) or set(names) - {each.name for each in topics}:
                return False
            return not any(
                Illness.UNDER_REPLICATED in each.illnesses(topic.minimum)
                for topic in topics
                for each in topic.partitions
            )

    return asyncio.run(look())


# Clients.


def create_both(bootstrap):
    """Topic `t` of one partition for `Acks` and `u` of several for `Watch`; an admin client.

    Of `u` the brokers lead in turn, so that one with two folders leads in both."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    config = {"min.insync.replicas": "2"}
    turns = [[IDS[(first + each) % len(IDS)] for each in range(3)] for first in range(PARTITIONS)]
    topics = [
        NewTopic("t", 1, 3, config=config),
        NewTopic("u", PARTITIONS, replica_assignment=turns, config=config),
    ]
    for made in admin.create_topics(topics).values():
        made.result(20)
    until(lambda: all(is_whole(each, "t", "u") for each in bootstrap.split(",")))
    return admin


def partitions_of(admin, topic="t", count=1):
    """The partitions of a topic, once the broker that the client happens to ask knows them all: it
    may be behind the controller that created them."""

    def known():
        found = admin.list_topics(topic, timeout=30).topics[topic].partitions
        return found if len(found) >= count else None

    return until(known, f"{count} partitions of {topic}")


def produce(bootstrap, values):
    """These records to `t`, none of which may fail."""
    failures = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5}
    )
    for value in values:
        producer.produce("t", value, on_delivery=lambda error, _: error and failures.append(error))
    assert producer.flush(30) == 0
    assert not failures, failures


def count_of(bootstrap):
    """How many records `t` has."""
    reader = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "count"})
    try:
        return reader.get_watermark_offsets(confluent_kafka.TopicPartition("t", 0), 10)[1]
    finally:
        reader.close()


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


class Watch:
    """Asks one node again and again for all partitions, and notes those that nobody leads."""

    def __init__(self, bootstrap):
        self.bootstrap, self.looks, self.seen, self.refusals = bootstrap, 0, [], []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()

    async def _run(self):
        while not self._ended.is_set():
            try:
                async with Cluster(self.bootstrap, deadline_seconds=1.0) as cluster:
                    while not self._ended.is_set():
                        self._look(await describe_topics(cluster, ["u"]))
                        await asyncio.sleep(LOOK_SECONDS)
            except ConnectionLost:
                await asyncio.sleep(LOOK_SECONDS)  # it is the one that restarts
            except ApiError as fault:
                self.refusals.append(fault)

    def _look(self, topics):
        self.looks += 1
        for topic in topics:
            for each in topic.partitions:
                if Illness.UNAVAILABLE in each.illnesses(topic.minimum):
                    self.seen.append((time.monotonic(), each))

    def stop(self):
        self._ended.set()
        self._thread.join()
