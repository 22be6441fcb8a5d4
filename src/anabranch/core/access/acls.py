"""Access control lists as the metadata holds them: by id, by resource, and by principal.

What: `Acl` is one rule, `Acls` all of them with the indexes that decisions need. Why: a cluster has
100,000 of them, and a change must cost what it touches, as everywhere in the image. Rule kept: the
indexes hold what `by_id` holds. Sources: KIP-11, KIP-290, KIP-801. Not here: who may do what
(`standard_authorizer.py`), which rules can be made (`core/controller/acls.py`).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeAlias, TypeVar

import msgspec
from immutables import Map, MapMutation

K = TypeVar("K", bound=Hashable)
L = TypeVar("L", bound=Hashable)
V = TypeVar("V")
ResourceKey: TypeAlias = tuple[int, int, str]
"""Resource type, pattern type, name."""

LITERAL = 3
PREFIXED = 4
"""Kafka's PatternType codes that a rule can have."""
DENY = 2
ALLOW = 3
"""Kafka's AclPermissionType codes."""
ANY_NAME = "*"
ANY_PRINCIPAL = "User:*"


class Acl(msgspec.Struct, frozen=True, gc=False, order=True):
    """One rule; the numbers are Kafka's codes. Equal rules with two ids are two rules to Kafka."""

    resource_type: int
    pattern_type: int
    resource_name: str
    principal: str
    host: str
    operation: int
    permission: int

    @property
    def resource(self) -> ResourceKey:
        """What it is about."""
        return self.resource_type, self.pattern_type, self.resource_name


class Acls(msgspec.Struct, frozen=True):
    """All rules. `prefix_lengths`: (resource type, characters) -> PREFIXED resources with rules."""

    by_id: Map[bytes, Acl] = Map()
    by_resource: Map[ResourceKey, Map[str, Map[bytes, Acl]]] = Map()
    """Resource -> principal -> its rules."""
    by_principal: Map[tuple[int, str], Map[bytes, Acl]] = Map()
    """Resource type and principal -> its rules."""
    prefix_lengths: Map[tuple[int, int], int] = Map()

    def mutate(self) -> AclsMutation:
        """A mutation that begins with these rules, as a map's does."""
        return AclsMutation(self)


class AclsMutation:
    """Rules while many of them change: what a change costs does not grow with what exists."""

    def __init__(self, acls: Acls) -> None:
        self._by_id = acls.by_id.mutate()
        self._by_resource = acls.by_resource.mutate()
        self._by_principal = acls.by_principal.mutate()
        self._prefix_lengths = acls.prefix_lengths.mutate()

    def __contains__(self, acl_id: object) -> bool:
        return acl_id in self._by_id

    def add(self, acl_id: bytes, acl: Acl) -> None:
        """One more rule, whose id is new."""
        self._by_id[acl_id] = acl
        principals = self._by_resource.get(acl.resource)
        if principals is None:
            principals = Map()
            self._count(acl, 1)
        rules = principals.get(acl.principal, Map()).set(acl_id, acl)
        self._by_resource[acl.resource] = principals.set(acl.principal, rules)
        who = acl.resource_type, acl.principal
        self._by_principal[who] = self._by_principal.get(who, Map()).set(acl_id, acl)

    def remove(self, acl_id: bytes) -> None:
        """One rule less; raises KeyError when there is none of that id."""
        acl = self._by_id.pop(acl_id)
        principals = self._by_resource[acl.resource]
        rules = principals[acl.principal].delete(acl_id)
        principals = (
            principals.set(acl.principal, rules) if rules else principals.delete(acl.principal)
        )
        _keep(self._by_resource, acl.resource, principals)
        if not principals:
            self._count(acl, -1)
        who = acl.resource_type, acl.principal
        _keep(self._by_principal, who, self._by_principal[who].delete(acl_id))

    def _count(self, acl: Acl, change: int) -> None:
        """A PREFIXED resource has its first rule, or no longer any."""
        if acl.pattern_type != PREFIXED:
            return
        key = acl.resource_type, len(acl.resource_name)
        count = self._prefix_lengths.get(key, 0) + change
        if count:
            self._prefix_lengths[key] = count
        else:
            del self._prefix_lengths[key]

    def finish(self) -> Acls:
        """The rules as they are by now; the mutation must not be used any more."""
        return Acls(
            self._by_id.finish(),
            self._by_resource.finish(),
            self._by_principal.finish(),
            self._prefix_lengths.finish(),
        )


def _keep(maps: MapMutation[K, Map[L, V]], key: K, value: Map[L, V]) -> None:
    """Set what a key has, or forget the key when it has nothing."""
    if value:
        maps[key] = value
    else:
        del maps[key]


NO_ACLS = Acls()
