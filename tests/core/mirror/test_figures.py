"""What a mirror moved: counts of all waves, times and rates of the newest, and bounded series."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.mirror.exported import METRICS, checkpoint_samples, movement_samples
from anabranch.core.mirror.figures import (
    WINDOW_MS,
    Moved,
    Movements,
    RecentSpread,
    Spread,
    kept,
)

NAMES = {each.name: each for each in METRICS}
TIMES = st.integers(-1, 5_000)
BATCHES = st.lists(
    st.tuples(st.integers(1, 50), st.integers(61, 500), TIMES, TIMES, st.integers(0, 100)),
    max_size=4,
)
PLACES = st.tuples(st.sampled_from("ab"), st.sampled_from(["t", "u"]), st.integers(0, 1))
WAVES = st.lists(
    st.tuples(st.dictionaries(PLACES, BATCHES, max_size=5), st.floats(0.5, 60)), max_size=5
)


def moved_of(topic, partition, batches):
    """What a task counts, fetched at 6,000 ms."""
    moved = Moved(topic, partition)
    for records, size_bytes, base, latest, took in batches:
        moved.add(records, size_bytes, (base, latest), arrived_ms=6_000, landed_ms=6_000 + took)
    return moved


def ages_of(batches):
    """The age of the first and of the latest record of each batch that has times, and records."""
    return [
        (6_000 - latest, 6_000 - (base if 0 <= base <= latest else latest), records)
        for records, _, base, latest, _ in batches
        if latest >= 0
    ]


@given(WAVES)
def test_counts_are_of_all_waves_and_times_and_rates_of_the_newest(waves):
    movements = Movements()
    records, sizes = Counter(), Counter()
    for wave, seconds in waves:
        movements.wave_ended(
            [("s" + source, "w", moved_of(topic, partition, batches))
             for (source, topic, partition), batches in wave.items()],
            seconds,
        )  # fmt: skip
        for place, batches in wave.items():
            records[place] += sum(each[0] for each in batches)
            sizes[place] += sum(each[1] for each in batches)
    newest, seconds = waves[-1] if waves else ({}, 1.0)
    found = {(place.source[1:], place.topic, place.partition): each
             for place, each in movements.all()}  # fmt: skip
    assert found.keys() == records.keys()
    for place, each in found.items():
        batches = newest.get(place, [])
        assert (each.records, each.size_bytes) == (records[place], sizes[place])
        assert each.record_rate == pytest.approx(sum(one[0] for one in batches) / seconds)
        assert each.byte_rate == pytest.approx(sum(one[1] for one in batches) / seconds)
        ages = ages_of(batches)
        assert each.wave.age.count == sum(count for _, _, count in ages)
        if ages:
            assert each.wave.age.least == min(least for least, _, _ in ages)
            assert each.wave.age.most == max(most for _, most, _ in ages)
            total = sum((least + most) / 2 * count for least, most, count in ages)
            assert each.wave.age.average == pytest.approx(total / each.wave.age.count)
            assert each.wave.age.least <= each.wave.latency.least
        told = list(movement_samples(("a", "w", "t", "0"), each))
        assert len(told) == (12 if ages else 6)
        assert all(len(labels) == len(NAMES[name].labels) for name, labels, _ in told)


@given(st.lists(st.tuples(st.integers(0, 90_000), st.integers(0, 10_000)), max_size=20))
def test_a_recent_spread_has_times_of_the_last_two_minutes_alone(steps):
    recent, now_ms, seen = RecentSpread(), 10**12, []
    for pause_ms, time_ms in steps:
        now_ms += pause_ms
        recent.add(time_ms, now_ms)
        seen.append((now_ms, time_ms))
        young = [each for at, each in seen if at > now_ms - 2 * WINDOW_MS]
        found = recent.at(now_ms)
        assert found.last == time_ms
        assert min(young) <= found.least <= found.average <= found.most <= max(young)
    later = recent.at(now_ms + 2 * WINDOW_MS)
    assert later.count == 0 and later.last == (seen[-1][1] if seen else 0)
    assert [each[0] for each in checkpoint_samples(("",) * 5, later)] == [
        "kafka_connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms"
    ]


@given(st.lists(st.integers(), max_size=30), st.integers(0, 40))
def test_what_is_left_out_is_counted(items, most):
    shown, left_out = kept(items, lambda each: -each, most)
    assert shown == sorted(items, reverse=True)[:most]
    assert len(shown) + left_out == len(items)


def test_a_spread_without_times_tells_the_last_one_alone():
    assert Spread(last=7).count == 0


def test_each_metric_of_a_mirror_has_a_name_of_its_own_and_a_sentence():
    assert len(NAMES) == len(METRICS)
    assert all(each.sentence.endswith(".") for each in METRICS)
