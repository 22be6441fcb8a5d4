"""Which partitions are diskless, by broker: what decisions about them look up.

What: for each broker the diskless partitions that it has a replica of and those that it leads, and
how many each topic has. Why: their in-sync replicas never change, so a broker that goes away
matters to what it leads alone. Rule kept: it follows from the image, as everything in
`cluster_state.py`.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from anabranch.core.metadata.image import PartitionImage
from anabranch.core.types import TopicId

Key = tuple[TopicId, int]
Index = dict[int, dict[Key, None]]


class DisklessIndex:
    """The diskless partitions of an image."""

    def __init__(self) -> None:
        self.keys: dict[Key, None] = {}
        self.topics: Counter[TopicId] = Counter()
        """Partitions of each topic that has some."""
        self.on: Index = defaultdict(dict)
        """By broker: partitions that it has a replica of."""
        self.led_by: Index = defaultdict(dict)
        self.touched: dict[Key, None] = {}
        """Partitions that came or changed since `take_touched`."""

    def appears(self, key: Key, partition: PartitionImage) -> None:
        """A partition came."""
        self.keys[key] = None
        self.topics[key[0]] += 1
        self.touched[key] = None
        for broker_id in partition.replicas:
            self.on[broker_id][key] = None
        if partition.leader >= 0:
            self.led_by[partition.leader][key] = None

    def changes(self, key: Key, was: PartitionImage, partition: PartitionImage) -> None:
        """A partition is not what it `was`. Only what differs is touched: a key that is removed and
        added again leaves a gap, and a table of 100,000 keys that is full of gaps is made anew,
        which holds up the loop for 10 ms."""
        self.touched[key] = None
        if was.replicas != partition.replicas:
            for broker_id in set(was.replicas).difference(partition.replicas):
                self.on[broker_id].pop(key, None)
            for broker_id in partition.replicas:
                self.on[broker_id][key] = None
        if was.leader != partition.leader:
            self.led_by[was.leader].pop(key, None)
            if partition.leader >= 0:
                self.led_by[partition.leader][key] = None

    def disappears(self, key: Key, partition: PartitionImage) -> None:
        """A partition went."""
        del self.keys[key]
        self.topics[key[0]] -= 1
        if not self.topics[key[0]]:
            del self.topics[key[0]]
        self.touched.pop(key, None)
        for broker_id in partition.replicas:
            self.on[broker_id].pop(key, None)
        if partition.leader >= 0:
            self.led_by[partition.leader].pop(key, None)

    def take_touched(self) -> dict[Key, None]:
        """What came or changed since the last call."""
        touched, self.touched = self.touched, {}
        return touched
