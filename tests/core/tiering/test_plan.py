"""The next segment of a diskless partition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.diskless.rows import LogKey, LogState, Run
from anabranch.core.tiering import plan
from anabranch.core.tiering.plan import AgedRun, Eligible, begins_right, next_segment
from anabranch.core.types import TopicId

KEY = LogKey(TopicId(bytes(16)), 0)
NOW_MS = 1_000_000


def runs(*sizes: int, first: int = 0, count: int = 10, committed_ms: int = 0) -> list[AgedRun]:
    return [
        AgedRun(
            Run(KEY, first + at * count, first + (at + 1) * count, at + 1, f"o{at}", 0, size, 5),
            committed_ms,
        )
        for at, size in enumerate(sizes)
    ]


def planned(
    aged: list[AgedRun], state: LogState | None = None, *, age: int = 0, least: int = 0,
    most: int = 1 << 40,
) -> tuple[int, int, int] | None:  # fmt: skip
    known = state or LogState(0, 1 << 40)
    found = next_segment(known, aged, Eligible(KEY, age, least, most), NOW_MS)
    if found is None:
        return None
    assert begins_right(known, found.start_offset, found.end_offset)
    return found.start_offset, found.end_offset, found.byte_size


def test_old_runs_become_a_segment():
    assert planned(runs(100, 100)) == (0, 20, 200)


def test_a_young_run_ends_a_segment_and_what_comes_after_it_waits():
    old, young, later = (
        runs(100, committed_ms=0), runs(100, first=10, committed_ms=NOW_MS - 99),
        runs(100, first=20, committed_ms=0),
    )  # fmt: skip
    assert planned([*old, *young, *later], age=100) == (0, 10, 100)
    assert planned([*young, *later], age=100) is None


def test_a_small_segment_waits_unless_it_frees_many_rows(monkeypatch):
    assert planned(runs(100, 100), least=201) is None
    monkeypatch.setattr(plan, "MANY_RUNS", 2)
    assert planned(runs(100, 100), least=201) == (0, 20, 200)


def test_a_segment_that_is_full_needs_no_least_size():
    assert planned(runs(100, 100, 100), least=1000, most=250) == (0, 20, 200)
    assert planned(runs(400, 100), least=1000, most=250) == (0, 10, 400)


def test_a_segment_begins_where_the_tiered_part_ends():
    assert planned(runs(100, first=20), LogState(0, 99, 0, 20)) == (20, 30, 100)
    assert planned(runs(100, first=25), LogState(0, 99, 0, 20)) == (20, 35, 100)


def test_what_retention_deletes_is_passed_over():
    assert planned(runs(100, 100), LogState(10, 99)) == (10, 20, 100)
    assert planned(runs(100, 100), LogState(15, 99)) == (10, 20, 100)
    assert planned(runs(100, 100), LogState(20, 99)) is None


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 20)), max_size=12),
    st.integers(0, 130),
    st.integers(0, 130),
    st.integers(0, 300),
    st.integers(1, 300),
)
def test_any_segment_has_whole_runs_in_order(sizes, start, tiered_end, least, most):
    aged = [
        each._replace(committed_ms=NOW_MS - age)
        for each, (_, age) in zip(runs(*(size for size, _ in sizes)), sizes, strict=True)
        if each.run.base_offset >= tiered_end // 10 * 10
    ]
    state = LogState(start, max(130, start), 0, tiered_end // 10 * 10)
    found = next_segment(state, aged, Eligible(KEY, 10, least, most), NOW_MS)
    if found is None:
        return
    assert begins_right(state, found.start_offset, found.end_offset)
    there = [each.run for each in aged if each.run.end_offset > state.first_run_offset]
    assert list(found.runs) == there[: len(found.runs)]
    assert found.byte_size <= most or len(found.runs) == 1
    assert all(NOW_MS - each.committed_ms >= 10 for each in aged if each.run in found.runs)
