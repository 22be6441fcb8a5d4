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
from immutables import Map

K = TypeVar("K", bound=Hashable)
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

    def adding(self, acl_id: bytes, acl: Acl) -> Acls:
        """With one more rule, whose id is new."""
        before = self.by_resource.get(acl.resource, Map())
        rules = before.set(acl.principal, before.get(acl.principal, Map()).set(acl_id, acl))
        who = acl.resource_type, acl.principal
        return Acls(
            self.by_id.set(acl_id, acl),
            self.by_resource.set(acl.resource, rules),
            self.by_principal.set(who, self.by_principal.get(who, Map()).set(acl_id, acl)),
            self.prefix_lengths if before else self._counting(acl, 1),
        )

    def removing(self, acl_id: bytes) -> Acls:
        """Without one of the rules; raises KeyError when there is none of that id."""
        acl = self.by_id[acl_id]
        rules = _without(self.by_resource[acl.resource], acl.principal, acl_id)
        by_resource = (
            self.by_resource.set(acl.resource, rules)
            if rules
            else self.by_resource.delete(acl.resource)
        )
        return Acls(
            self.by_id.delete(acl_id),
            by_resource,
            _without(self.by_principal, (acl.resource_type, acl.principal), acl_id),
            self.prefix_lengths if rules else self._counting(acl, -1),
        )

    def _counting(self, acl: Acl, change: int) -> Map[tuple[int, int], int]:
        if acl.pattern_type != PREFIXED:
            return self.prefix_lengths
        key = acl.resource_type, len(acl.resource_name)
        count = self.prefix_lengths.get(key, 0) + change
        return self.prefix_lengths.set(key, count) if count else self.prefix_lengths.delete(key)


def _without(rules: Map[K, Map[bytes, Acl]], key: K, acl_id: bytes) -> Map[K, Map[bytes, Acl]]:
    remaining = rules[key].delete(acl_id)
    return rules.set(key, remaining) if remaining else rules.delete(key)


NO_ACLS = Acls()
