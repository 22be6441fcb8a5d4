"""The throttle of a plan: set when it begins, taken off when it ends, by the controller itself.

What: the settings that Kafka's tools set for a move (KIP-73), as records, for every broker and
partition of a plan. Why not by the command line: whoever began a throttled move and went home has
left it throttled for ever. Rule kept: a throttle that somebody else set is neither replaced nor
taken off; a list that is too long for a setting is "*", which is every replica of the topic. Not
here: how replicas are slowed down (`core/replication/throttles.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.core.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC, MetadataImage
from anabranch.core.metadata.plan_state import PlanImage
from anabranch.core.settings.validation import MAX_VALUE_SIZE_BYTES
from anabranch.core.types import TopicId
from anabranch.core.wire.metadata_records import ConfigRecord

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
EVERY_REPLICA = "*"
REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


def replicas_text(replicas: Sequence[str]) -> str:
    """The value of a throttle's list of replicas, each "partition:broker"."""
    text = ",".join(replicas)
    return text if len(text) <= MAX_VALUE_SIZE_BYTES else EVERY_REPLICA


def throttled_already(image: MetadataImage, plan: PlanImage) -> list[str]:
    """What of the plan has a throttle: "broker 1", "topic flights"."""
    found = [
        f"broker {name}"
        for name in _brokers(plan)
        if set(RATES) & set(image.config(RESOURCE_BROKER, name))
    ]
    names = (topic.name for each in _topics(plan) if (topic := image.topic_by_id(each)))
    return found + [
        f"topic {name}" for name in names if set(REPLICAS) & set(image.config(RESOURCE_TOPIC, name))
    ]


def throttle_on(image: MetadataImage, plan: PlanImage) -> Iterator[ConfigRecord]:
    """The records that slow the plan's moves down, in both directions; none without a rate."""
    if plan.throttle < 0:
        return
    for name in _brokers(plan):
        for setting in RATES:
            yield _set(RESOURCE_BROKER, name, setting, str(plan.throttle))
    for topic_id, lists in _topics(plan).items():
        topic = image.topic_by_id(topic_id)
        if topic is not None:
            for setting in REPLICAS:
                yield _set(RESOURCE_TOPIC, topic.name, setting, replicas_text(lists))


def throttle_off(image: MetadataImage, plan: PlanImage) -> Iterator[ConfigRecord]:
    """The records that take it off again."""
    for record in throttle_on(image, plan):
        known = image.config(int(record.resource_type), record.resource_name)
        if record.name in known:
            record.value = None
            yield record


def _set(kind: int, resource: str, name: str, value: str) -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)


def _brokers(plan: PlanImage) -> list[str]:
    ids = {each for move in plan.moves for row in (move.before, move.after) for each in row}
    return list(map(str, sorted(ids)))


def _topics(plan: PlanImage) -> dict[TopicId, list[str]]:
    """Topic -> "partition:broker" for every replica that a move has anything to do with."""
    found: dict[TopicId, list[str]] = {}
    for move in plan.moves:
        for each in dict.fromkeys((*move.before, *move.after)):
            found.setdefault(move.topic_id, []).append(f"{move.partition}:{each}")
    return found
