"""The controller of one made-up node: its lease, its appends, what is due by time.

What: the shell of `core.controller` in the made-up world, as `server/controller.py` is on a
machine. It takes the lease, reads what is committed, turns each decision into an append, and lets
an answer leave when everything that it stands on is committed. After an append that was not
committed it resigns and forgets what it planned. Rule kept: without a confirmed lease it answers
nothing but NOT_CONTROLLER. Not here: what is decided.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.core.controller.brokers.hints import REDIAL_MS, Answer, Probe
from anabranch.core.controller.controller import METADATA_KEY, Controller
from anabranch.core.controller.result import Result
from anabranch.core.controller.tenure.giving_way import GivenBack
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.metadata.batches import encode_batch, leader_change_batch
from anabranch.core.metadata.committed_log import CommittedBatch, CommittedLog
from anabranch.core.metadata.features import bootstrap_records
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.levels import to_write
from anabranch.core.metadata.store_check import store_fault
from anabranch.core.outcome import Propose
from anabranch.sim.dialling import Dial
from anabranch.sim.round_robin import round_robin
from anabranch.sim.store import AWAY, NOBODY, Committed, Lease, StoredBatch

if TYPE_CHECKING:
    from anabranch.sim.node import SimNode

LEASE_TIMEOUT_MS = 6_000
"""Silence after which another takes the lease, and after which the holder stops itself."""
RENEW_MS = 2_000
WATCH_MS = 500

Finish = Callable[[Any], None]


class Waiting(NamedTuple):
    """An answer that leaves when the log is committed up to `offset`."""

    offset: int
    finish: Finish
    response: Any


class Office:
    """One node's controller, active or waiting for the lease. One a life of the node."""

    def __init__(self, node: SimNode) -> None:
        cluster = node.cluster
        self.node = node
        self.store = cluster.store
        self.batches = cluster.batches
        self.world = cluster.world
        self.controller = Controller(
            node.node_id,
            cluster.cluster_id,
            node.config,
            self.world.random(f"{node.name}/placing"),
            placer=round_robin,
        )
        self.controller.inter_broker_listener = node.listener
        self.incarnation = f"{node.node_id}-{node.life}"
        self._lease: Lease | None = None
        self._confirmed_ms = 0
        self._pending: list[StoredBatch] = []
        self._appending = self._taking = False
        self._waiting: list[Waiting] = []
        self._seen: Lease | None = None
        self._seen_ms = 0
        self._due_ms = 0
        self._connected: dict[int, int] = {}

    def start(self) -> None:
        """Begin to want the lease, unless the store is older than this node's copy."""
        self._seen_ms = self.world.steady_ms
        self._consider(self.store.lease(self.node), silent=False)

    # Decisions.

    def look_at_lease(self) -> None:
        """Resign when the lease's time is over: to be called before anything is answered."""
        overdue = self.world.steady_ms - self._confirmed_ms > LEASE_TIMEOUT_MS
        if self.controller.active and overdue:
            self._resign("the lease was not confirmed in time")

    def submit(self, propose: Propose, finish: Finish) -> None:
        """Have `finish` called with the answer once all that it stands on is committed, or with
        the ApiError NOT_CONTROLLER."""
        controller = self.controller
        self.look_at_lease()
        if not controller.active:
            finish(_not_controller())
            return
        result = propose.result
        if result.records:
            self._plan(result)
        needed = controller.image.next_offset
        if controller.log.end_offset >= needed:
            finish(result.response)
        else:
            self._waiting.append(Waiting(needed, finish, result.response))

    def _plan(self, result: Result[Any]) -> None:
        controller = self.controller
        first, records = controller.image.next_offset, to_write(controller.image, result.records)
        payload = encode_batch(
            records, base_offset=first, epoch=controller.epoch, now_ms=self.world.now_ms
        )
        end = first + len(records)
        controller.advance(records, end - 1)
        self._queue(StoredBatch(first, end, controller.epoch, payload))
        for reason in result.reasons:
            self.world.note("decided", self.node.name, reason.sentence, code=reason.code)

    def _queue(self, batch: StoredBatch) -> None:
        self._pending.append(batch)
        if not self._appending:
            self._append()

    def _append(self) -> None:
        batches, self._pending = self._pending, []
        lease, epoch, asked_ms = self._lease, self.controller.epoch, self.world.steady_ms
        if lease is None:
            return
        self._appending = True

        def answered(outcome: Any) -> None:
            self._appended(epoch, asked_ms, batches, outcome)

        self.store.append(self.node, lease, batches[0].first_offset, batches, answered)

    def _appended(
        self, epoch: int, asked_ms: int, batches: list[StoredBatch], outcome: Any
    ) -> None:
        self._appending = False
        if self.controller.active and self.controller.epoch == epoch:
            if isinstance(outcome, Committed):
                self._confirmed_ms = max(self._confirmed_ms, asked_ms)
                self._commit(batches)
            else:
                self._resign(f"an append was not committed: {outcome}")
        if self._pending:
            self._append()

    def _commit(self, batches: list[StoredBatch]) -> None:
        log = self.controller.log
        for batch in batches:
            log.extend(CommittedBatch(*batch))
        ready = [waiting for waiting in self._waiting if waiting.offset <= log.end_offset]
        self._waiting = self._waiting[len(ready) :]
        for waiting in ready:
            waiting.finish(waiting.response)
        self.node.wake_controller(METADATA_KEY)

    def _resign(self, why: str) -> None:
        controller = self.controller
        if controller.active:
            self.world.note("resigned", self.node.name, why, epoch=controller.epoch)
            self._seen_ms = self.world.steady_ms
            self.world.after_in(self.node, WATCH_MS * 1000, self._look)
        controller.resign()
        self._lease = None
        self._pending = []
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.finish(_not_controller())
        self.node.wake_controller(METADATA_KEY)

    def _give_way(self, why: str) -> None:
        """Leave the lease to others for the time in which they would take it from a dead holder."""
        lease, until_ms = self._lease, self.world.steady_ms + LEASE_TIMEOUT_MS
        if lease is not None:
            self.controller.given_back = GivenBack(lease.epoch, until_ms)
        self._resign(why)
        if lease is not None:
            self.store.release_lease(self.node, lease)

    def leave(self) -> None:
        """Give the lease back: this node stops in order."""
        lease = self._lease
        self.controller.resign()
        if lease is not None:
            self.store.release_lease(self.node, lease)
            self._lease = None

    # The lease.

    def _look(self) -> None:
        if self.controller.active or self._lease is not None:
            return
        self._forgive()
        self._due_ms = self.world.steady_ms + WATCH_MS
        seen = self.store.lease(self.node)
        silent = self.world.steady_ms - self._seen_ms > LEASE_TIMEOUT_MS
        self._consider(seen, silent=silent and seen == self._seen)

    def _consider(self, seen: Any, *, silent: bool) -> None:
        if self.controller.active or self._taking:
            return
        if seen is not AWAY and seen != self._seen:
            self._seen, self._seen_ms = seen, self.world.steady_ms
        free = seen is None or (seen is not AWAY and seen.holder in (NOBODY, self.node.node_id))
        if seen is AWAY or not (free or silent) or self._is_left_to_others(seen):
            self.world.after_in(self.node, WATCH_MS * 1000, self._look)
            return
        asked_ms = self.world.steady_ms
        self._taking = True

        def taken(lease: Any) -> None:
            self._taken(lease, asked_ms)

        self.store.take_lease(self.node, seen, self.node.node_id, self.incarnation, taken)

    def _is_left_to_others(self, seen: Lease | None) -> bool:
        given_back, now_ms = self.controller.given_back, self.world.steady_ms
        return seen is not None and given_back.is_left_to_others(seen.epoch, now_ms)

    def _taken(self, lease: Any, asked_ms: int) -> None:
        self._taking = False
        if lease is None or lease is AWAY:
            self.world.after_in(self.node, WATCH_MS * 1000, self._look)
            return
        self._lease, self._confirmed_ms = lease, asked_ms
        self.store.read(self.node, self._read)

    def _read(self, stored: Any) -> None:
        lease = self._lease
        if lease is None or stored is AWAY:
            self._lease = None
            self.world.after_in(self.node, WATCH_MS * 1000, self._look)
            return
        fault = self._compare(stored)
        if fault is not None:
            self.node.stop_because(fault)
            return
        image, log = MetadataImage.empty(), CommittedLog()
        for batch in stored:
            log.extend(CommittedBatch(*batch))
            image, _ = self.batches.replay(image, batch.payload)
        self._begin(lease, image, log)

    def _compare(self, stored: list[StoredBatch]) -> str | None:
        """A store that is older than this node's copy, as the real node finds at its start."""
        if self.store.faults.stale:
            return None
        end = self.node.follower.copy.end
        at = next((each for each in stored if each.first_offset == end.last_base_offset), None)
        store_end = stored[-1].end_offset if stored else 0
        return store_fault(end, store_end, bytes(at.payload) if at else None, "(of the world)")

    def _begin(self, lease: Lease, image: MetadataImage, log: CommittedLog) -> None:
        """Mark the new epoch in the log. Only then is it known that all of the log was read, and
        may anything be answered: a store's copy that is behind would make followers stop."""
        first = image.next_offset
        payload = leader_change_batch(
            base_offset=first, epoch=lease.epoch, leader_id=self.node.node_id,
            now_ms=self.world.now_ms,
        )  # fmt: skip
        batch = StoredBatch(first, first + 1, lease.epoch, payload)

        def appended(outcome: Any) -> None:
            if isinstance(outcome, Committed) and self._lease is lease:
                log.extend(CommittedBatch(*batch))
                self._take_office(lease, self.batches.replay(image, payload)[0], log)
            else:
                self._lease = None
                self.world.after_in(self.node, WATCH_MS * 1000, self._look)

        self.store.append(self.node, lease, first, [batch], appended)

    def _take_office(self, lease: Lease, image: MetadataImage, log: CommittedLog) -> None:
        controller, now_ms = self.controller, self.world.steady_ms
        self._confirmed_ms = now_ms
        self._forgive()
        controller.take_office(lease.epoch, image, log, now_ms)
        self.world.note("controller", self.node.name, epoch=lease.epoch, offset=log.end_offset)
        if not image.features:
            minimum = controller.static_config.min_insync_replicas
            records = self.node.cluster.first_records(bootstrap_records(minimum))
            self._plan(Result(records, None))
        self._due_ms = now_ms
        self._tick(lease.epoch)
        self.world.after_in(self.node, RENEW_MS * 1000, self._renew, lease.epoch)

    def _renew(self, epoch: int) -> None:
        lease, asked_ms = self._lease, self.world.steady_ms
        if not self.controller.active or self.controller.epoch != epoch or lease is None:
            return
        if asked_ms - self._confirmed_ms > LEASE_TIMEOUT_MS:
            self._resign("the lease could not be confirmed in time")
            return

        def renewed(outcome: Any) -> None:
            if self._lease is lease and self.controller.active:
                if outcome is None:
                    self._resign("another controller took the lease")
                elif outcome is not AWAY:
                    self._lease, self._confirmed_ms = outcome, max(self._confirmed_ms, asked_ms)

        self.store.renew_lease(self.node, lease, renewed)
        self.world.after_in(self.node, RENEW_MS * 1000, self._renew, epoch)

    # Connections that closed.

    def heard(self, broker_id: int, broker_epoch: int) -> None:
        """A broker sent a heartbeat with this epoch over its connection."""
        self._connected[broker_id] = broker_epoch

    def connection_closed(self, node_id: int) -> None:
        """A connection from another node closed."""
        epoch = self._connected.pop(node_id, None)
        if self.controller.active:
            if epoch is not None:
                self.controller.connection_closed(node_id, epoch, self.world.steady_ms)
                self._probe()
        elif self._seen is not None and self._seen.holder == node_id:
            target = self.node.cluster.nodes[node_id]
            Dial(self.node, target, None, self._holder_found).start(REDIAL_MS * 1000)

    def _holder_found(self, answer: Answer) -> None:
        """A holder of the lease whose process is gone need not be waited for: an append under its
        epoch is refused as soon as another takes the lease."""
        if answer is Answer.REFUSED and not self.controller.active:
            self._seen_ms = min(self._seen_ms, self.world.steady_ms - LEASE_TIMEOUT_MS - 1)
            self._look()

    def _probe(self) -> None:
        epoch = self.controller.epoch
        for probe in self.controller.take_probes():
            target = self.node.cluster.nodes.get(probe.broker_id)
            if target is not None:
                listens = probe.endpoint.host != target.session.clients_host
                found = partial(self._probed, epoch, probe)
                timeout_us = (probe.until_ms - probe.asked_ms) * 1000
                dial = Dial(self.node, target if listens else None, probe.incarnation_id, found)
                dial.start(timeout_us)

    def _probed(self, epoch: int, probe: Probe, answer: Answer) -> None:
        controller = self.controller
        if controller.active and controller.epoch == epoch:
            result = controller.probed(probe, answer, self.world.steady_ms)
            if result is not None:
                self.submit(Propose(result), _nobody)

    # What is due by time.

    def _tick(self, epoch: int) -> None:
        controller, now_ms = self.controller, self.world.steady_ms
        if not controller.active or controller.epoch != epoch:
            return
        self._forgive()
        if why := controller.gives_way(now_ms):
            self._give_way(why)
            return
        result = controller.tick(now_ms)
        if result is not None:
            self.submit(Propose(result), _nobody)
        self._probe()
        self._due_ms = max(now_ms + 1, controller.next_tick_ms)
        self.world.after_in(self.node, (self._due_ms - now_ms) * 1000, self._tick, epoch)

    def _forgive(self) -> None:
        """What was not heard while this process did not run, whose messages may lie unread."""
        sessions, now_ms = self.controller.sessions, self.world.steady_ms
        deaf_ms = now_ms - self._due_ms
        if deaf_ms > sessions.check_interval_ms:
            sessions.forgive(deaf_ms, now_ms)


def _not_controller() -> ApiError:
    return ApiError(ErrorCode.NOT_CONTROLLER, "This node is not the controller.")


def _nobody(_outcome: Any) -> None:
    return None
