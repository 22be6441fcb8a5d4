"""R18: each of three processes is stopped and started in turn, and no client has to notice."""

from __future__ import annotations

import asyncio
import signal
import threading
import time

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.members import until
from tests.server.node_kit import START_SECONDS, ProcessNode, free_port
from tests.server.test_three_nodes import (
    IDS,
    LONGEST_GAP_S,
    Acks,
    count_of,
    settings_of_three,
)

from anabranch.client.cluster import Cluster
from anabranch.client.connection import ConnectionLost
from anabranch.client.partitions import Illness, describe_topics
from anabranch.core.errors import ApiError

PARTITIONS = 12
LOOK_SECONDS = 0.02


@pytest.fixture
def processes(tmp_path):
    started = {}
    for each, settings in settings_of_three(tmp_path).items():
        port = free_port()
        settings["listeners"] = settings["listeners"].format(port)
        started[each] = ProcessNode(tmp_path / str(each), port, **settings).start()
    for node in started.values():
        node.ready()
    yield started
    for node in started.values():
        node.close()


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


def is_whole(bootstrap):
    async def look():
        async with Cluster(bootstrap) as cluster:
            topics = await describe_topics(cluster, None)
            if len(cluster.brokers) < len(IDS):
                return False
            return not any(
                Illness.UNDER_REPLICATED in each.illnesses(topic.minimum)
                for topic in topics
                for each in topic.partitions
            )

    return asyncio.run(look())


def restart(node, bootstrap):
    node.process.send_signal(signal.SIGTERM)
    _, errors = node.process.communicate(timeout=START_SECONDS)
    assert node.process.returncode == 0, errors
    assert "without the controller's leave" not in errors
    node.start().ready()
    until(lambda: is_whole(bootstrap))


def test_r18_a_rolling_restart_fails_no_write_and_leaves_no_partition_alone(processes):
    bootstrap = ",".join(node.bootstrap for node in processes.values())
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    config = {"min.insync.replicas": "2"}
    topics = [NewTopic("t", 1, 3, config=config), NewTopic("u", PARTITIONS, 3, config=config)]
    for made in admin.create_topics(topics).values():
        made.result(20)
    until(lambda: is_whole(bootstrap))
    watches = [Watch(node.bootstrap) for node in processes.values()]
    acks = Acks(bootstrap)
    try:
        for node in processes.values():
            before = len(acks.times)
            restart(node, bootstrap)
            until(lambda: len(acks.times) > before + 100)  # noqa: B023 - called in this turn
    finally:
        acks.stop()
        for watch in watches:
            watch.stop()
    assert not acks.failures
    assert [(watch.seen, watch.refusals) for watch in watches] == [([], [])] * len(IDS)
    assert min(watch.looks for watch in watches) > 10
    assert count_of(bootstrap) == len(acks.times)
    gap = acks.longest_gap_s()
    print(f"{len(acks.times)} acks, longest gap {gap:.3f} s, {[w.looks for w in watches]} looks")
    assert gap < LONGEST_GAP_S
