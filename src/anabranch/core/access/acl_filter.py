"""Which access rules a filter means: DescribeAcls, DeleteAcls and the command line ask it.

A name filter with pattern type MATCH finds every rule that applies to that name; ANY finds rules of
each pattern type with exactly that name. Source: KIP-140, KIP-290; behaviour of Kafka 4.1.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from anabranch.core.access.acls import ANY_NAME, LITERAL, PREFIXED, Acl, Acls

ANY = 1
"""Kafka's code of any resource type, pattern type, operation or permission in a filter."""
MATCH = 2
RESOURCE_TYPES = range(2, 8)
"""Codes of resource types that a rule can be about: topic, group, cluster, transactional id,
delegation token, user."""
OPERATIONS = range(2, 16)
"""Codes of operations that a rule can have; 2 is ALL."""
PERMISSIONS = range(2, 4)


class AclFilter(NamedTuple):
    """None, or ANY, is no condition."""

    resource_type: int = ANY
    resource_name: str | None = None
    pattern_type: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY

    def fault(self) -> str:
        """What of it is unknown, as a sentence; "" if nothing is."""
        known = (
            self.resource_type == ANY or self.resource_type in RESOURCE_TYPES,
            self.pattern_type in (ANY, MATCH, LITERAL, PREFIXED),
        )
        if not all(known):
            return "Unknown patternFilter."
        known = (
            self.operation == ANY or self.operation in OPERATIONS,
            self.permission == ANY or self.permission in PERMISSIONS,
        )
        return "" if all(known) else "Unknown entryFilter."

    def matches(self, acl: Acl) -> bool:
        """Whether it means this rule."""
        return (
            self.resource_type in (ANY, acl.resource_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (ANY, acl.operation)
            and self.permission in (ANY, acl.permission)
            and self._names(acl)
        )

    def _names(self, acl: Acl) -> bool:
        if self.pattern_type not in (ANY, MATCH, acl.pattern_type):
            return False
        name = self.resource_name
        if name is None or name == acl.resource_name:
            return True
        if self.pattern_type != MATCH:
            return False
        if acl.pattern_type == PREFIXED:
            return name.startswith(acl.resource_name)
        return acl.resource_name == ANY_NAME

    def of(self, acls: Acls) -> Iterator[tuple[bytes, Acl]]:
        """Id and rule of each that it means, in order of the rules."""
        found = [(acl, acl_id) for acl_id, acl in acls.by_id.items() if self.matches(acl)]
        for acl, acl_id in sorted(found):
            yield acl_id, acl
