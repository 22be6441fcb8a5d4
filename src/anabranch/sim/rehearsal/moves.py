"""What an operator of a rehearsal has moved: brokers drained, and new ones given their share.

What: the steps of `anabranch cluster cordon`, `plan drain`, `plan add` and `apply`, asked of the
simulated cluster: the goals of `core/placement/move_plans.py` on a layout of the active
controller's metadata, handed over as Kafka's reassignment requests. Rule kept: a broker is cordoned
before it is drained, and gets a share once it serves. Not here: goals, and moves under way (core).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from anabranch.core.controller.brokers.cordons import CORDON, EVERY_FOLDER, cordoned
from anabranch.core.diskless.topics import is_diskless
from anabranch.core.metadata.image import RESOURCE_BROKER, MetadataImage
from anabranch.core.placement import move_plans
from anabranch.core.placement.layout import BrokerSite, Layout
from anabranch.core.placement.managed import rack_name
from anabranch.core.types import TopicPartition
from anabranch.core.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from anabranch.core.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from anabranch.sim.cluster import Cluster

BROKER_RESOURCE = int(RESOURCE_BROKER)
SET = 0
LOOK_US = 100_000
TIMEOUT_MS = 10_000


def layout_of(image: MetadataImage) -> Layout:
    """A cluster as planning sees it."""
    closed = cordoned(image)
    sites = [
        BrokerSite(broker_id, broker.rack, broker.active, broker_id in closed)
        for broker_id, broker in sorted(image.brokers.items())
    ]
    topics = image.topics_by_id.values()
    rows = {
        TopicPartition(topic.name, index): state.replicas
        for topic in topics
        for index, state in topic.partitions.items()
    }
    diskless = {topic.name for topic in topics if is_diskless(image, topic.name)}
    one_each = dict.fromkeys((rack_name(site.rack) for site in sites), 1)
    return Layout(sites, rows, dict.fromkeys(diskless, one_each), diskless)


class Mover:
    """Moves what has to move. `ask` sends an operator's request until it is answered, `told` hears
    each plan in a sentence."""

    def __init__(
        self, cluster: Cluster, ask: Callable[[object], None], told: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._ask = ask
        self._told = told
        self.on_moves: Callable[[Sequence[move_plans.PlannedMove]], None] = _unheard
        """Hears of moves before they are asked for."""

    @property
    def _image(self) -> MetadataImage:
        return self._cluster.image

    def drain(self, brokers: Sequence[int]) -> None:
        """Cordon brokers, and move every replica off them."""
        for each in brokers:
            self._cordon(each)

        def is_closed() -> bool:
            return set(brokers) <= cordoned(self._image)

        self._when(is_closed, lambda: self._carry_out(move_plans.drain(self._layout(), brokers)))

    def fill(self, brokers: Sequence[int]) -> None:
        """Give new brokers their share, once they serve."""
        nodes = self._cluster.nodes

        def serve() -> bool:
            known = self._image.brokers
            return all(
                nodes[each].is_serving and each in known and known[each].active for each in brokers
            )

        self._when(serve, lambda: self._carry_out(move_plans.fill(self._layout(), brokers)))

    def _layout(self) -> Layout:
        return layout_of(self._image)

    def _when(self, is_so: Callable[[], bool], then: Callable[[], None]) -> None:
        if is_so():
            then()
        else:
            self._cluster.world.after(LOOK_US, self._when, is_so, then)

    def _cordon(self, broker: int) -> None:
        config = AlterableConfig(name=CORDON, config_operation=SET, value=EVERY_FOLDER)
        resource = AlterConfigsResource(
            resource_type=BROKER_RESOURCE, resource_name=str(broker), configs=[config]
        )
        self._ask(IncrementalAlterConfigsRequest(resources=[resource]))

    def _carry_out(self, plan: move_plans.Plan) -> None:
        self._told(plan.sentence)
        self.on_moves(plan.moves)
        topics = [
            ReassignableTopic(
                name=name,
                partitions=[
                    ReassignablePartition(
                        partition_index=each.place.partition, replicas=list(each.after)
                    )
                    for each in moves
                ],
            )
            for name, moves in groupby(plan.moves, key=lambda each: each.place.topic)
        ]
        if topics:
            self._ask(AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=TIMEOUT_MS))


def _unheard(_moves: Sequence[move_plans.PlannedMove]) -> None:
    return None
