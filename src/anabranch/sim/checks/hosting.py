"""H1 to H3: what must hold of the logs that a broker hosts, and of its folders.

    H1  a replica is taken offline with its own folder or log alone: other folders do not matter
    H2  a file whose sync failed is not synced again in the same life
    H3  a hosted log is of the very topic that the metadata names, by what lies beside it

What: after each event, the node whose event it was is compared with what it was before. Rule kept:
what a disk saw is believed, and not what the node concluded from it. Not here: the content of logs
(`logs.py`), whether a full folder gets room again (`liveness.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.log.checkpoints import (
    PARTITION_METADATA,
    InvalidCheckpoint,
    parse_partition_metadata,
)
from anabranch.core.types import TopicPartition
from anabranch.sim.checks.marks import Marks
from anabranch.sim.checks.violation import Violation

if TYPE_CHECKING:
    from anabranch.core.api.context import Broker
    from anabranch.core.replication.replica import Replica
    from anabranch.sim.node import SimNode


class _Seen:
    """What a broker was like after the last event of its node."""

    __slots__ = ("broker", "failed", "full", "hosted", "image", "offline")

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.image: object = None
        self.hosted: dict[TopicPartition, Replica] = {}
        self.offline = 0
        self.failed: frozenset[str] = frozenset()
        self.full: frozenset[str] = frozenset()


class HostingChecks:
    """See the module."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._seen: dict[int, _Seen] = {}

    def look(self, node: SimNode) -> None:
        """After an event of a node."""
        broker, seen = node.broker, self._seen.get(node.node_id)
        if seen is None or seen.broker is not broker:
            seen = self._seen[node.node_id] = _Seen(broker)
        disk, partitions = node.disk, broker.partitions
        if disk.synced_again:
            raise Violation(
                "H2", "A file whose sync had failed was synced again.",
                {"node": node.name, "files": tuple(sorted(disk.synced_again))},
            )  # fmt: skip
        if partitions.offline_folders or partitions.full_folders or seen.failed or seen.full:
            self._folders(node, seen)
        if broker.image is not seen.image or len(partitions.offline) != seen.offline:
            self._logs(node, seen)

    def node_changed(self, node: SimNode, what: str) -> None:
        """A process started or ended."""
        if what in ("crash", "power") and node.broker.partitions.full_folders:
            self._marks.hit("full-and-crashed")

    def _folders(self, node: SimNode, seen: _Seen) -> None:
        partitions = node.broker.partitions
        if (
            len(partitions.offline_folders) == len(seen.failed)
            and len(partitions.full_folders) == len(seen.full)
        ):  # fmt: skip
            return
        failed, full = frozenset(partitions.offline_folders), frozenset(partitions.full_folders)
        if seen.full - full - failed:
            self._marks.hit("room-again")
        if failed - seen.failed and failed < {*node.folders}:
            self._marks.hit("folder-failed-alone")
        if any(path not in node.hosting.folders for path in failed - seen.failed):
            self._marks.hit("started-without-folder")
        seen.failed, seen.full = failed, full

    def _logs(self, node: SimNode, seen: _Seen) -> None:
        partitions = node.broker.partitions
        hosted = {replica.topic_partition: replica for replica in partitions}
        seen.image, seen.offline = node.broker.image, len(partitions.offline)
        if hosted == seen.hosted:
            return
        for place, replica in seen.hosted.items():
            if hosted.get(place) is not replica:
                self._left(node, place, replica)
        for place, replica in hosted.items():
            if seen.hosted.get(place) is not replica:
                self._came(node, place, replica)
        seen.hosted = hosted

    def _left(self, node: SimNode, place: TopicPartition, replica: Replica) -> None:
        partitions = node.broker.partitions
        is_lost = replica.folder in partitions.offline_folders or place in partitions.rotten
        if partitions.offline.get(place) == replica.topic_id and not is_lost:
            raise Violation(
                "H1", "A replica was taken offline, and its folder and its log are sound.",
                {"node": node.name, "partition": place, "folder": replica.folder,
                 "failed": tuple(sorted(partitions.offline_folders))},
            )  # fmt: skip

    def _came(self, node: SimNode, place: TopicPartition, replica: Replica) -> None:
        path = f"{replica.folder}/{place}/{PARTITION_METADATA}"
        if replica.folder in node.disk.broken or not node.disk.exists(path):
            return
        try:
            topic_id = parse_partition_metadata(node.disk.read(path))
        except InvalidCheckpoint:
            return  # a power cut tore it: the log takes the id that the metadata has
        if topic_id != replica.topic_id:
            raise Violation(
                "H3", "A log is hosted for another topic than its own.",
                {"node": node.name, "partition": place, "log": topic_id.hex(),
                 "metadata": replica.topic_id.hex()},
            )  # fmt: skip
