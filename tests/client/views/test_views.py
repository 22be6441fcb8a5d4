"""What is shown of a cluster is plain: JSON has all of it, and nothing of it is cut.

Whether command line and documents agree with it is tested there (`tests/cli/test_json_page.py`).
"""

from __future__ import annotations

import json
from random import Random

import pytest

from anabranch.client.admin import NewTopic
from anabranch.client.overview import BrokerCounts, ControllerView, Overview
from anabranch.client.partitions import Illness
from anabranch.client.reasons import Reasons
from anabranch.client.views.cluster import broker_view, remedies, status_view
from anabranch.client.views.groups import groups_view, reset_view
from anabranch.client.views.reassignments import moves_view
from anabranch.client.views.times import time_text
from anabranch.client.views.topics import created_view
from anabranch.core.types import TopicPartition
from anabranch.core.wire.messages.list_groups import ListedGroup


def drawn(random: Random) -> Overview:
    """A cluster as it may be."""

    def count() -> int:
        return random.choice([0, 0, 1, 7])

    brokers = [
        BrokerCounts(
            each, "host", 9092, random.choice([None, "a"]), random.random() < 0.3,
            random.random() < 0.3, *(count() for _ in range(6)),
        )
        for each in range(random.randint(1, 4))
    ]  # fmt: skip
    leaderless = {TopicPartition("t", each): (each, each + 1) for each in range(count())}
    return Overview(
        "id", ControllerView(0, 3, 40, Reasons(), {}), brokers, count(), count(),
        {each: count() for each in Illness} | {Illness.UNAVAILABLE: len(leaderless)},
        leaderless, count(), count(), count(),
        {TopicPartition("t", 0): (1,)} if count() else {},
        {1: ("/logs",)} if count() else {},
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(50))
def test_a_status_is_plain_and_says_what_helps_where_something_is_wrong(seed: int) -> None:
    found = drawn(Random(seed))
    told = status_view(found)
    assert json.loads(json.dumps(told)) == told
    assert told["brokers"] == len(found.brokers)
    said = remedies(told, found)
    wrong = ("unavailable", "under_min_isr", "under_replicated", "full_folders", "fenced_brokers",
             "missing_replicas", "rack_violations", "moves_held_up")  # fmt: skip
    assert bool(said) >= any(told[each] for each in wrong)
    assert all(each.endswith(".") for each in said)
    for each in found.brokers:
        view = broker_view(each, found)
        assert json.loads(json.dumps(view)) == view
        assert view["full_log_dirs"] == list(found.full.get(each.broker_id, ()))


def test_replicas_that_share_a_rack_are_named() -> None:
    created = NewTopic(2, 2, [(1, 2), (1, 3)])
    racks = {1: "a", 2: "a", 3: "b"}
    assert created_view("t", created, racks)["sharing_racks"] == [0]
    assert created_view("t", created, racks, only_checked=True)["created"] is False
    was_there = created_view("t", None, {})
    assert was_there.keys() == created_view("t", created, racks).keys()
    assert was_there["created"] is False


def test_groups_in_a_state() -> None:
    groups = [
        ListedGroup(
            group_id=name, group_state=state, protocol_type="consumer", group_type="classic"
        )
        for name, state in (("a", "Stable"), ("b", "Empty"))
    ]
    assert [each["group"] for each in groups_view(groups)] == ["a", "b"]
    assert [each["group"] for each in groups_view(groups, "stable")] == ["a"]


def test_offsets_and_replicas_of_partitions() -> None:
    told = reset_view("g", [(("t", 1), -1, 5)], executed=False)
    assert told["offsets"] == [{"topic": "t", "partition": 1, "from": -1, "to": 5}]
    moves = {TopicPartition("t", 1): (3, 1), TopicPartition("t", 0): (1, 2)}
    assert [each["replicas"] for each in moves_view(moves)] == [[1, 2], [3, 1]]


def test_a_time_outside_of_the_calendar_is_told_in_milliseconds() -> None:
    assert time_text(0) == "1970-01-01T00:00:00Z"
    assert time_text(2**62) == f"{2**62} ms"
