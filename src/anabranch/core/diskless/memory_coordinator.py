"""The batch coordinator in memory: for the simulator and for tests.

What: the calls of `coordinator.py`, synchronous, with a clock that is handed in; each call is one
transaction. Why: the simulator needs one that fails when it says so, and the suite that runs on
every coordinator has here its simplest reading. `listen` takes a function that gets the changes of
each call as it ends. Not here: durability, waiting.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from anabranch.core.diskless.commit import (
    Decided,
    ObjectRow,
    ObjectState,
    Producer,
    ProducerKey,
    decide,
    is_uncommitted,
    outcome,
    producer_keys,
)
from anabranch.core.diskless.contents import NOT_EMPTY, Contents
from anabranch.core.diskless.coordinator import Deposed
from anabranch.core.diskless.expired_runs import Oldest, outlived
from anabranch.core.diskless.keys import object_key
from anabranch.core.diskless.rows import (
    MOST_RUNS_DROPPED,
    MOST_RUNS_FOUND,
    NO_PRODUCER,
    VERDICTS_KEPT_MS,
    Change,
    Commit,
    CommitState,
    Committed,
    Found,
    LogKey,
    LogState,
    NewLogs,
    Prepared,
    Run,
    Verdict,
    Wanted,
)
from anabranch.core.errors import StorageFault
from anabranch.core.types import TopicId

ALL = 1 << 62
Listener = Callable[[list[Change]], None]


@dataclass(slots=True)
class _Object:
    """An object's row; `live_runs` are counted, so that the last one to go makes it garbage."""

    object_id: int
    key: str
    broker_id: int
    broker_epoch: int
    expires_ms: int
    state: ObjectState = ObjectState.PREPARED
    verdicts: tuple[Verdict, ...] = ()
    committed_ms: int = -1
    marked_ms: int = -1
    live_runs: int = 0

    def row(self) -> ObjectRow:
        """As the decision takes it."""
        return ObjectRow(
            self.object_id,
            self.key,
            self.state,
            self.broker_id,
            self.broker_epoch,
            self.expires_ms,
            self.verdicts,
        )


@dataclass(slots=True)
class _Log:
    """A partition: its row, its runs in order, its producers and when they last wrote, and the
    greatest id of one that it may have forgotten."""

    state: LogState
    topic: str
    runs: list[Run] = field(default_factory=list)
    producers: dict[int, tuple[Producer, int]] = field(default_factory=dict)
    forgotten: int = NO_PRODUCER


class MemoryCoordinator:
    """All tables. `clock` gives milliseconds since 1970."""

    def __init__(self, cluster_id: str, clock: Callable[[], int], *, mark: str = "memory") -> None:
        self._cluster_id, self._mark, self._clock = cluster_id, mark, clock
        self._controller_epoch = -1
        self._brokers: dict[int, int] = {}
        self._logs: dict[LogKey, _Log] = {}
        self._deleted: set[TopicId] = set()
        self._former: dict[str, int] = {}
        """Name of a deleted topic -> the greatest producer id that it knew, or had forgotten."""
        self._swept: list[Run] = []
        """Runs of deleted topics, dropped in bounded steps."""
        self._objects: dict[int, _Object] = {}
        self._by_key: dict[str, int] = {}
        self._next_id = 1
        self._store = ""
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Have a function called with the changes of each call; gives what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # The active controller.

    def take_control(self, controller_epoch: int) -> None:
        """See `Coordinator.take_control`."""
        if controller_epoch < self._controller_epoch:
            raise _deposed("controller", controller_epoch, self._controller_epoch)
        self._controller_epoch = controller_epoch

    def topics(self, after: TopicId, limit: int) -> list[tuple[TopicId, int]]:
        """See `Coordinator.topics`."""
        counts: dict[TopicId, int] = {}
        for key in self._logs:
            if key.topic_id > after:
                counts[key.topic_id] = counts.get(key.topic_id, 0) + 1
        return sorted(counts.items())[:limit]

    def create_logs(self, controller_epoch: int, new: Sequence[NewLogs]) -> None:
        """See `Coordinator.create_logs`."""
        self._check_controller(controller_epoch)
        changes = []
        for topic_id, topic, _, end in new:
            forgotten = self._former.get(topic, NO_PRODUCER)
            for key in (LogKey(topic_id, partition) for partition in range(end)):
                if topic_id not in self._deleted and key not in self._logs:
                    self._logs[key] = _Log(LogState(0, 0), topic, forgotten=forgotten)
                    changes.append(Change(key, LogState(0, 0)))
        self._tell(changes)

    def delete_topics(self, controller_epoch: int, topic_ids: Sequence[TopicId]) -> None:
        """See `Coordinator.delete_topics`."""
        self._check_controller(controller_epoch)
        self._deleted.update(topic_ids)
        gone = sorted(key for key in self._logs if key.topic_id in set(topic_ids))
        for key in gone:
            log = self._logs.pop(key)
            former = self._former.get(log.topic, NO_PRODUCER)
            self._former[log.topic] = max(former, log.forgotten, *log.producers, NO_PRODUCER)
            self._swept += log.runs
        self._tell([Change(key, None) for key in gone])

    # Brokers: writing.

    def register(self, broker_id: int, broker_epoch: int) -> None:
        """See `Coordinator.register`."""
        newest = self._brokers.get(broker_id, -1)
        if broker_epoch < newest:
            raise _deposed(f"broker {broker_id}", broker_epoch, newest)
        self._brokers[broker_id] = broker_epoch

    def prepare(
        self, broker_id: int, broker_epoch: int, count: int, lease_ms: int
    ) -> list[Prepared]:
        """See `Coordinator.prepare`."""
        newest = self._brokers.get(broker_id, -1)
        if broker_epoch != newest:
            raise _deposed(f"broker {broker_id}", broker_epoch, newest)
        expires_ms = self._clock() + lease_ms
        prepared = []
        for object_id in range(self._next_id, self._next_id + count):
            key = object_key(self._cluster_id, self._mark, object_id)
            self._objects[object_id] = _Object(object_id, key, broker_id, broker_epoch, expires_ms)
            self._by_key[key] = object_id
            prepared.append(Prepared(object_id, key, expires_ms, lease_ms))
        self._next_id += count
        return prepared

    def commit(self, commit: Commit) -> Committed:
        """See `Coordinator.commit`."""
        keys = sorted({batch.key for batch in commit.batches})
        logs = {key: self._logs[key].state for key in keys if key in self._logs}
        producers = {
            each: self._logs[each.key].producers[each.producer_id][0]
            for each in producer_keys(commit.batches)
            if each.key in logs and each.producer_id in self._logs[each.key].producers
        }
        found = self._objects.get(commit.object_id)
        epoch = self._brokers.get(commit.broker_id)
        row = None if found is None else found.row()
        forgotten = {key: self._logs[key].forgotten for key in logs}
        decided = decide(commit, row, epoch, logs, producers, self._clock(), forgotten)
        if found is not None:
            self._write(found, decided)
        return decided.answer

    def outcome(self, object_key: str) -> Committed:
        """See `Coordinator.outcome`."""
        found = self._object(object_key)
        decided = outcome(None if found is None else found.row(), self._clock())
        if found is not None:
            self._write(found, decided)
        return decided.answer

    def refuse(self, object_ids: Sequence[int]) -> None:
        """See `Coordinator.refuse`."""
        for object_id in object_ids:
            found = self._objects.get(object_id)
            if found is not None and found.state is ObjectState.PREPARED:
                self._become(found, ObjectState.REFUSED)

    # Brokers: reading.

    def states(self, keys: Sequence[LogKey]) -> list[LogState | None]:
        """See `Coordinator.states`."""
        logs = (self._logs.get(key) for key in keys)
        return [None if log is None else log.state for log in logs]

    def find(self, wanted: Sequence[Wanted]) -> list[Found]:
        """See `Coordinator.find`."""
        return [self._find(each) for each in wanted]

    def by_time(self, key: LogKey, timestamp: int, first: int = 0) -> Run | None:
        """See `Coordinator.by_time`."""
        return self.some_by_time(key, timestamp, first, ALL)[0]

    def newest(self, key: LogKey) -> Run | None:
        """See `Coordinator.newest`."""
        return self.some_newest(key, 0, ALL)[0]

    def some_by_time(
        self, key: LogKey, timestamp: int, first: int, most_runs: int
    ) -> tuple[Run | None, int | None]:
        """The first run that is not older, among some from an offset on; where others begin."""
        some, beyond = self._runs(key, first, most_runs)
        return next((run for run in some if run.max_timestamp >= timestamp), None), beyond

    def some_newest(self, key: LogKey, first: int, most_runs: int) -> tuple[Run | None, int | None]:
        """The first run of the greatest timestamp, among some from an offset on; where others
        begin."""
        some, beyond = self._runs(key, first, most_runs)
        return max(some, key=lambda run: run.max_timestamp, default=None), beyond

    # Shortening.

    def delete_before(self, wanted: Iterable[tuple[LogKey, int]]) -> list[LogState | None]:
        """See `Coordinator.delete_before`."""
        states: list[LogState | None] = []
        changes = []
        asked = list(wanted)
        for key, offset in asked:
            log = self._logs.get(key)
            if log is not None and self._raise_start(log, offset):
                self._drop_below_start(log, MOST_RUNS_DROPPED // len(asked))
                changes.append(Change(key, log.state))
            states.append(None if log is None else log.state)
        self._tell(changes)
        return states

    def expire(
        self, key: LogKey, *, older_than_ms: int, most_bytes: int, most_runs: int
    ) -> tuple[LogState | None, int]:
        """See `Coordinator.expire`."""
        log = self._logs.get(key)
        if log is None:
            return None, 0
        dropped = self._drop_below_start(log, most_runs)
        oldest = [
            Oldest(run.end_offset, run.byte_size, run.max_timestamp, self._committed_ms(run))
            for run in log.runs[: most_runs - dropped]
        ]
        start_offset = outlived(oldest, log.state.byte_size, older_than_ms, most_bytes)
        if self._raise_start(log, start_offset):
            dropped += self._drop_below_start(log, most_runs - dropped)
            self._tell([Change(key, log.state)])
        return log.state, dropped

    # Garbage.

    def mark_expired(self, limit: int) -> int:
        """See `Coordinator.mark_expired`."""
        now_ms, done = self._clock(), 0
        for found in list(self._objects.values()):
            if done == limit:
                return done
            if found.state is ObjectState.PREPARED and now_ms >= found.expires_ms:
                self._become(found, ObjectState.REFUSED)
                done += 1
            elif found.committed_ms >= 0 and now_ms >= found.committed_ms + VERDICTS_KEPT_MS:
                done += self._forget_outcome(found)
        swept, self._swept = self._swept[: limit - done], self._swept[limit - done :]
        self._release(swept)
        return done + len(swept)

    def forget_producers(self, idle_ms: int, limit: int) -> int:
        """See `Coordinator.forget_producers`."""
        until_ms = self._clock() - idle_ms
        idle = [
            (log, producer_id)
            for log in self._logs.values()
            for producer_id, (_, written_ms) in log.producers.items()
            if written_ms <= until_ms
        ][:limit]
        for log, producer_id in idle:
            del log.producers[producer_id]
            log.forgotten = max(log.forgotten, producer_id)
        return len(idle)

    def set_back(self, each: ProducerKey, by_ms: int) -> None:
        """For the simulator: a producer, if it is known, wrote last so much earlier."""
        log = self._logs.get(each.key)
        if log is not None and each.producer_id in log.producers:
            producer, written_ms = log.producers[each.producer_id]
            log.producers[each.producer_id] = (producer, written_ms - by_ms)

    def to_delete(self, grace_ms: int, limit: int) -> list[tuple[int, str]]:
        """See `Coordinator.to_delete`."""
        until_ms = self._clock() - grace_ms
        waiting = (ObjectState.REFUSED, ObjectState.UNUSED)
        return [
            (each.object_id, each.key)
            for each in self._objects.values()
            if each.state in waiting and each.marked_ms <= until_ms
        ][:limit]

    def count_to_delete(self, grace_ms: int, limit: int) -> int:
        """See `Coordinator.count_to_delete`."""
        return len(self.to_delete(grace_ms, limit))

    def deleted(self, object_ids: Sequence[int]) -> None:
        """See `Coordinator.deleted`."""
        for object_id in object_ids:
            found = self._objects.get(object_id)
            if found is None or found.state not in (ObjectState.REFUSED, ObjectState.UNUSED):
                continue
            if found.committed_ms < 0 or not found.verdicts:
                self._forget(found)
            else:
                found.state = ObjectState.GONE

    def unknown(self, object_keys: Sequence[str]) -> list[str]:
        """See `Coordinator.unknown`."""
        found = ((key, self._object(key)) for key in object_keys)
        return [key for key, each in found if each is None or each.state is ObjectState.GONE]

    def uncommitted(self, object_ids: Sequence[int]) -> list[int]:
        """See `Coordinator.uncommitted`."""
        found = ((number, self._objects.get(number)) for number in sorted(object_ids))
        return [
            number
            for number, each in found
            if is_uncommitted(number, None if each is None else each.state, self.last_id())
        ]

    def last_id(self) -> int:
        """See `Coordinator.last_id`."""
        return self._next_id - 1

    # For restoring.

    def store(self, store_id: str) -> str:
        """See `Coordinator.store`."""
        self._store = self._store or store_id
        return self._store

    def mark(self) -> str:
        """See `Coordinator.mark`."""
        return self._mark

    def load(self, contents: Contents) -> None:
        """See `Coordinator.load`."""
        if self._logs or self._objects:
            raise StorageFault(NOT_EMPTY.format(self._mark))
        now_ms = self._clock()
        for log in contents.logs:
            self._logs[log.key] = _Log(log.state, log.topic)
        for run in contents.runs:
            self._logs[run.key].runs.append(run)
        for each, producer in contents.producers:
            self._logs[each.key].producers[each.producer_id] = (producer, now_ms)
        for held in contents.objects:
            row = _Object(
                held.object_id, held.object_key, held.broker_id, held.broker_epoch, now_ms
            )
            row.committed_ms, row.live_runs = now_ms, held.live_runs
            self._become(row, held.state)
            self._objects[held.object_id], self._by_key[held.object_key] = row, held.object_id
        self._next_id = contents.last_object_id + 1

    # What the calls share.

    def _check_controller(self, epoch: int) -> None:
        if epoch != self._controller_epoch:
            raise _deposed("controller", epoch, self._controller_epoch)

    def _object(self, key: str) -> _Object | None:
        object_id = self._by_key.get(key)
        return None if object_id is None else self._objects[object_id]

    def _tell(self, changes: list[Change]) -> None:
        if changes:
            for listener in tuple(self._listeners):
                listener(changes)

    def _write(self, found: _Object, decided: Decided) -> None:
        now_ms = self._clock()
        if decided.answer.state is CommitState.COMMITTED and decided.object_state is not None:
            found.verdicts, found.committed_ms = decided.answer.verdicts, now_ms
            found.live_runs = len(decided.runs)
        if decided.object_state is not None:
            self._become(found, decided.object_state)
        for each, producer in decided.producers.items():
            self._logs[each.key].producers[each.producer_id] = (producer, now_ms)
        runs: dict[LogKey, list[Run]] = {key: [] for key in decided.logs}
        for run in decided.runs:
            runs[run.key].append(run)
        for key, state in decided.logs.items():
            self._logs[key].state = state
            self._logs[key].runs += runs[key]
        self._tell([Change(key, decided.logs[key], tuple(runs[key])) for key in sorted(runs)])

    def _become(self, found: _Object, state: ObjectState) -> None:
        found.state = state
        if state in (ObjectState.REFUSED, ObjectState.UNUSED):
            found.marked_ms = self._clock()

    def _runs(self, key: LogKey, first: int, most: int) -> tuple[list[Run], int | None]:
        log = self._logs.get(key)
        if log is None:
            return [], None
        place = bisect_left(log.runs, first, key=lambda run: run.base_offset)
        beyond = log.runs[place + most : place + most + 1]
        some = [
            run for run in log.runs[place : place + most] if run.end_offset > log.state.start_offset
        ]
        return some, beyond[0].base_offset if beyond else None

    def _find(self, wanted: Wanted) -> Found:
        log = self._logs.get(wanted.key)
        if log is None:
            return Found(wanted.key, None)
        offset = wanted.offset
        if not log.state.start_offset <= offset < log.state.high_watermark:
            return Found(wanted.key, log.state)
        first = bisect_right(log.runs, offset, key=lambda run: run.end_offset)
        runs: list[Run] = []
        size = 0
        for run in log.runs[first : first + MOST_RUNS_FOUND]:
            size += run.byte_size
            if runs and size > wanted.max_bytes:
                break
            runs.append(run)
        return Found(wanted.key, log.state, tuple(runs))

    def _committed_ms(self, run: Run) -> int:
        return self._objects[run.object_id].committed_ms

    def _raise_start(self, log: _Log, offset: int) -> bool:
        start_offset = min(offset, log.state.high_watermark)
        if start_offset <= log.state.start_offset:
            return False
        log.state = log.state._replace(start_offset=start_offset)
        return True

    def _drop_below_start(self, log: _Log, limit: int) -> int:
        dropped = [
            run for run in log.runs[: max(limit, 0)] if run.end_offset <= log.state.start_offset
        ]
        log.runs = log.runs[len(dropped) :]
        size = log.state.byte_size - sum(run.byte_size for run in dropped)
        log.state = log.state._replace(byte_size=size)
        self._release(dropped)
        return len(dropped)

    def _release(self, dropped: list[Run]) -> None:
        for run in dropped:
            found = self._objects[run.object_id]
            found.live_runs -= 1
            if not found.live_runs:
                self._become(found, ObjectState.UNUSED)

    def _forget_outcome(self, found: _Object) -> int:
        if found.state is ObjectState.GONE:
            self._forget(found)
            return 1
        had, found.verdicts = bool(found.verdicts), ()
        return int(had)

    def _forget(self, found: _Object) -> None:
        del self._objects[found.object_id], self._by_key[found.key]


def _deposed(who: str, epoch: int, newest: int) -> Deposed:
    return Deposed(f"{who} calls with epoch {epoch}, the coordinator knows {newest}")
