"""Quotas of users, clients and addresses (KIP-546, KIP-612), as they are set.

An entity is (type, name) pairs in order of the type; the name None is the default of that type.
Not here: which can be set (`core/quotas/entities.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from immutables import Map

from anabranch.core.metadata.builder import ImageBuilder, Rules
from anabranch.core.metadata.image import MetadataImage, QuotaEntity
from anabranch.core.wire import metadata_records as records


def _quota(builder: ImageBuilder, record: records.ClientQuotaRecord) -> None:
    parts = ((each.entity_type, each.entity_name) for each in record.entity)
    entity = tuple(sorted(parts, key=lambda part: part[0]))  # an entity has a type once
    quotas = builder.changing("quotas")
    values = quotas.get(entity, Map())
    if not record.remove:
        quotas[entity] = values.set(record.key, record.value)
    elif record.key in values:
        remaining = values.delete(record.key)
        if remaining:
            quotas[entity] = remaining
        else:
            del quotas[entity]


RULES: Rules = {records.ClientQuotaRecord: _quota}


def snapshot(image: MetadataImage) -> Iterator[records.MetadataRecord]:
    """Every value that is set."""
    for entity, values in sorted(image.quotas.items(), key=lambda item: _order(item[0])):
        for key, value in sorted(values.items()):
            yield records.ClientQuotaRecord(
                entity=[records.EntityData(kind, name) for kind, name in entity],
                key=key,
                value=value,
                remove=False,
            )


def _order(entity: QuotaEntity) -> tuple[tuple[str, bool, str], ...]:
    """Defaults come before names."""
    return tuple((kind, name is not None, name or "") for kind, name in entity)
