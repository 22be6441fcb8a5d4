"""The active controller's term: one pure machine, which server and simulator perform.

What: takes the lease, reads the committed log, marks its epoch in it, and turns every decision into
an append; keeps the lease, stores snapshots, dials brokers, gives way; resigns and reads again.
The caller hands in events and time (`step`, `tick`), performs what `take_effects` gives, in order,
and calls `tick` at `next_tick_ms`. It sets `controller.wall_ms` to the time of day before each.

Rules kept: after an append of unknown outcome it resigns, forgets what it planned, and reads again;
no answer leaves before everything that it stands on is committed; without a lease that was
confirmed in time it answers nothing but NOT_CONTROLLER; a store that is older than what this node
has seen ends the node. An answer of the store counts from when it was asked for.
Source: the architecture's "How a decision is made"; decisions 0004, 0034, 0043, 0051. Not here:
what is decided (`core/controller`), what the lease's rules are (`lease.py`), any I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_args

from anabranch.core.controller.brokers.hints import Probe, asks_again_in_ms
from anabranch.core.controller.controller import Controller
from anabranch.core.controller.result import Result
from anabranch.core.controller.tenure import effects, events
from anabranch.core.controller.tenure.appends import Appends, Waiting
from anabranch.core.controller.tenure.effects import Effect, StoreCall
from anabranch.core.controller.tenure.giving_way import GivenBack
from anabranch.core.controller.tenure.lease import (
    Holding,
    Me,
    Silence,
    Timing,
    is_a_twin_s,
    is_free,
)
from anabranch.core.controller.tenure.phases import TABLE, Phase
from anabranch.core.controller.tenure.snapshots import Snapshots
from anabranch.core.errors import Bug
from anabranch.core.metadata.batches import encode_batch, leader_change_batch
from anabranch.core.metadata.committed_log import CommittedBatch, CommittedLog, SnapshotView
from anabranch.core.metadata.features import bootstrap_records
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.levels import level_of, to_write
from anabranch.core.metadata.replay import replay_batch
from anabranch.core.metadata.store import NOBODY, Committed, Lease, StoredBatch
from anabranch.core.metadata.store_check import UNKNOWN_URL, CopyEnd, lease_fault, store_fault
from anabranch.core.types import NEVER_MS, NO_LEADER, BrokerId
from anabranch.core.wire.metadata_records import MetadataRecord

NO_COPY = CopyEnd("")
STORE = "(metadata.store.url)"
FirstRecords = Callable[[int], Sequence[MetadataRecord]]
_ANSWERS = get_args(events.StoreAnswer)
_Read = tuple[MetadataImage, CommittedLog, Any]


class Tenure:
    """One node's candidacy and terms; see the module. `copy` is where the node's copy of the
    metadata ended at its start; `first_records` begins a new cluster's log."""

    def __init__(
        self,
        controller: Controller,
        incarnation: str,
        *,
        endpoint: str = "",
        copy: CopyEnd | None = None,
        store_url: str = UNKNOWN_URL,
        timing: Timing | None = None,
        first_records: FirstRecords = bootstrap_records,
    ) -> None:
        self.controller = controller
        self.timing = timing or Timing()
        self.endpoint = endpoint
        """Where other candidates can watch this process, "" where that is not known."""
        self.phase = Phase.STARTING
        self.holding: Holding | None = None
        self._incarnation = incarnation
        self._copy = copy or NO_COPY
        self._store_url = store_url
        self._first_records = first_records
        self._silence = Silence()
        self._watched: Lease | None = None
        self._appends = Appends()
        self._snapshots = Snapshots()
        self._was_active = False
        self._read: _Read | None = None
        self._calls: dict[type, StoreCall] = {}
        self._call_ms = NEVER_MS
        self._duties_ms = NEVER_MS
        self._planned_ms = NEVER_MS
        self._again: list[tuple[int, Probe]] = []
        self._effects: list[Effect] = []

    # What the shell calls.

    def step(self, event: events.Event, now_ms: int) -> None:
        """Something happened; `now_ms` is of the steady clock. Raises Bug for what cannot."""
        if isinstance(event, _ANSWERS):
            if self._calls.get(type(event.asked)) is not event.asked:
                return  # it comes too late: that call counts no longer
            del self._calls[type(event.asked)]
        else:
            self.look(now_ms)
        handler = TABLE.get((self.phase, type(event)))
        if handler is None:
            raise Bug(f"{type(event).__name__} while {self.phase.value}")
        getattr(self, f"_{handler}")(event, now_ms)
        self.look(now_ms)
        self._dial()

    def tick(self, now_ms: int) -> None:
        """Do what is due by time."""
        self.look(now_ms)
        if now_ms >= self._duties_ms:
            self._do_duties(now_ms)
        if now_ms >= self._call_ms:
            self._call_again(now_ms)
        if self._may_append:
            self._append(now_ms)
        self._dial()

    def look(self, now_ms: int) -> None:
        """Resign when the lease's time is over: also to be called before anything is answered from
        the controller's state, since a process that was frozen may find requests in its sockets
        before its timers."""
        if self._is_overdue(now_ms):
            self._resign("the lease was not confirmed in time", now_ms)

    def take_effects(self) -> list[Effect]:
        """What is to be done, in order."""
        taken, self._effects = self._effects, []
        return taken

    @property
    def has_effects(self) -> bool:
        """Whether `take_effects` has something."""
        return bool(self._effects)

    @property
    def next_tick_ms(self) -> int:
        """When `tick` is to be called, by the steady clock. Whatever came later than that for want
        of running is forgiven to brokers that were not heard meanwhile."""
        due_ms = min(self._call_ms, self._duties_ms)
        if self._may_append:
            due_ms = min(due_ms, self._planned_ms)
        if self.phase is Phase.ACTIVE and self.holding is not None:
            due_ms = min(due_ms, self.holding.confirmed_ms + self.timing.lease_timeout_ms + 1)
        return due_ms

    @property
    def is_settled(self) -> bool:
        """Whether it is active, or waits for another: nothing is on its way that a start would wait
        for."""
        if self.phase is Phase.WATCHING:
            return effects.ReadLease not in self._calls
        return self.phase in (Phase.ACTIVE, Phase.STOPPED)

    @property
    def owed(self) -> list[Any]:
        """The tickets of those who wait for an answer."""
        return [each.ticket for each in self._appends.waiting]

    def statistics(self) -> dict[str, int]:
        """Numbers for the metrics page."""
        appends = self._appends
        return {
            **self.controller.statistics(),
            "waiting": len(appends.waiting),
            "elections_total": appends.elections_total,
            "unclean_elections_total": appends.unclean_elections_total,
            "elections_ms_total": appends.elections_ms_total,
        }

    # At the start.

    def _start(self, _event: events.Start, now_ms: int) -> None:
        self._duties_ms = now_ms + self.timing.idle_ms
        if self._copy.end_offset == 0:
            self._watch(now_ms)
            return
        self.phase = Phase.COMPARING
        self._ask_store(effects.ReadEnd(self._copy.last_base_offset))

    def _compare(self, event: events.EndRead, now_ms: int) -> None:
        fault = store_fault(self._copy, event.end_offset, event.batch, STORE, self._store_url)
        if fault is not None:
            self._stop(fault)
        else:
            self._watch(now_ms)

    def _compare_later(self, event: events.StoreFailed, now_ms: int) -> None:
        self._do(effects.Troubled(event.why))
        self._call_ms = now_ms + self.timing.watch_ms

    # Waiting for the lease.

    def _watch(self, now_ms: int, delay_ms: int = 0) -> None:
        """Wait for the lease; look at it, at once or after a while."""
        self.phase = Phase.WATCHING
        self.holding = self._read = None
        self._calls.clear()
        if delay_ms:
            self._call_ms = now_ms + delay_ms
        else:
            self._look_at_store()

    def _watch_later(self, event: events.StoreFailed, now_ms: int) -> None:
        self._do(effects.Troubled(event.why))
        self._watch(now_ms, self.timing.watch_ms)

    def _look_at_store(self) -> None:
        self._call_ms = NEVER_MS
        self._ask_store(effects.ReadLease())

    def _consider(self, event: events.LeaseRead, now_ms: int) -> None:
        """Take the lease when it is free or its holder silent, else look again in a while."""
        lease, silence, me = event.lease, self._silence, self._me
        if silence.went_back(lease):
            self._stop(lease_fault(self._copy, silence.newest_epoch, lease, self._store_url))
            return
        silence.look(lease, now_ms)
        if self._was_active and is_a_twin_s(lease, me):
            self._stop(
                f"another process is controller with node.id={me.node_id} on the same metadata "
                "store; run one process a node.id"
            )
            return
        may_take = is_free(lease, me) or silence.is_long(now_ms, self.timing)
        if may_take and not self._is_left_to_others(lease, now_ms):
            self.phase = Phase.TAKING
            self._ask_store(effects.TakeLease(lease, me))
            return
        self._watch_process(lease)
        self._call_ms = now_ms + self.timing.watch_ms

    def _is_left_to_others(self, lease: Lease | None, now_ms: int) -> bool:
        given_back = self.controller.given_back
        return lease is not None and given_back.is_left_to_others(lease.epoch, now_ms)

    def _watch_process(self, lease: Lease | None) -> None:
        """Have the process watched that holds the lease, unless nobody does or it already is."""
        self.controller.elsewhere = NO_LEADER if lease is None else BrokerId(lease.holder)
        if lease is not None and lease.holder == NOBODY:
            lease = None
        before = self._watched
        if lease is None and before is None:
            return
        if lease is None or before is None or not before.is_still(lease):
            self._watched = lease
            self._do(effects.Watch(lease))

    def _holder_gone(self, event: events.HolderGone, _now_ms: int) -> None:
        self._silence.holder_gone(event.epoch)
        if effects.ReadLease not in self._calls:
            self._look_at_store()

    # Taking it.

    def _read_log(self, event: events.LeaseTaken, now_ms: int) -> None:
        if event.lease is None:
            self._watch(now_ms, self.timing.watch_ms)
            return
        self._was_active = True
        self._silence.look(event.lease, now_ms)
        self.holding = Holding(event.lease, now_ms)
        self.phase = Phase.READING
        self._call_ms = now_ms + self.timing.renew_ms  # reading may take long
        self._ask_store(effects.ReadLog())

    def _renewed_while_reading(self, event: events.LeaseRenewed, now_ms: int) -> None:
        if event.lease is None:
            self._watch(now_ms, self.timing.watch_ms)
            return
        self.holding = Holding(event.lease, now_ms)

    def _reading_failed(self, event: events.StoreFailed, now_ms: int) -> None:
        if isinstance(event.asked, effects.RenewLease):
            return  # what is appended next shows whether it is held
        if event.for_good:
            self._give_back()
            self._stop(event.why)
            return
        self._watch_later(event, now_ms)

    def _mark(self, event: events.LogRead, now_ms: int) -> None:
        """Mark the new epoch in the log.

        Only when that is committed is it known that all of the log was read: a store's copy that is
        behind would otherwise be served, and make every follower stop. Where less was read than
        this node has seen, nothing is written: the store is asked whether its log ends there.
        """
        self.phase = Phase.MARKING
        self._call_ms = NEVER_MS
        self._calls.pop(effects.RenewLease, None)  # the append shows the same
        self._read = event.image, event.log, event.history
        lease, first = self._held.lease, event.log.end_offset
        batches: tuple[StoredBatch, ...] = ()
        if first >= self._seen_end:
            payload = leader_change_batch(
                base_offset=first,
                epoch=lease.epoch,
                leader_id=self.controller.node_id,
                now_ms=self.controller.wall_ms,
            )
            batches = (StoredBatch(first, first + 1, lease.epoch, payload),)
        self._ask_store(effects.Append(lease, first, batches, now_ms))

    @property
    def _seen_end(self) -> int:
        """Up to where this node has seen the metadata committed."""
        controller = self.controller
        ends = (self._copy.end_offset, controller.followed.next_offset, controller.log.end_offset)
        return max(ends)

    def _marked(self, event: events.AppendEnded, now_ms: int) -> None:
        append, lease = event.asked, self._held.lease
        if not isinstance(event.outcome, Committed):
            why = f"did not become controller in epoch {lease.epoch}: {event.outcome}"
            self._do(effects.Troubled(why))
            self._watch(now_ms, self.timing.watch_ms)
        elif not append.batches:
            self._went_back(append.first_offset)
        else:
            self._begin_term(append, now_ms)

    def _went_back(self, end_offset: int) -> None:
        seen = self._copy
        if seen.end_offset < self._seen_end:
            seen = CopyEnd(seen.folder, self._seen_end)
        fault = store_fault(seen, end_offset, None, STORE, self._store_url)
        self._give_back()
        self._stop(fault or f"the metadata store went back to offset {end_offset}")

    def _begin_term(self, append: effects.Append, now_ms: int) -> None:
        assert self._read is not None
        (image, log, history), self._read = self._read, None
        (batch,) = append.batches
        log.extend(CommittedBatch(*batch))
        image, _delta = replay_batch(image, (), batch.first_offset, batch.epoch)
        controller = self.controller
        self._forgive(now_ms)
        self._snapshots.begin(image, now_ms)
        controller.take_office(batch.epoch, image, log, now_ms)
        controller.history = history
        self.phase = Phase.ACTIVE
        self._held.confirm(append.asked_ms)
        self._duties_ms, self._call_ms = now_ms, now_ms + self.timing.renew_ms
        self._watch_process(None)
        controller.elsewhere = NO_LEADER
        self._do(effects.Began(batch.epoch, log.end_offset))
        if not image.features:
            minimum = controller.static_config.min_insync_replicas
            self._plan(Result(tuple(self._first_records(minimum)), None), now_ms)

    # Keeping it.

    def _renewed(self, event: events.LeaseRenewed, now_ms: int) -> None:
        if event.lease is None:
            self._resign("another controller took the lease", now_ms)
            return
        self._held.lease = event.lease
        self._held.confirm(event.asked.asked_ms)
        self._call_ms = now_ms + self.timing.renew_ms

    def _active_failed(self, event: events.StoreFailed, now_ms: int) -> None:
        if isinstance(event.asked, effects.WriteSnapshot):
            self._snapshots.ended()
            self._do(effects.Troubled(f"no snapshot of the metadata was stored: {event.why}"))
            return
        self._resign(event.why, now_ms, delay_ms=self.timing.watch_ms)

    def _is_overdue(self, now_ms: int) -> bool:
        holding = self.holding
        if self.phase is not Phase.ACTIVE or holding is None:
            return False
        return holding.is_over(now_ms, self.timing)

    # Decisions.

    def _decide(self, event: events.Decide, now_ms: int) -> None:
        controller, result = self.controller, event.result
        self._plan(result, now_ms)
        needed = controller.image.next_offset
        if controller.log.end_offset >= needed:
            self._do(effects.Answer(event.ticket, result.response))
        else:
            self._appends.waiting.append(Waiting(needed, event.ticket, result.response))

    def _refuse(self, event: events.Decide, _now_ms: int) -> None:
        self._do(effects.Refuse(event.ticket))

    def _plan(self, result: Result[Any], now_ms: int) -> None:
        controller = self.controller
        first, level = controller.image.next_offset, level_of(controller.image)
        records = to_write(controller.image, result.records)
        if not records:
            return  # it changed what is remembered, not what is written
        wall_ms = controller.wall_ms
        told = controller.history.plan(records, result.reasons, wall_ms, first)
        payload = encode_batch(
            told, base_offset=first, epoch=controller.epoch, now_ms=wall_ms, level=level
        )
        end = first + len(records)
        controller.advance(records, end - 1)
        self._appends.plan(StoredBatch(first, end, controller.epoch, payload), records, now_ms)
        if result.reasons:
            self._do(effects.Decided(tuple(result.reasons)))
        self._planned_ms = now_ms

    @property
    def _may_append(self) -> bool:
        """Whether something is planned and no append under way. It goes out with the next tick, so
        that decisions that are made in one go share an append."""
        return bool(self._appends.planned) and effects.Append not in self._calls

    def _append(self, now_ms: int) -> None:
        batches = self._appends.take()
        first_offset = batches[0].first_offset
        self._ask_store(effects.Append(self._held.lease, first_offset, batches, now_ms))

    def _appended(self, event: events.AppendEnded, now_ms: int) -> None:
        if not isinstance(event.outcome, Committed):
            self._resign(f"an append was not committed: {event.outcome}", now_ms)
            return
        self._held.confirm(event.asked.asked_ms)
        controller = self.controller
        log = controller.log
        for batch in self._appends.commit(now_ms):
            log.extend(CommittedBatch(*batch))
            controller.history.commit(batch.first_offset)
        for each in self._appends.ready(log.end_offset):
            self._do(effects.Answer(each.ticket, each.response))
        if controller.image.next_offset == log.end_offset:
            self._snapshots.committed = controller.image
            self._maybe_snapshot(now_ms)
        self._do(effects.Moved())
        if self._appends.planned:
            self._append(now_ms)

    # Snapshots.

    def _maybe_snapshot(self, now_ms: int) -> None:
        controller, image = self.controller, self._snapshots.committed
        log = controller.log
        if self._snapshots.is_due(controller.config, log.bytes_since_snapshot, now_ms):
            said = tuple(controller.history.newest(image.next_offset))
            keep_from = log.snapshot.end_offset if log.snapshot is not None else 0
            self._ask_store(effects.WriteSnapshot(log, image, said, keep_from))

    def _snapshot_stored(self, event: events.SnapshotStored, _now_ms: int) -> None:
        self._snapshots.ended()
        if event.asked.log is self.controller.log:
            self.controller.log.take_snapshot(SnapshotView(*event.snapshot))

    # Ends of a term.

    def _resign(self, why: str, now_ms: int, delay_ms: int = 0) -> None:
        """Stop deciding, forget what was planned, and begin to want the lease again."""
        self._do(effects.Resigned(self.controller.epoch, why))
        self._end_term()
        self._silence.begin()
        self._watch(now_ms, delay_ms)

    def _end_term(self) -> None:
        self.controller.resign()
        self.holding = None
        self._again.clear()
        for each in self._appends.drop():
            self._do(effects.Refuse(each.ticket))
        self._do(effects.Moved())

    def _give_way(self, event: events.GiveWay, now_ms: int) -> None:
        """Leave the lease to others for the time in which they would take it from a dead holder."""
        lease, until_ms = self._held.lease, now_ms + self.timing.lease_timeout_ms
        self.controller.given_back = GivenBack(lease.epoch, until_ms)
        self._resign(event.why, now_ms, delay_ms=self.timing.watch_ms)
        self._do(effects.ReleaseLease(lease))

    def _leave(self, _event: events.Leave, _now_ms: int) -> None:
        self._give_back()
        self._close()

    def _broke(self, event: events.Broke, _now_ms: int) -> None:
        self._stop(event.sentence)

    def _stop(self, sentence: str) -> None:
        if self.phase is Phase.ACTIVE:
            self._do(effects.Resigned(self.controller.epoch, sentence))
        self._close()
        self._do(effects.Stop(sentence))

    def _close(self) -> None:
        if self.phase is Phase.ACTIVE:
            self._end_term()
        self._watch_process(None)
        self.phase, self.holding = Phase.STOPPED, None
        self._calls.clear()
        self._call_ms = self._duties_ms = NEVER_MS

    def _give_back(self) -> None:
        """Others take over at once; when the store cannot be reached, after the lease's time."""
        if self.holding is not None:
            self._do(effects.ReleaseLease(self.holding.lease))

    # What is due by time.

    def _do_duties(self, now_ms: int) -> None:
        controller = self.controller
        self._forgive(now_ms)
        self._duties_ms = now_ms + self.timing.idle_ms
        if self.phase is not Phase.ACTIVE:
            return
        if why := controller.gives_way(now_ms):
            self._give_way(events.GiveWay(why), now_ms)
            return
        result = controller.tick(now_ms)
        if result is not None:
            self._plan(result, now_ms)
        for probe in self._due_again(now_ms):
            controller.ask_again(probe, now_ms)
        again_ms = min((due_ms for due_ms, _ in self._again), default=NEVER_MS)
        due_ms = min(self._duties_ms, controller.next_tick_ms, again_ms)
        self._duties_ms = max(now_ms + 1, due_ms)

    def _forgive(self, now_ms: int) -> None:
        """What was not heard while this process did not run, whose messages may lie unread."""
        sessions, deaf_ms = self.controller.sessions, now_ms - self._duties_ms
        if deaf_ms > sessions.check_interval_ms:
            sessions.forgive(deaf_ms, now_ms)

    def _call_again(self, now_ms: int) -> None:
        """The call of the store whose time has come."""
        self._call_ms = NEVER_MS
        if self.phase is Phase.COMPARING:
            self._ask_store(effects.ReadEnd(self._copy.last_base_offset))
        elif self.phase is Phase.WATCHING:
            self._look_at_store()
        elif self.phase is not Phase.STOPPED:
            self._call_ms = now_ms + self.timing.renew_ms
            if effects.RenewLease not in self._calls:
                self._ask_store(effects.RenewLease(self._held.lease, now_ms))

    # Dialling brokers.

    def _connection_closed(self, event: events.ConnectionClosed, now_ms: int) -> None:
        self.controller.connection_closed(event.broker_id, event.broker_epoch, now_ms)

    def _dial(self) -> None:
        controller = self.controller
        for probe in controller.take_probes():
            self._do(effects.Dial(controller.epoch, probe))

    def _probed(self, event: events.Probed, now_ms: int) -> None:
        """Take what follows from it; ask again later where the answer said nothing."""
        controller, probe = self.controller, event.asked.probe
        if event.asked.epoch != controller.epoch:
            return
        result = controller.probed(probe, event.answer, now_ms)
        if result is not None:
            self._plan(result, now_ms)
            return
        again_ms = asks_again_in_ms(probe, event.answer, now_ms)
        if again_ms is not None:
            self._again.append((now_ms + again_ms, probe))
            self._duties_ms = min(self._duties_ms, now_ms + again_ms)

    def _due_again(self, now_ms: int) -> list[Probe]:
        due = [probe for due_ms, probe in self._again if due_ms <= now_ms]
        self._again = [each for each in self._again if each[0] > now_ms]
        return due

    # Small things.

    def _ignore(self, _event: events.Event, _now_ms: int) -> None:
        return None

    @property
    def _me(self) -> Me:
        return Me(self.controller.node_id, self._incarnation, self.endpoint)

    @property
    def _held(self) -> Holding:
        assert self.holding is not None
        return self.holding

    def _do(self, effect: Effect) -> None:
        self._effects.append(effect)

    def _ask_store(self, call: StoreCall) -> None:
        self._calls[type(call)] = call
        self._do(call)
