"""What must hold of diskless topics, by the checker's own account of commits and objects.

What: the checker hears of each call of the coordinator and of each put and deletion in the store.
At each commit it reads the object itself, and keeps what every offset holds. From then on: offsets
follow each other without hole or repeat; an object is committed once, whole, while its lease runs,
by the newest epoch of its broker; batches of an idempotent producer come in the order of their
sequence numbers, each once; a deleted topic stays deleted; a start never goes back, and moves only
where somebody asked for it; no object goes that a row points to, or that may still be committed, or
before the grace. Rule kept: nothing here asks the code that decides. Not here: what clients saw.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from anabranch.core.diskless.rows import (
    NO_PRODUCER,
    Batch,
    Change,
    Commit,
    CommitState,
    Committed,
    LogKey,
    Prepared,
    Run,
    Verdict,
)
from anabranch.core.errors import ErrorCode
from anabranch.core.remote.keys import place_of
from anabranch.core.wire.batch import read_header
from anabranch.core.wire.records import decode_records
from anabranch.sim.checks.violation import Violation
from anabranch.sim.clients.fetcher import written_as

if TYPE_CHECKING:
    from anabranch.core.types import TopicId
    from anabranch.sim.checks.marks import Marks
    from anabranch.sim.remotes import Remotes

SEQUENCES = 1 << 31


@dataclass(slots=True)
class TrueLog:
    """One partition as it truly is. `values`, `keys` and `has_value` are by offset; `runs`
    those that can be read."""

    start: int = 0
    told_high: int = 0
    values: list[bytes] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    has_value: list[bool] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Producer id -> its epoch, and the sequence number that is next."""
    offsets: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """Producer id, epoch, first sequence number -> first offset."""
    is_gone: bool = False

    @property
    def high(self) -> int:
        """The end of what is committed."""
        return len(self.values)

    def is_tombstone(self, offset: int) -> bool:
        """Whether the record at an offset deletes its key."""
        return self.keys[offset] is not None and not self.has_value[offset]

    def newest_before(self, offset: int, end: int) -> int:
        """The offset of the latest record, before an end, of the key of the one at an offset."""
        key = self.keys[offset]
        return next(at for at in range(end - 1, -1, -1) if self.keys[at] == key)


@dataclass(slots=True)
class TrueObject:
    """One object from its preparation on. `released_ms`: nothing points to it since then."""

    prepared: Prepared
    broker_id: int
    broker_epoch: int
    is_refused: bool = False
    answer: Committed | None = None
    runs: int = 0
    released_ms: int = -1


def violated(id: str, sentence: str, **details: Any) -> Violation:
    """What is to be raised."""
    return Violation(id, sentence, details)


class DisklessChecks:
    """See the module. `may_move` says whether a partition's start may move."""

    def __init__(
        self,
        remotes: Remotes,
        marks: Marks,
        grace_ms: int,
        may_move: Callable[[TopicId], bool],
    ) -> None:
        self.coordinator, self.store = remotes.coordinator, remotes.objects
        self.marks = marks
        self.grace_ms = grace_ms
        self.may_move = may_move
        self.logs: dict[LogKey, TrueLog] = {}
        self.objects: dict[str, TrueObject] = {}
        self.by_id: dict[int, TrueObject] = {}
        self.epochs: dict[int, int] = {}
        self.newest: dict[tuple[int, int], int] = {}
        """Broker and epoch -> the newest object that it committed."""
        self.living: Callable[[TopicId], bool] = lambda _topic_id: False
        """Whether the metadata have a topic."""
        self.sent: Counter[bytes] = Counter()
        """How often a record of a producer that is not idempotent was sent at most."""
        self.coordinator.on_called.append(self._called)
        self.coordinator.tables.listen(self._changed)
        self.store.on_delete.append(self._deleted)

    def _called(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        take = _CALLS.get(name)
        if take is not None:
            take(self, args, result)

    # Writers.

    def _registered(self, args: tuple[Any, ...], _result: None) -> None:
        broker_id, epoch = args
        self.epochs[broker_id] = max(epoch, self.epochs.get(broker_id, -1))

    def _prepared(self, args: tuple[Any, ...], result: list[Prepared]) -> None:
        broker_id, epoch, _, _ = args
        for prepared in result:
            if prepared.object_id in self.by_id:
                raise violated("D3", "An object's id was given twice.", object=prepared.object_id)
            found = TrueObject(prepared, broker_id, epoch)
            self.by_id[prepared.object_id] = self.objects[prepared.object_key] = found

    def _refused(self, args: tuple[Any, ...], _result: None) -> None:
        for object_id in args[0]:
            found = self.by_id[object_id]
            if found.answer is None:
                found.is_refused = True

    def _outcome(self, args: tuple[Any, ...], result: Committed) -> None:
        self.marks.hit("diskless-commit-asked")
        found = self.objects[args[0]]
        if result.state is CommitState.REFUSED and found.answer is None:
            found.is_refused = True
        elif result.state is CommitState.COMMITTED and found.answer is None:
            raise violated("D3", "An object that nobody committed is said to be.", key=args[0])

    def _marked(self, args: tuple[Any, ...], result: int) -> None:
        """Whose lease is over is refused for good, even when the clock goes back."""
        if result < args[0]:
            for found in self.by_id.values():
                if found.answer is None and found.prepared.expires_ms <= self.coordinator.now_ms:
                    found.is_refused = True

    # Commits.

    def _committed(self, args: tuple[Any, ...], result: Committed) -> None:
        commit: Commit = args[0]
        found = self.objects[commit.object_key]
        if result.state is not CommitState.COMMITTED:
            self.marks.hit("diskless-commit-refused")
            found.is_refused = found.is_refused or found.answer is None
            return
        if found.answer is not None:
            if result.verdicts not in (found.answer.verdicts, ()):
                raise violated("D3", "An object was committed twice.", key=commit.object_key)
            return
        self._may_commit(commit, found)
        found.answer = result
        data = self.store.objects[commit.object_key].data
        for place, (batch, verdict) in enumerate(zip(commit.batches, result.verdicts, strict=True)):
            if verdict.code is ErrorCode.NONE:
                self._take(batch, verdict, data)
                if place in commit.waited_for:
                    self.marks.hit("diskless-idle-producer")
        if not found.runs:
            found.released_ms = self.coordinator.now_ms
        for key in {batch.key for batch in commit.batches}:
            log = self.logs.get(key)
            if log is not None and log.told_high != log.high:
                raise violated("D1", "A partition's end is not that of its batches.", key=key)

    def _may_commit(self, commit: Commit, found: TrueObject) -> None:
        key = commit.object_key
        stored = self.store.objects.get(key)
        if stored is None or len(stored.data) != commit.byte_size:
            raise violated("D2", "An object was committed that is not stored whole.", key=key)
        if found.is_refused or found.prepared.expires_ms <= self.coordinator.now_ms:
            raise violated("D3", "An object was committed after its lease.", key=key)
        newest = self.epochs.get(commit.broker_id, -1)
        if not commit.broker_epoch == found.broker_epoch == newest:
            raise violated("D4", "An older epoch of a broker committed.", key=key, newest=newest)
        writer = (commit.broker_id, commit.broker_epoch)
        if commit.object_id < self.newest.get(writer, -1):
            raise violated("D5", "An object of a broker overtook another one.", key=key)
        self.newest[writer] = commit.object_id

    def _take(self, batch: Batch, verdict: Verdict, data: bytes) -> None:
        log = self.logs.get(batch.key)
        if log is None or log.is_gone:
            raise violated("D6", "A batch was committed to a topic that is gone.", key=batch.key)
        known = (batch.producer_id, batch.producer_epoch, batch.base_sequence)
        if verdict.is_duplicate:
            self.marks.hit("diskless-duplicate")
            if log.offsets.get(known) != verdict.base_offset:
                raise violated("D5", "A batch is no duplicate and is taken for one.", key=batch.key)
            return
        if verdict.base_offset != log.high:
            raise violated("D1", "Offsets have a hole or a repeat.", at=verdict.base_offset)
        if batch.producer_id != NO_PRODUCER:
            self._in_order(log, batch)
            log.offsets[known] = log.high
        part = data[batch.byte_offset : batch.byte_offset + batch.byte_size]
        records = decode_records(part, 0)
        if read_header(part, 0).size_bytes != len(part) or len(records) != batch.record_count:
            raise violated("D2", "A row does not point to its batch.", key=batch.key)
        values = [written_as(record) for record in records]
        log.values += values
        log.keys += [record.key for record in records]
        log.has_value += [record.value is not None for record in records]
        if batch.producer_id == NO_PRODUCER:
            for value in values:
                self.sent[value] -= 1
                if self.sent[value] < 0:
                    raise violated("D5", "A batch was committed more often than it was sent.")

    def _in_order(self, log: TrueLog, batch: Batch) -> None:
        epoch, following = log.producers.get(batch.producer_id, (-1, 0))
        if batch.producer_epoch > epoch:
            following = 0
        if batch.producer_epoch < epoch or batch.base_sequence != following:
            raise violated(
                "D5", "A producer's batch is out of order.", key=batch.key,
                wanted=following, got=batch.base_sequence, producer=batch.producer_id,
            )  # fmt: skip
        following = (batch.last_sequence + 1) % SEQUENCES
        log.producers[batch.producer_id] = (batch.producer_epoch, following)

    # What the coordinator tells.

    def _changed(self, changes: list[Change]) -> None:
        for change in changes:
            log = self.logs.get(change.key)
            if log is None:
                log = self.logs[change.key] = TrueLog()
            elif log.is_gone:
                raise violated("D6", "A deleted topic is there again.", key=change.key)
            if change.state is None:
                if self.living(change.key.topic_id):
                    raise violated("D6", "The rows of a topic went that exists.", key=change.key)
                log.is_gone = True
                self._release(log, lambda _run: True)
                continue
            self._moved(log, change)

    def _moved(self, log: TrueLog, change: Change) -> None:
        state = change.state
        assert state is not None
        if state.start_offset < log.start or state.high_watermark < log.told_high:
            raise violated("D1", "A partition went back.", key=change.key, state=state)
        if state.start_offset > state.high_watermark:
            raise violated("D1", "A partition begins after its end.", key=change.key)
        if state.start_offset > log.start and not self.may_move(change.key.topic_id):
            raise violated("D6", "Records went that nobody wanted to go.", key=change.key)
        for run in change.runs:
            end = log.runs[-1].end_offset if log.runs else log.told_high
            if run.base_offset != end:
                raise violated("D1", "Runs have a hole or a repeat.", key=change.key, run=run)
            log.runs.append(run)
            log.told_high = run.end_offset
            self.objects[run.object_key].runs += 1
        log.start, log.told_high = state.start_offset, state.high_watermark
        gone = max(log.start, state.tiered_end)
        self._release(log, lambda run: run.end_offset <= gone)

    def _release(self, log: TrueLog, goes: Callable[[Run], bool]) -> None:
        gone = [run for run in log.runs if goes(run)]
        if gone:
            log.runs = [run for run in log.runs if not goes(run)]
        for run in gone:
            found = self.objects[run.object_key]
            found.runs -= 1
            if not found.runs:
                found.released_ms = self.coordinator.now_ms

    # The store.

    def _deleted(self, key: str) -> None:
        if place_of(key) is not None:
            return  # of a segment: see `tiering.py`
        found, now_ms = self.objects.get(key), self.coordinator.now_ms
        if found is None:
            raise violated("D7", "An object was deleted that nobody prepared.", key=key)
        if found.runs:
            raise violated("D7", "An object was deleted that a row points to.", key=key)
        if found.answer is not None:
            if found.released_ms + self.grace_ms > now_ms:
                raise violated("D7", "An object was deleted before its grace was over.", key=key)
        elif not found.is_refused and found.prepared.expires_ms > now_ms:
            raise violated("D7", "An object was deleted that may be committed.", key=key)
        else:
            self.marks.hit("diskless-orphan-collected")

    def orphans(self) -> list[str]:
        """Objects that nothing points to."""
        own = (key for key in self.store.objects if place_of(key) is None)
        return [key for key in own if not self.objects[key].runs]


_CALLS: dict[str, Callable[[DisklessChecks, tuple[Any, ...], Any], None]] = {
    "register": DisklessChecks._registered,
    "prepare": DisklessChecks._prepared,
    "refuse": DisklessChecks._refused,
    "outcome": DisklessChecks._outcome,
    "commit": DisklessChecks._committed,
    "mark_expired": DisklessChecks._marked,
}
