"""The lag of groups on the pages of three brokers: each group's coordinator tells it, and knows the
ends of logs that others lead."""

from __future__ import annotations

import asyncio
import random
import time
import urllib.request
from collections import Counter
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.clients.members import until
from tests.core.coordination.groups.test_lags import ME, OTHER, World
from tests.server.node_kit import free_port
from tests.server.server_kit import eventually

from anabranch.client.cluster import Cluster
from anabranch.client.connection import ConnectionLost
from anabranch.client.groups import commit_offsets
from anabranch.client.produce import produce
from anabranch.core.wire.records import Record, build_batch
from anabranch.server import group_lags
from anabranch.testing import LocalCluster

LAG, OFFSET = "kafka_consumergroup_lag", "kafka_consumergroup_current_offset"
UNKNOWN, LEFT_OUT = "anabranch_consumergroup_lag_unknown", "anabranch_consumergroup_lag_left_out"
SECONDS = 60


class Watched:
    """Three brokers with a page each."""

    def __init__(self, folder):
        (folder / "store").mkdir()
        self.ports = {each: free_port() for each in (1, 2, 3)}
        self.cluster = LocalCluster(
            brokers=3,
            config={
                "diskless.storage.url": f"file://{folder}/store",
                "diskless.coordinator.url": f"sqlite:///{folder}/coordinator.db",
                "offsets.topic.num.partitions": 7,
            },
            broker_config={
                each: {"http.listener": f"127.0.0.1:{port}"} for each, port in self.ports.items()
            },
        )

    def pages(self):
        """Broker -> name -> labels -> value, of those that answer."""
        found = {}
        for broker, port in self.ports.items():
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as page:
                    text = page.read().decode()
            except OSError:
                continue
            samples = [
                each for family in text_string_to_metric_families(text) for each in family.samples
            ]
            found[broker] = {
                name: {
                    (one.labels.get("consumergroup"), one.labels.get("topic"),
                     int(one.labels.get("partition", 0))): one.value
                    for one in samples if one.name == name
                }
                for name in (LAG, OFFSET, UNKNOWN, LEFT_OUT)
            }  # fmt: skip
        return found

    def told(self, name):
        """The series of all pages; none is on two."""
        pages = self.pages().values()
        found = Counter(key for page in pages for key in page[name])
        assert set(found.values()) <= {1}
        return {key: value for page in pages for key, value in page[name].items()}

    def total(self, name):
        """The sum of a metric without labels."""
        return sum(sum(page[name].values()) for page in self.pages().values())

    def do(self, work):
        """Run `work(cluster)` over the wire, again while leaders are looked for."""

        async def run():
            async with Cluster(self.cluster.bootstrap_servers) as cluster:
                return await cluster.retrying(lambda: work(cluster))

        return asyncio.run(run())


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    found = Watched(tmp_path_factory.mktemp("lags"))
    found.cluster.start()
    try:
        yield found
    finally:
        found.cluster.stop()


@pytest.fixture(autouse=True)
def always_fresh(monkeypatch):
    monkeypatch.setattr(group_lags, "ROUND_SECONDS", 0)


def records(count):
    return build_batch([Record(each, 1_000, b"", b"x") for each in range(count)])


def test_every_group_is_told_by_its_coordinator_with_the_leaders_log_end(watched):
    """Any groups, any offsets, topics of one and three replicas and a diskless one."""
    chance = random.Random(4_711)
    ends = {}
    for name, settings, factor in (
        ("alone", {}, 1), ("whole", {}, 3), ("diskless", {"diskless.enable": "true"}, None),
    ):  # fmt: skip
        more = {} if factor is None else {"replication_factor": factor}
        watched.cluster.create_topic(name, partitions=4, config=settings, **more)
        for partition in range(4):
            ends[name, partition] = count = chance.randrange(1, 40)
            batch = records(count)
            watched.do(lambda each, p=(name, partition), b=batch: produce(each, *p, b))
    expected = {}
    for number in range(25):
        group = f"group-{number}"
        places = chance.sample(sorted(ends), chance.randrange(1, 6))
        offsets = {place: chance.randrange(ends[place] + 1) for place in places}
        watched.do(lambda each, g=group, o=offsets: commit_offsets(each, g, o))
        expected |= {(group, *place): (ends[place] - offset, offset)
                     for place, offset in offsets.items()}  # fmt: skip
    lags, offsets = watched.told(LAG), watched.told(OFFSET)
    assert {key: (lags[key], offsets[key]) for key in lags} == expected
    assert watched.total(UNKNOWN) == watched.total(LEFT_OUT) == 0
    assert len({broker for broker, page in watched.pages().items() if page[LAG]}) == 3

    place = ("whole", 0)
    watched.do(lambda each: produce(each, *place, records(5)))
    group = next(key[0] for key in expected if key[1:] == place)
    before = expected[(group, *place)][0]
    until(lambda: watched.told(LAG)[(group, *place)] == before + 5, "the newest end", SECONDS)

    watched.cluster.delete_topic("alone")
    until(lambda: not [key for key in watched.told(LAG) if key[1] == "alone"], "gone", SECONDS)


def test_a_leader_that_is_away_costs_its_lags_alone(watched):
    """Nobody leads the partition while its only replica is down."""
    name, group = "single", "readers"
    watched.cluster.create_topic(name, partitions=1, replication_factor=1)
    watched.do(lambda each: produce(each, name, 0, records(9)))
    watched.do(lambda each: commit_offsets(each, group, {(name, 0): 4}))
    key = (group, name, 0)
    assert watched.told(LAG)[key] == 5
    leader = watched.cluster.leader(name)
    watched.cluster.stop_broker(leader)
    try:
        until(lambda: watched.total(UNKNOWN) >= 1, "an unknown log end", SECONDS)
        assert key not in watched.told(LAG)
    finally:
        watched.cluster.start_broker(leader)
    until(lambda: watched.told(LAG).get(key) == 5, "the lag again", SECONDS)


def test_a_page_without_a_scrape_before_costs_a_round_and_the_next_one_none(watched, monkeypatch):
    """Two who scrape within a few seconds share what was found."""
    rounds = []
    first = group_lags.LagRound

    def counted(groups):
        rounds.append(time.monotonic())
        return first(groups)

    monkeypatch.setattr(group_lags, "LagRound", counted)
    monkeypatch.setattr(group_lags, "ROUND_SECONDS", 3_600)
    begun = len(rounds)
    watched.pages()
    watched.pages()
    assert len(rounds) - begun <= 3


class Silent:
    """Connections to brokers that answer when they are told to, if ever."""

    def __init__(self):
        self.posts = []

    def post(self, broker_id, purpose, post):
        assert (broker_id, purpose) == (OTHER, group_lags.LANE)
        self.posts.append(post)


@pytest.fixture
def shell():
    groups = {"led": ({("t", 0): (4, True)}, True), "far": ({("t", 1): (4, True)}, True)}
    world = World({("t", 0): (ME, 9, False), ("t", 1): (OTHER, 7, False)}, groups)
    return group_lags.GroupLagShell(SimpleNamespace(groups=world), Silent()), world


async def test_a_page_does_not_wait_for_a_leader_that_hangs(shell, monkeypatch):
    """The page has what was known before; the round goes on, and ends without the leader."""
    lags, _world = shell
    monkeypatch.setattr(group_lags, "WAIT_SECONDS", 0.01)
    monkeypatch.setattr(group_lags, "ASK_MS", 200)
    await asyncio.gather(*(lags.refreshed() for _ in range(5)))
    assert len(lags._connections.posts) == 1, "one round for all who ask"
    assert lags.newest == group_lags.GroupLags()
    await eventually(lambda: lags.newest.unknown == 1)
    assert [each[:3] for each in lags.newest.shown] == [("led", "t", 0)]


async def test_answers_that_come_are_counted_and_refusals_are_not(shell):
    lags, world = shell
    for answer in (ConnectionLost("gone"), None):
        asked = asyncio.create_task(lags.refreshed())
        await eventually(lambda: lags._connections.posts)
        post = lags._connections.posts.pop()
        post.answered(answer if answer is not None else world.answer(post.message))
        post.answered(None)
        await asked
        assert lags.newest.unknown == (answer is not None)
    assert {(each.group, each.lag) for each in lags.newest.shown} == {("led", 5), ("far", 3)}


async def test_a_round_that_fails_leaves_the_page_alone(shell):
    lags, world = shell
    told = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    world.find_leader = None
    await lags.refreshed()
    assert lags.newest == group_lags.GroupLags()
    assert len(told) == 1
    lags.stop()
