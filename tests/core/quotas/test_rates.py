"""Rates and buckets: who rests as told keeps to the limit, and who is under it never rests."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.quotas.rates import MOST_REST_MS, Rate, TokenBucket, Window

WINDOWS = st.builds(Window, st.integers(1, 12), st.sampled_from([1_000, 2_000]))
STEPS = st.lists(
    st.tuples(st.integers(0, 3_000), st.sampled_from([1, 10, 500, 5_000, 100_000])), min_size=1
)
LIMITS = st.sampled_from([1.0, 100.0, 1_000.0, 1e9])


@given(WINDOWS, STEPS, LIMITS)
def test_who_rests_as_told_has_the_limit_over_the_window(window, steps, limit):
    """And never rests below it. As in Kafka, what comes after the rest counts by itself once the
    window is over: an amount of two windows at a time is let through at twice the limit."""
    rate, now_ms = Rate(), 1_000_000
    for gap_ms, amount in steps:
        now_ms += gap_ms
        rate.record(amount, now_ms, window)
        rest_ms = rate.rest_ms(limit, now_ms, window)
        _, elapsed_ms = rate.measure(now_ms, window)
        used_ms = rate.total / limit * 1_000
        assert rest_ms == min(MOST_REST_MS, int(max(0, used_ms - elapsed_ms) + 0.5))
        now_ms += rest_ms


@pytest.mark.parametrize("seed", range(5))
def test_a_client_that_never_stops_gets_its_limit(seed):
    """Within ten per cent over two minutes, with requests of any size up to a second's worth."""
    random, rate, window = Random(seed), Rate(), Window(11, 1_000)
    limit, now_ms, total = random.choice((10.0, 1e6)), 0, 0.0
    while now_ms < 120_000:
        amount = limit * random.choice((0.001, 0.02, 0.3, 1.0))
        total += amount
        rate.record(amount, now_ms, window)
        now_ms += 1 + rate.rest_ms(limit, now_ms, window)
    assert 0.9 * limit <= total / (now_ms / 1_000) <= 1.1 * limit


@given(WINDOWS, STEPS)
def test_a_rate_is_what_came_in_the_window(window, steps):
    """Against all amounts that ever came: none younger than a window is lost, none is that is older
    than a sample more."""
    rate, now_ms, came = Rate(), 1_000_000, []
    for gap_ms, amount in steps:
        now_ms += gap_ms
        rate.record(amount, now_ms, window)
        came.append((now_ms, amount))
        measured, elapsed_ms = rate.measure(now_ms, window)
        length_ms = window.samples * window.sample_ms
        young = sum(amount for at, amount in came if at > now_ms - length_ms)
        not_old = sum(amount for at, amount in came if at > now_ms - length_ms - window.sample_ms)
        assert young <= rate.total <= not_old
        assert elapsed_ms >= window.full_ms
        assert abs(measured - rate.total * 1_000 / elapsed_ms) < 1e-6


def test_a_rate_is_kafkas():
    """11 samples of a second; what came first counts over ten seconds."""
    window, rate = Window(11, 1_000), Rate()
    rate.record(20_480, 0, window)
    assert rate.rest_ms(1_024, 0, window) == 10_000
    assert rate.rest_ms(1_024, 5_000, window) == 10_000  # no sample is older than the window yet
    assert rate.rest_ms(1_024, 11_000, window) == 0
    rate.record(-5, 11_000, window)
    assert rate.total == -5


@given(WINDOWS, STEPS, LIMITS)
def test_a_bucket_lets_through_what_came_into_it(window, steps, limit):
    bucket, now_ms, taken = TokenBucket(), 1_000_000, 0.0
    most = limit * window.samples * window.sample_ms / 1_000
    for gap_ms, amount in steps:
        now_ms += gap_ms
        rest_ms = bucket.rest_ms(limit, now_ms, window)
        came = most + limit * (now_ms - 1_000_000) / 1_000
        assert (rest_ms == 0) or taken > 0
        if rest_ms < MOST_REST_MS and rest_ms:
            now_ms += rest_ms + 1
            assert bucket.rest_ms(limit, now_ms, window) <= 1
        else:
            assert taken <= came + 1e-6
            bucket.take(amount, limit, now_ms, window)
            taken += amount


def test_a_burst_overdraws_a_bucket_once():
    """The example of KIP-599: a burst of 560 on a quota of 5 waits for twelve seconds."""
    window, bucket = Window(100, 1_000), TokenBucket()
    bucket.take(560, 5, 0, window)
    assert bucket.rest_ms(5, 0, window) == 12_000
    assert bucket.rest_ms(5, 12_000, window) == 0
