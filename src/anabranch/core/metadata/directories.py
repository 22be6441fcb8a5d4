"""In which folder of its broker each replica lies, as the metadata says it.

Source: KIP-858. Not here: which folder a broker chooses (`core/broker/hosting/folders.py`), what a
folder that fails takes away (`core/controller/brokers/directories.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.core.metadata.image import (
    UNASSIGNED_DIRECTORY,
    BrokerImage,
    MetadataImage,
    PartitionImage,
)
from anabranch.core.metadata.levels import DIRECTORIES_SINCE, level_of

ANYWHERE = frozenset({UNASSIGNED_DIRECTORY, (2).to_bytes(16)})
"""Directory ids that say nothing about a folder: unassigned, and migrating (KIP-858)."""
LOST_DIRECTORY = (1).to_bytes(16)
"""The directory id of a replica that is lost to its broker, whatever its folders do (KIP-858)."""


def default_directory(broker: BrokerImage | None) -> bytes:
    """The directory id of a broker with one folder; with several it chooses itself (KIP-858)."""
    if broker is None or len(broker.log_dirs) != 1:
        return UNASSIGNED_DIRECTORY
    return broker.log_dirs[0]


def emptied(image: MetadataImage, partition: PartitionImage) -> Mapping[int, bytes]:
    """Replicas whose broker is registered without the folder that the partition names: it was
    wiped, or lost that disk. Told with the folder where they lie now."""
    found: dict[int, bytes] = {}
    for broker_id, directory in zip(partition.replicas, partition.directories, strict=False):
        broker = image.brokers.get(broker_id)
        if broker is None or directory in ANYWHERE or directory in broker.log_dirs:
            continue
        found[broker_id] = default_directory(broker)
    return found


def directory_of(partition: PartitionImage, broker_id: int) -> bytes | None:
    """The folder in which a broker's replica lies, None where that is not told."""
    if broker_id not in partition.replicas or len(partition.directories) != len(partition.replicas):
        return None
    return partition.directories[partition.replicas.index(broker_id)]


def knows_directories(image: MetadataImage) -> bool:
    """Whether the records of this cluster have room for directory ids."""
    level = level_of(image)
    return level is None or level >= DIRECTORIES_SINCE
