"""After the faults: what an operator would do so that a cluster can come to rest, and no more.

What: every link, disk and store is whole again, every process runs. Where a broker says that a log
of its is damaged, its disk is replaced. Where a partition has no leader because nobody who may lead
has its log any more, the operator lets somebody lead uncleanly, as the one thing that is left; a
partition that waits although a rightful leader is there is not helped: that is a bug.

Rule kept: nothing is healed that the cluster has to heal itself. Source: the liveness phase of
TigerBeetle's VOPR, which asks first whether there was anything left to recover from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.metadata.image import UNASSIGNED_DIRECTORY
from anabranch.core.types import TopicPartition
from anabranch.core.wire.batch import crc_is_valid, walk
from anabranch.sim.fault_targets import mend
from anabranch.sim.plan_parts import SECOND_US
from anabranch.sim.store import StoreFaults

if TYPE_CHECKING:
    from anabranch.core.metadata.image import PartitionImage
    from anabranch.sim.clients.workload import Workload
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.faults import Faults
    from anabranch.sim.node import SimNode

PATIENCE_US = 20 * SECOND_US
"""How long the cluster has for finding a leader by itself."""
AGAIN_US = 5 * SECOND_US


class Repair:
    """See the module. `elections` counts the unclean ones that the operator asked for."""

    def __init__(self, cluster: Cluster, faults: Faults, workload: Workload) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.faults = faults
        self.workload = workload
        self.elections = 0
        self._next_election_us = 0

    def begin(self) -> None:
        """End all faults and start whoever is down."""
        self.faults.end()
        self.world.note("heal", "world")
        self.cluster.network.heal()
        self.cluster.store.faults = StoreFaults()
        self.cluster.store.come_back()
        for twin in self.cluster.twins:
            twin.stop()
        for node in self._nodes():
            mend(node)
            node.clock.go_on()
            node.resume()
        self._next_election_us = self.world.now_us + PATIENCE_US
        self.care()

    def care(self) -> None:
        """Look whether anybody needs the operator; called again and again until all is at rest."""
        for node, path in [each for each in self.faults.rotten if _is_damaged(*each)]:
            self._replace_disk(node, path)
        for node in self._nodes():
            if node.is_serving and node.broker.partitions.offline_folders:
                node.crash()  # a folder that failed is looked at again by the next process
            if not node.is_up:
                node.newest = {}
                node.start()
        if self.world.now_us >= self._next_election_us:
            self._next_election_us = self.world.now_us + AGAIN_US
            self._elect()

    def _nodes(self) -> list[SimNode]:
        nodes = self.cluster.nodes
        return [nodes[node_id] for node_id in sorted(nodes)]

    def _replace_disk(self, node: SimNode, path: str) -> None:
        """The broker gets an empty disk."""
        self.world.note("repair", node.name, path)
        node.crash()
        node.lose_folder(path.rpartition("/")[0])

    def _elect(self) -> None:
        image = self.cluster.image
        for name in sorted(image.topic_ids_by_name):
            topic = image.topic(name)
            for index, partition in sorted(topic.partitions.items()) if topic else ():
                place = TopicPartition(name, index)
                if partition.leader < 0 and not self._has_heir(place, partition):
                    self.elections += 1
                    self.world.note("operate", "operator", f"lets anybody lead {place}")
                    self.workload.operator.elect(place, 1)

    def _has_heir(self, place: TopicPartition, partition: PartitionImage) -> bool:
        """Whether somebody who may lead cleanly is there, with the disk that had the log."""
        brokers = self.cluster.image.brokers
        for node_id in (*partition.isr, *partition.elr):
            node, broker = self.cluster.nodes.get(node_id), brokers.get(node_id)
            directories = dict(zip(partition.replicas, partition.directories, strict=False))
            named = directories.get(node_id, UNASSIGNED_DIRECTORY)
            if node is None or broker is None or node.broker.partitions.get(*place) is None:
                continue
            if named == UNASSIGNED_DIRECTORY or named in broker.log_dirs:
                return True
        return False


def _is_damaged(node: SimNode, path: str) -> bool:
    """Whether a broker cannot use a log whose bits had flipped, or a scrub finds them.

    Only in a log that it has opened: what lies unread beside them, as the log of a topic that was
    deleted while the broker was down, may be as a power cut left it, and nobody misses it."""
    topic, _, index = path.rpartition("/")[2].rpartition("-")
    place = TopicPartition(topic, int(index))
    if node.is_up and place in node.broker.partitions.offline:
        return True
    replica = node.broker.partitions.get(*place) if node.is_serving else None
    return replica is not None and replica.path == path and _is_rotten(node, path)


def _is_rotten(node: SimNode, path: str) -> bool:
    """Whether a scrub finds a batch of a folder whose checksum is wrong."""
    for name in sorted(node.disk.names):
        if name.startswith(path + "/") and name.endswith(".log"):
            log = node.disk.read(name)
            for position, header in walk(log):
                if not crc_is_valid(log, position, header.size_bytes):
                    return True
    return False
