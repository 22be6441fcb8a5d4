"""A rehearsal's file: what may stand in it, and the plan that it becomes.

    name, about, source         texts; source says where the question is from
    seed, length, watch         chance; how long; which partition a transcript follows
    cluster                     brokers or racks, controller, bandwidth, settings of every broker
    topics.<name>               partitions + replication, or replicas; settings, retained, produce
    events                      a list: `at` and one action each (`event_fields.py`)
    claims                      sentences, each with the number that would make it true

Rule kept: settings have Kafka's names and limits, and a file that cannot be run is refused before
anything runs, with line, field and remedy. Not here: the state that results (`stage.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from anabranch.core.controller.topics.topic_names import illegal_name
from anabranch.core.diskless.topics import makes_diskless
from anabranch.core.errors import ClientFault
from anabranch.core.partition.protocol import ACKS_ALL
from anabranch.core.sentences import number_of
from anabranch.core.settings.catalogue import BROKER_SETTINGS, TOPIC_SETTINGS
from anabranch.core.settings.setting import ConfigFault, Setting
from anabranch.core.settings.setting import parse as parse_setting
from anabranch.sim.rehearsal import units
from anabranch.sim.rehearsal.event_fields import ACKS, PARTITIONS_MOST, Known, read_events
from anabranch.sim.rehearsal.fields import Item, PlanError, Section, nearest, parse
from anabranch.sim.rehearsal.model import Claim, Rehearsal, TopicPlan
from anabranch.sim.rehearsal.placement import FilePlacement

NUMBER_MOST = 2**31 - 1
"""Largest broker id, seed and expected number."""

BROKERS_MOST = 32
LENGTH_MOST_US = 6 * 3_600 * units.SECOND_US
RATE_MOST = 1_000.0
RECORDS_MOST = 100_000
"""What producers may send in all: about a minute's work for one process."""

BETWEEN_RACKS_MOST_US = units.SECOND_US

DEFAULT_LENGTH_US = 120 * units.SECOND_US
DEFAULT_BANDWIDTH = 100_000_000
"""About what one 1 Gbit/s link carries."""

MEASURES = (
    "high_watermark",
    "leaders_moved",
    "offline_partitions",
    "offline_seconds",
    "read_only_partitions",
    "read_only_seconds",
    "records_lost",
    "topics_refused",
    "under_replicated_partitions",
    "under_replicated_at_end",
)
"""What a claim may be about; see `answers.py`."""


def read(text: str, source: str) -> Rehearsal:
    """The plan that a file holds; `source` is what its mistakes are told under.

    Raises PlanError."""
    top = parse(text, source)
    cluster = _cluster(top.need("cluster").section())
    brokers, racks = cluster.brokers, cluster.racks
    seed = top.whole("seed", 1, least=0, most=NUMBER_MOST)
    first = tuple(each for each in brokers if each not in cluster.later)
    placing = FilePlacement(first, racks, cluster.settings, seed)
    topics = _topics(top.need("topics").section(), first, placing)
    length_us = top.quantity("length", DEFAULT_LENGTH_US, units.duration_us, "90s or 2m")
    _within(top, "length", length_us, LENGTH_MOST_US)
    records = sum(topic.rate_per_second for topic in topics) * length_us / units.SECOND_US
    if records > RECORDS_MOST:
        raise top.need("topics").fault(
            f"The producers would send {records:,.0f} records; at most {RECORDS_MOST:,} can be "
            "rehearsed. Lower a `rate`, and raise `size` instead, or shorten `length`."
        )
    known = Known(brokers, racks, topics, length_us, cluster.later, topic_settings)
    events = read_events(top.take("events"), known)
    plan = Rehearsal(
        name=top.text("name", source),
        about=" ".join(top.text("about").split()),
        source=top.text("source"),
        seed=seed,
        length_us=length_us,
        brokers=brokers,
        later=cluster.later,
        racks=racks,
        controller=cluster.controller,
        between_racks_us=cluster.between_racks_us,
        bandwidth_bytes=cluster.bandwidth_bytes,
        settings=cluster.settings,
        topics=topics,
        events=events,
        claims=_claims(top.take("claims"), known),
        watch=_watch(top.take("watch"), known),
    )
    top.end()
    return plan


def _within(top: Section, name: str, value_us: int, most_us: int) -> None:
    if not 0 < value_us <= most_us:
        where = top.take(name) or top.item
        raise where.fault(f"It must be more than nothing and at most {most_us // 3_600_000_000}h.")


class _Cluster(NamedTuple):
    brokers: tuple[int, ...]
    later: tuple[int, ...]
    racks: Mapping[int, str]
    controller: int
    between_racks_us: int
    bandwidth_bytes: int
    settings: Mapping[str, str]


def _cluster(section: Section) -> _Cluster:
    count, by_rack = section.take("brokers"), section.take("racks")
    if (count is None) == (by_rack is None):
        raise section.item.fault(
            "Say either `brokers: 3`, or `racks: {a: [1], b: [2], c: [3]}` with the ids of each."
        )
    racks: dict[int, str] = {}
    if by_rack is not None:
        brokers = _racks(by_rack, racks)
    else:
        assert count is not None
        brokers = tuple(range(1, count.whole(1, BROKERS_MOST) + 1))
    bandwidth = section.quantity(
        "bandwidth", DEFAULT_BANDWIDTH, units.rate_bytes, "100 MB/s or 1 Gbit/s"
    )
    if bandwidth <= 0:
        raise section.need("bandwidth").fault("It must be more than nothing.")
    between_us = section.quantity("between_racks", 0, units.duration_us, "5ms")
    if between_us > BETWEEN_RACKS_MOST_US:
        raise section.need("between_racks").fault("At most 1s: one way, from rack to rack.")
    if between_us and not racks:
        raise section.need("between_racks").fault(
            "The cluster has no racks. Name them, or drop it."
        )
    settings = _settings(section.take("settings"), BROKER_SETTINGS, "broker")
    later = _later(section.take("later"), brokers)
    running = [each for each in brokers if each not in later]
    controller = section.take("controller")
    first = running[-1] if controller is None else controller.whole(0, NUMBER_MOST)
    if controller is not None and first not in running:
        raise controller.fault(f"There is no broker {first}. Name one of the cluster's.")
    section.end()
    return _Cluster(brokers, later, racks, first, between_us, bandwidth, settings)


def _later(item: Item | None, brokers: tuple[int, ...]) -> tuple[int, ...]:
    """The brokers that do not run at the begin."""
    if item is None:
        return ()
    later = tuple(sorted({each.whole(0, NUMBER_MOST) for each in item.items()}))
    if not set(later) < set(brokers):
        raise item.fault("Name brokers of the cluster, and leave one that runs from the begin.")
    return later


def _racks(item: Item, racks: dict[int, str]) -> tuple[int, ...]:
    for rack, ids in item.section().all().items():
        for each in ids.items():
            broker_id = each.whole(0, NUMBER_MOST)
            if broker_id in racks:
                raise each.fault(f"Broker {broker_id} is in a rack already. Keep it in one.")
            racks[broker_id] = rack
    if not 1 <= len(racks) <= BROKERS_MOST:
        raise item.fault(f"Name from 1 to {BROKERS_MOST} brokers in all.")
    return tuple(sorted(racks))


def _settings(item: Item | None, known: Mapping[str, Setting], kind: str) -> Mapping[str, str]:
    if item is None:
        return {}
    found = {}
    for name, value in item.section().all().items():
        setting = known.get(name)
        if setting is None:
            raise value.fault(f"No {kind} has a setting `{name}`.{nearest(name, known)}")
        try:
            parse_setting(setting, value.text)
        except ConfigFault as fault:
            raise value.fault(f"{fault.message}.") from None
        found[name] = value.text
    return found


def topic_settings(item: Item | None) -> Mapping[str, str]:
    """Settings of a topic, checked."""
    return _settings(item, TOPIC_SETTINGS, "topic")


def _topics(
    section: Section, brokers: tuple[int, ...], placing: FilePlacement
) -> tuple[TopicPlan, ...]:
    topics = tuple(
        _topic(name, item.section(), brokers, placing) for name, item in section.all().items()
    )
    if not topics:
        raise section.item.fault("At least one topic is needed. Add `orders: {partitions: 1}`.")
    if sum(len(topic.replicas) for topic in topics) > PARTITIONS_MOST:
        raise section.item.fault(f"Together they may have {PARTITIONS_MOST:,} partitions.")
    return topics


def _topic(
    name: str, section: Section, brokers: tuple[int, ...], placing: FilePlacement
) -> TopicPlan:
    illegal = illegal_name(name)
    if illegal is not None:
        raise section.item.fault(f"{illegal}. Choose another name.")
    acks, rate, record_bytes = _produce(section.take("produce"))
    settings = topic_settings(section.take("settings"))
    topic = TopicPlan(
        name=name,
        replicas=_replicas(section, brokers, placing, settings),
        settings=settings,
        retained_bytes=section.quantity("retained", 0, units.size_bytes, "20 GB"),
        acks=acks,
        rate_per_second=rate,
        record_bytes=record_bytes,
    )
    section.end()
    return topic


def _replicas(
    section: Section, brokers: tuple[int, ...], placing: FilePlacement, settings: Mapping[str, str]
) -> tuple[tuple[int, ...], ...]:
    if makes_diskless(settings):
        return _managed(section, placing)
    lists = section.take("replicas")
    if lists is not None:
        for other in ("partitions", "replication"):
            if other in section:
                raise section.need(other).fault("`replicas` says it already. Leave this out.")
        rows = tuple(_replica_list(each, brokers) for each in lists.items())
        if not rows:
            raise lists.fault("At least one partition is needed, such as [[1, 2, 3]].")
        return rows
    partitions = section.whole("partitions", 1, least=1, most=PARTITIONS_MOST)
    default = min(3, len(brokers))
    replication = section.whole("replication", default, least=1, most=BROKERS_MOST)
    if replication > len(brokers):
        raise section.need("replication").fault(
            f"{number_of(replication, 'replica')} need {number_of(replication, 'broker')} and the "
            f"cluster has {len(brokers)}. Add brokers, or lower it."
        )
    try:
        return placing.place(settings, partitions=partitions, replication=replication)
    except ClientFault as fault:
        raise section.item.fault(fault.message) from None


def _managed(section: Section, placing: FilePlacement) -> tuple[tuple[int, ...], ...]:
    """Of a diskless topic, whose replicas the cluster manages."""
    for name in ("replicas", "replication", "retained"):
        if name in section:
            raise section.need(name).fault(
                "A diskless topic has one replica in each rack, without bytes. Leave this out."
            )
    return placing.manage(partitions=section.whole("partitions", 1, least=1, most=PARTITIONS_MOST))


def _replica_list(item: Item, brokers: tuple[int, ...]) -> tuple[int, ...]:
    found: list[int] = []
    for each in item.items():
        broker_id = each.whole(0, NUMBER_MOST)
        if broker_id not in brokers:
            ids = ", ".join(map(str, brokers))
            raise each.fault(f"There is no broker {broker_id}; there are {ids}. Name one of them.")
        if broker_id in found:
            raise each.fault(f"Broker {broker_id} is in the list already. Keep it once.")
        found.append(broker_id)
    if not found:
        raise item.fault("A partition needs at least one replica. Name a broker.")
    return tuple(found)


def _produce(item: Item | None) -> tuple[int, float, int]:
    if item is None:
        return ACKS_ALL, 0.0, 1_000
    section = item.section()
    acks = section.take("acks")
    rate = section.quantity("rate", 10.0, units.rate_per_second, "20/s")
    if not 0 <= rate <= RATE_MOST:
        raise section.need("rate").fault(f"At most {RATE_MOST:.0f}/s can be rehearsed.")
    size = section.quantity("size", 1_000, units.size_bytes, "1 KB")
    if not 1 <= size <= 1_000_000:
        raise section.need("size").fault("A record has from 1 byte to 1 MB.")
    section.end()
    return ACKS_ALL if acks is None else ACKS[acks.one_of(ACKS)], rate, size


def _claims(item: Item | None, known: Known) -> tuple[Claim, ...]:
    return () if item is None else tuple(_claim(each, known) for each in item.items())


def _claim(item: Item, known: Known) -> Claim:
    section = item.section()
    measure = section.need("measure").one_of(MEASURES)
    place = section.take("of")
    topic, partition = ("", 0)
    if place is not None:
        topic, partition = known.place(place)
    elif measure == "high_watermark":
        raise item.fault("`of` is missing: say which partition, such as orders-0.")
    at_us = section.quantity("at", -1, units.duration_us, "30s")
    claim = Claim(
        says=" ".join(section.need("says").text.split()),
        measure=measure,
        expected=section.need("is").whole(0, NUMBER_MOST),
        topic=topic,
        partition=partition,
        at_us=at_us,
    )
    section.end()
    return claim


def _watch(item: Item | None, known: Known) -> tuple[str, int]:
    return (known.topics[0].name, 0) if item is None else known.place(item)


__all__ = ["PlanError", "read"]
