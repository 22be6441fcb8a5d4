"""Configurations of resources: AlterConfigs (the whole set) and its incremental sibling.

What: plans that turn wanted values of topics, brokers, groups and subscriptions to clients' metrics
into ConfigRecords, one for each value that really changes. Values are checked by `core/settings`,
as the full set the resource would then have. Order of checks and texts are those of Kafka's
ConfigAdminManager and ConfigurationControlManager: the keys of the request, the resource's name,
the values, and only then whether the resource exists. Rule kept: with
eligible leader replicas a broker cannot have its own `min.insync.replicas`, the cluster-wide one
cannot be removed, and any change of it clears the ELRs it concerns (KIP-966).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from anabranch.core.controller.partitions.eligible_replicas import MIN_INSYNC, clear_elr
from anabranch.core.controller.topics.diskless import unchanged
from anabranch.core.controller.topics.migration import with_migration
from anabranch.core.controller.topics.topic_names import illegal_name
from anabranch.core.diskless.migration import PHASE
from anabranch.core.diskless.topics import BEGINS, DISKLESS, is_diskless
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.metadata.features import elr_enabled
from anabranch.core.metadata.image import (
    CLUSTER_DEFAULT,
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    MetadataImage,
)
from anabranch.core.placement.constraints import SETTING, read_constraints
from anabranch.core.remote.topics import REMOTE, makes_remote, refuse_disabling
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.resources import (
    validate_client_metrics_configs,
    validate_group_configs,
)
from anabranch.core.settings.topic import TopicConfig
from anabranch.core.settings.validation import (
    Resource,
    apply_operation,
    validate_broker_configs,
    validate_topic_configs,
)
from anabranch.core.wire.metadata_records import ConfigRecord, MetadataRecord

NAMELESS: Mapping[int, str] = {Resource.CLIENT_METRICS: "client metrics", Resource.GROUP: "group"}
"""Resources that exist by having settings, in the words of refusals."""


class Operation(NamedTuple):
    """One change: SET 0, DELETE 1, APPEND 2, SUBTRACT 3."""

    name: str
    kind: int
    value: str | None


SET, DELETE, APPEND, SUBTRACT = range(4)


def replace_configs(
    image: MetadataImage,
    broker: BrokerConfig,
    resource_type: int,
    name: str,
    wanted: Sequence[tuple[str, str | None]],
) -> tuple[MetadataRecord, ...]:
    """AlterConfigs: `wanted` becomes the whole set. Raises ClientFault."""
    check_request([Operation(key, SET, value) for key, value in wanted])
    name = checked_name(resource_type, name)
    values = {key: value for key, value in wanted if value is not None}
    if resource_type == RESOURCE_TOPIC and is_diskless(image, name):
        values.setdefault(DISKLESS, "true")  # a tool that replaces all settings cannot know it
        if makes_remote(image.config(resource_type, name)):
            values.setdefault(REMOTE, "true")
    own = image.config(resource_type, name) if resource_type == RESOURCE_TOPIC else {}
    for key in (PHASE, BEGINS):
        if key in own:
            values.setdefault(key, own[key])
    return _records(image, broker, resource_type, name, values)


def change_configs(
    image: MetadataImage,
    broker: BrokerConfig,
    resource_type: int,
    name: str,
    operations: Sequence[Operation],
) -> tuple[MetadataRecord, ...]:
    """IncrementalAlterConfigs: the operations in order. Raises ClientFault."""
    check_request(operations)
    name = checked_name(resource_type, name)
    # this node's own settings are the defaults of topics, and say nothing of another broker's
    default_of = broker if resource_type == RESOURCE_TOPIC else None
    values = values_after(image, default_of, resource_type, name, operations)
    return _records(image, broker, resource_type, name, values)


def values_after(
    image: MetadataImage,
    default_of: BrokerConfig | None,
    resource_type: int,
    name: str,
    operations: Sequence[Operation],
) -> dict[str, str]:
    """What would be set for a resource after the operations. Raises ClientFault."""
    values = dict(image.config(resource_type, name))
    for key, kind, value in operations:
        values = apply_operation(resource_type, values, key, kind, value, default_of)
    return values


def check_request(operations: Sequence[Operation]) -> None:
    """Raise ClientFault for operations that no resource could take."""
    if len({operation.name for operation in operations}) < len(operations):
        raise ClientFault(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [each.name for each in operations if each.kind != DELETE and each.value is None]
    if nulls:
        raise ClientFault(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}"
        )
    for each in operations:
        if not SET <= each.kind <= SUBTRACT:
            raise ClientFault(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"Unknown operation {each.kind} on {each.name}."
            )


def checked_name(resource_type: int, name: str) -> str:
    """The name by which a resource's settings are kept and found. Raises ClientFault."""
    if resource_type == RESOURCE_TOPIC:
        if not name:
            sentence = "Default topic resources are not allowed."
            raise ClientFault(ErrorCode.INVALID_REQUEST, sentence)
        illegal = illegal_name(name)
        if illegal is not None:
            raise ClientFault(ErrorCode.INVALID_TOPIC_EXCEPTION, illegal)
    elif resource_type == RESOURCE_BROKER:
        if name != CLUSTER_DEFAULT:
            broker_id = _broker_id(name)
            if broker_id is None:
                sentence = f"Node id must be an integer, but it is: {name}"
                raise ClientFault(ErrorCode.INVALID_REQUEST, sentence)
            return str(broker_id)
    elif resource_type in NAMELESS:
        if not name:
            sentence = f"Default {NAMELESS[resource_type]} resources are not allowed."
            raise ClientFault(ErrorCode.INVALID_REQUEST, sentence)
    else:
        raise ClientFault(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")
    return name


def _broker_id(name: str) -> int | None:
    return int(name) if re.fullmatch(r"[+-]?[0-9]{1,10}", name) else None


def _check_exists(image: MetadataImage, resource_type: int, name: str) -> None:
    if resource_type == RESOURCE_TOPIC:
        if image.topic(name) is None:
            raise ClientFault(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
            )
    elif (
        resource_type == RESOURCE_BROKER
        and name != CLUSTER_DEFAULT
        and _broker_id(name) not in image.brokers
        and _broker_id(name) not in image.controllers
    ):
        raise ClientFault(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {name} found.")


def _records(
    image: MetadataImage,
    broker: BrokerConfig,
    resource_type: int,
    name: str,
    values: Mapping[str, str],
) -> tuple[MetadataRecord, ...]:
    before = image.config(resource_type, name)
    changed = _changed(before, values)
    if MIN_INSYNC in changed and elr_enabled(image):
        _check_min_insync(resource_type, name, values)
    if resource_type == RESOURCE_TOPIC:
        validate_topic_configs(values, broker)
    elif resource_type == Resource.CLIENT_METRICS:
        validate_client_metrics_configs(values)
    elif resource_type == Resource.GROUP:
        validate_group_configs(values, broker)
    else:
        validate_broker_configs(values, per_broker=name != CLUSTER_DEFAULT)
    _check_exists(image, resource_type, name)
    if resource_type == RESOURCE_TOPIC:
        refuse_disabling(before, values)
        values = with_migration(image, broker, name, before, values)
        values = unchanged(name, before, values)
        changed = _changed(before, values)
    if SETTING in changed and SETTING in values:
        _check_racks(image, values[SETTING])
    records: list[MetadataRecord] = [
        ConfigRecord(
            resource_type=resource_type, resource_name=name, name=key, value=values.get(key)
        )
        for key in changed
    ]
    if MIN_INSYNC in changed and elr_enabled(image) and _other_minimum(before, values, broker):
        topic = name if resource_type == RESOURCE_TOPIC else ""
        records += clear_elr(image, topic)
    return tuple(records)


def _changed(before: Mapping[str, str], values: Mapping[str, str]) -> list[str]:
    return sorted(key for key in {*before, *values} if before.get(key) != values.get(key))


def _other_minimum(
    before: Mapping[str, str], values: Mapping[str, str], broker: BrokerConfig
) -> bool:
    """Whether `min.insync.replicas` means another number than before, not only another text."""
    old, new = (TopicConfig.of(each, broker).min_insync_replicas for each in (before, values))
    return old != new


def _check_racks(image: MetadataImage, text: str) -> None:
    """Refuse placement constraints that name a rack without any broker, alive or not; too few
    are obstacles of a plan, and come to have enough."""
    known = {each.rack for each in image.brokers.values() if each.rack is not None}
    for counts in read_constraints(text) or ():
        for rack in counts:
            if rack not in known:
                names = ", ".join(sorted(known)) or "none, no broker has broker.rack"
                raise ClientFault(
                    ErrorCode.INVALID_CONFIG,
                    f"{SETTING}: no broker is in rack {rack}; known: {names}. Correct the name, or "
                    "register a broker there first.",
                )


def _check_min_insync(resource_type: int, name: str, values: Mapping[str, str]) -> None:
    if resource_type != RESOURCE_BROKER:
        return
    if name != CLUSTER_DEFAULT:
        raise ClientFault(
            ErrorCode.INVALID_CONFIG,
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        )
    if MIN_INSYNC not in values:
        raise ClientFault(
            ErrorCode.INVALID_CONFIG,
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        )
