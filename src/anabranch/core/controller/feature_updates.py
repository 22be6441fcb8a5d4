"""Changing feature levels: what may be raised, what may be lowered, and what goes with it.

What: the plan for UpdateFeatures. A level is raised only when every registered broker supports it,
and lowered only by a request that says so and only when nothing written since would be lost: across
a metadata.version that changed no record, while no partition has observers and no plan of moves is
open, while no partition depends on eligible leaders. Rule kept: all updates of a request are done,
or none. Turning ELR on also writes the cluster's minimum down; turning it off clears what was kept.

Sources: KIP-584, KIP-778, KIP-1022; texts and order of checks are those of Kafka's
FeatureControlManager. Not here: kraft.version, since no quorum commits metadata here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from anabranch.core.controller.partitions.eligible_replicas import enabling_records
from anabranch.core.controller.reasons import Code
from anabranch.core.controller.result import Reason
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.metadata.features import (
    ELR_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
)
from anabranch.core.metadata.image import MetadataImage, PartitionImage
from anabranch.core.wire.metadata_records import (
    ClearElrRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PlanRecord,
)
from anabranch.core.wire.own_records import (
    MISSING_SINCE,
    NO_PLAN,
    PLANS_SINCE,
    RECORDS_FEATURE,
    ROLES_SINCE,
)

METADATA_CHANGED = frozenset({7, 8, 11, 13, 14, 15, 17, 23})
"""Levels of metadata.version that brought new records or fields: lowering below one may lose what
was written since."""
ELR_NEEDS_METADATA = 23
"""ELR's fields exist since then."""
NOT_OFFERED = (0, 0)
WOULD_LOSE = (
    "Refusing to perform the requested downgrade because it might delete metadata information."
)


class UpgradeType(IntEnum):
    """What the request permits. Any other number is unknown."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class Update(NamedTuple):
    """One feature's wanted level."""

    feature: str
    level: int
    kind: int


class Plan(NamedTuple):
    """The records of all updates and why."""

    records: tuple[MetadataRecord, ...]
    reasons: tuple[Reason, ...]


def update_features(
    image: MetadataImage, node_id: int, static_minimum: int, updates: Sequence[Update]
) -> Plan:
    """Plan the updates in order. Raises ClientFault INVALID_UPDATE_VERSION for the first that
    cannot be done. `static_minimum` is min.insync.replicas of this controller's file."""
    proposed = {**image.features, **{each.feature: each.level for each in updates}}
    records: list[MetadataRecord] = []
    reasons: list[Reason] = []
    for update in updates:
        before = image.features.get(update.feature, 0)
        _check(image, node_id, update, before, proposed)
        if update.level == before:
            continue
        records += _records(image, static_minimum, update)
        reasons.append(
            Reason(
                Code.FEATURE_CHANGED,
                f"{update.feature} goes from level {before} to {update.level}",
                {"feature": update.feature, "before": before, "after": update.level},
            )
        )
    return Plan(tuple(records), tuple(reasons))


def _check(
    image: MetadataImage, node_id: int, update: Update, before: int, proposed: Mapping[str, int]
) -> None:
    if update.kind not in UpgradeType.__members__.values():
        raise _invalid(update, "The controller does not support the given upgrade type.")
    if update.level < 0:
        raise _invalid(update, "A feature version cannot be less than 0.")
    for who, (low, high) in _offers(image, node_id, update.feature):
        if not low <= update.level <= high:
            raise _invalid(update, _unsupported(who, low, high))
    if update.level < before and update.kind == UpgradeType.UPGRADE:
        raise _invalid(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade.",
        )
    if update.level > before and update.kind != UpgradeType.UPGRADE:
        raise _invalid(update, "Can't downgrade to a newer version.")
    if update.feature == METADATA_VERSION:
        _check_metadata_version(update, before)
    elif update.feature == KRAFT_VERSION and update.level != before:
        raise _invalid(update, "Metadata is committed in a store, not by a quorum.")
    elif update.level < before and _would_lose(image, update):
        raise _invalid(update, WOULD_LOSE)
    _check_dependencies(update, proposed)


def _offers(
    image: MetadataImage, node_id: int, feature: str
) -> Iterator[tuple[str, tuple[int, int]]]:
    yield f"Local controller {node_id}", SUPPORTED_FEATURES.get(feature, NOT_OFFERED)
    for broker_id in sorted(image.brokers):
        offered = image.brokers[broker_id].features
        yield f"Broker {broker_id}", offered.get(feature, NOT_OFFERED)
    for controller_id in sorted(image.controllers):
        offered = image.controllers[controller_id].features
        yield f"Controller {controller_id}", offered.get(feature, NOT_OFFERED)


def _unsupported(who: str, low: int, high: int) -> str:
    if high == 0:
        return f"{who} does not support this feature."
    return f"{who} only supports versions {low if low == high else f'{low}-{high}'}"


def _check_metadata_version(update: Update, before: int) -> None:
    if METADATA_CHANGED.isdisjoint(range(update.level + 1, before + 1)):
        return
    why = WOULD_LOSE
    if update.kind == UpgradeType.UNSAFE_DOWNGRADE:
        why = "Unsafe metadata downgrade is not supported in this version."
    raise ClientFault(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Invalid metadata.version {update.level}. {why}",
    )


def _check_dependencies(update: Update, proposed: Mapping[str, int]) -> None:
    """ELR needs metadata.version, whichever of the two the request names."""
    metadata = proposed.get(METADATA_VERSION, 0)
    if proposed.get(ELR_VERSION, 0) > 0 and metadata < ELR_NEEDS_METADATA:
        if update.feature in (ELR_VERSION, METADATA_VERSION):
            raise _invalid(
                update,
                f"{ELR_VERSION} could not be set to {proposed[ELR_VERSION]} because it depends on "
                f"{METADATA_VERSION} level {ELR_NEEDS_METADATA}",
            )


def _would_lose(image: MetadataImage, update: Update) -> bool:
    if update.feature == RECORDS_FEATURE:
        return update.level < _records_in_use(image)
    return update.feature == ELR_VERSION and any(map(_leans_on_elr, _partitions(image)))


def _records_in_use(image: MetadataImage) -> int:
    """The level below which records of our own that count today could not be written."""
    if image.plan is not None and image.plan.is_open:
        return PLANS_SINCE
    if image.placement_cursor > 0:
        return MISSING_SINCE
    return max(map(_level_of_roles, _partitions(image)), default=0)


def _level_of_roles(partition: PartitionImage) -> int:
    if partition.missing or partition.suspended:
        return MISSING_SINCE
    return ROLES_SINCE if partition.observers else 0


def _partitions(image: MetadataImage) -> Iterator[PartitionImage]:
    return (
        partition
        for topic in image.topics_by_id.values()
        for partition in topic.partitions.values()
    )


def _leans_on_elr(partition: PartitionImage) -> bool:
    return not partition.isr


def _records(image: MetadataImage, static_minimum: int, update: Update) -> Iterator[MetadataRecord]:
    if update.feature == RECORDS_FEATURE and image.plan is not None:
        if update.level < PLANS_SINCE:
            yield PlanRecord(plan_id=NO_PLAN)  # it is over, and older nodes cannot read it
    yield FeatureLevelRecord(name=update.feature, feature_level=update.level)
    if update.feature == ELR_VERSION:
        if update.level > 0:
            yield from enabling_records(image, static_minimum)
        else:
            yield ClearElrRecord(topic_name="")


def _invalid(update: Update, why: str) -> ClientFault:
    return ClientFault(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Invalid update version {update.level} for feature {update.feature}. {why}",
    )
