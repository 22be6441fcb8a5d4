"""The exact index: translation skips no record and repeats none, over random histories."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.core.mirror.formats import ForeignRecord
from anabranch.core.mirror.index import (
    MOST_RUNS,
    Chunk,
    IndexRun,
    PartitionIndex,
    below,
    chunk_value,
    index_of,
    read_chunk,
    read_key,
)

OLD, NEW = bytes(15) + b"\1", bytes(15) + b"\2"

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["mirror", "mirror", "mirror", "hole", "marker", "crash"]),
        st.integers(1, 9),
    ),
    min_size=1, max_size=40,
)  # fmt: skip


def history(steps):
    """What a mirror does: records in runs, holes at the source, markers on the target, and crashes
    after which it reads some records again. The runs, and downstream offset -> upstream offset."""
    upstream = downstream = 0
    runs, copies = [], {}
    for what, size in steps:
        if what == "mirror":
            runs.append(IndexRun(upstream, downstream, size))
            copies |= {downstream + each: upstream + each for each in range(size)}
            upstream, downstream = upstream + size, downstream + size
        elif what == "hole":  # compaction may have made it since the records were first mirrored
            copies = {down: up for down, up in copies.items() if not 0 <= up - upstream < size}
            upstream += size
        elif what == "marker":
            downstream += size
        else:
            upstream = max(0, upstream - size)
    return runs, copies


def upstream_ends_last(copies):
    """Whether what was mirrored before a crash has all been mirrored again."""
    return not copies or copies[max(copies)] == max(copies.values())


def chunks_of(runs, **more):
    """The runs in chunks, as tasks write them."""
    found = {}
    current = None
    for number, run in enumerate(runs):
        grown = current.grown(run) if current else None
        current = grown or Chunk("t", 0, (run,), begins=not number, **more)
        found[current.key] = current
    return list(found.values())


@given(STEPS, st.integers(0, 200))
@settings(max_examples=500, deadline=None)
def test_translation_skips_no_record_and_repeats_none(steps, offset):
    runs, copies = history(steps)
    index = PartitionIndex()
    for number, run in enumerate(runs):
        index.add(run, begins=not number)
    found = index.translate(offset)
    if not runs:
        assert found is None
        return
    last = {upstream: downstream for downstream, upstream in sorted(copies.items())}
    wanted = [downstream for upstream, downstream in last.items() if upstream >= offset]
    assert all(found <= each for each in wanted), "it skips a record"
    kinds = {what for what, _ in steps}
    if "crash" not in kinds or ("hole" not in kinds and upstream_ends_last(copies)):
        repeats = [each for each in copies if found <= each < min(wanted)] if wanted else []
        assert not repeats, "it repeats a record"
        assert wanted or found == runs[-1].downstream_end


@given(STEPS)
def test_there_and_back_is_the_same_record(steps):
    runs, _ = history(steps)
    index = PartitionIndex()
    for run in runs:
        index.add(run)
    for run in index.runs:
        for each in range(run.records):
            there = index.translate(run.upstream + each)
            assert there == run.downstream + each
            assert index.upstream_of(there) == run.upstream + each


@given(STEPS)
def test_chunks_are_read_back_as_the_same_index(steps):
    runs, _ = history(steps)
    straight = PartitionIndex()
    for number, run in enumerate(runs):
        straight.add(run, begins=not number)
    chunks = [read_chunk(each.key, chunk_value(each)) for each in chunks_of(runs)]
    again = index_of(chunks, source_id=OLD, target_id=NEW)
    assert again.runs == straight.runs
    for offset in range(60):
        assert again.translate(offset) == straight.translate(offset)


@given(STEPS, st.integers(0, 100))
@settings(max_examples=300)
def test_what_the_target_dropped_may_leave_the_index(steps, log_start):
    runs, copies = history(steps)
    chunks = chunks_of(runs)
    kept = [each for each in chunks if each not in below(chunks, log_start)]
    whole = index_of(chunks, source_id=OLD, target_id=NEW)
    trimmed = index_of(kept, source_id=OLD, target_id=NEW)
    last = {upstream: downstream for downstream, upstream in sorted(copies.items())}
    for offset in range(80) if upstream_ends_last(copies) else ():
        found = trimmed.translate(offset, log_start=log_start)
        known = whole.translate(offset, log_start=log_start)
        if found == known:
            continue
        assert found is not None and known is not None and found >= known, "copies that went"
        wanted = [down for upstream, down in last.items() if upstream >= offset]
        assert all(found <= each for each in wanted if each >= log_start), "it skips a record"


def test_a_run_without_gaps_stays_one_and_a_chunk_ends_when_it_is_full():
    chunk = Chunk("t", 0, (IndexRun(0, 10, 5),))
    chunk = chunk.grown(IndexRun(5, 15, 5), 3)
    assert chunk.runs == (IndexRun(0, 10, 10),) and chunk.leader_epoch == 3
    for each in range(MOST_RUNS - 1):
        chunk = chunk.grown(IndexRun(20 + 2 * each, 30 + 2 * each, 1))
    assert len(chunk.runs) == MOST_RUNS
    assert chunk.grown(IndexRun(2_000, 3_000, 1)) is None
    assert len(chunk_value(chunk)) < 500, "three small numbers a run"
    assert chunk.grown(IndexRun(0, 4_000, 1)) is None, "the source went back"


def test_what_came_before_the_index_is_not_guessed():
    index = PartitionIndex()
    index.add(IndexRun(100, 50, 10))
    assert index.translate(99) is None
    assert index.translate(99, log_start=50) == 50, "the target has nothing before it"
    assert PartitionIndex().translate(0) is None


def test_chunks_of_deleted_topics_do_not_count():
    chunks = [
        Chunk("t", 0, (IndexRun(0, 0, 50),), True, OLD, NEW),
        Chunk("t", 0, (IndexRun(10, 60, 5),), True, NEW, NEW),
        Chunk("t", 0, (IndexRun(90, 5, 5),), True, NEW, OLD),
    ]
    index = index_of(chunks, source_id=NEW, target_id=NEW)
    assert index.runs == (IndexRun(10, 60, 5),)
    assert index.translate(3) == 60
    assert index.missing(8, 20) == 7


@given(st.binary(max_size=60), st.binary(max_size=80))
def test_foreign_bytes_are_refused_and_nothing_else_happens(key, value):
    for read, arguments in ((read_key, (key,)), (read_chunk, (key, value))):
        with contextlib.suppress(ForeignRecord):
            read(*arguments)
    chunk = Chunk("t", 0, (IndexRun(1, 1, 1),))
    with pytest.raises(ForeignRecord):
        read_chunk(chunk.key, chunk_value(chunk)[:-1])


def test_old_copies_count_until_the_new_ones_have_come_as_far():
    """What is mirrored again after a crash has no copy yet of what follows."""
    index = PartitionIndex()
    index.add(IndexRun(0, 0, 10), begins=True)
    index.add(IndexRun(4, 10, 3))
    assert index.translate(8) == 8, "the copy of offset 8 is there alone"
    index.add(IndexRun(7, 13, 3))
    assert index.translate(8) == 14


WRITES = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["mirror", "mirror", "begin"]), st.integers(0, 12)),
    max_size=30,
)  # fmt: skip


@given(WRITES)
@settings(max_examples=500, deadline=None)
def test_attempts_that_write_at_the_same_time_make_no_group_skip_a_record(writes):
    """A late attempt writes on beside a new one; each goes on from what it once read."""
    following, chunks, at = [0, 0, 0], [[], [], []], 0
    last = {}
    for writer, what, size in writes:
        if what == "begin":
            following[writer] = min(size, len(last))
            chunks[writer].append(None)
        elif size:
            run = IndexRun(following[writer], at, size)
            grown = chunks[writer][-1].grown(run) if any(chunks[writer][-1:]) else None
            if grown is None:
                chunks[writer].append(Chunk("t", 0, (run,)))
            else:
                chunks[writer][-1] = grown
            last |= {run.upstream + each: at + each for each in range(size)}
            following[writer], at = run.upstream_end, at + size
    known = [each for found in chunks for each in found if each is not None]
    index = index_of(known, source_id=OLD, target_id=NEW)
    for offset in last:
        found = index.translate(offset)
        skipped = [up for up, down in last.items() if up >= offset and down < (found or 0)]
        assert not skipped, (offset, found)


def test_a_gap_that_another_mirror_may_have_filled_is_not_jumped_over():
    """Its copies lie between the two runs on the target."""
    index = PartitionIndex()
    index.add(IndexRun(0, 0, 10), begins=True)
    index.add(IndexRun(20, 20, 5))
    assert [index.translate(each) for each in (9, 10, 15, 20)] == [9, 10, 10, 20]
