"""Which quota holds for a client: Kafka's order of users and client ids.

What: the most specific entity that has the key decides, and whose usage is counted: that of the
user and client id together, of the user, or of the client id. Source: KIP-55 and Kafka's
DefaultQuotaCallback. A client without an id has no quota of a client id.
"""

from __future__ import annotations

from typing import NamedTuple

from immutables import Map

from anabranch.core.metadata.image import QuotaEntity
from anabranch.core.quotas.entities import CLIENT_ID, CONNECTION_CREATION_RATE, IP, USER, written

QuotasByEntity = Map[QuotaEntity, Map[str, float]]


class Limit(NamedTuple):
    """A quota, and whose usage it limits: "" for a user or client id that does not matter."""

    user: str
    client_id: str
    value: float


def limit_of(quotas: QuotasByEntity, key: str, user: str, client_id: str) -> Limit | None:
    """What limits this key for a client; None if nothing does."""
    for of_user in (user, None):
        if client_id:
            for of_client in (client_id, None):
                values = quotas.get(((CLIENT_ID, of_client), (USER, of_user)))
                if values is not None and key in values:
                    return Limit(user, client_id, values[key])
        values = quotas.get(((USER, of_user),))
        if values is not None and key in values:
            return Limit(user, "", values[key])
    for of_client in (client_id, None) if client_id else ():
        values = quotas.get(((CLIENT_ID, of_client),))
        if values is not None and key in values:
            return Limit("", client_id, values[key])
    return None


def address_limits(quotas: QuotasByEntity) -> dict[str | None, float]:
    """Connections a second by address as sockets write it; None is the default."""
    return {
        name if name is None else written(name): values[CONNECTION_CREATION_RATE]
        for ((kind, name), *_), values in quotas.items()
        if kind == IP and CONNECTION_CREATION_RATE in values
    }
