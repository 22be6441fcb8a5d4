"""Whether a healed cluster is at rest, and if not, what is still wrong: one sentence.

At rest: every broker serves; one controller, and everybody follows it to the end; every partition
has a leader, and every replica and observer holds all of it, byte for byte; every replica is in
sync, and the high watermark is the end, also by what each of them was told. A replica whose disk
has lost what it promised is beyond healing, and so is a partition that such a replica leads: those
are left out and counted.

Rule kept: how long rest may take is the schedule's to say. Not here: clients' answers and groups
(the workload knows).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.coordination.groups.offsets_topic import OFFSETS_TOPIC
from anabranch.sim.checks.entries import Entry
from anabranch.sim.checks.logs import LogChecks
from anabranch.sim.checks.model import Key, Partition

if TYPE_CHECKING:
    from anabranch.core.types import TopicPartition
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.node import SimNode


def unrest(cluster: Cluster, logs: LogChecks) -> str:
    """What is wrong still, "" when nothing is."""
    model = logs.model
    for node in cluster.nodes.values():
        broker = model.brokers.get(node.node_id)
        if not node.is_serving:
            return f"{node.name} is not ready ({node.stopped_because or node.state.value})"
        if broker is None or not broker.active or broker.epoch != node.broker.broker_epoch:
            return f"{node.name} is not registered as active: {broker}"
        if node.broker.partitions.full_folders:
            return f"{node.name} takes a folder for full, and every disk has room"
        if node.image.next_offset != model.end_offset:
            return f"{node.name} has metadata up to {node.image.offset}, not {model.end_offset - 1}"
    active = [node for node in cluster.nodes.values() if node.controller.active]
    if len(active) != 1:
        return f"{len(active)} controllers are active"
    for node in cluster.nodes.values():
        for replica in node.broker.partitions:
            if not logs.belongs_to(node.node_id, logs.key_of(replica)):
                return f"{node.name} hosts {replica.topic_partition}, which is not its own"
    for key, partition in model.partitions.items():
        if model.is_diskless(key):
            continue  # no broker keeps a log of it
        wrong = _partition_unrest(cluster, logs, key, partition)
        if wrong:
            return f"{model.place(key)}: {wrong}"
    return ""


def _partition_unrest(cluster: Cluster, logs: LogChecks, key: Key, partition: Partition) -> str:
    place = logs.model.place(key)
    here = [node_id for node_id in partition.replicas if node_id in cluster.nodes]
    broken = {
        node_id for node_id in here if place in cluster.nodes[node_id].broker.partitions.offline
    }
    if broken and (partition.leader < 0 or partition.leader in broken):
        return ""
    if partition.adding or partition.removing:
        return f"a move is under way: adding={partition.adding} removing={partition.removing}"
    if partition.leader < 0:
        candidates = [*partition.isr, *partition.elr, *partition.last_known]
        if logs.model.unclean_allowed(key):
            candidates += partition.replicas
        if not any(logs.model.may_lead(partition, each) for each in candidates):
            logs.marks.hit("offline-for-good")
            return ""  # whoever could lead has lost its disk, and nothing allows anybody else
        return f"no leader; isr={partition.isr} elr={partition.elr}"
    alive = [node_id for node_id in here if node_id not in broken]
    if sorted(partition.isr) != sorted(alive):
        return f"the ISR is {partition.isr}, alive are {alive}"
    if partition.recovering:
        return "its leader has not said that it recovered"
    leader = cluster.nodes[partition.leader].broker.partitions.get(*place)
    if leader is None or not leader.is_leader or leader.leader_epoch != partition.leader_epoch:
        return f"node-{partition.leader} does not lead it yet"
    if leader.high_watermark != leader.log.end_offset:
        return f"committed up to {leader.high_watermark} of {leader.log.end_offset}"
    for node_id in (*alive, *partition.observers):
        node = cluster.nodes.get(node_id)
        wrong = copy_unrest(node, logs, key, leader.log.end_offset)
        wrong = wrong or _mark_unrest(node, place, leader.log.end_offset)
        if wrong:
            return f"node-{node_id} {wrong}"
    return ""


def copy_unrest(node: SimNode | None, logs: LogChecks, key: Key, end: int) -> str:
    """Why a node's copy of a partition that ends at `end` is not at rest; "" when it is."""
    if node is None:
        return ""
    replica = node.broker.partitions.get(*logs.model.place(key))
    seat = logs.seats.get(node.node_id)
    copy = seat.copies.get(key) if seat is not None else None
    if replica is None or copy is None:
        return "does not host it"
    if replica.log.end_offset != end:
        return f"has it up to {replica.log.end_offset} of {end}"
    start = max(replica.log.local_start_offset, copy.truth.start)
    here, there = _from(copy.entries, start), _from(copy.truth.entries, start)
    if copy.compacted is not None:  # who copied it anew may have found nothing of it
        here, there = _begun_at(here, start), _begun_at(there, start)
    if here != there:
        return "has other batches than those that are committed"
    return ""


def _mark_unrest(node: SimNode | None, place: TopicPartition, end: int) -> str:
    """Whether a node does not know that all is committed. Of committed offsets nothing is asked: a
    coordinator writes a record before it tells one, and somebody may ask again and again."""
    if node is None or place.topic == OFFSETS_TOPIC:
        return ""
    replica = node.broker.partitions.get(*place)
    if replica is None or replica.high_watermark == end:
        return ""
    return f"takes it for committed up to {replica.high_watermark} of {end}"


def _from(entries: list[Entry], start: int) -> list[Entry]:
    return [entry for entry in entries if entry.end > start]


def _begun_at(entries: list[Entry], start: int) -> list[Entry]:
    """Without a batch that lies across the start."""
    return entries[entries[0].base < start :] if entries else entries
