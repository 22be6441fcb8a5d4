"""What a client sees of a diskless topic: the living replica in its rack, else all of them."""

from __future__ import annotations

from random import Random

import pytest
from immutables import Map
from tests.core.api.in_memory_node import InMemoryNode, broker_image

from anabranch.core.api import metadata_view
from anabranch.core.diskless.client_zone import zone_of
from anabranch.core.diskless.topics import DISKLESS
from anabranch.core.metadata.image import RESOURCE_TOPIC
from anabranch.core.outcome import Wait
from anabranch.core.settings.catalogue import BROKER_SETTINGS
from anabranch.core.settings.setting import ConfigFault, parse
from anabranch.core.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from anabranch.core.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.core.wire.own_fields import ASKED, OWN_TAG, DisklessTopics, untagged

RACKS = {1: "a", 2: "b", 3: "c", 4: "a", 5: None}
MAP = "diskless.client.az.listener.map"


@pytest.mark.parametrize(
    ("client_id", "zone"),
    [("diskless_az=a", "a"), ("app,diskless_az=b", "b"), ("app diskless_az=b,x=y", "b"),
     ("mm2|diskless_az=c|0", "c"), ("diskless_az=a|x", "a"), ("diskless_az=unknown", "unknown"),
     ("diskless_az=nowhere", ""), ("xdiskless_az=a", ""), ("app-diskless_az=a", ""),
     ("diskless_az=", ""), ("", ""), (None, "")],
)  # fmt: skip
def test_a_client_names_its_rack_in_its_client_id(client_id, zone):
    assert zone_of(client_id, "L", (), {"a", "b", "c", "unknown"}) == zone


def test_where_it_does_not_its_listener_may_and_the_client_id_comes_first():
    pairs = ("ZONE_A:a", " ZONE_B : b", "ZONE_X:nowhere")
    racks = {"a", "b"}
    assert zone_of("app", "ZONE_A", pairs, racks) == "a"
    assert zone_of("app", "ZONE_B", pairs, racks) == "b"
    assert zone_of("app", "ZONE_X", pairs, racks) == ""
    assert zone_of("app", "OTHER", pairs, racks) == ""
    assert zone_of("diskless_az=b", "ZONE_A", pairs, racks) == "b"
    assert zone_of("diskless_az=nowhere", "ZONE_A", pairs, racks) == "a"


def test_the_map_of_listeners_is_checked():
    setting = BROKER_SETTINGS[MAP]
    assert parse(setting, "A:a,B:b") == ("A:a", "B:b")
    for text in ("A", "A:", ":a", "A:b:c"):
        with pytest.raises(ConfigFault, match="LISTENER:RACK"):
            parse(setting, text)


@pytest.fixture
def placed():
    """A node in a cluster with three racks, and a diskless topic on brokers 1, 2 and 3."""
    node = InMemoryNode()
    node.topic(replicas=(1, 2, 3), isr=(1, 2, 3))
    change(node)
    configs = Map({(RESOURCE_TOPIC, "t"): Map({DISKLESS: "true"})})
    node.broker.image = replaced(node.broker.image, configs=configs)
    return node


def replaced(image, **changes):
    return type(image)(**{each: getattr(image, each) for each in image.__struct_fields__} | changes)


def change(node, *fenced):
    brokers = Map({each: broker_image(each, fenced=each in fenced, rack=rack)
                   for each, rack in RACKS.items()})  # fmt: skip
    node.broker.image = replaced(node.broker.image, brokers=brokers)


def seen(node, client_id, version=12):
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    [each] = node.send(asked, version, client_id=client_id).topics[0].partitions
    asked = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")])
    [same] = node.send(asked, 0, client_id=client_id).topics[0].partitions
    view = each.leader_id, each.replica_nodes, each.isr_nodes, each.offline_replicas
    assert view == (same.leader_id, same.replica_nodes, same.isr_nodes, same.offline_replicas)
    assert each.error_code == (5 if each.leader_id < 0 else 0)
    return view


def test_the_living_local_replica_is_all_that_a_client_sees(placed):
    for zone, broker_id in (("a", 1), ("b", 2), ("c", 3)):
        local = broker_id, [broker_id], [broker_id], []
        assert seen(placed, f"app,diskless_az={zone}") == local
    everything = 1, [1, 2, 3], [1, 2, 3], []
    assert seen(placed, "app") == everything
    assert seen(placed, "diskless_az=unknown") == everything
    assert seen(placed, "diskless_az=nowhere") == everything


def test_without_a_living_local_replica_it_sees_all_with_a_living_leader(placed):
    change(placed, 1)
    assert seen(placed, "diskless_az=a") == (2, [1, 2, 3], [1, 2, 3], [1])
    assert seen(placed, "diskless_az=c") == (3, [3], [3], [])
    assert seen(placed, "app") == (2, [1, 2, 3], [1, 2, 3], [1])
    change(placed, 1, 2, 3)
    assert seen(placed, "diskless_az=a") == (-1, [1, 2, 3], [1, 2, 3], [1, 2, 3])


def test_of_two_local_replicas_the_leader_is_shown_else_the_first(placed):
    placed.change("t", replicas=(1, 4, 2), isr=(1, 4, 2), leader=4)
    assert seen(placed, "diskless_az=a") == (4, [4], [4], [])
    placed.change("t", leader=2)
    assert seen(placed, "diskless_az=a") == (1, [1], [1], [])


def test_classic_topics_look_the_same_to_every_client(placed):
    placed.topic("classic", replicas=(1, 2, 3), isr=(1, 2))
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="classic")])
    plain, zoned = (
        placed.send(asked, 12, client_id=name).topics[0].partitions
        for name in ("app", "diskless_az=b")
    )
    assert plain is zoned


def test_views_are_made_once_for_each_zone_and_counted(placed):
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])

    def shown(client_id):
        return placed.send(asked, 12, client_id=client_id).topics[0].partitions

    assert shown("x,diskless_az=b") is shown("y,diskless_az=b")
    assert shown("x") is shown("diskless_az=nowhere")
    shown("diskless_az=unknown")
    zones = placed.broker.metadata_cache.zones
    assert (zones.hits["t"], zones.misses["t"], zones.unaware["t"]) == (2, 1, 2)


def test_the_view_changes_with_the_racks_and_any_order_of_changes(placed):
    random = Random(7)
    for _ in range(60):
        down = random.sample((1, 2, 3, 4, 5), random.randint(0, 5))
        row = tuple(random.sample((1, 2, 3, 4, 5), random.randint(1, 4)))
        change(placed, *down)
        leader = next((each for each in row if each not in down), -1)
        placed.change("t", replicas=row, isr=row, leader=leader)
        change(placed, *down)
        for zone in ("a", "b", "c", "unknown"):
            here = [each for each in row if each not in down
                    and (RACKS[each] or "unknown") == zone]  # fmt: skip
            found, replicas, isr, offline = seen(placed, f"diskless_az={zone}")
            assert replicas == isr
            if here:
                assert replicas == [found]
                assert found in here
                assert offline == []
            else:
                assert replicas == list(row)
                assert offline == [each for each in row if each in down]
                assert found == leader


def test_of_thousands_of_partitions_those_on_the_same_brokers_are_looked_at_once(
    placed, monkeypatch
):
    """A client that asks for all of a large cluster must not hold up the others meanwhile."""
    random, looked = Random(11), []
    rows = [tuple(random.sample((1, 2, 3, 4, 5), 3)) for _ in range(6)]
    state = placed.broker.image.topic("t").partitions[0]
    states = {}
    for index in range(1_000):
        row = random.choice(rows)
        states[index] = replaced(state, replicas=row, isr=row, leader=random.choice(row),
                                 leader_epoch=random.randint(0, 3))  # fmt: skip
    set_partitions(placed, states)
    view = metadata_view.partition_view
    monkeypatch.setattr(metadata_view, "partition_view",
                        lambda *what: looked.append(what) or view(*what))  # fmt: skip
    for zone in ("a", "unknown", "nowhere"):
        looked.clear()
        one_by_one = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")])
        told = placed.send(one_by_one, 0, client_id=f"diskless_az={zone}").topics[0].partitions
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        made = placed.send(asked, 12, client_id=f"diskless_az={zone}").topics[0].partitions
        assert [named(each) for each in made] == [named(each) for each in told]
        assert len(made) == 1_000
        assert len(looked) <= len(rows) * 3


def set_partitions(node, states):
    image = node.broker.image
    topic = replaced(image.topic("t"), partitions=Map(states))
    topics = image.topics_by_id.set(topic.topic_id, topic)
    node.broker.image = replaced(image, topics_by_id=topics)


def named(seen):
    """What Metadata and DescribeTopicPartitions say alike."""
    return (seen.partition_index, seen.leader_epoch, seen.leader_id, seen.error_code,
            seen.replica_nodes, seen.isr_nodes, seen.offline_replicas)  # fmt: skip


def test_who_asks_is_told_what_is_diskless_and_how_it_is_placed(placed):
    placed.topic("classic", replicas=(1, 2, 3), isr=(1, 2))
    names = ("t", "classic")
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    assert OWN_TAG not in (placed.send(asked, 12).unknown_tagged_fields or {})
    asked.unknown_tagged_fields = ASKED
    [told] = untagged(DisklessTopics, placed.send(asked, 12).unknown_tagged_fields).topics
    assert (told.name, told.is_diskless, told.effective_rf) == ("t", True, 4)
    assert told.partitions == []
    asked = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in names],
                                           unknown_tagged_fields=ASKED)  # fmt: skip
    [told] = untagged(DisklessTopics, placed.send(asked, 0).unknown_tagged_fields).topics
    assert told.target_racks == ["a", "b", "c", "unknown"]
    [partition] = told.partitions
    assert partition.assigned_racks == ["a", "b", "c"]
    assert (partition.rack_coverage, partition.placement_state) == (75, "reconciling")
    assert partition.has_drifted
    assert partition.sentences == ["rack unknown has no replica and gets one"]


def test_an_answer_waits_for_the_verdict_on_any_replica(placed):
    """A client may be shown a replica as leader that the metadata do not have lead."""
    placed.broker.steady_ms = 50_000
    placed.broker.suspects.no_answer(placed.broker.image.brokers[2], 50_000)
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    assert isinstance(placed.send(asked, 12, client_id="diskless_az=b"), Wait)
    placed.broker.suspects.answered(2)
    assert placed.send(asked, 12, client_id="diskless_az=b").topics[0].partitions[0].leader_id == 2
