"""One term as active controller: it begins, is confirmed, does what is due, and ends.

Rules kept: after an append of unknown outcome the controller resigns, forgets what it planned, and
reads again; what was not heard while the process did not run is forgiven to brokers.
Source: the architecture's "How a decision is made"; decisions 0043, 0051.
Not here: making decisions durable (`decisions.py`), dialling brokers (`probes.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anabranch.core.controller.controller import Controller
from anabranch.core.controller.result import Result
from anabranch.core.controller.tenure import effects, events
from anabranch.core.controller.tenure.candidacy import Candidacy
from anabranch.core.controller.tenure.decisions import Decisions
from anabranch.core.controller.tenure.isolation import GivenBack
from anabranch.core.controller.tenure.phases import Phase
from anabranch.core.controller.tenure.probes import Probes
from anabranch.core.controller.tenure.snapshots import Snapshots
from anabranch.core.controller.tenure.state import TenureState
from anabranch.core.metadata.committed_log import CommittedBatch
from anabranch.core.metadata.replay import replay_batch
from anabranch.core.metadata.store import Committed
from anabranch.core.types import NEVER_MS
from anabranch.core.wire.metadata_records import MetadataRecord

FirstRecords = Callable[[int], Sequence[MetadataRecord]]
"""The records that begin a new cluster's log, of its `min.insync.replicas`."""


class Term:
    """See the module."""

    def __init__(
        self,
        state: TenureState,
        controller: Controller,
        candidacy: Candidacy,
        first_records: FirstRecords,
    ) -> None:
        self._state = state
        self._controller = controller
        self._candidacy = candidacy
        self._first_records = first_records
        self.snapshots = Snapshots(state, controller)
        self.decisions = Decisions(state, controller, self.snapshots)
        self.probes = Probes(state, controller, self.decisions)

    def begin(self, read: events.LogRead, mark: effects.Append, now_ms: int) -> None:
        """The mark is committed: what was read is all there is, and this node decides."""
        state, controller = self._state, self._controller
        (batch,) = mark.batches
        read.log.extend(CommittedBatch(*batch))
        image, _delta = replay_batch(read.image, (), batch.first_offset, batch.epoch)
        self._forgive(now_ms)
        self.snapshots.begin(image, now_ms)
        controller.begin_term(batch.epoch, image, read.log, now_ms)
        controller.history = read.history
        state.phase = Phase.ACTIVE
        state.held.confirm(mark.asked_ms)
        state.duties_ms, state.call_ms = now_ms, now_ms + state.timing.renew_ms
        self._candidacy.watch_process(None)
        state.do(effects.Began(batch.epoch, read.log.end_offset))
        if not image.features:
            minimum = controller.static_config.min_insync_replicas
            self.decisions.plan(Result(tuple(self._first_records(minimum)), None), now_ms)

    # Keeping the lease.

    def renewed(self, event: events.LeaseRenewed, now_ms: int) -> None:
        """The lease is confirmed, or lost."""
        state = self._state
        if event.lease is None:
            self.resign("another controller took the lease", now_ms)
            return
        state.held.lease = event.lease
        state.held.confirm(event.asked.asked_ms)
        state.call_ms = now_ms + state.timing.renew_ms
        self.decisions.renewed(now_ms)

    def look_at_doubt(self, now_ms: int) -> None:
        """Have the store say whether the lease is still held, when somebody has seen more than this
        controller has."""
        state, controller = self._state, self._controller
        if not state.is_active or not controller.is_doubted:
            state.doubted_ms = NEVER_MS
        elif state.doubted_ms == NEVER_MS:
            state.doubted_ms = state.call_ms = now_ms
        elif state.held.confirmed_ms >= state.doubted_ms and not controller.is_doubt_settled:
            controller.is_doubt_settled = True
            state.do(effects.Moved())

    def appended(self, event: events.AppendEnded, now_ms: int) -> None:
        """The append is committed, or that is not known."""
        if not isinstance(event.outcome, Committed):
            self.resign(f"an append was not committed: {event.outcome}", now_ms)
            return
        self.decisions.committed(event.asked, now_ms)

    def store_failed(self, event: events.StoreFailed, now_ms: int) -> None:
        """No answer came: only a snapshot can wait."""
        if isinstance(event.asked, effects.WriteSnapshot):
            self.snapshots.failed(event.asked, event.why, now_ms)
            return
        self.resign(event.why, now_ms, delay_ms=self._state.timing.watch_ms)

    # What is due by time, and what brokers' connections tell.

    def do_duties(self, now_ms: int) -> None:
        """Everything that time has made due; in other phases, look at the clock."""
        state, controller = self._state, self._controller
        self._forgive(now_ms)
        state.duties_ms = now_ms + state.timing.idle_ms
        if not state.is_active:
            return
        if why := controller.gives_way(now_ms):
            self.give_way(events.GiveWay(why), now_ms)
            return
        result = controller.tick(now_ms)
        if result is not None:
            self.decisions.plan(result, now_ms)
        self.snapshots.time_has_passed(now_ms)
        again_ms = self.probes.ask_again(now_ms)
        due_ms = min(state.duties_ms, controller.next_tick_ms, again_ms)
        state.duties_ms = max(now_ms + 1, due_ms)

    def _forgive(self, now_ms: int) -> None:
        """What was not heard while this process did not run, whose messages may lie unread."""
        sessions, deaf_ms = self._controller.sessions, now_ms - self._state.duties_ms
        if deaf_ms > sessions.check_interval_ms:
            sessions.forgive(deaf_ms, now_ms)

    def connection_closed(self, event: events.ConnectionClosed, now_ms: int) -> None:
        """A broker's connection has closed."""
        self._controller.connection_closed(event.broker_id, event.broker_epoch, now_ms)

    # Its ends.

    def resign(self, why: str, now_ms: int, delay_ms: int = 0) -> None:
        """Stop deciding, forget what was planned, and begin to want the lease again."""
        self._state.do(effects.Resigned(self._controller.epoch, why))
        self.end()
        self._candidacy.watch_anew(now_ms, delay_ms)

    def end(self) -> None:
        """Decide nothing any more, if a term was under way: what was planned is forgotten."""
        if not self._state.is_active:
            return
        self._controller.resign()
        self._state.holding = None
        self.probes.drop()
        self.decisions.drop()
        self._state.do(effects.Moved())

    def give_way(self, event: events.GiveWay, now_ms: int) -> None:
        """Leave the lease to others for the time in which they would take it from a dead holder."""
        timing, lease = self._state.timing, self._state.held.lease
        self._controller.given_back = GivenBack(lease.epoch, now_ms + timing.lease_timeout_ms)
        self.resign(event.why, now_ms, delay_ms=timing.watch_ms)
        self._state.do(effects.ReleaseLease(lease))

    def give_back(self) -> None:
        """Others take over at once; when the store cannot be reached, after the lease's time."""
        if self._state.holding is not None:
            self._state.do(effects.ReleaseLease(self._state.holding.lease))
