"""Quotas of users, client ids and addresses: listed, set and removed with Kafka's requests.

Source: KIP-546. Not here: which quotas there are (`core/quotas/entities.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from anabranch.client.cluster import Cluster, check
from anabranch.core.quotas.entities import Entity, text
from anabranch.core.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from anabranch.core.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

EXACT, DEFAULT = 0, 1


class EntityQuotas(NamedTuple):
    """The quotas of one entity: key -> limit a second."""

    entity: dict[str, str | None]
    values: dict[str, float]


async def describe_quotas(cluster: Cluster, parts: Entity) -> list[EntityQuotas]:
    """Quotas of the entities that have these parts; without any, of all. Raises ApiError."""
    components = [
        ComponentData(kind, DEFAULT if name is None else EXACT, name)
        for kind, name in parts.items()
    ]
    answer: DescribeClientQuotasResponse = await cluster.send(
        DescribeClientQuotasRequest(components=components)
    )
    check(answer.error_code, answer.error_message)
    return [
        EntityQuotas(
            {part.entity_type: part.entity_name for part in each.entity},
            {value.key: value.value for value in each.values},
        )
        for each in answer.entries or ()
    ]


async def alter_quotas(
    cluster: Cluster, entity: Entity, values: Mapping[str, float | None]
) -> None:
    """Set quotas of an entity, or remove those whose value is None. Raises ApiError."""
    entry = EntryData(
        entity=[EntityData(kind, name) for kind, name in entity.items()],
        ops=[OpData(key, value or 0.0, value is None) for key, value in values.items()],
    )
    answer: AlterClientQuotasResponse = await cluster.send(
        AlterClientQuotasRequest(entries=[entry])
    )
    for result in answer.entries:
        check(result.error_code, result.error_message, of=text(entity))
