"""What a commit decides, against a model that keeps every batch that was ever committed."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.diskless.commit import (
    MOST_RUN_BYTES,
    ObjectRow,
    ObjectState,
    Producer,
    ProducerKey,
    Written,
    decide,
)
from anabranch.core.diskless.rows import (
    Batch,
    Commit,
    CommitState,
    Committed,
    LogKey,
    LogState,
    NewLogs,
    Verdict,
)
from anabranch.core.errors import ErrorCode
from anabranch.core.types import TopicId
from anabranch.stores.coordinator.sqlite_memory import SqliteInMemory

TOPIC = TopicId(b"a" * 16)
KEYS = (LogKey(TOPIC, 0), LogKey(TOPIC, 1))
NOWHERE = LogKey(TopicId(b"z" * 16), 0)
LAST = 2**31 - 1


@dataclass
class Coordinator:
    """A coordinator with the partitions of KEYS and one broker, at a time that tests set."""

    now_ms: int = 1000
    tables: SqliteInMemory = field(init=False)

    def __post_init__(self) -> None:
        self.tables = SqliteInMemory("cluster", lambda: self.now_ms)
        self.tables.take_control(1)
        self.tables.create_logs(1, [NewLogs(TOPIC, "river", 0, len(KEYS))])
        self.tables.register(1, 7)

    def commit(self, *batches: Batch) -> Committed:
        (prepared,) = self.tables.prepare(1, 7, 1, 100)
        placed, at = [], 0
        for batch in batches:
            placed.append(batch._replace(byte_offset=at))
            at += batch.byte_size
        return self.tables.commit(
            Commit(prepared.object_id, prepared.object_key, at, 1, 7, tuple(placed))
        )


def batch(
    key: LogKey = KEYS[0],
    count: int = 1,
    producer: int = -1,
    epoch: int = 0,
    sequence: int = -1,
    size: int = 10,
) -> Batch:
    return Batch(key, 0, size, count, 5, 0, producer, epoch, sequence)


def codes(answer: Committed) -> list[ErrorCode]:
    return [verdict.code for verdict in answer.verdicts]


@dataclass
class Model:
    """The same rules, read from the whole history of each partition."""

    history: dict[LogKey, list[Batch]] = field(default_factory=lambda: {key: [] for key in KEYS})

    def take(self, wanted: Batch) -> tuple[ErrorCode, int]:
        if wanted.key not in self.history:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1
        before = self.history[wanted.key]
        offsets = [sum(each.record_count for each in before[:at]) for at in range(len(before) + 1)]
        if wanted.producer_id >= 0:
            mine = [at for at, each in enumerate(before) if each.producer_id == wanted.producer_id]
            epoch = max((before[at].producer_epoch for at in mine), default=-1)
            if epoch > wanted.producer_epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH, -1
            same = [at for at in mine if before[at].producer_epoch == wanted.producer_epoch]
            for at in same[-5:]:
                if (before[at].base_sequence, before[at].record_count) == (
                    wanted.base_sequence,
                    wanted.record_count,
                ):
                    return ErrorCode.NONE, offsets[at]
            last = before[same[-1]] if same else None
            follows = next_sequence(last)
            if wanted.base_sequence != follows:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        self.history[wanted.key].append(wanted)
        return ErrorCode.NONE, offsets[-1]


def next_sequence(last: Batch | None) -> int:
    """Counted one by one, as a producer does."""
    sequence = 0 if last is None else last.base_sequence
    for _ in range(last.record_count if last else 0):
        sequence = 0 if sequence == LAST else sequence + 1
    return sequence


wished = st.builds(
    batch,
    key=st.sampled_from((*KEYS, NOWHERE)),
    count=st.integers(1, 3),
    producer=st.sampled_from((-1, 4, 5)),
    epoch=st.integers(0, 1),
    sequence=st.integers(0, 6),
    size=st.sampled_from((10, MOST_RUN_BYTES // 2)),
)


@given(st.lists(st.lists(wished, max_size=8), max_size=8))
def test_verdicts_and_offsets_are_those_of_the_whole_history(objects: list[list[Batch]]) -> None:
    coordinator, model = Coordinator(), Model()
    for batches in objects:
        expected = [model.take(each) for each in batches]
        answer = coordinator.commit(*batches)
        assert [(each.code, each.base_offset) for each in answer.verdicts] == expected
    for key in KEYS:
        (state,), runs = coordinator.tables.states([key]), coordinator.tables.runs(key)
        assert state is not None
        ends = [0, *(run.end_offset for run in runs)]
        assert [run.base_offset for run in runs] == ends[:-1], "neither hole nor repeat"
        assert state.high_watermark == ends[-1]
        assert state.high_watermark == sum(each.record_count for each in model.history[key])
        sizes = sum(each.byte_size for each in model.history[key])
        assert state.byte_size == sum(run.byte_size for run in runs) == sizes


def test_five_batches_are_known_and_the_sixth_is_not() -> None:
    coordinator = Coordinator()
    sent = [batch(producer=4, sequence=number) for number in range(6)]
    coordinator.commit(*sent)
    again = coordinator.commit(*sent)
    assert codes(again) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, *[ErrorCode.NONE] * 5]
    assert [each.base_offset for each in again.verdicts[1:]] == [1, 2, 3, 4, 5]
    assert all(each.is_duplicate for each in again.verdicts[1:])
    assert again.verdicts[0].expected_sequence == 6
    assert coordinator.tables.states([KEYS[0]])[0] == LogState(0, 6, 60)


def test_sequence_numbers_wrap_after_the_greatest() -> None:
    row = ObjectRow(1, "key", ObjectState.PREPARED, 1, 7, 2000)
    first = batch(count=4, producer=4, sequence=LAST - 1)
    commit = Commit(1, "key", 20, 1, 7, (first, batch(count=1, producer=4, sequence=2)))
    at_end = {ProducerKey(KEYS[0], 4): Producer(0, (Written(0, LAST - 2, 0),))}
    decided = decide(commit, row, 7, {KEYS[0]: LogState(0, 9)}, at_end, 1000)
    assert [(each.code, each.base_offset) for each in decided.answer.verdicts] == [(0, 9), (0, 13)]
    assert first.last_sequence == 1


def test_a_gap_tells_what_is_next_and_whether_the_producer_is_known() -> None:
    coordinator = Coordinator()
    unknown, zero, gap, epoch = coordinator.commit(
        batch(producer=4, sequence=3),
        batch(producer=5, sequence=0),
        batch(producer=5, sequence=2),
        batch(producer=5, epoch=1, sequence=1),
    ).verdicts
    assert zero.code is ErrorCode.NONE
    refused = [(each.code, each.expected_sequence) for each in (unknown, gap, epoch)]
    assert refused == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, next) for next in (-1, 1, 0)]


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_with_zero() -> None:
    coordinator = Coordinator()
    answer = coordinator.commit(
        batch(producer=4, epoch=1, sequence=0),
        batch(producer=4, epoch=0, sequence=0),
        batch(producer=4, epoch=2, sequence=0),
        batch(producer=4, epoch=1, sequence=0),
    )
    fenced = ErrorCode.INVALID_PRODUCER_EPOCH
    assert codes(answer) == [ErrorCode.NONE, fenced, ErrorCode.NONE, fenced]


def test_a_refused_batch_parts_two_runs_and_a_bound_does() -> None:
    coordinator = Coordinator()
    half = MOST_RUN_BYTES // 2
    coordinator.commit(
        batch(),
        batch(),
        batch(producer=4, sequence=9),
        batch(size=half),
        batch(size=half),
        batch(size=half),
        batch(key=KEYS[1]),
        batch(key=NOWHERE),
        batch(key=KEYS[1]),
    )
    runs = [coordinator.tables.runs(key) for key in KEYS]
    assert [(run.base_offset, run.end_offset, run.byte_offset) for run in runs[0]] == [
        (0, 2, 0),
        (2, 4, 30),
        (4, 5, 30 + 2 * half),
    ]
    assert [run.end_offset for run in runs[1]] == [1, 2]


def test_batches_of_other_time_types_are_rows_of_their_own() -> None:
    coordinator = Coordinator()
    coordinator.commit(batch(), batch()._replace(timestamp_type=1), batch())
    assert [run.timestamp_type for run in coordinator.tables.runs(KEYS[0])] == [0, 1, 0]


def test_a_batch_without_records_is_refused_alone() -> None:
    answer = Coordinator().commit(batch(count=0), batch(size=0), batch())
    assert codes(answer) == [ErrorCode.INVALID_RECORD, ErrorCode.INVALID_RECORD, ErrorCode.NONE]


def test_only_its_own_broker_in_its_current_epoch_commits_an_object_in_time() -> None:
    row = ObjectRow(1, "key", ObjectState.PREPARED, 1, 7, 2000)
    commit = Commit(1, "key", 10, 1, 7, (batch(),))
    logs = {KEYS[0]: LogState(3, 9, 1)}

    def answer(
        changed: Commit = commit, found: ObjectRow | None = row, epoch: int = 7, now: int = 1999
    ) -> tuple[CommitState, ObjectState | None]:
        decided = decide(changed, found, epoch, logs, {}, now)
        assert bool(decided.runs) == bool(decided.logs) == (not decided.answer.why)
        return decided.answer.state, decided.object_state

    refused = CommitState.REFUSED
    assert answer() == (CommitState.COMMITTED, ObjectState.COMMITTED)
    assert answer(now=2000) == (refused, ObjectState.REFUSED)
    assert answer(epoch=8) == (refused, ObjectState.REFUSED)
    assert answer(commit._replace(broker_epoch=8), epoch=8) == (refused, None)
    assert answer(commit._replace(broker_id=2)) == (refused, None)
    assert answer(commit._replace(object_key="other")) == (refused, None)
    assert answer(found=None) == (refused, None)
    assert answer(found=row._replace(state=ObjectState.REFUSED)) == (refused, None)


def test_a_second_commit_of_an_object_gets_the_first_answer() -> None:
    said = (Verdict(ErrorCode.NONE, 4, 0),)
    row = ObjectRow(1, "key", ObjectState.COMMITTED, 1, 7, 2000, said)
    commit = Commit(1, "key", 10, 1, 7, (batch(),))
    decided = decide(commit, row, 7, {KEYS[0]: LogState(0, 9)}, {}, 5000)
    assert decided.answer == Committed(CommitState.COMMITTED, said)
    assert decided[1:] == (None, {}, {}, ())
