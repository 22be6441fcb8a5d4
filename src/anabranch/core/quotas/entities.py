"""What quotas can be set on, and which keys: Kafka's types, keys and checks.

What: an entity is a user, a client id, both together, or an address (`ip`); the name None is the
default of its type. Rules kept: codes and texts are those of Kafka 4.1.0, except that an address
must be written as one: a decision asks no name service. Sources: KIP-546, KIP-599, KIP-612.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from enum import Enum
from math import isnan
from types import MappingProxyType
from typing import TypeAlias

from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.metadata.image import QuotaEntity

USER, CLIENT_ID, IP = "user", "client-id", "ip"
TYPES = (USER, CLIENT_ID, IP)
PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"
EPSILON = 1e-6
"""How far a value may be from a whole number that must be one, as in Kafka."""

Entity: TypeAlias = Mapping[str, str | None]
"""Type -> name, None for the default, in the order of the request."""


class Number(Enum):
    """What values a key has: the most of them, and its name in Kafka's texts."""

    DOUBLE = (float("inf"), "")
    INT = (2.0**31 - 1, "an INT")
    LONG = (2.0**63, "a LONG")


CLIENT_KEYS: Mapping[str, Number] = MappingProxyType(
    {
        PRODUCER_BYTE_RATE: Number.LONG,
        CONSUMER_BYTE_RATE: Number.LONG,
        REQUEST_PERCENTAGE: Number.DOUBLE,
        CONTROLLER_MUTATION_RATE: Number.DOUBLE,
    }
)
IP_KEYS: Mapping[str, Number] = MappingProxyType({CONNECTION_CREATION_RATE: Number.INT})


def sorted_entity(entity: Entity) -> QuotaEntity:
    """The entity as the image has it."""
    return tuple(sorted(entity.items()))


def text(entity: Entity) -> str:
    """The entity as Kafka prints it."""
    parts = (f"{kind}={'null' if name is None else name}" for kind, name in sorted(entity.items()))
    return f"ClientQuotaEntity(entries={{{', '.join(parts)}}})"


def keys_of(entity: Entity) -> Mapping[str, Number]:
    """The keys that can be set on an entity. Raises ClientFault if it can have no quota."""
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in entity.items():
        if kind not in TYPES:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if IP not in entity:
        return CLIENT_KEYS
    if len(entity) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or "
            "ClientId"
        )
    address = entity[IP]
    if address is not None and not written(address):
        raise _invalid(f"{address} is not a valid IP or resolvable host.")
    return IP_KEYS


def written(address: str) -> str:
    """An address as sockets write it; "" for what is none."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return ""


def check_value(keys: Mapping[str, Number], key: str, value: float) -> None:
    """Raise ClientFault unless a key may have this value."""
    number = keys.get(key)
    if number is None:
        raise _invalid(f"Invalid configuration key {key}")
    if value <= 0 or isnan(value):
        raise _invalid(f"Quota {key} must be greater than 0")
    most, of_type = number.value
    if value > most:
        raise _invalid(f"Proposed value for {key} is too large for {of_type}.")
    if of_type and abs(int(value + EPSILON) - value) > EPSILON:
        raise _invalid(f"{key} cannot be a fractional value.")


def _invalid(sentence: str) -> ClientFault:
    return ClientFault(ErrorCode.INVALID_REQUEST, sentence)
