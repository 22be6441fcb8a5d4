"""Folders without room: who gives way to whom.

What: a broker says with its heartbeats which of its folders have no room for records. A replica
there holds every record that was acknowledged and takes no more: it leaves the leadership and the
in-sync replicas to those that have room. Rules kept: it gives way only to an in-sync replica that
may lead and has room, so that no partition is left without one; nobody leads uncleanly for it; the
last one in sync stays so, and leads, for readers. Why it leaves the in-sync replicas too: whoever
waits for all of them would wait for a copy that has no place.

Source: ours; the report rides beside KIP-858's offline folders. Not here: when a folder is full
(`core/log/room.py`), what a folder that fails takes away (`directories.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.core.controller.partitions.elections import Rules
    from anabranch.core.metadata.image import MetadataImage, PartitionImage

FullFolders = Mapping[int, Collection[bytes]]
"""Broker id -> its folders without room; brokers that have none are left out."""
NOBODY: frozenset[int] = frozenset()


def full_folders(image: MetadataImage) -> dict[int, Collection[bytes]]:
    """The folders without room, as the metadata knows them."""
    return {
        broker_id: broker.full_log_dirs
        for broker_id, broker in image.brokers.items()
        if broker.full_log_dirs
    }


def without_room(
    full: FullFolders, image: MetadataImage, partition: PartitionImage
) -> frozenset[int]:
    """The replicas of a partition whose folder has no room. Where a replica lies in no folder that
    its broker still has, none of them may have room."""
    if not full or full.keys().isdisjoint(partition.replicas):
        return NOBODY
    found = []
    for broker_id, directory in zip(partition.replicas, partition.directories, strict=False):
        broker = image.brokers.get(broker_id)
        if broker_id not in full or broker is None:
            continue
        lies_in = {directory} & set(broker.log_dirs) or set(broker.log_dirs)
        if lies_in <= set(full[broker_id]):
            found.append(broker_id)
    return frozenset(found)


def with_room(isr: tuple[int, ...], rules: Rules, before: Collection[int]) -> tuple[int, ...]:
    """The in-sync replicas that stay: those with room, or all where none of those may lead; one
    that was emptied and was in sync `before` may not."""
    left = tuple(each for each in isr if each not in rules.roomless)
    empty = {each for each in before if each in rules.emptied}
    if any(rules.acceptable(each) and each not in empty for each in left):
        return left
    return isr
