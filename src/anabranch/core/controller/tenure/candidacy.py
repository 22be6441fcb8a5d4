"""Before the lease: compare the store, look at the lease, watch its holder, take it.

Owns what was seen of others: how long the holder has been silent, whose process is watched, and
whether this process ever had the lease. Rules kept: the lease is taken when it is free or its
holder was silent for a lease's time by this node's own clock, and not while it is left to others;
a second process with this node's id ends the one that had the lease.
Not here: the lease's rules (`lease.py`), what follows its taking (`takeover.py`).
"""

from __future__ import annotations

from anabranch.core.controller.controller import Controller
from anabranch.core.controller.tenure import effects, events
from anabranch.core.controller.tenure.lease import LeaseTaker, Silence, is_a_twin_s, is_free
from anabranch.core.controller.tenure.phases import Phase
from anabranch.core.controller.tenure.state import TenureState
from anabranch.core.controller.tenure.store_age import StoreAge
from anabranch.core.metadata.store import NOBODY, Lease
from anabranch.core.types import NEVER_MS, NO_LEADER, BrokerId


class Candidacy:
    """See the module. `endpoint` is where other candidates can watch this process, "" where that is
    not known."""

    def __init__(
        self,
        state: TenureState,
        controller: Controller,
        store_age: StoreAge,
        incarnation: str,
        endpoint: str,
    ) -> None:
        self.endpoint = endpoint
        self._state = state
        self._controller = controller
        self._store_age = store_age
        self._incarnation = incarnation
        self._silence = Silence()
        self._followed_epoch = 0
        """Of the metadata that this node followed when it last asked for the lease."""
        self._watched: Lease | None = None
        self._was_active = False

    # At the start.

    def start(self, _event: events.Start, now_ms: int) -> None:
        """Compare the store with this node's copy, where there is one."""
        self._state.duties_ms = now_ms + self._state.timing.idle_ms
        if self._store_age.first_question() is None:
            self.watch(now_ms)
            return
        self._state.phase = Phase.COMPARING
        self.call_store()

    def compare(self, event: events.EndRead, now_ms: int) -> None:
        """The store is right, or the node ends."""
        fault = self._store_age.fault_of(event)
        if fault is not None:
            self.stop(fault)
        else:
            self.watch(now_ms)

    def compare_later(self, event: events.StoreFailed, now_ms: int) -> None:
        """No answer: ask again in a while."""
        self._state.do(effects.Troubled(event.why))
        self._state.call_ms = now_ms + self._state.timing.watch_ms

    # Waiting for the lease.

    def watch(self, now_ms: int, delay_ms: int = 0) -> None:
        """Wait for the lease; look at it, at once or after a while."""
        state = self._state
        state.phase = Phase.WATCHING
        state.holding = None
        state.forget_calls()
        if delay_ms:
            state.call_ms = now_ms + delay_ms
        else:
            self.call_store()

    def watch_anew(self, now_ms: int, delay_ms: int) -> None:
        """Wait for the lease after a term of this node: no holder's silence has been seen yet."""
        self._silence.begin()
        self.watch(now_ms, delay_ms)

    def watch_later(self, event: events.StoreFailed, now_ms: int) -> None:
        """The store failed: begin again in a while."""
        self._state.do(effects.Troubled(event.why))
        self.watch(now_ms, self._state.timing.watch_ms)

    def call_store(self) -> None:
        """Ask the question of the phase."""
        self._state.call_ms = NEVER_MS
        question = self._store_age.first_question()
        if self._state.phase is Phase.COMPARING and question is not None:
            self._state.call(question)
        else:
            self._followed_epoch = self._controller.followed.epoch
            self._state.call(effects.ReadLease())

    def consider(self, event: events.LeaseRead, now_ms: int) -> None:
        """Take the lease when it is free or its holder silent, else look again in a while."""
        state, lease, silence, me = self._state, event.lease, self._silence, self._me
        if seen := silence.went_back(lease, self._followed_epoch):
            self.stop(self._store_age.fault_of_lease(seen, lease))
            return
        silence.look(lease, now_ms)
        if lease is not None and silence.finds_living(lease):
            state.do(effects.Troubled(_unreachable(lease)))
        if self._was_active and is_a_twin_s(lease, me):
            self.stop(
                f"another process is controller with node.id={me.node_id} on the same metadata "
                "store; run one process for each node.id"
            )
            return
        may_take = is_free(lease, me) or silence.is_long(now_ms, state.timing)
        if may_take and not self._is_left_to_others(lease, now_ms):
            state.phase = Phase.TAKING
            state.call(effects.TakeLease(lease, me))
            return
        self.watch_process(lease)
        state.call_ms = now_ms + state.timing.watch_ms

    def _is_left_to_others(self, lease: Lease | None, now_ms: int) -> bool:
        given_back = self._controller.given_back
        return lease is not None and given_back.is_left_to_others(lease.epoch, now_ms)

    def watch_process(self, lease: Lease | None) -> None:
        """Have the process watched that holds the lease, unless nobody does or it already is."""
        self._controller.other_active_id = NO_LEADER if lease is None else BrokerId(lease.holder)
        if lease is not None and lease.holder == NOBODY:
            lease = None
        before = self._watched
        if lease is None and before is None:
            return
        if lease is None or before is None or not before.is_still(lease):
            self._watched = lease
            self._state.do(effects.Watch(lease))

    def holder_gone(self, event: events.HolderGone, _now_ms: int) -> None:
        """Look at the lease at once: its holder need not be waited for."""
        self._silence.holder_gone(event.epoch)
        if not self._state.is_calling(effects.ReadLease):
            self.call_store()

    def won(self, lease: Lease, now_ms: int) -> None:
        """This process has taken the lease."""
        self._was_active = True
        self._silence.look(lease, now_ms)

    # The end.

    def stop(self, sentence: str) -> None:
        """This node must end."""
        self.close()
        self._state.do(effects.Stop(sentence))

    def close(self) -> None:
        """Want nothing any more."""
        state = self._state
        self.watch_process(None)
        state.phase, state.holding = Phase.STOPPED, None
        state.forget_calls()
        state.call_ms = state.duties_ms = NEVER_MS

    @property
    def _me(self) -> LeaseTaker:
        return LeaseTaker(self._controller.node_id, self._incarnation, self.endpoint)


def _unreachable(lease: Lease) -> str:
    return (
        f"node {lease.holder} is controller, but nothing listens at its address {lease.endpoint}: "
        "correct its advertised.listeners, or what refuses connections between the two nodes; "
        "until then its end is noticed only when its lease has run out"
    )
