"""Plans for access rules: which can be made, and which a filter removes.

Rule kept: a rule that exists is not made again, and making it succeeds. Checks and their texts are
those of Kafka 4.1.0. Sources: KIP-140, KIP-801.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from immutables import Map

from anabranch.core.access.acl_filter import OPERATIONS, PERMISSIONS, RESOURCE_TYPES, AclFilter
from anabranch.core.access.acls import LITERAL, PREFIXED, Acl, Acls
from anabranch.core.access.authorize import CLUSTER, ResourceType
from anabranch.core.errors import ClientFault, ErrorCode

MOST_REMOVED = 10_000
"""At most so many rules go in one request, as in Kafka."""
ANY_NAMES = {0: "UNKNOWN", 1: "ANY", 2: "MATCH"}


def check_new(acl: Acl) -> None:
    """Raise ClientFault unless this rule can be made."""
    fault = _fault(acl)
    if fault:
        raise ClientFault(ErrorCode.INVALID_REQUEST, fault)


def _fault(acl: Acl) -> str:
    if acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER:
        return f"The only valid name for the CLUSTER resource is {CLUSTER}"
    if not acl.resource_name:
        return "Invalid empty resource name"
    if acl.resource_type not in RESOURCE_TYPES:
        return f"Invalid resourceType {_any_name(acl.resource_type)}"
    if acl.pattern_type not in (LITERAL, PREFIXED):
        return f"Invalid patternType {_any_name(acl.pattern_type)}"
    if acl.operation not in OPERATIONS:
        return f"Invalid operation {_any_name(acl.operation)}"
    if acl.permission not in PERMISSIONS:
        return f"Invalid permissionType {_any_name(acl.permission)}"
    if ":" not in acl.principal:
        return (
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the "
            "principal type from the principal name)"
        )
    return ""


def _any_name(code: int) -> str:
    return ANY_NAMES.get(code, "UNKNOWN")


def exists(acls: Acls, acl: Acl) -> bool:
    """Whether there is such a rule, under whatever id."""
    known = acls.by_resource.get(acl.resource, Map()).get(acl.principal, Map())
    return any(each == acl for each in known.values())


def new_id(acls: Acls, rng: Random) -> bytes:
    """An id that no rule has: a random UUID, as Kafka's are."""
    while True:
        drawn = bytearray(rng.randbytes(16))
        drawn[6], drawn[8] = drawn[6] & 0x0F | 0x40, drawn[8] & 0x3F | 0x80
        if bytes(drawn) not in acls.by_id:
            return bytes(drawn)


def meant(acls: Acls, wanted: AclFilter, already: Iterable[bytes]) -> dict[bytes, Acl]:
    """What a filter removes. Raises ClientFault: a filter that nobody knows, or with those that
    earlier filters `already` remove, too many rules."""
    if fault := wanted.fault():
        raise ClientFault(ErrorCode.INVALID_REQUEST, fault)
    found = dict(wanted.of(acls))
    if len(found.keys() | set(already)) > MOST_REMOVED:
        raise ClientFault(
            ErrorCode.INVALID_REQUEST,
            f"Cannot remove more than {MOST_REMOVED} acls in a single delete operation.",
        )
    return found
