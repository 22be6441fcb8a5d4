"""Keeping diskless partitions as the racks want them: what a controller does for it by the clock.

What: every so often it counts how long brokers are unreachable (`absence.py`), sees which racks
have changed (`racks.py`), and makes the next steps of partitions that are not as they should be
(`reconciliation.py`), at most `diskless.managed.rf.max.moves.per.sec` of them a second. With
`diskless.managed.rf.auto.reconcile` off it makes none, and says so; only a partition of which no
replica lives still gets a living one in its racks, since no client could use it.

Why a list of partitions to look at, and not a look at all of them: a broker that dies concerns what
it had, and nothing concerns a million partitions but a rack that comes or goes. Rules kept: every
partition is looked at once when a term begins, so that what older versions wrote comes right; after
that only what has changed, what waits, and what a changed broker or rack concerns. Its pace is its
own: classic moves have theirs, and are asked first. It goes quiet: a step's result is looked at
again, and has no further step in the end.

Source: decision 0059.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from operator import is_
from typing import TYPE_CHECKING

from anabranch.core.controller.brokers.sessions import AFTER_A_HIT_MS
from anabranch.core.controller.diskless.absence import Absences, forgotten
from anabranch.core.controller.diskless.leaders import change_diskless
from anabranch.core.controller.diskless.racks import HEALTHY, UNAVAILABLE, Rack, Racks
from anabranch.core.controller.diskless.reasons import (
    absence_reasons,
    frozen_reason,
    rack_reasons,
    summary,
    was_repaired,
    was_stepped,
)
from anabranch.core.controller.diskless.reconciliation import (
    Row,
    Step,
    Wish,
    next_step,
    rescue,
    wish,
)
from anabranch.core.controller.history import MOST_A_DECISION
from anabranch.core.controller.result import Reason, Result
from anabranch.core.types import NEVER_MS
from anabranch.core.wire.metadata_records import MetadataRecord, NoOpRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

    from anabranch.core.controller.cluster_state import ClusterState, PartitionKey
    from anabranch.core.metadata.image import PartitionImage
    from anabranch.core.settings.broker import BrokerConfig
    from anabranch.core.wire.metadata_records import BrokerAbsence, PartitionChangeRecord

IDLE_MS, BUSY_MS = 500, 50
"""Between two looks, when nothing is to be done and while something is."""
MOST_LOOKED = 1_000
"""Partitions after which a look ends: some 10 ms."""
LEAST_MOVED, MOST_MOVED = 30, 1_000
"""Steps in one batch of records, by the pace: at the default one a batch takes some milliseconds of
the controller, and of each node that follows. The next one comes AFTER_A_HIT_MS later; clients have
their turn in between."""
BATCH_SHARE = 80
"""Percent of what the pace allows in AFTER_A_HIT_MS that is one batch. With 120 batches kept the
pace, although timers ring a little late; but where three nodes share two processors, one record of
ten then took three times as long as in quiet, and takes twice as long now. 100,000 moves take 26 s
instead of 21."""
MOST_LATE = 120
"""Percent of a look's worth that may be owed: timers ring a little late."""
REST = 4
"""How many times as long as a batch of moves took the pause behind it is, at least: moves take a
fifth of a busy controller's time."""
MOST_ALIKE = 10_000
"""Lists of replicas whose wishes are kept: partitions on the same brokers want the same."""
MOST_SAID = MOST_A_DECISION - 1
"""Steps of one batch that are told of one by one, beside its summary: no more are kept."""
MOST_SAID_OF_MANY = 3
"""The same where more batches follow: a rack that comes may change thousands of partitions a
second, each a line in the log."""
NOTHING_FROZEN = 0, 0
"""Partitions that are not changed while auto-reconcile is off, and those without a leader."""


def batch_of(moves_per_sec: int) -> int:
    """Steps in one batch of records, so that batches one after the other keep the pace."""
    moves = moves_per_sec * AFTER_A_HIT_MS * BATCH_SHARE // 100_000
    return min(max(moves, LEAST_MOVED), MOST_MOVED)


class Pace:
    """How many steps may be made now: never much more than one look's worth at once. A controller
    that comes late to its looks has other work, and makes fewer steps instead of larger ones."""

    def __init__(self, now_ms: int) -> None:
        self._since_ms = now_ms
        self._thousandths = 0

    def allowed(self, moves_per_sec: int, now_ms: int) -> int:
        """The steps that are left after the time that has passed."""
        self._thousandths += moves_per_sec * max(now_ms - self._since_ms, 0)
        self._since_ms = now_ms
        most = max(1000, moves_per_sec * BUSY_MS * MOST_LATE // 100)
        self._thousandths = min(self._thousandths, most)
        return min(self._thousandths // 1000, batch_of(moves_per_sec))

    def spend(self, moves: int) -> None:
        """So many were made."""
        self._thousandths -= 1000 * moves


class ReconcilerDuty:
    """What is to be looked at, and when next, on the steady clock. One a controller term."""

    def __init__(self, now_ms: int) -> None:
        self.due_ms = now_ms + IDLE_MS
        self._moved_ms = NEVER_MS
        """When the last batch of moves was decided, until the controller has asked again."""
        self.racks: Racks | None = None
        """The racks as of the last look."""
        self.todo: dict[PartitionKey, None] = {}
        """Partitions to be looked at."""
        self.unsteady: dict[PartitionKey, bool] = {}
        """Partitions that were not as they should be, or wait for a rack to have capacity, and
        whether a step is left to make."""
        self._wishes: dict[tuple[Row, int], Wish] = {}
        """By replicas and leader, for the racks as they are."""
        self._absences = Absences(now_ms)
        self._pace = Pace(now_ms)
        self._seen: tuple[object, ...] = ()
        self._swept: set[str] = set()
        """Racks that every partition was looked at for since they came."""
        self._reconciles = True
        self._said_frozen = NOTHING_FROZEN
        self._degraded_at_ms: dict[str, int] = {}
        """Since when racks are seen without capacity in this term."""

    @property
    def backlog(self) -> int:
        """Partitions that are still to be looked at or changed."""
        pending = sum(1 for key, moves in self.unsteady.items() if moves and key not in self.todo)
        return len(self.todo) + pending

    def degraded_ms(self, rack: Rack, now_ms: int) -> int:
        """How long a rack is known to have been without capacity."""
        since_ms = self._degraded_at_ms.get(rack.name, now_ms)
        return max(now_ms - since_ms, min(map(self.elapsed_ms, rack.brokers)))

    def elapsed_ms(self, broker_id: int) -> int:
        """How long a broker is known to have been unreachable."""
        return self._absences.elapsed_ms(broker_id)

    def due(
        self, state: ClusterState, config: BrokerConfig, now_ms: int, *, hears: bool
    ) -> Result[None] | None:
        """What is to be written down now. `hears` says whether the controller hears any broker."""
        self._rest(now_ms)
        if now_ms < self.due_ms:
            return None
        absences, reasons = self._counted(state, config, now_ms, hears=hears)
        result = None
        if state.diskless.keys:
            reasons += self._followed(state, config, now_ms)
            if not absences and not reasons:
                result = self._stepped(state, config, now_ms)
        if absences or reasons:
            result = Result((NoOpRecord(absences=absences),), None, tuple(reasons))
        elif result is not None:
            self._moved_ms = now_ms
        most = batch_of(config.diskless_managed_rf_max_moves_per_sec)
        is_full = result is not None and len(result.records) >= most
        if result is not None and is_full:
            result = replace(result, more_follow=True)
        self.due_ms = now_ms + self._pause_ms(state, is_full=is_full)
        return result

    def _pause_ms(self, state: ClusterState, *, is_full: bool) -> int:
        """Until the next look: a batch that is full is followed by the next one."""
        if is_full:
            return AFTER_A_HIT_MS
        return BUSY_MS if self.todo or state.diskless.touched else IDLE_MS

    # Time.

    def _rest(self, now_ms: int) -> None:
        """Pause for longer than the last batch of moves took, which is over when the controller
        asks again: on a busy machine clients would else wait for one batch after the other."""
        moved_ms, self._moved_ms = self._moved_ms, NEVER_MS
        if moved_ms != NEVER_MS:
            ended_ms = now_ms - AFTER_A_HIT_MS
            pause_ms = min(REST * max(0, ended_ms - moved_ms), IDLE_MS)
            self.due_ms = max(self.due_ms, ended_ms + pause_ms)

    def _counted(
        self, state: ClusterState, config: BrokerConfig, now_ms: int, *, hears: bool
    ) -> tuple[list[BrokerAbsence], list[Reason]]:
        """How long brokers have been unreachable, where that is to be written down."""
        image, index = state.image, state.diskless
        named = [broker_id for broker_id, keys in index.on.items() if keys]
        found = forgotten(image, named)
        threshold_ms = config.diskless_managed_rf_rack_unavailable_threshold_ms
        if index.keys:
            found += self._absences.look(image, now_ms, threshold_ms, counts=hears)
        return list(found), list(absence_reasons(state, found, threshold_ms))

    # What is to be looked at.

    def _followed(self, state: ClusterState, config: BrokerConfig, now_ms: int) -> list[Reason]:
        """Take changes of racks and settings over; what is said of them."""
        if config.diskless_managed_rf_auto_reconcile != self._reconciles:
            self._reconciles = config.diskless_managed_rf_auto_reconcile
            self._queue(list(self.unsteady))
        image = state.image
        seen = image.brokers, image.absences, image.configs
        if self._seen and all(map(is_, seen, self._seen)):
            return []
        self._seen = seen
        before, self.racks = self.racks, Racks(image)
        self._wishes.clear()
        self._degraded_at_ms = {
            name: self._degraded_at_ms.get(name, now_ms)
            for name, rack in self.racks.by_name.items()
            if not rack.eligible
        }
        if before is None:
            self._queue(state.diskless.keys)
            self._swept = set(self.racks.target)
            return []
        if self.racks.is_as(before):
            return []
        self._queue(self._concerned(state, before, self.racks))
        return list(rack_reasons(before, self.racks))

    def _concerned(
        self, state: ClusterState, before: Racks, after: Racks
    ) -> Iterable[PartitionKey]:
        """The partitions that may have to change since the racks did."""
        there = {name for name in after.target if after.by_name[name].state is HEALTHY}
        is_new = not there <= self._swept
        self._swept = (self._swept & set(after.target)) | there
        if is_new:
            return state.diskless.keys
        found = dict.fromkeys(self.unsteady)
        found.update((key, None) for key in state.leaderless if key in state.diskless.keys)
        for broker_id in sorted(before.rack_of.keys() | after.rack_of.keys()):
            if _loses(broker_id, before, after):
                found.update(state.diskless.on.get(broker_id, {}))
        return found

    def _queue(self, keys: Iterable[PartitionKey]) -> None:
        self.todo.update(dict.fromkeys(keys))

    # Steps.

    def _stepped(
        self, state: ClusterState, config: BrokerConfig, now_ms: int
    ) -> Result[None] | None:
        """Look at partitions, and make the steps that the pace allows."""
        assert self.racks is not None  # followed a moment ago
        self._queue(state.diskless.take_touched())
        if not self.todo:
            return None
        pace = config.diskless_managed_rf_max_moves_per_sec
        if len(self._wishes) >= MOST_ALIKE:
            self._wishes.clear()
        allowed = self._pace.allowed(pace, now_ms)
        most_said = MOST_SAID if len(self.todo) <= LEAST_MOVED else MOST_SAID_OF_MANY
        look = _Look(state, self.racks, self._wishes, allowed, most_said, self._reconciles)
        for _ in range(min(MOST_LOOKED, len(self.todo))):
            key, _ = self.todo.popitem()
            moves = look.at(key)
            if look.is_full:
                self.todo[key] = None
                break
            if moves is None:
                self.unsteady.pop(key, None)
            else:
                self.unsteady[key] = moves
        self._pace.spend(len(look.records))
        return look.result() or self._frozen(state)

    def _frozen(self, state: ClusterState) -> Result[None] | None:
        """Say that nothing is done, when that has changed."""
        if self.todo:
            return None
        frozen, unled = 0, 0
        if not self._reconciles:
            frozen = sum(self.unsteady.values())
            unled = sum(1 for key in state.leaderless if key in state.diskless.keys)
        was, self._said_frozen = self._said_frozen, (frozen, unled)
        if self._said_frozen in (NOTHING_FROZEN, was):
            return None
        return Result((NoOpRecord(),), None, (frozen_reason(frozen, unled),))


def _loses(broker_id: int, before: Racks, after: Racks) -> bool:
    """Whether what a broker has may have to go elsewhere, since it is gone, or its rack is not what
    it was."""
    if before.rack_of.get(broker_id) != after.rack_of.get(broker_id):
        return True
    if broker_id in after.gone - before.gone:
        return True
    return after.state(broker_id) is UNAVAILABLE is not before.state(broker_id)


class _Look:
    """One look at some partitions: what it changes, and what brokers carry after that."""

    def __init__(
        self,
        state: ClusterState,
        racks: Racks,
        wishes: dict[tuple[Row, int], Wish],
        allowed: int,
        most_said: int,
        reconciles: bool,
    ) -> None:
        self.records: list[MetadataRecord] = []
        self.is_full = False
        self._reasons: list[Reason] = []
        self._state = state
        self._racks = racks
        self._wishes = wishes
        self._allowed = allowed
        self._most_said = most_said
        self._reconciles = reconciles
        self._carried = Counter(state.replica_count)
        self._preferred = Counter(state.preferred_count)

    def at(self, key: PartitionKey) -> bool | None:
        """Look at a partition, and make its next step; None when it is as it should be, else
        whether a step is left to make."""
        state, racks = self._state, self._racks
        if key not in state.diskless.keys:
            return None
        partition = state.partition(key)
        wanted = self._wish(partition.replicas, partition.leader)
        step = next_step(
            partition.replicas, partition.leader, wanted, racks, self._carried, self._preferred
        )
        made = step
        if not self._reconciles:
            made = rescue(partition.replicas, wanted, racks, self._carried)
        row = partition.replicas if made is None else made.row
        record = change_diskless(*key, partition, row, racks.living.__contains__)
        if record is not None and len(self.records) >= self._allowed:
            self.is_full = True
        elif record is not None:
            self.records.append(record)
            if made is not None:
                self._count(partition.replicas, made)
            if len(self.records) <= self._most_said:
                self._say(key, partition, made, record)
        if step is not None:
            return True
        return False if wanted.wait or wanted.is_held else None

    def _count(self, before: Row, made: Step) -> None:
        """What a step changes for those after it."""
        self._carried.update(made.came)
        self._carried.subtract(made.went)
        self._preferred.subtract(before[:1])
        self._preferred.update(made.row[:1])

    def _wish(self, row: Row, leader: int) -> Wish:
        wanted = self._wishes.get((row, leader))
        if wanted is None:
            wanted = self._wishes[row, leader] = wish(row, leader, self._racks)
        return wanted

    def _say(
        self,
        key: PartitionKey,
        before: PartitionImage,
        step: Step | None,
        record: PartitionChangeRecord,
    ) -> None:
        place = f"{self._state.topic_name(key)}-{key[1]}"
        if step is None:
            self._reasons += was_repaired(place, before, record)
        else:
            self._reasons += was_stepped(place, before, step, record, self._racks)

    def result(self) -> Result[None] | None:
        """The batch, None without records."""
        if not self.records:
            return None
        reasons = (summary(len(self.records)), *self._reasons[:MOST_SAID])
        return Result(tuple(self.records), None, reasons, atomic=False)
