"""A rehearsal's file is read whole, and every mistake names its line, its field and a remedy (B1)."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.sim.rehearsal.fields import PlanError
from anabranch.sim.rehearsal.model import Action
from anabranch.sim.rehearsal.rehearsal_file import read
from anabranch.sim.rehearsal.units import duration_us, rate_bytes, rate_per_second, size_bytes

PLAN = """\
name: Two data centres
cluster:
  racks: {east: [1, 2], west: [3, 4]}
  bandwidth: 1 Gbit/s
  settings: {replica.lag.time.max.ms: 10000}
topics:
  orders:
    partitions: 4
    replication: 4
    settings: {min.insync.replicas: 3}
    retained: 20 GB
    produce: {acks: all, rate: 5/s, size: 2 KB}
events:
  - {at: 30s, start: east}
  - {at: 10s, power_loss: east}
  - {at: 20s, pause: leader of orders-3}
claims:
  - {says: it survives, measure: read_only_partitions, is: 0}
"""


def test_a_plan_holds_what_its_file_says():
    plan = read(PLAN, "dc.yaml")
    assert plan.brokers == (1, 2, 3, 4)
    assert plan.racks[3] == "west"
    assert plan.bandwidth_bytes == 125_000_000
    (topic,) = plan.topics
    assert (topic.retained_bytes, topic.rate_per_second, topic.record_bytes) == (
        20 * 10**9,
        5,
        2000,
    )
    assert [len(set(row)) for row in topic.replicas] == [4, 4, 4, 4]
    assert [event.action for event in plan.events] == [
        Action.POWER_LOSS,
        Action.PAUSE,
        Action.START,
    ]
    assert plan.events[0].who.brokers == (1, 2)
    assert plan.events[1].who.role == "leader"


def test_simple_placement_puts_replicas_in_as_many_racks_as_there_are():
    plan = read(PLAN.replace("replication: 4", "replication: 2"), "dc.yaml")
    for row in plan.topics[0].replicas:
        assert {plan.racks[each] for each in row} == {"east", "west"}


MISTAKES = [
    ("partitions: 4", "partition: 4", 8, "topics.orders.partition", "Did you mean `partitions`?"),
    ("replication: 4", "replication: 5", 9, "topics.orders.replication", "5 replicas need 5 brokers"),
    ("min.insync.replicas: 3", "min.insync.replica: 3", 10,
     "topics.orders.settings.min.insync.replica", "Did you mean `min.insync.replicas`?"),
    ("min.insync.replicas: 3", "min.insync.replicas: 0", 10,
     "topics.orders.settings.min.insync.replicas", "Invalid value 0"),
    ("retained: 20 GB", "retained: much", 11, "topics.orders.retained", "'much' is not such as 20 GB"),
    ("acks: all", "acks: 2", 12, "topics.orders.produce.acks", "'2' is none of"),
    ("rate: 5/s", "rate: 5000/s", 12, "topics.orders.produce.rate", "At most 1000/s"),
    ("start: east", "start: north", 14, "events[0].start", "Racks are east, west."),
    ("start: east", "start: 9", 14, "events[0].start", "There is no broker 9; there are 1, 2, 3, 4"),
    ("start: east", "strat: east", 14, "events[0]", "Did you mean `start`?"),
    ("at: 30s", "at: 30h", 14, "events[0].at", "The rehearsal ends at 120s."),
    ("at: 30s, ", "", 14, "events[0]", "`at` is missing"),
    ("orders-3", "orders-4", 16, "events[2].pause", "orders has 4 partitions, counted from 0"),
    ("orders-3", "order-3", 16, "events[2].pause", "Did you mean `orders`?"),
    ("is: 0", "is: none", 18, "claims[0].is", "Expected a whole number"),
    ("measure: read_only_partitions", "measure: writes", 18, "claims[0].measure", "is none of"),
    ("west: [3, 4]", "west: [2, 4]", 3, "cluster.racks.west[0]", "Broker 2 is in a rack already"),
    ("name: Two data centres", "name: [a]", 1, "name", "Expected one value"),
    ("partitions: 4", "partitions: 4\n    partitions: 4", 9, "topics.orders.partitions", "twice"),
    ("topics:", "tops:", 1, "", "`topics` is missing"),
    ("1 Gbit/s", "fast", 4, "cluster.bandwidth", "Write it like that"),
    ("orders:", "or ders:", 7, "topics.or ders", "Topic name is invalid"),
    ("rate: 5/s", "rate: 900/s", 6, "topics", "The producers would send"),
    ("bandwidth:", "between_racks: 2s\n  bandwidth:", 4, "cluster.between_racks", "At most 1s"),
    ("cluster:", "cluster: {{", 4, "", "It is not YAML"),
    ("start: east", "add: 1", 14, "events[0].add", "Brokers that can be added are those of"),
    ("start: east", "outage: objects", 14, "events[0].outage", "No topic lies there"),
    ("bandwidth: 1 Gbit/s", "later: [1, 2, 3, 4]", 4, "cluster.later", "leave one that runs"),
    ("min.insync.replicas: 3", "diskless.enable: true", 9, "topics.orders.replication",
     "one replica in each rack"),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "line", "name", "says"), MISTAKES)
def test_a_mistake_is_told_with_line_field_and_remedy(right, wrong, line, name, says):
    with pytest.raises(PlanError) as told:
        read(PLAN.replace(right, wrong), "dc.yaml")
    assert says in str(told.value)
    assert (told.value.name, str(told.value).startswith("dc.yaml, line ")) == (name, True)
    assert told.value.line == line


@pytest.mark.parametrize(
    "text", ["", "# nothing", "- a\n- b", "&a [*a]", "a: b: c", "\0", "[" * 5000]
)
def test_what_is_no_rehearsal_is_refused_in_a_sentence(text):
    with pytest.raises(PlanError) as told:
        read(text, "x.yaml")
    assert str(told.value).startswith("x.yaml")


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(PLAN) - 1), st.text(max_size=4), st.integers(0, 6))
def test_whatever_is_changed_it_is_a_plan_or_told(at, put, dropped):
    with suppress(PlanError):
        read(PLAN[:at] + put + PLAN[at + dropped :], "dc.yaml")


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (duration_us, "10s", 10_000_000),
        (duration_us, "500 ms", 500_000),
        (duration_us, "1.5m", 90_000_000),
        (duration_us, "2", 2_000_000),
        (duration_us, "2 weeks", None),
        (size_bytes, "20 GB", 20 * 10**9),
        (size_bytes, "1KiB", 1024),
        (size_bytes, "-1", None),
        (rate_bytes, "100 MB/s", 10**8),
        (rate_bytes, "8 Mbit/s", 10**6),
        (rate_bytes, "8 MB/m", None),
        (rate_per_second, "30/m", 0.5),
        (rate_per_second, "5", 5.0),
        (rate_per_second, "5 KB", None),
    ],
)
def test_units_are_as_people_write_them(parse, text, value):
    assert parse(text) == value
