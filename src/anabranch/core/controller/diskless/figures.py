"""Managed placement in figures: what the metrics `kafka_controller_diskless_…` say.

Rule kept: with more than MOST_SERIES diskless partitions only those that are not steady are told,
and of these no more either, so that a page does not grow with the cluster: clients share a
processor with who makes it. Cost: a partition that is steady is not looked at.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from anabranch.core.controller.diskless.racks import DEGRADED, Rack, Racks, RackState
from anabranch.core.controller.diskless.reconciliation import (
    MISSING_RACK_CAPACITY,
    Placement,
    PlacementState,
    placement,
)

if TYPE_CHECKING:
    from anabranch.core.controller.cluster_state import PartitionKey
    from anabranch.core.controller.controller import Controller
    from anabranch.core.metadata.image import MetadataImage

MOST_SERIES = 10_000
"""Partitions that are told: all of them, or as many that are not steady."""
STATE_NUMBERS = {
    PlacementState.STEADY: 0,
    PlacementState.RECONCILING: 1,
    PlacementState.FROZEN: 2,
}


class RackFigures(NamedTuple):
    """`degraded_since_ms` is of the wall clock, 0 for a HEALTHY rack; `waited_percent` is how much
    of the threshold a DEGRADED one has waited."""

    name: str
    state: RackState
    degraded_since_ms: int
    waited_percent: int


class PartitionFigures(NamedTuple):
    """One partition."""

    topic: str
    partition: int
    rack_coverage: int
    placement_state: int
    placement_drift: int
    exceptions: int


class Figures(NamedTuple):
    """Everything at once: of one moment, also where `partitions` are read later."""

    racks: tuple[RackFigures, ...]
    effective_rf: int
    topics: tuple[str, ...]
    reassignment_backlog: int
    partitions: Iterable[PartitionFigures]
    """To be read once."""


NOTHING = Figures((), 0, (), 0, ())


def figures(controller: Controller, now_ms: int) -> Figures:
    """The figures of an active controller; nothing where no topic is diskless."""
    reconciling, index = controller.duties.diskless, controller.state.diskless
    racks, keys = reconciling.racks, index.keys
    if racks is None or not keys:
        return NOTHING
    told: Iterable[PartitionKey] = keys if len(keys) <= MOST_SERIES else reconciling.unsteady
    topics = sorted(controller.state.topic_name((topic_id, 0)) for topic_id in index.topics)
    return Figures(
        tuple(_rack(controller, rack, now_ms) for rack in racks.by_name.values()),
        len(racks.target),
        tuple(topics),
        reconciling.backlog,
        _partitions(controller, racks, list(islice(told, MOST_SERIES))),
    )


def _rack(controller: Controller, rack: Rack, now_ms: int) -> RackFigures:
    if rack.eligible:
        return RackFigures(rack.name, rack.state, 0, 0)
    degraded_ms = controller.duties.diskless.degraded_ms(rack, now_ms)
    threshold_ms = controller.config.diskless_managed_rf_rack_unavailable_threshold_ms
    percent = min(100, degraded_ms * 100 // max(threshold_ms, 1))
    return RackFigures(
        rack.name,
        rack.state,
        controller.wall_ms - degraded_ms,
        percent if rack.state is DEGRADED else 0,
    )


def _partitions(
    controller: Controller, racks: Racks, told: Sequence[PartitionKey]
) -> Iterator[PartitionFigures]:
    """Nothing that changes is looked at once this has returned: the figures are made as they are
    read, which takes longest and may be in a thread."""
    state, reconciling = controller.state, controller.duties.diskless
    changing = {key for key in told if key in reconciling.unsteady or key in reconciling.todo}
    reconciles = controller.config.diskless_managed_rf_auto_reconcile
    return _told(state.image, racks, told, changing, reconciles=reconciles)


def _told(
    image: MetadataImage,
    racks: Racks,
    told: Iterable[PartitionKey],
    changing: Container[PartitionKey],
    *,
    reconciles: bool,
) -> Iterator[PartitionFigures]:
    lacks = any(racks.by_name[name].state is DEGRADED for name in racks.target)
    steady = 100 if racks.target else 0, 0, 0, int(lacks)
    for key in told:
        topic = image.topics_by_id.get(key[0])
        if topic is None or key[1] not in topic.partitions:
            continue
        if key not in changing:
            yield PartitionFigures(topic.name, key[1], *steady)
            continue
        partition = topic.partitions[key[1]]
        seen = placement(partition.replicas, partition.leader, racks, reconciles=reconciles)
        yield PartitionFigures(topic.name, key[1], *_numbers(seen))


def _numbers(seen: Placement) -> tuple[int, int, int, int]:
    exceptions = seen.exceptions.count(MISSING_RACK_CAPACITY)
    return seen.rack_coverage, STATE_NUMBERS[seen.state], int(seen.has_drifted), exceptions
