"""What a schedule has of the life of partitions, drawn from its seed beside the rest of the plan.

What: half of all plans get some of it, each family or not (swarm): small segments that roll by size
and with time, retention, compaction, producer ids that expire, more partitions, replicas that move,
topics that are deleted and made again under their name. Rule kept: the draws are of a stream of
their own, so that a plan without them is what it was. Not here: carrying it out (clients/admin.py,
clients/workload.py).
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from anabranch.core.coordination.groups.offsets_topic import OFFSETS_TOPIC
from anabranch.core.types import TopicPartition
from anabranch.core.wire.messages.fetch import FetchRequest
from anabranch.core.wire.messages.produce import ProduceRequest
from anabranch.sim.diskless_plan import with_diskless
from anabranch.sim.metadata_plan import with_metadata_faults
from anabranch.sim.offset_plan import with_offsets
from anabranch.sim.plan import BY_NAME, SEEDS_OF_PLANS, Plan, plain_plan
from anabranch.sim.plan_parts import SAFETY_US, SECOND_US, SETTLED_US, ClientPlan, Operation
from anabranch.sim.plan_parts import TopicPlan as Topic
from anabranch.sim.registration_plan import with_registration_faults
from anabranch.sim.remote_plan import with_remote_logs
from anabranch.sim.rights_plan import with_changed_rights
from anabranch.sim.settings_plan import with_altered_settings
from anabranch.sim.token_plan import with_tokens
from anabranch.sim.transaction_compaction import with_compaction
from anabranch.sim.transaction_plan import with_transactions

BY_TOPIC_ID = ((ProduceRequest.api_key, 13), (FetchRequest.api_key, 16))
"""Versions that name a topic by its id: clients of a topic that is made again know which it is."""
LONGEST_RETRIES_MS = 8_000
"""Producers of a plan in which ids expire give up after that: an id that expired while a batch was
sent again would let it in twice, as in Kafka."""
EXPIRES_MS = 40_000
"""Longer than anything that the network may hold back, beside the retries."""


def draw_plan(seed: int) -> Plan:
    """The plan of a seed: always the same one. Seeds that differ by a multiple of SEEDS_OF_PLANS
    have the same plan, with other chance in everything that it does not draw."""
    drawn = seed % SEEDS_OF_PLANS
    plan = with_registration_faults(with_metadata_faults(_with_life(plain_plan(drawn))))
    drawn_plan = with_transactions(with_offsets(with_diskless(plan)))
    drawn_plan = with_altered_settings(with_compaction(drawn_plan))
    drawn_plan = with_tokens(with_changed_rights(with_remote_logs(drawn_plan)))
    return replace(drawn_plan, seed=seed)


def _with_life(plan: Plan) -> Plan:
    random = Random(f"{plan.seed}/partition")
    if random.random() < 0.5:
        return plan
    plan = _segments(plan, random)
    if random.random() < 0.5:
        plan = _more_partitions(plan, random)
    if random.random() < 0.5:
        plan = _moves(plan, random)
    if random.random() < 0.35:
        plan = _made_again(plan, random)
    if random.random() < 0.3:
        plan = _expiring_producers(plan, random)
    return plan


def _segments(plan: Plan, random: Random) -> Plan:
    topics = tuple(_with(topic, _storage(random)) for topic in plan.topics)
    config = {
        **dict(plan.config),
        "log.retention.check.interval.ms": str(random.choice((1_000, 3_000))),
        "log.cleaner.backoff.ms": str(random.choice((500, 2_000))),
        "log.flush.offset.checkpoint.interval.ms": str(random.choice((2_000, 60_000))),
    }
    operations = plan.operations
    if random.random() < 0.5:
        at_us = SETTLED_US + random.randrange(8) * SECOND_US
        place = TopicPartition(OFFSETS_TOPIC, 0)
        operations = (*operations, Operation(at_us, "shrink-segments", "operator", place))
    return replace(plan, topics=topics, config=_sorted(config), operations=_ordered(operations))


def _storage(random: Random) -> dict[str, str]:
    """Settings of a topic whose segments are small."""
    configs = {
        "internal.segment.bytes": str(random.choice((300, 500, 1_000))),
        "segment.ms": str(random.choice((1_500, 5_000, 60_000))),
        "file.delete.delay.ms": str(random.choice((0, 3_000))),
    }
    kind = random.choice(("plain", "expires", "expires", "compacts", "compacts", "both"))
    if kind in ("expires", "both"):
        if random.random() < 0.6:
            configs["retention.ms"] = str(random.choice((4_000, 10_000, 25_000)))
        else:
            configs["retention.bytes"] = str(random.choice((300, 1_500)))
    if kind in ("compacts", "both"):
        configs["cleanup.policy"] = "compact" if kind == "compacts" else "compact,delete"
        configs["min.cleanable.dirty.ratio"] = random.choice(("0.0", "0.0", "0.3"))
        configs["delete.retention.ms"] = str(random.choice((0, 2_000, 12_000)))
    return configs


def _more_partitions(plan: Plan, random: Random) -> Plan:
    """A topic grows by one or two partitions, and some of what was for the others goes there."""
    number = random.randrange(len(plan.topics))
    topic = replace(plan.topics[number], added=random.choice((1, 2)))
    at_us = SETTLED_US + random.randrange(45) * SECOND_US
    first = TopicPartition(topic.name, topic.partitions)
    last = topic.partitions + topic.added
    new = [TopicPartition(topic.name, index) for index in range(topic.partitions, last)]
    operations = [
        replace(each, place=random.choice(new))
        if each.kind == "send" and each.at_us > at_us and random.random() < 0.4
        else each
        for each in plan.operations
    ]
    operations.append(Operation(at_us, "add-partitions", "operator", first, last))
    topics = [*plan.topics[:number], topic, *plan.topics[number + 1 :]]
    return replace(plan, topics=tuple(topics), operations=_ordered(operations))


def _moves(plan: Plan, random: Random) -> Plan:
    """Replicas are added, dropped, replaced, and some moves are taken back."""
    brokers = plan.brokers if random.random() < 0.5 else max(4, plan.brokers)
    operations = list(plan.operations)
    for _ in range(random.randrange(2, 9)):
        place, at_us = random.choice(plan.places), random.randrange(SETTLED_US, SAFETY_US)
        number = random.randrange(1 << 16)
        operations.append(Operation(at_us, "move", "operator", place, number))
        if random.random() < 0.3:
            soon_us = at_us + random.choice((5_000, 100_000, 1_000_000))
            operations.append(Operation(soon_us, "cancel-move", "operator", place))
    return replace(plan, brokers=brokers, operations=_ordered(operations))


def _made_again(plan: Plan, random: Random) -> Plan:
    """A topic more, which is deleted and made again a little later, once or twice."""
    last = plan.topics[-1]
    topic = replace(last, name=f"topic-{len(plan.topics)}", added=0, is_made_again=True)
    new = [TopicPartition(topic.name, index) for index in range(topic.partitions)]
    operations = [
        replace(each, place=random.choice(new))
        if each.kind == "send" and random.random() < 0.4
        else each
        for each in plan.operations
    ]
    for _ in range(random.choice((1, 1, 2))):
        at_us = random.randrange(SETTLED_US + 8 * SECOND_US, SAFETY_US - 8 * SECOND_US)
        place = TopicPartition(topic.name, 0)
        delay_ms = random.choice((0, 500, 4_000))
        operations.append(Operation(at_us, "make-again", "operator", place, delay_ms))
    clients = tuple(replace(each, versions=BY_TOPIC_ID) for each in plan.clients)
    return replace(
        plan,
        topics=(*plan.topics, topic),
        clients=clients,
        operations=_ordered(operations),
        faults=tuple(each for each in plan.faults if each.kind != BY_NAME),
    )


def _expiring_producers(plan: Plan, random: Random) -> Plan:
    expires = {"producer.id.expiration.ms": str(EXPIRES_MS)}
    clients = tuple(map(_hurried, plan.clients))
    return replace(plan, clients=clients, config=_sorted({**dict(plan.config), **expires}))


def _hurried(client: ClientPlan) -> ClientPlan:
    longest = min(client.patience.delivery_timeout_ms, LONGEST_RETRIES_MS)
    return replace(client, patience=client.patience._replace(delivery_timeout_ms=longest))


def _with(topic: Topic, configs: dict[str, str]) -> Topic:
    return replace(topic, configs=_sorted({**dict(topic.configs), **configs}))


def _sorted(texts: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(texts.items()))


def _ordered(operations: list[Operation] | tuple[Operation, ...]) -> tuple[Operation, ...]:
    return tuple(sorted(operations, key=lambda operation: operation.at_us))
