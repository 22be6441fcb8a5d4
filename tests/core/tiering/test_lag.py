"""How far the tiering of diskless topics is behind."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.diskless.pause import Pause
from anabranch.core.diskless.rows import LogKey, LogState, Run
from anabranch.core.metadata.image import RESOURCE_TOPIC, Map, MetadataImage, TopicImage
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.tiering import lag as module
from anabranch.core.tiering.lag import AskLags, PartitionLag, TopicLag, lag, measure
from anabranch.core.tiering.plan import AgedRun, Eligible, next_segment
from anabranch.core.types import TopicId

KEY = LogKey(TopicId(bytes(16)), 0)
NOW_MS = 1_000_000
BROKER = 1


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 40)), max_size=12),
    st.integers(0, 130),
    st.integers(0, 20),
    st.integers(1, 300),
    st.integers(1, 300),
)
def test_a_segment_waits_from_the_moment_in_which_it_could_have_been_made(
    sizes, start, age, least, most
):
    aged = [
        AgedRun(Run(KEY, at * 10, at * 10 + 10, at, f"o{at}", 0, size, 5), NOW_MS - old)
        for at, (size, old) in enumerate(sizes)
    ]
    wanted = Eligible(KEY, age, min(least, most), most)
    state = LogState(start, max(130, start))
    found = lag(state, aged, wanted, NOW_MS)
    if found.waited_ms < 0:
        assert next_segment(state, aged, wanted, NOW_MS) is None
    else:
        assert next_segment(state, aged, wanted, NOW_MS - found.waited_ms) is not None
        assert next_segment(state, aged, wanted, NOW_MS - found.waited_ms - 1) is None
    held = [each for each in aged if each.run.end_offset > start]
    old = held[: found.rows]
    assert all(each.committed_ms + age <= NOW_MS for each in old)
    assert found.byte_size == sum(each.run.byte_size for each in old)
    assert found.rows == len(held) or held[found.rows].committed_ms + age > NOW_MS
    assert not found.was_tiered


def image(topics, **settings):
    """Topics by name, each with the leaders of its partitions."""
    made = {
        TopicId(bytes([number]) * 16): TopicImage(
            name,
            TopicId(bytes([number]) * 16),
            Map({at: SimpleNamespace(leader=leader) for at, leader in enumerate(leaders)}),
        )
        for number, (name, leaders) in enumerate(topics.items(), 1)
    }
    configs = {
        (RESOURCE_TOPIC, name): Map({"diskless.enable": "true", **settings.get(name, {})})
        for name in topics
        if name != "classic"
    }
    return MetadataImage(topics_by_id=Map(made), configs=Map(configs))


def measured(of, answer):
    """A round's figures, its questions, and how often it paused."""
    steps, result, asked, pauses = (
        measure(of, BrokerConfig({"node.id": "1"}, {}, {}), BROKER),
        None,
        [],
        0,
    )
    try:
        while True:
            step = steps.send(result)
            if isinstance(step, Pause):
                pauses += 1
                result = None
            else:
                assert isinstance(step, AskLags)
                asked.append(step)
                result = [answer(each.key) for each in step.wanted]
    except StopIteration as ended:
        return ended.value, asked, pauses


def test_a_broker_asks_for_the_diskless_partitions_that_it_leads():
    found, asked, _ = measured(
        image(
            {"a": [1, 2, 1], "classic": [1], "never": [1], "b": [1]},
            never={"diskless.tiering.age.ms": "-1"},
        ),
        lambda key: PartitionLag(1, 10 + key.partition, 7 * key.partition - 1, True),
    )
    assert found == [TopicLag("a", 2, 22, 13), TopicLag("b", 1, 10, 0)]
    keys = [(each.key.topic_id[0], each.key.partition) for step in asked for each in step.wanted]
    assert keys == [(1, 0), (1, 2), (4, 0)]


def test_no_segment_is_said_to_wait_where_nothing_was_ever_tiered():
    of = image({"a": [1], "b": [1]})
    for was_tiered, waited_ms in ((False, -1), (True, 5)):
        found, *_ = measured(
            of, lambda key, it=was_tiered: PartitionLag(3, 9, 5, it and key.topic_id[0] == 1)
        )
        assert [each.waited_ms for each in found] == [waited_ms] * 2
        assert [each.rows for each in found] == [3, 3]


def test_a_partition_that_has_no_row_yet_has_no_figures():
    assert measured(image({"a": [1]}), lambda _: None)[0] == []


def test_a_round_is_made_of_bounded_steps(monkeypatch):
    monkeypatch.setattr(module, "MOST_ROWS", 5_000)
    found, asked, pauses = measured(
        image({"a": [1] * 100, "far": [2] * 1000}), lambda _: PartitionLag(1000, 1, 1, True)
    )
    assert [len(each.wanted) for each in asked] == [20] * 5
    assert [each.most_rows for each in asked] == [250, 1, 1, 1, 1]
    assert pauses >= 5 + 4
    assert [each.topic for each in found] == ["a"]


def test_metrics_have_the_topics_that_wait_the_longest(monkeypatch):
    monkeypatch.setattr(module, "MOST_TOPICS", 2)
    of = image({"a": [1], "b": [1], "c": [1]})
    found, *_ = measured(of, lambda key: PartitionLag(1, 1, key.topic_id[0], True))
    assert [each.topic for each in found] == ["b", "c"]
