"""Mirrors between two brokers of Apache Kafka that ask for TLS, a login, and rights: with exactly the
rights that the page lists everything is mirrored, ACLs too; without one of them, what it was for is
told with place and remedy, and the rest goes on.

Runs with ANABRANCH_TEST_PEER=kafka and the jars of `scripts/kafka-jars`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

if os.environ.get("ANABRANCH_TEST_PEER") != "kafka":
    pytest.skip("needs ANABRANCH_TEST_PEER=kafka", allow_module_level=True)

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from tests.client.secure_kit import SECRET, WITH_ACLS, SecureKafka, make_stores, over_both
from tests.pipelines.kafka_cluster import KafkaCluster
from tests.pipelines.mirror.conftest import TwoClusters
from tests.pipelines.mirror.test_driver import commit, committed, run
from tests.pipelines.mirror.test_slot import EXACTLY_ONCE, batch, seen

from anabranch.core.mirror.config import read_config
from anabranch.pipelines.mirror.driver_flow import FlowState
from anabranch.pipelines.mirror.duties import TROUBLE, Duties
from anabranch.pipelines.mirror.task import run_slots
from anabranch.testing import LocalCluster

PAGE = Path(__file__).parents[3] / "docs/pipelines/mirror.md"
CLUSTER = ("CLUSTER", "kafka-cluster")
SECONDS = 60
KINDS = {"topic": "TOPIC", "group": "GROUP", "cluster": "CLUSTER",
         "transactional id": "TRANSACTIONAL_ID"}  # fmt: skip


class Secure(KafkaCluster):
    """A broker with ACLs and what tests of mirrors need; they are on the listener without a login,
    where everyone may do all."""

    def __init__(self, stores, folder):
        self.kafka = SecureKafka(stores, folder, WITH_ACLS)
        self.bootstrap_servers = self.kafka.bootstrap_servers

    def __enter__(self):
        self.kafka.__enter__()
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        return self

    def __exit__(self, *fault):
        self.kafka.__exit__(*fault)

    def allow(self, user, kind, name, *operations, prefixed=False, permission="ALLOW"):
        """Give a user rights."""
        pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
        acls = [
            AclBinding(
                ResourceType.BROKER if kind == "CLUSTER" else ResourceType[kind],
                name, pattern, f"User:{user}", "*", AclOperation[operation],
                AclPermissionType[permission],
            )
            for operation in operations
        ]  # fmt: skip
        for future in self.admin.create_acls(acls).values():
            future.result(SECONDS)

    def acls_of(self, topic):
        """(principal, operation, permission) of a topic's own ACLs."""
        wanted = AclBindingFilter(
            ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, None, None, AclOperation.ANY,
            AclPermissionType.ANY,
        )  # fmt: skip
        found = self.admin.describe_acls(wanted).result(SECONDS)
        return sorted((each.principal, each.operation.name, each.permission_type.name)
                      for each in found)  # fmt: skip


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return make_stores(tmp_path_factory.mktemp("stores"))


class Pair(TwoClusters):
    """Both clusters, and a mirror of a user of its own."""

    def __init__(self, east, west, stores):
        super().__init__(east, west)
        self.stores = stores
        self._users = itertools.count()

    def user(self):
        """A new user without rights; keys with which a mirror is that one."""
        user = f"mirror-{next(self._users)}"
        keys = {}
        for alias, cluster in (("east", self.east), ("west", self.west)):
            cluster.kafka.add_user(user)
            given = over_both(self.stores, user=user)
            keys |= {f"{alias}.{name}": text for name, text in given.items()}
            keys[f"{alias}.bootstrap.servers"] = cluster.kafka.listeners["BOTH"]
        return user, keys

    def grant(self, user, topic, group, *, leaving_out=()):
        """The rights of the page's table, but some (side, kind, name, operation)."""
        names = {"SOURCE": "east", "TARGET": "west", "TOPIC": topic, "GROUP": group}
        for side, kind, name, operations in rights():
            cluster = getattr(self, {"source": "east", "target": "west"}[side])
            shown = re.sub("[A-Z]{4,}", lambda found: names[found[0]], name)
            given = [each for each in operations if (side, kind, name, each) not in leaving_out]
            prefixed = shown.endswith("*") and shown != "*"
            if given:
                text = CLUSTER[1] if kind == "cluster" else shown.rstrip("*") if prefixed else shown
                cluster.allow(user, KINDS[kind], text, *given, prefixed=prefixed)


def rights():
    """(side, kind, name, operations) of the table on the page."""
    section = PAGE.read_text().split("\n## Rights\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    for side, kind, name, operations, _ in ([each.strip() for each in row] for row in rows[2:]):
        yield side, kind, name.strip("`"), [each.strip("`, ") for each in operations.split(",")]


@pytest.fixture(scope="module")
def pair(stores, tmp_path_factory):
    """Two secure brokers."""
    with ExitStack() as stack:
        ends = [
            stack.enter_context(Secure(stores, tmp_path_factory.mktemp("kafka") / end))
            for end in ("source", "target")
        ]
        yield Pair(*ends, stores)


def once_more(clusters, keys, *, seconds=4.0, **more):
    """One wave with all duties, without Spark; all that was told."""
    config = read_config(clusters.keys(**keys, **more))
    told = []

    async def work():
        state = FlowState(config.flows[0], told.append)
        duties = Duties(state, told.append, lambda: time.time_ns() // 1_000_000)
        try:
            await state.open()
            await duties.open()
            await duties.tick(0.0)
            try:
                answers = await run_slots(await state.plan(1), seconds)
            except TROUBLE as trouble:
                return [state.told(trouble)]
            await duties.tick(10_000.0)
            return [said for each in answers for said in (*each.notes, *each.faults.values())]
        finally:
            await state.close()

    return [*asyncio.run(work()), *told]


SYNC = {"sync.group.offsets.enabled": "true"}


def test_with_the_rights_of_the_page_all_is_mirrored_over_tls(pair, spark):
    topic = pair.topic(partitions=2)
    group = f"g-{topic}"
    for partition in range(2):
        pair.produce(topic, partition, batch(0, 500))
    commit(pair.east, group, {(topic, 0): 250})
    user, keys = pair.user()
    pair.grant(user, topic, group)
    pair.east.allow("reader", "TOPIC", topic, "READ")
    pair.east.allow("writer", "TOPIC", topic, "WRITE")
    pair.east.allow("owner", "TOPIC", topic, "ALL")
    pair.east.allow("thief", "TOPIC", topic, "READ", permission="DENY")
    given = {**keys, **EXACTLY_ONCE, **SYNC}
    totals, told = run(pair, spark, waves=2, seconds=5.0, topics=topic, groups=group, **given)
    assert told == []
    assert totals.records >= 1_000, "heartbeats come too"
    for partition in range(2):
        copied = pair.read(pair.west, f"east.{topic}", partition)
        assert seen(copied) == seen(pair.read(pair.east, topic, partition))
    assert (f"east.{topic}", 0) in committed(pair.west, group)
    acls = pair.west.acls_of(f"east.{topic}")
    others = [each for each in acls if each[0] != f"User:{user}"]
    assert others == [
        ("User:owner", "READ", "ALLOW"), ("User:reader", "READ", "ALLOW"),
        ("User:thief", "READ", "DENY"),
    ]  # fmt: skip


def test_a_wrong_password_is_told_with_its_cluster(pair):
    _, keys = pair.user()
    keys["west.sasl.jaas.config"] = keys["west.sasl.jaas.config"].replace(SECRET, "wrong-guess")
    with pytest.raises(
        Exception, match=r"Cluster west .* cannot be used: .* does not let user"
    ) as (refused):
        once_more(pair, keys)
    assert "wrong-guess" not in str(refused.value)


@pytest.mark.parametrize(
    ("lacks", "told"),
    [
        (("source", "topic", "TOPIC", "READ"), ["{topic}-0", "READ", "on the topic at the source"]),
        (("target", "topic", "SOURCE.*", "CREATE"), ["east.{topic} cannot be created", "CREATE"]),
        (("target", "topic", "SOURCE.*", "WRITE"), ["east.{topic}-0", "Give the mirror WRITE"]),
        (("target", "group", "GROUP", "READ"), ["g-{topic}", "on west", "READ"]),
        (("source", "cluster", "", "DESCRIBE"), ["ACLs", "on east", "DESCRIBE on the cluster"]),
        (("target", "cluster", "", "ALTER"), ["ACLs", "on west", "ALTER on the cluster"]),
        (
            ("target", "transactional id", "SOURCE-*", "WRITE"),
            ["east", "Give the mirror WRITE", "transactional ids"],
        ),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_a_missing_right_is_told_and_the_rest_goes_on(pair, lacks, told):
    topic, other = pair.topic(), pair.topic()
    user, keys = pair.user()
    for each in (topic, other):
        pair.produce(each, 0, batch(0, 30))
        commit(pair.east, f"g-{each}", {(each, 0): 20})
        pair.east.allow("reader", "TOPIC", each, "READ")
    pair.grant(user, topic, f"g-{topic}", leaving_out=[lacks])
    side = {"source": pair.east, "target": pair.west}[lacks[0]]
    is_of_one = lacks[1] in ("topic", "group")
    if is_of_one and lacks[0] == "target" and lacks[1] == "topic":
        for each in (other, "checkpoints.internal"):
            side.allow(user, "TOPIC", f"east.{each}", lacks[3])
    pair.grant(user, other, f"g-{other}", leaving_out=() if lacks[2] in ("TOPIC", "GROUP") else [
        lacks])  # fmt: skip
    names = {"topics": f"{topic}, {other}", "groups": f"g-{topic}, g-{other}"}
    once = EXACTLY_ONCE if lacks[1] == "transactional id" else {}
    said = once_more(pair, keys, seconds=6.0, **names, **SYNC, **once)
    wanted = [each.format(topic=topic) for each in told]
    assert [each for each in said if all(word in each for word in wanted)], said
    if lacks[1] != "transactional id":
        assert len(pair.read(pair.west, f"east.{other}")) == 30, said
        assert committed(pair.west, f"g-{other}")[f"east.{other}", 0] == 20, said


class Node:
    """A node of ours with an authorizer, seen as the brokers of `Secure` are."""

    allow, acls_of = Secure.allow, Secure.acls_of

    def __init__(self, cluster):
        self.bootstrap_servers = cluster.bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})


def test_acls_are_mirrored_to_a_node_with_an_authorizer(pair):
    topic = pair.topic()
    pair.produce(topic, 0, batch(0, 5))
    for name, operation, permission in (
        ("reader", "READ", "ALLOW"), ("writer", "WRITE", "ALLOW"), ("owner", "ALL", "ALLOW"),
        ("thief", "READ", "DENY"),
    ):  # fmt: skip
        pair.east.allow(name, "TOPIC", topic, operation, permission=permission)
    with LocalCluster(processes=True, config=WITH_ACLS) as cluster:
        plain = TwoClusters(pair.east, Node(cluster))
        for _ in range(2):
            assert once_more(plain, {}, topics=topic) == []
            assert plain.west.acls_of(f"east.{topic}") == [
                ("User:owner", "READ", "ALLOW"), ("User:reader", "READ", "ALLOW"),
                ("User:thief", "READ", "DENY"),
            ]  # fmt: skip
        assert len(plain.read(plain.west, f"east.{topic}")) == 5


def test_a_node_that_lets_the_mirror_make_no_acls_is_told(pair):
    topic = pair.topic()
    pair.produce(topic, 0, batch(0, 5))
    pair.east.allow("reader", "TOPIC", topic, "READ")
    config = {**WITH_ACLS, "super.users": "", "allow.everyone.if.no.acl.found": "true"}
    with LocalCluster(processes=True, config=config) as cluster:
        plain = TwoClusters(pair.east, Node(cluster))
        plain.west.allow("ANONYMOUS", "CLUSTER", CLUSTER[1], "ALL")
        plain.west.allow("ANONYMOUS", "CLUSTER", CLUSTER[1], "ALTER", permission="DENY")
        said = once_more(plain, {}, topics=topic)
        wanted = ("ACLs", "on west", "ALTER on the cluster")
        assert [each for each in said if all(word in each for word in wanted)], said
        assert plain.west.acls_of(f"east.{topic}") == []
        assert len(plain.read(plain.west, f"east.{topic}")) == 5


def test_without_an_authorizer_acls_are_left_out_which_is_told_once(pair):
    topic = pair.topic()
    pair.produce(topic, 0, batch(0, 5))
    pair.east.allow("reader", "TOPIC", topic, "READ")
    with LocalCluster(processes=True) as west:
        plain = TwoClusters(pair.east, west)
        said = once_more(plain, {}, topics=topic)
        assert [each for each in said if "ACLs" in each] == [
            "east->west ACLs: west has no authorizer, so ACLs are not mirrored. Set "
            "sync.topic.acls.enabled to false, or give west an authorizer."
        ]
        assert len(plain.read(west, f"east.{topic}")) == 5
