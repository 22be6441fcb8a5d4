"""Names of mirrored topics: MirrorMaker 2's two policies, cycles and internal topics."""

from __future__ import annotations

import pytest

from anabranch.core.mirror.filters import BadPattern, NameFilter, takes_topic
from anabranch.core.mirror.policy import Policy

DEFAULT = Policy(source="east")
IDENTITY = Policy(source="east", is_identity=True)


def test_the_default_policy_prefixes_and_finds_back():
    assert DEFAULT.remote_topic("orders") == "east.orders"
    assert DEFAULT.topic_source("east.orders") == "east"
    assert DEFAULT.upstream_topic("east.orders") == "orders"
    assert DEFAULT.topic_source("orders") is None
    assert DEFAULT.hops("c.b.a.orders") == ["c", "b", "a"]
    assert DEFAULT.original_topic("c.b.a.orders") == "orders"


def test_the_identity_policy_keeps_names_but_of_heartbeats():
    assert IDENTITY.remote_topic("orders") == "orders"
    assert IDENTITY.remote_topic("heartbeats") == "east.heartbeats"
    assert IDENTITY.is_heartbeats("east.heartbeats")
    assert not IDENTITY.is_cycle("orders", "west")


@pytest.mark.parametrize(
    ("topic", "is_cycle"),
    [("west.orders", True), ("c.west.orders", True), ("orders", False), ("c.orders", False)],
)
def test_what_came_from_the_target_does_not_go_back(topic, is_cycle):
    assert DEFAULT.is_cycle(topic, "west") is is_cycle
    assert takes_topic(topic, NameFilter(), DEFAULT, "west") is not is_cycle


def test_three_clusters_in_a_ring_mirror_each_topic_to_each_cluster_once():
    ring = {"a": "b", "b": "c", "c": "a"}
    there = {"a": {"t"}, "b": {"t"}, "c": {"t"}}
    for _ in range(6):
        for source, target in ring.items():
            policy = Policy(source=source)
            taken = {t for t in there[source] if takes_topic(t, NameFilter(), policy, target)}
            there[target] = there[target] | {policy.remote_topic(each) for each in taken}
    assert there == {
        "a": {"t", "c.t", "c.b.t"}, "b": {"t", "a.t", "a.c.t"}, "c": {"t", "b.t", "b.a.t"}
    }  # fmt: skip


@pytest.mark.parametrize(
    "topic",
    [
        "__consumer_offsets", ".hidden", "mm2-offset-syncs.west.internal", "mm2-index.a.internal",
        "east.checkpoints.internal", "mm2-offsets.east.internal",
    ],
)  # fmt: skip
def test_internal_topics_are_never_mirrored(topic):
    assert DEFAULT.is_internal(topic)
    assert not takes_topic(topic, NameFilter(), DEFAULT, "west")


def test_another_separator_is_in_internal_names_too_but_not_in_connects():
    policy = Policy(source="east", separator="_", internal_separator="_")
    assert policy.checkpoints_topic() == "east_checkpoints_internal"
    assert policy.offset_syncs_topic("west") == "mm2-offset-syncs_west_internal"
    assert policy.positions_topic() == "mm2-offsets.east.internal"
    assert policy.is_internal(policy.positions_topic())
    assert policy.remote_topic("t") == "east_t"


def test_heartbeats_are_mirrored_whatever_is_chosen_unless_that_is_turned_off():
    chosen = NameFilter("orders")
    assert takes_topic("heartbeats", chosen, DEFAULT, "west")
    assert not takes_topic("heartbeats", chosen, DEFAULT, "west", heartbeats=False)
    assert not takes_topic("payments", chosen, DEFAULT, "west")


def test_a_name_is_matched_whole_and_exclusion_wins():
    names = NameFilter("orders.*, pay", r".*\.replica, __.*")
    assert names.takes("orders-eu") and names.takes("pay")
    assert not names.takes("payments") and not names.takes("orders.replica")
    assert not NameFilter("").takes("orders")


def test_an_expression_that_cannot_be_read_is_shown():
    with pytest.raises(BadPattern, match=r"'\(orders' is not a regular expression"):
        NameFilter("a, (orders")
