"""A change of a topic's settings and of its partitions' states reaches a replica in one piece.

Rule: a high watermark is raised by what one image allows, never by the settings of one and the
state of another. The exhaustive model is one partition of two brokers: every old and new
min.insync.replicas, ISR and leader, with a record that only broker 1 has.
"""

from __future__ import annotations

from itertools import product

import pytest
from msgspec.structs import replace
from tests.core.broker.hosting_kit import Stage

from anabranch.core.metadata.image import RESOURCE_TOPIC, MetadataDelta
from anabranch.core.types import TopicPartition

PLACE = TopicPartition("t", 0)
STATES = list(product((1, 2), ((1,), (2,), (1, 2)), (1, 2)))
STATES = [(minimum, isr, leader) for minimum, isr, leader in STATES if leader in isr]
MINIMUM = "min.insync.replicas"


def allows(minimum, isr, leader):
    """Whether the record counts as committed at broker 1."""
    return leader == 1 and isr == (1,) and minimum == 1


def change(stage, minimum, isr, leader):
    """The metadata say this from now on; what is new in it."""
    topic = stage.topics["t"]
    before = topic.partitions[0]
    state = replace(
        before,
        replicas=(1, 2),
        isr=isr,
        leader=leader,
        leader_epoch=before.leader_epoch + (leader != before.leader),
        partition_epoch=before.partition_epoch + 1,
    )
    stage.topics["t"] = replace(topic, partitions=topic.partitions.set(0, state))
    stage.settings["t"] = {MINIMUM: str(minimum)}
    return MetadataDelta(
        changed_partitions={topic.topic_id: (0,)},
        changed_configs=frozenset({(RESOURCE_TOPIC, "t")}),
    )


@pytest.mark.parametrize(
    ("old", "new"), [(old, new) for old, new in product(STATES, STATES) if old[2] == 1]
)
def test_one_image_alone_raises_a_high_watermark(old, new):
    stage = Stage()
    stage.publish(stage.create("t"))
    stage.publish(change(stage, *old))
    stage.append(PLACE)
    stage.sync()
    replica = stage.partitions.get(*PLACE)
    assert replica.high_watermark == allows(*old)
    delta = change(stage, *new)
    stage.hosting.follow(stage.image, delta)
    stage.perform()
    while stage.hosting.advance():
        stage.perform()
        assert replica.high_watermark <= (allows(*old) or allows(*new))
    assert replica.high_watermark == (allows(*old) or allows(*new))


def test_settings_alone_raise_one():
    stage = Stage()
    stage.publish(stage.create("t"))
    stage.publish(change(stage, 2, (1,), 1))
    stage.append(PLACE)
    stage.sync()
    assert stage.partitions.get(*PLACE).high_watermark == 0
    stage.settings["t"] = {MINIMUM: "1"}
    stage.publish(MetadataDelta(changed_configs=frozenset({(RESOURCE_TOPIC, "t")})))
    assert stage.partitions.get(*PLACE).high_watermark == 1
    assert PLACE in stage.broker.changed
