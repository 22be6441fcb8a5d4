"""Registrations of brokers: epochs, fencing, folders.

Rule kept: a record that names another epoch than the registered one raises `Bug`. Source: KIP-631,
KIP-858 (folders).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from anabranch.core.errors import Bug
from anabranch.core.metadata.builder import ImageBuilder, Rules
from anabranch.core.metadata.concerns.absences import is_back
from anabranch.core.metadata.concerns.endpoints import endpoints_of
from anabranch.core.metadata.features import offered
from anabranch.core.metadata.image import BrokerImage, MetadataImage
from anabranch.core.wire import metadata_records as records


def _register_broker(builder: ImageBuilder, record: records.RegisterBrokerRecord) -> None:
    builder.changing("brokers")[record.broker_id] = BrokerImage(
        broker_id=record.broker_id,
        epoch=record.broker_epoch,
        incarnation_id=bytes(record.incarnation_id),
        endpoints=endpoints_of(record.end_points),
        rack=record.rack,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        log_dirs=tuple(record.log_dirs),
        features=offered(record.features),
        full_log_dirs=tuple(record.full_log_dirs),
        is_noted=record.is_noted,
    )
    builder.brokers.add(record.broker_id)
    if not record.fenced and not record.in_controlled_shutdown:
        is_back(builder, record.broker_id)


def _broker_at_epoch(builder: ImageBuilder, broker_id: int, epoch: int) -> BrokerImage:
    broker: BrokerImage | None = builder.changing("brokers").get(broker_id)
    if broker is None or broker.epoch != epoch:
        raise Bug(f"a record names broker {broker_id} with epoch {epoch}, which is not registered")
    builder.brokers.add(broker_id)
    return broker


def _unregister_broker(builder: ImageBuilder, record: records.UnregisterBrokerRecord) -> None:
    _broker_at_epoch(builder, record.broker_id, record.broker_epoch)
    del builder.changing("brokers")[record.broker_id]


def _fence_broker(builder: ImageBuilder, record: records.FenceBrokerRecord) -> None:
    broker = _broker_at_epoch(builder, record.id, record.epoch)
    fenced = replace(broker, fenced=True, in_controlled_shutdown=False)
    builder.changing("brokers")[record.id] = fenced


def _unfence_broker(builder: ImageBuilder, record: records.UnfenceBrokerRecord) -> None:
    broker = _broker_at_epoch(builder, record.id, record.epoch)
    builder.changing("brokers")[record.id] = replace(broker, fenced=False)
    is_back(builder, record.id)


def _broker_change(builder: ImageBuilder, record: records.BrokerRegistrationChangeRecord) -> None:
    broker = _broker_at_epoch(builder, record.broker_id, record.broker_epoch)
    changes: dict[str, Any] = {}
    if record.fenced > 0:
        changes = {"fenced": True, "in_controlled_shutdown": False}
    elif record.fenced < 0:
        changes = {"fenced": False}
        is_back(builder, record.broker_id)
    if record.in_controlled_shutdown > 0:
        changes["in_controlled_shutdown"] = True
    if record.log_dirs:
        changes["log_dirs"] = tuple(record.log_dirs)
    if record.full_log_dirs is not None:
        changes["full_log_dirs"] = tuple(record.full_log_dirs)
    builder.changing("brokers")[record.broker_id] = replace(broker, **changes)


RULES: Rules = {
    records.RegisterBrokerRecord: _register_broker,
    records.UnregisterBrokerRecord: _unregister_broker,
    records.FenceBrokerRecord: _fence_broker,
    records.UnfenceBrokerRecord: _unfence_broker,
    records.BrokerRegistrationChangeRecord: _broker_change,
}


def snapshot(image: MetadataImage) -> Iterator[records.MetadataRecord]:
    """Every registration by id."""
    for broker_id in sorted(image.brokers):
        yield _broker_record(image.brokers[broker_id])


def _broker_record(broker: BrokerImage) -> records.RegisterBrokerRecord:
    return records.RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            records.BrokerEndpoint(
                name=name,
                host=point.host,
                port=point.port,
                security_protocol=point.security_protocol,
            )
            for name, point in sorted(broker.endpoints.items())
        ],
        features=[
            records.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in sorted(broker.features.items())
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
        full_log_dirs=list(broker.full_log_dirs),
        is_noted=broker.is_noted,
    )
