"""Replicas that no broker had yet get one: what a broker that joins is given (KIP-409).

What: every so often partitions that wait for replicas get a broker that is active and not among
theirs, one each, as a move that adds it: the broker copies, joins the in-sync replicas by its
leader's word, and then the replica is missing no more. Rules kept: at most MOST_AT_ONCE such moves
are under way; a partition that is being moved waits; a broker in a rack that the partition does not
have yet goes before others, and where there is none the reason says so; cordoned ones get nothing;
what was on its way to a broker that is not registered any more is missing again. Cost: nothing
while no broker has come or gone, or been uncordoned, since the last look.

Source: KIP-409; decisions 0025, 0026. Not here: how replicas come to be missing
(`core/controller/topics/placement.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, islice

from anabranch.core.controller.brokers.cordons import cordoned
from anabranch.core.controller.brokers.membership import Consequences, is_active
from anabranch.core.controller.brokers.sessions import Sessions
from anabranch.core.controller.cluster_state import ClusterState, PartitionKey
from anabranch.core.controller.moves.reassignment import Move, begun
from anabranch.core.controller.moves.requests import Moved, move
from anabranch.core.controller.partitions.elections import change_isr
from anabranch.core.controller.reasons import Code
from anabranch.core.controller.result import Reason, Result
from anabranch.core.errors import ClientFault
from anabranch.core.metadata.image import PartitionImage
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.wire.metadata_records import MetadataRecord, MissingReplicasRecord

INTERVAL_MS = 500
"""Between two looks."""
MOST_AT_ONCE = 100
"""Partitions that may be copying for this reason, or for any move, when another one begins; those
that wait for a broker which is down do not count."""


class MissingReplicasDuty:
    """When missing replicas are looked after next, on the steady clock."""

    def __init__(self, now_ms: int) -> None:
        self.due_ms = now_ms + INTERVAL_MS
        self._in_vain: tuple[object, frozenset[int], int] | None = None
        """The brokers with which nothing could be filled, those of them that were cordoned, and how
        many replicas were missing."""
        self._brokers: object = None
        """The brokers among which whoever something is on its way to was found."""

    def due(
        self, state: ClusterState, sessions: Sessions, config: BrokerConfig, now_ms: int
    ) -> Result[None] | None:
        """The moves that begin now, if any does."""
        if now_ms < self.due_ms:
            return None
        self.due_ms = now_ms + INTERVAL_MS
        image = state.image
        consequences = Consequences(state, config, sessions.suspects)
        if image.brokers is not self._brokers:
            given_back = _given_back(consequences)
            if given_back.records:
                return given_back
            self._brokers = image.brokers
        if not state.short:
            return None
        seen = image.brokers, cordoned(image), state.missing_count
        if seen == self._in_vain:
            return None
        room = MOST_AT_ONCE - _copying(state)
        if room <= 0:
            return None
        records: list[MetadataRecord] = []
        reasons: list[Reason] = []
        for key, broker_id in _choices(state):
            made, reason = _fill(consequences, key, broker_id)
            records += made
            reasons.append(reason)
            if len(reasons) == room:
                break
        if not reasons:
            if state.short.keys().isdisjoint(state.moving):  # else one may be filled after its move
                self._in_vain = seen
            return None
        return Result(tuple(records), None, tuple(reasons))


def _given_back(consequences: Consequences) -> Result[None]:
    """Cancel fillings that wait for a broker which is not registered any more, some at a time."""
    state = consequences.state
    found: list[Moved] = []
    for key in state.moving:
        partition = state.partition(key)
        is_filled = partition.suspended and not partition.removing
        if is_filled and any(each not in state.image.brokers for each in partition.adding):
            with suppress(ClientFault):  # it stays where that would lose records
                found.append(move(consequences, state.topic_name(key), key[1], None))
        if len(found) == MOST_AT_ONCE:
            break
    records = chain.from_iterable(each.records for each in found)
    reasons = chain.from_iterable(each.reasons for each in found)
    return Result(tuple(records), None, tuple(reasons))


def _copying(state: ClusterState) -> int:
    """Moves that nobody who is down holds up, counted to MOST_AT_ONCE."""
    image = state.image
    moves = (Move.of(state.partition(key)) for key in state.moving)
    live = (move for move in moves if all(is_active(image, each) for each in move.coming))
    return sum(1 for _ in islice(live, MOST_AT_ONCE))


def _choices(state: ClusterState) -> Iterator[tuple[PartitionKey, int]]:
    """Partitions that wait and do not move, each with the broker that it gets."""
    image = state.image
    closed = cordoned(image)
    active = [
        broker
        for broker_id, broker in sorted(image.brokers.items())
        if broker.active and broker_id not in closed
    ]
    given = dict(state.replica_count)
    for key in state.short:
        partition = state.partition(key)
        if partition.adding or partition.removing:
            continue
        racks = _racks(state, partition)
        free = [each for each in active if each.broker_id not in partition.replicas]
        if free:
            best = min(
                free,
                key=lambda each: (each.rack in racks, given.get(each.broker_id, 0), each.broker_id),
            )
            given[best.broker_id] = given.get(best.broker_id, 0) + 1
            yield key, best.broker_id


def _racks(state: ClusterState, partition: PartitionImage) -> set[str | None]:
    brokers = state.image.brokers
    return {brokers[each].rack for each in partition.replicas if each in brokers} - {None}


def _fill(
    consequences: Consequences, key: PartitionKey, broker_id: int
) -> tuple[list[MetadataRecord], Reason]:
    state = consequences.state
    partition = state.partition(key)
    lists = begun(partition.replicas, (*partition.replicas, broker_id))
    change = change_isr(*key, partition, partition.isr, consequences.rules(key), move=lists)
    assert change is not None  # somebody is added
    missing = MissingReplicasRecord(
        partition_id=key[1],
        topic_id=key[0],
        missing=partition.missing - 1,
        suspended=partition.suspended + 1,
    )
    place = f"{state.topic_name(key)}-{key[1]}"
    rack = state.image.brokers[broker_id].rack
    shares = rack is not None and rack in _racks(state, partition)
    drift = f", although rack {rack} has one already: a rack violation" if shares else ""
    reason = Reason(
        Code.MISSING_REPLICA_FILLED,
        f"broker {broker_id} gets a replica of {place} that no broker had{drift}",
        {"partition": place, "broker_id": broker_id, "rack_violation": shares},
    )
    return [change, missing], reason
