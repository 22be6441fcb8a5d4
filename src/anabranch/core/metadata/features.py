"""Feature levels: what the cluster as a whole may use (KIP-584), as Kafka 4.1 sets them.

A new cluster starts with `BOOTSTRAP_LEVELS`. A broker that does not support a finalized level may
not register. The level of our own records is not written before the first of them is needed, so
that Kafka can open what a node leaves behind; then it goes up with it, if every node can read it.
Changing levels otherwise: `feature_updates.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from immutables import Map

from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.metadata.image import (
    CLUSTER_DEFAULT,
    RESOURCE_BROKER,
    MetadataImage,
)
from anabranch.core.wire.metadata_records import ConfigRecord, FeatureLevelRecord, MetadataRecord
from anabranch.core.wire.own_records import OWN_RECORD_IDS, RECORDS_FEATURE

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
ELR_VERSION = "eligible.leader.replicas.version"
TRANSACTION_VERSION = "transaction.version"

CONTROLLERS_SINCE = 15
"""Level of metadata.version from which controllers are registered (KIP-919)."""

SUPPORTED_FEATURES: Mapping[str, tuple[int, int]] = {
    RECORDS_FEATURE: (0, 3),
    ELR_VERSION: (0, 1),
    "group.version": (0, 1),
    KRAFT_VERSION: (0, 1),
    METADATA_VERSION: (7, 27),
    TRANSACTION_VERSION: (0, 2),
}
"""Lowest and highest level this version works with; metadata.version 27 is Kafka's 4.1-IV1."""

BOOTSTRAP_LEVELS: Mapping[str, int] = {
    ELR_VERSION: 1,
    "group.version": 1,
    METADATA_VERSION: 27,
    TRANSACTION_VERSION: 2,
}
"""Levels of a new cluster: Kafka 4.1's defaults. Level 0 is not written."""


def bootstrap_records(min_insync_replicas: int) -> tuple[MetadataRecord, ...]:
    """The first records of a new cluster.

    With eligible leader replicas the cluster-wide `min.insync.replicas` is written down, as Kafka
    does, so that ELR never depends on one broker's file.
    """
    levels = tuple(
        FeatureLevelRecord(name=name, feature_level=level)
        for name, level in sorted(BOOTSTRAP_LEVELS.items())
    )
    insync = ConfigRecord(
        resource_type=RESOURCE_BROKER,
        resource_name=CLUSTER_DEFAULT,
        name="min.insync.replicas",
        value=str(min_insync_replicas),
    )
    return (*levels, insync)


def elr_enabled(image: MetadataImage) -> bool:
    """Whether eligible leader replicas are kept (KIP-966)."""
    return image.features.get(ELR_VERSION, 0) > 0


def may_write(image: MetadataImage, record: type[MetadataRecord]) -> bool:
    """Whether this record of ours may be written: the cluster's level has it, or every node that is
    registered can read it, and the level goes up with the record."""
    since = OWN_RECORD_IDS[record.type_id].since
    if since is None:
        return False
    return image.features.get(RECORDS_FEATURE, 0) >= since or (
        image.features.get(METADATA_VERSION, 0) >= CONTROLLERS_SINCE
        and not any(high < since for _, high in _own_levels(image))
    )


def check_own_record(image: MetadataImage, record: type[MetadataRecord]) -> None:
    """Raise UNSUPPORTED_VERSION unless this record of ours may be written."""
    if not may_write(image, record):
        since = OWN_RECORD_IDS[record.type_id].since
        level = image.features.get(RECORDS_FEATURE, 0)
        unable = [who for who, high in _own_levels(image) if since is None or high < since]
        why = f"; not every node supports that: {', '.join(unable)}" if unable else ""
        raise ClientFault(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{record.__name__} needs level {since} of {RECORDS_FEATURE}, "
            f"which is at {level}{why}.",
        )


def _own_levels(image: MetadataImage) -> Iterator[tuple[str, int]]:
    """Each registered node and the highest level of our own records that it can read."""
    for kind, nodes in (("broker", image.brokers), ("controller", image.controllers)):
        for node_id, node in nodes.items():
            yield f"{kind} {node_id}", node.features.get(RECORDS_FEATURE, (0, 0))[1]


class MissingLevel(NamedTuple):
    """A level in use that a node does not support, and what it supports."""

    feature: str
    level: int
    low: int
    high: int

    def sentence(self, who: str) -> str:
        """Kafka's words for it."""
        return (
            f"Unable to register because the {who} does not support finalized version "
            f"{self.level} of {self.feature}. The {who} wants a version between {self.low} and "
            f"{self.high}, inclusive."
        )


def offered(features: Iterable[Any]) -> Map[str, tuple[int, int]]:
    """The levels, lowest and highest, that a node names in a request or a record."""
    return Map(
        {each.name: (each.min_supported_version, each.max_supported_version) for each in features}
    )


def missing_level(
    image: MetadataImage, offered: Mapping[str, tuple[int, int]]
) -> MissingLevel | None:
    """The first level in use that `offered` does not cover, None when it covers all."""
    for name, level in sorted(image.features.items()):
        low, high = offered.get(name, (0, 0))
        if not low <= level <= high:
            return MissingLevel(name, level, low, high)
    return None


def check_broker_features(image: MetadataImage, offered: Mapping[str, tuple[int, int]]) -> None:
    """Raise UNSUPPORTED_VERSION unless the broker supports every finalized level, and
    INVALID_REGISTRATION when it does not speak of the metadata's."""
    if METADATA_VERSION not in offered:
        raise ClientFault(
            ErrorCode.INVALID_REGISTRATION, f"The broker does not say its {METADATA_VERSION}."
        )
    missing = missing_level(image, offered)
    if missing is not None:
        raise ClientFault(ErrorCode.UNSUPPORTED_VERSION, missing.sentence("broker"))
