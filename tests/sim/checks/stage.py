"""A stage for the checks: nodes that are only logs on simulated disks, moved by hand.

Everything that a check reads is real (disk, log, replica, image, committed records); what would
move it (network, requests, controller) is the test.
"""

from __future__ import annotations

from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

from anabranch.core.log.config import LogConfig
from anabranch.core.log.log import Log
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.replay import replay_batch
from anabranch.core.replication.partitions import Partitions
from anabranch.core.replication.replica import Replica
from anabranch.core.types import TopicId, TopicPartition
from anabranch.core.wire import metadata_records as records
from anabranch.core.wire.control import build_end_marker
from anabranch.core.wire.records import Record, build_batch
from anabranch.sim.checks.logs import LogChecks
from anabranch.sim.checks.marks import Marks
from anabranch.sim.checks.metadata import MetadataChecks
from anabranch.sim.disk import SimDisk
from anabranch.sim.processes import State

TOPIC_ID = TopicId(bytes(range(16)))
PLACE = TopicPartition("t", 0)
KEY = (bytes(TOPIC_ID), 0)
BY_HAND: Any = SimpleNamespace(
    flush_messages=0,
    min_insync_replicas=99,
    leader_replication_throttled_replicas=(),
    diskless_migration_phase="",
    follower_replication_throttled_replicas=(),
)
"""A topic's settings under which no replica moves its high watermark by itself."""


class Stage:
    """Three nodes with one partition: node 1 leads in epoch 0, all are in sync."""

    def __init__(self, *, min_isr: int = 2, elr: bool = True, **configs: str) -> None:
        self.marks = Marks()
        self.asked: set[Any] = set()
        self.metadata = MetadataChecks(self.marks, self.asked.__contains__)
        self.logs = LogChecks(self.metadata.model, self.marks)
        self.logs.deletes_asked.add(PLACE)
        self.metadata.elected.append(self.logs.elected)
        self.metadata.joined.append(self.logs.joined)
        self.metadata.left.append(self.logs.left)
        self.metadata.configured.append(self.logs.configured)
        self.image = MetadataImage.empty()
        self.nodes = {node_id: self._node(node_id) for node_id in (1, 2, 3)}
        self.sequence = 0
        self.commit(
            records.FeatureLevelRecord(
                name="eligible.leader.replicas.version", feature_level=int(elr)
            ),
            records.TopicRecord(name="t", topic_id=TOPIC_ID),
            *(
                records.ConfigRecord(
                    resource_type=2, resource_name="t", name=name.replace("_", "."), value=value
                )
                for name, value in {"min_insync_replicas": str(min_isr), **configs}.items()
            ),
        )
        for node_id in (1, 2, 3):
            self.register(node_id, 10 + node_id)
        self.commit(
            records.PartitionRecord(
                partition_id=0, topic_id=TOPIC_ID, replicas=[1, 2, 3], isr=[1, 2, 3],
                leader=1, leader_epoch=0, partition_epoch=0,
            )
        )  # fmt: skip
        self.follow(1, 2, 3)

    def _node(self, node_id: int) -> Any:
        disk = SimDisk(Random(node_id))
        broker = SimpleNamespace(
            image=self.image, partitions=Partitions(node_id), broker_epoch=10 + node_id
        )
        return SimpleNamespace(
            node_id=node_id, name=f"node-{node_id}", disk=disk, broker=broker,
            controller=SimpleNamespace(active=False), state=State.RUNNING, is_up=True,
            now_ms=0,
        )  # fmt: skip

    # Metadata.

    def commit(self, *batch: Any, epoch: int = 1) -> None:
        """Commit a batch: the checks hear of it, nobody has followed yet."""
        first = self.image.next_offset
        self.image = replay_batch(self.image, batch, first + len(batch) - 1, epoch)[0]
        self.metadata.committed(batch, first, first + len(batch), epoch)

    def register(self, node_id: int, broker_epoch: int, *, fenced: bool = False) -> None:
        """Register a broker, unfenced unless said otherwise."""
        self.commit(
            records.RegisterBrokerRecord(
                broker_id=node_id, broker_epoch=broker_epoch, fenced=fenced
            )
        )

    def change(self, **fields: Any) -> None:
        """Commit a change of the partition."""
        self.commit(self.changed(**fields))

    def changed(self, **fields: Any) -> Any:
        """The record of a change of the partition."""
        return records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, **fields)

    def fence(self, node_id: int) -> Any:
        """The record that fences a broker."""
        return records.FenceBrokerRecord(id=node_id, epoch=self.image.brokers[node_id].epoch)

    def elect(self, leader: int, isr: list[int], *gone: int, **fields: Any) -> None:
        """Fence some and elect another."""
        change = self.changed(leader=leader, isr=isr, **fields)
        self.commit(change, *map(self.fence, gone))

    # Nodes.

    def replica(self, node_id: int) -> Replica:
        """A node's replica."""
        replica = self.nodes[node_id].broker.partitions.get(*PLACE)
        assert replica is not None
        return replica

    def log(self, node_id: int) -> Log:
        """A node's log."""
        return self.replica(node_id).log

    def follow(self, *node_ids: int) -> None:
        """Have nodes take the newest metadata."""
        state = self.image.partition(*PLACE)
        assert state is not None
        for node_id in node_ids:
            node = self.nodes[node_id]
            if node.broker.partitions.get(*PLACE) is None:
                self.open(node_id, is_new=True)
            self.replica(node_id).take_state(state)
            node.broker.image = self.image
            self.look(node_id)

    def open(
        self,
        node_id: int,
        *,
        is_new: bool = False,
        high: int = 0,
        start: int = 0,
        clean: bool = False,
    ) -> None:
        """Open a node's log, as a start of its process does: one that was closed in order is not
        checked."""
        node = self.nodes[node_id]
        make = Log.create if is_new else partial(Log.open, clean=clean, log_start_offset=start)
        log = make(node.disk, "d/t-0", PLACE, TOPIC_ID, LogConfig(), now_ms=0)
        replica = Replica(
            PLACE, TOPIC_ID, log, BY_HAND, broker_id=node_id, folder="d", high_watermark=high
        )
        log.before_truncation = lambda place, after: self.logs.truncated(node, place, after)
        node.broker.partitions.host(replica)

    def restart(
        self,
        node_id: int,
        what: str,
        *,
        high: int = 0,
        start: int = 0,
        epoch: int | None = None,
        clean: bool = False,
    ) -> None:
        """End a node's process and start it again; its log is opened."""
        node = self.nodes[node_id]
        node.state = State.CRASHED
        self.logs.node_changed(node, what)
        self.metadata.forget(node)
        if what == "power":
            node.disk.cut_power()
        node.state = State.RUNNING
        node.broker = SimpleNamespace(
            image=MetadataImage.empty(),
            partitions=Partitions(node_id),
            broker_epoch=node.broker.broker_epoch if epoch is None else epoch,
        )
        self.logs.node_changed(node, "start")
        self.open(node_id, high=high, start=start, clean=clean)
        state = self.image.partition(*PLACE)
        assert state is not None
        self.replica(node_id).take_state(state)
        node.broker.image = self.image
        self.look(node_id)

    def look(self, *node_ids: int) -> None:
        """An event of these nodes has ended."""
        for node_id in node_ids:
            self.metadata.look(self.nodes[node_id])
            self.logs.look(self.nodes[node_id])

    # Records.

    def append(
        self,
        node_id: int,
        *,
        epoch: int | None = None,
        producer: tuple[int, int, int] = (-1, -1, -1),
        count: int = 1,
        key: bytes = b"k",
        tombstone: bool = False,
        transactional: bool = False,
    ) -> None:
        """One batch by a leader, of one record if not said otherwise; nobody looks yet."""
        self.sequence += 1
        batch = build_batch(
            [
                Record(each, 0, key, None if tombstone else b"%d" % self.sequence)
                for each in range(count)
            ],
            producer_id=producer[0], producer_epoch=producer[1], base_sequence=producer[2],
            transactional=transactional,
        )  # fmt: skip
        self._append(node_id, batch, epoch)

    def end_transaction(
        self, node_id: int, producer_id: int, *, committed: bool, epoch: int = 0
    ) -> None:
        """A marker by a leader, of this epoch of the producer."""
        marker = build_end_marker(
            committed=committed, producer_id=producer_id, producer_epoch=epoch,
            coordinator_epoch=0, now_ms=0,
        )  # fmt: skip
        self._append(node_id, marker)

    def _append(self, node_id: int, batch: bytearray, epoch: int | None = None) -> None:
        replica = self.replica(node_id)
        replica.log.append_as_leader(
            batch, leader_epoch=replica.leader_epoch if epoch is None else epoch, now_ms=0,
            client=False,
        )  # fmt: skip

    def copy(self, source: int, *targets: int) -> None:
        """Followers take what they lack."""
        log = self.log(source)
        for target in targets:
            own = self.log(target)
            held = log.read(
                own.end_offset, max_bytes=1 << 20, upto=log.end_offset, at_least_one=True
            )
            own.append_as_follower(bytes(held), now_ms=0)
            self.look(target)

    def tell(self, node_id: int, high: int) -> None:
        """A node's high watermark is that now."""
        self.replica(node_id).high_watermark = high
        self.look(node_id)

    def write(
        self, count: int = 1, *, leader: int = 1, followers: tuple[int, ...] = (2, 3)
    ) -> None:
        """Records that everybody has and knows to be committed."""
        for _ in range(count):
            self.append(leader)
        self.share(leader, *followers)

    def share(self, leader: int, *followers: int) -> None:
        """Followers take what the leader has, and everybody knows that it is committed."""
        self.look(leader)
        for _segment in self.log(leader).segments:  # one copy ends where a segment does
            self.copy(leader, *followers)
        for node_id in (leader, *followers):
            self.tell(node_id, self.log(leader).end_offset)
