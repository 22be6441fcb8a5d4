"""Configurations of topics and brokers: AlterConfigs (the whole set) and its incremental sibling.

What: plans that turn wanted values into ConfigRecords, one for each value that really changes.
Values are checked by `core/settings`, as the full set the resource would then have. Rule kept: with
eligible leader replicas a broker cannot have its own `min.insync.replicas`, the cluster-wide one
cannot be removed, and any change of it clears the ELRs it concerns (KIP-966).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from anabranch.core.controller.features import elr_enabled
from anabranch.core.controller.image import (
    CLUSTER_DEFAULT,
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    MetadataImage,
)
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.validation import (
    apply_operation,
    validate_broker_configs,
    validate_topic_configs,
)
from anabranch.core.wire.metadata_records import ClearElrRecord, ConfigRecord, MetadataRecord

MIN_INSYNC = "min.insync.replicas"


class Operation(NamedTuple):
    """One change: SET 0, DELETE 1, APPEND 2, SUBTRACT 3."""

    name: str
    kind: int
    value: str | None


def replace_configs(
    image: MetadataImage,
    broker: BrokerConfig,
    resource_type: int,
    name: str,
    wanted: Mapping[str, str | None],
) -> tuple[MetadataRecord, ...]:
    """AlterConfigs: `wanted` becomes the whole set. Raises ClientFault."""
    _check_resource(image, resource_type, name)
    values = {key: value for key, value in wanted.items() if value is not None}
    return _records(image, broker, resource_type, name, values)


def change_configs(
    image: MetadataImage,
    broker: BrokerConfig,
    resource_type: int,
    name: str,
    operations: Iterable[Operation],
) -> tuple[MetadataRecord, ...]:
    """IncrementalAlterConfigs: the operations in order. Raises ClientFault."""
    _check_resource(image, resource_type, name)
    values = dict(image.config(resource_type, name))
    seen: set[str] = set()
    for operation in operations:
        if operation.name in seen:
            raise ClientFault(
                ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {operation.name}"
            )
        seen.add(operation.name)
        values = apply_operation(
            resource_type, values, operation.name, operation.kind, operation.value
        )
    return _records(image, broker, resource_type, name, values)


def _check_resource(image: MetadataImage, resource_type: int, name: str) -> None:
    if resource_type == RESOURCE_TOPIC:
        if image.topic(name) is None:
            raise ClientFault(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
            )
    elif resource_type == RESOURCE_BROKER:
        _check_broker(image, name)
    else:
        raise ClientFault(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {resource_type}.")


def _check_broker(image: MetadataImage, name: str) -> None:
    if name == CLUSTER_DEFAULT:
        return
    try:
        broker_id = int(name)
    except ValueError:
        raise ClientFault(
            ErrorCode.INVALID_REQUEST, f"Unable to parse broker name '{name}' as an integer."
        ) from None
    if broker_id not in image.brokers:
        raise ClientFault(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {broker_id} found."
        )


def _records(
    image: MetadataImage,
    broker: BrokerConfig,
    resource_type: int,
    name: str,
    values: Mapping[str, str],
) -> tuple[MetadataRecord, ...]:
    if resource_type == RESOURCE_TOPIC:
        validate_topic_configs(values, broker)
    else:
        validate_broker_configs(values, per_broker=name != CLUSTER_DEFAULT)
    before = image.config(resource_type, name)
    changed = sorted(key for key in {*before, *values} if before.get(key) != values.get(key))
    if MIN_INSYNC in changed and elr_enabled(image):
        _check_min_insync(resource_type, name, values)
    records: list[MetadataRecord] = [
        ConfigRecord(
            resource_type=resource_type, resource_name=name, name=key, value=values.get(key)
        )
        for key in changed
    ]
    if MIN_INSYNC in changed and elr_enabled(image):
        topic = name if resource_type == RESOURCE_TOPIC else ""
        records.append(ClearElrRecord(topic_name=topic))
    return tuple(records)


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
