"""A simulated controller's calls of the metadata store: what a tenure asks for, carried out.

What: `carry_out` makes one call in the simulated world and brings the event that answers it. A look
at the lease is answered at once: candidates look often, and a look that is a little old by then
tells them nothing else. Batches are decoded and replayed once for all nodes. Not here: the store
and its faults (`store.py`), what an answer means (`core/controller/tenure`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anabranch.core.controller.tenure import effects, events
from anabranch.core.controller.tenure.committed import Committed
from anabranch.core.controller.tenure.snapshots import encoded
from anabranch.core.metadata.committed_log import CommittedBatch
from anabranch.sim.store import AWAY, Stored

if TYPE_CHECKING:
    from anabranch.sim.node_life import NodeLife

Tell = Callable[[events.StoreAnswer], None]
NO_ANSWER = "the metadata store did not answer"


def carry_out(node: NodeLife, call: effects.StoreCall, tell: Tell) -> None:
    """Make a call; `tell` takes the answer, unless nobody waits for one."""
    _CALLS[type(call)](node, call, tell)


def _answer(
    call: effects.StoreCall, tell: Tell, make: Callable[[Any], events.StoreAnswer]
) -> Callable[[Any], None]:
    """What takes the store's answer to a call."""

    def answered(found: Any) -> None:
        tell(events.StoreFailed(call, NO_ANSWER) if found is AWAY else make(found))

    return answered


def _read_end(node: NodeLife, call: effects.ReadEnd, tell: Tell) -> None:
    def ended(found: tuple[int, bytes | None]) -> events.EndRead:
        return events.EndRead(call, *found)

    _answer(call, tell, ended)(node.store.end(node, call.last_base_offset))


def _read_lease(node: NodeLife, call: effects.ReadLease, tell: Tell) -> None:
    answered = _answer(call, tell, lambda lease: events.LeaseRead(call, lease))
    answered(node.store.lease(node))


def _take_lease(node: NodeLife, call: effects.TakeLease, tell: Tell) -> None:
    holder, incarnation, _ = call.me
    answered = _answer(call, tell, lambda lease: events.LeaseTaken(call, lease))
    node.store.take_lease(node, call.seen, holder, incarnation, answered)


def _renew_lease(node: NodeLife, call: effects.RenewLease, tell: Tell) -> None:
    answered = _answer(call, tell, lambda lease: events.LeaseRenewed(call, lease))
    node.store.renew_lease(node, call.lease, answered)


def _release_lease(node: NodeLife, call: effects.ReleaseLease, _tell: Tell) -> None:
    node.store.release_lease(node, call.lease)


def _read_log(node: NodeLife, call: effects.ReadLog, tell: Tell) -> None:
    def read(stored: Stored) -> events.LogRead:
        known, batches = Committed(), node.batches
        if stored.snapshot is not None:
            known.begin(stored.snapshot)
        for batch in stored.batches:
            if batch.end_offset > known.log.end_offset:
                known.log.extend(CommittedBatch(*batch))
                known.history.read(batches.records(batch.payload))
                known.image, _ = batches.replay(known.image, batch.payload)
        return events.LogRead(call, known.image, known.log, known.history)

    node.store.read(node, _answer(call, tell, read))


def _append(node: NodeLife, call: effects.Append, tell: Tell) -> None:
    answered = _answer(call, tell, lambda outcome: events.AppendEnded(call, outcome))
    batches = list(call.batches)
    node.store.append(node, call.lease, call.first_offset, batches, answered)


def _write_snapshot(node: NodeLife, call: effects.WriteSnapshot, tell: Tell) -> None:
    snapshot = encoded(call, node.world.now_ms)
    answered = _answer(call, tell, lambda _: events.SnapshotStored(call, snapshot))
    node.store.save_snapshot(node, snapshot, call.keep_log_from, answered)


_CALLS: dict[type[effects.StoreCall], Callable[[Any, Any, Tell], None]] = {
    effects.ReadEnd: _read_end,
    effects.ReadLease: _read_lease,
    effects.TakeLease: _take_lease,
    effects.RenewLease: _renew_lease,
    effects.ReleaseLease: _release_lease,
    effects.ReadLog: _read_log,
    effects.Append: _append,
    effects.WriteSnapshot: _write_snapshot,
}
