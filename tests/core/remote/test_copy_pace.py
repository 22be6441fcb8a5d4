"""How fast a broker copies."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.remote.copy_pace import BURST_MS, CopyPace


def test_without_a_limit_nothing_waits():
    assert CopyPace().wait_ms(1 << 40, 0) == 0


def test_a_second_is_ahead_and_then_bytes_are_earned():
    pace = CopyPace(1_000)
    assert [pace.wait_ms(1_000, at) for at in (10_000, 10_000, 10_000)] == [0, 0, 1_000]
    assert pace.wait_ms(1, 12_000) == 0
    pace.bytes_per_second = 10
    assert pace.wait_ms(100, 12_000) == 1
    assert pace.wait_ms(1, 12_000) == 10_001


@given(
    st.integers(1, 5_000),
    st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 2_000)), min_size=1),
)
def test_over_any_time_the_rate_holds(rate, asked):
    """Pieces of several copies at once: each is read when its wait is over."""
    pace, now_ms, read = CopyPace(rate), 0, []
    for later_ms, size in asked:
        now_ms += later_ms
        read.append((now_ms + pace.wait_ms(size, now_ms), size))
    read.sort()
    largest = max(size for _, size in asked)
    for first, (begin_ms, _) in enumerate(read):
        total = 0
        for end_ms, size in read[first:]:
            total += size
            assert total <= rate * (end_ms - begin_ms + BURST_MS + 1) / 1000 + 2 * largest
