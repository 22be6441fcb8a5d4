"""Plans for client quotas: which records a change needs, and which change is refused.

Rules kept, as in Kafka 4.1: each entity is changed as a whole or refused, whatever becomes of
others; an entity that is named again in one request, or a key that is named again in one entity,
is refused; what is set to the value that it has needs no record. Source: KIP-546.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from immutables import Map

from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.metadata.image import MetadataImage, QuotaEntity
from anabranch.core.quotas.entities import Entity, check_value, keys_of, sorted_entity, text
from anabranch.core.wire.metadata_records import ClientQuotaRecord, EntityData


class Change(NamedTuple):
    """What is asked for an entity: (key, value) pairs, the value None to remove the key."""

    entity: Entity
    values: list[tuple[str, float | None]]


class Planned(NamedTuple):
    """The records, and of each entity in order why it was refused, or None."""

    records: list[ClientQuotaRecord]
    results: dict[QuotaEntity, tuple[Entity, ClientFault | None]]


def plan(image: MetadataImage, changes: Iterable[Change]) -> Planned:
    """What all changes need."""
    planned = Planned([], {})
    for entity, values in changes:
        key = sorted_entity(entity)
        fault = None
        if key in planned.results or len({name for name, _ in values}) < len(values):
            sentence = f"Ignoring duplicate entity {text(entity)}"
            fault = ClientFault(ErrorCode.INVALID_REQUEST, sentence)
        else:
            try:
                planned.records.extend(_records(image, entity, dict(values)))
            except ClientFault as refused:
                fault = refused
        planned.results[key] = (entity, fault)
    return planned


def _records(
    image: MetadataImage, entity: Entity, values: Mapping[str, float | None]
) -> list[ClientQuotaRecord]:
    keys = keys_of(entity)
    now = image.quotas.get(sorted_entity(entity), Map())
    records = []
    for key, value in values.items():
        if value is not None:
            check_value(keys, key, value)
        if value != now.get(key):
            records.append(
                ClientQuotaRecord(
                    entity=[EntityData(kind, name) for kind, name in entity.items()],
                    key=key,
                    value=value or 0.0,
                    remove=value is None,
                )
            )
    return records
