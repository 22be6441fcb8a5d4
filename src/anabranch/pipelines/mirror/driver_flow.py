"""One flow as the driver knows it: its topics, its progress, and what it does between waves.

What: connections to both ends, the ledger, and the plan of the next wave. Rules kept: what a wave
works on is what the target says now; where slots change, their transactional ids are fenced before
the positions are read, so that nothing is committed behind them.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping

from anabranch.client.cluster import Cluster
from anabranch.client.connection import ConnectionLost
from anabranch.client.partitioner import partition_for
from anabranch.client.produce import produce
from anabranch.client.transactional_producer import TransactionalProducer
from anabranch.client.transactions import list_transactions
from anabranch.core.errors import ApiError
from anabranch.core.mirror.config import Flow
from anabranch.core.mirror.index import PLAN_KEY
from anabranch.core.mirror.topics import TopicShape
from anabranch.core.mirror.wave_plan import Slots, assigned, slots_of
from anabranch.core.wire.records import Record, build_batch
from anabranch.pipelines.mirror.clusters import cluster_of
from anabranch.pipelines.mirror.positions import Ledger, Place
from anabranch.pipelines.mirror.remote_topics import Topics, internal
from anabranch.pipelines.mirror.rights import missing_right
from anabranch.pipelines.mirror.work import PartitionWork, SlotWork
from anabranch.pipelines.mirror.writer import SETTINGS

INDEX_PARTITIONS = 25
"""As many as Connect has for positions."""
FENCES_AT_ONCE = 8
PLAN_BYTES = 16
Tell = Callable[[str], None]


class SameCluster(Exception):
    """Both ends of a flow are one cluster; the text says which."""


class Replaced(Exception):
    """Another mirror has all flows of this one by now; the text says so."""


class FlowState:
    """A flow while it is mirrored."""

    def __init__(self, flow: Flow, tell: Tell) -> None:
        self.flow = flow
        self.policy = flow.policy
        self.topics = Topics(flow, tell)
        self.ledger = Ledger(flow.policy)
        self.source = cluster_of(flow.source_client, "driver-source")
        self.target = cluster_of(flow.target_client, "driver-target")
        self.slots: dict[Place, int] | None = None
        self._tell = tell
        self.is_open = False
        self._plan = b""
        self._partitions: dict[str, int] = {}

    async def open(self) -> None:
        """Connect, and create what the mirror keeps on the target. Raises SameCluster, ApiError,
        ConnectionLost."""
        await self.connect()
        factor, key = (
            self.flow.number("offset.storage.replication.factor"),
            "offset.storage.replication.factor",
        )
        sizes = {
            self.policy.positions_topic(): self.flow.number("offset.storage.partitions"),
            self.policy.index_topic(): INDEX_PARTITIONS,
        }
        for name, partitions in sizes.items():
            await internal(
                self.target, name, partitions=partitions, replication_factor=factor, key=key
            )
            found = await self.target.retrying(lambda name=name: self.target.topic(name))  # type: ignore[misc]
            self._partitions[name] = len(found.partitions)
        self.is_open = True

    async def connect(self) -> None:
        """Connect to both ends. Raises SameCluster and ConnectionLost."""
        await self._connect(self.source, self.flow.source)
        await self._connect(self.target, self.flow.target)
        if self.source.cluster_id != self.target.cluster_id:
            return
        if _addresses(self.source) & _addresses(self.target):  # ids alone are copied with set-ups
            raise SameCluster(
                f"{self.flow.name}: {self.flow.source}.bootstrap.servers and "
                f"{self.flow.target}.bootstrap.servers lead to the same cluster "
                f"({self.source.cluster_id}): correct one of them."
            )

    async def _connect(self, cluster: Cluster, alias: str) -> None:
        try:
            await cluster.metadata([])
        except (ApiError, ConnectionLost) as fault:
            text = f"Cluster {alias} ({alias}.bootstrap.servers) cannot be used: {fault}"
            if isinstance(fault, ConnectionLost):
                text += (
                    f"{'' if text.endswith(('.', '?')) else '.'} Check that brokers run at these "
                    f"addresses, and that the file has the {alias}.security.protocol of their "
                    "listener."
                )
            raise ConnectionLost(text) from None

    async def close(self) -> None:
        """Disconnect."""
        await self.source.close()
        await self.target.close()

    async def plan(self, slots: int) -> list[SlotWork]:
        """The work of the next wave, a slot each; slots without partitions are left out."""
        places = [
            (shape.name, partition)
            for name, shape in self.topics.mirrored.items()
            if name in self.topics.there
            for partition in range(min(shape.partitions, self.topics.there[name].partitions))
        ]
        mirrored, there = self.topics.mirrored, self.topics.there
        plan = await self._assigned(places, slots)
        if plan.fence:
            self.slots = None  # unless this comes to an end, the next plan is a first one
            await self._name_plan()
            if self.flow.is_exactly_once:
                await self._fence(plan.fence)
        await self.ledger.read(self.target)
        self.slots = slots_of(plan)
        return [
            SlotWork(
                flow=self.flow,
                slot=slot,
                plan=self._plan,
                newest_plan=self.ledger.plan,
                partitions=tuple(self._work(place, mirrored, there) for place in places),
                positions_read_to=dict(self.ledger.positions_read_to),
                index_read_to=dict(self.ledger.index_read_to),
                positions_partitions=self._partitions[self.policy.positions_topic()],
                index_partitions=self._partitions[self.policy.index_topic()],
            )
            for slot, places in plan.by_slot.items()
            if places
        ]

    def told(self, trouble: Exception) -> str:
        """Why the next wave cannot be planned, with the right that the mirror may lack."""
        ids = f"transactional ids that begin with {self.flow.source}-"
        right = f"WRITE and DESCRIBE on {ids} on {self.flow.target}, and READ on its own topics"
        return f"{trouble}{missing_right(getattr(trouble, 'code', None), right)}"

    async def _assigned(self, places: list[Place], slots: int) -> Slots:
        known: list[str] = []
        if self.slots is None and self.flow.is_exactly_once:
            known = [each.transactional_id for each in (await list_transactions(self.target)).ids]
        return assigned(self.flow.source, places, slots, self.slots, known_ids=known)

    async def _name_plan(self) -> None:
        """Tasks of an older plan find another name from now on, and end."""
        self._plan = os.urandom(PLAN_BYTES)
        topic = self.policy.index_topic()
        partition = partition_for(PLAN_KEY, self._partitions[topic])
        record = Record(0, time.time_ns() // 1_000_000, PLAN_KEY, self._plan)
        await produce(self.target, topic, partition, build_batch([record]))

    async def _fence(self, names: tuple[str, ...]) -> None:
        limit = asyncio.Semaphore(FENCES_AT_ONCE)

        async def fence(name: str) -> None:
            async with limit:
                producer = TransactionalProducer(self.target, name, SETTINGS)
                await producer.init()
                await producer.close()

        await asyncio.gather(*map(fence, names))

    def _work(
        self, place: Place, mirrored: Mapping[str, TopicShape], there: Mapping[str, TopicShape]
    ) -> PartitionWork:
        topic, partition = place
        name = self.policy.remote_topic(topic)
        ids = {"source_id": mirrored[name].topic_id, "target_id": there[name].topic_id}
        return PartitionWork(
            topic, partition, name, ids["source_id"], ids["target_id"], self.topics.limit(name),
            self.ledger.positions.get(place), self.ledger.newest(place, **ids),
        )  # fmt: skip


def _addresses(cluster: Cluster) -> set[tuple[str, int]]:
    return {(each.host, each.port) for each in cluster.brokers.values()}
