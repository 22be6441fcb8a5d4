"""In which version each metadata record is written at a level of metadata.version.

What: Kafka 4.1's table of record versions, and `to_write`, which takes from a record what its
version cannot hold. Why: a node of the version before reads the same log as long as the cluster
stays at the level that this node knows; only a raised level brings new fields. Rule kept: what is
applied to the image is what is written, so that live state and replayed log stay equal at every
level. Source: Kafka's MetadataVersion (KIP-584, KIP-858, KIP-966). Not here: when a level may be
raised (`feature_updates.py`), or goes up with a record of our own (`features.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType

from msgspec.structs import replace

from anabranch.core.errors import TooOld
from anabranch.core.metadata.features import METADATA_VERSION, SUPPORTED_FEATURES, missing_level
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.wire.metadata_records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from anabranch.core.wire.own_records import OWN_RECORD_IDS, RECORDS_FEATURE
from anabranch.core.wire.schema import fields_of

SHUTDOWN_SINCE, MIGRATION_SINCE, DIRECTORIES_SINCE, ELR_SINCE = 7, 8, 17, 23
"""Levels that brought controlled shutdown, migration, folders and eligible leaders to records."""

VERSIONS: Mapping[type[MetadataRecord], tuple[tuple[int, int], ...]] = MappingProxyType(
    {
        RegisterBrokerRecord: ((DIRECTORIES_SINCE, 3), (MIGRATION_SINCE, 2), (SHUTDOWN_SINCE, 1)),
        PartitionRecord: ((ELR_SINCE, 2), (DIRECTORIES_SINCE, 1)),
        PartitionChangeRecord: ((ELR_SINCE, 2), (DIRECTORIES_SINCE, 1)),
        BrokerRegistrationChangeRecord: ((DIRECTORIES_SINCE, 2), (SHUTDOWN_SINCE, 1)),
    }
)
"""Record -> (level, version from there on), the highest first; version 0 below them all."""


def level_of(image: MetadataImage) -> int | None:
    """The level in use; None before there is one: then everything is written as it is newest."""
    return image.features.get(METADATA_VERSION)


@cache
def version_at(kind: type[MetadataRecord], level: int | None) -> int:
    """The version of a record's schema at a level: of few kinds and levels, for each record."""
    newest = kind.versions[-1]
    if level is None or kind not in VERSIONS:
        return newest
    return next((version for since, version in VERSIONS[kind] if level >= since), 0)


def to_write(image: MetadataImage, records: Sequence[MetadataRecord]) -> Sequence[MetadataRecord]:
    """What a decision makes durable: its records as the level in use lets them be written, behind
    the higher level of our own records where one of them needs it."""
    own = (OWN_RECORD_IDS.get(record.type_id) for record in records)
    needed = max((each.since or 0 for each in own if each is not None), default=0)
    if needed > image.features.get(RECORDS_FEATURE, 0):
        raised = FeatureLevelRecord(name=RECORDS_FEATURE, feature_level=needed)
        records = (raised, *records)
    return _fitted_all(records, level_of(image))


def _fitted_all(records: Sequence[MetadataRecord], level: int | None) -> Sequence[MetadataRecord]:
    """The records without what cannot be written at that level."""
    if level is None or level >= ELR_SINCE:
        return records
    return [_fitted(record, version_at(type(record), level)) for record in records]


def _fitted(record: MetadataRecord, version: int) -> MetadataRecord:
    lost = _lost(type(record), version)
    if not any(getattr(record, name) != value for name, value in lost.items()):
        return record
    return replace(record, **lost)


@cache
def _lost(kind: type[MetadataRecord], version: int) -> Mapping[str, object]:
    """The fields that a version lacks, with the values that a reader of it has."""
    blank = kind()
    return {
        each.name: getattr(blank, each.name)
        for each in fields_of(kind)
        if version not in each.versions
    }


def check_supported(image: MetadataImage) -> None:
    """Raise TooOld when the cluster uses a level that this version of Anabranch does not know."""
    missing = missing_level(image, SUPPORTED_FEATURES)
    if missing is not None:
        raise TooOld(
            f"this version of Anabranch is too old for the cluster: {missing.feature} is at level "
            f"{missing.level}, and {missing.high} is the highest that it supports; install a newer "
            "version on this node"
        )
