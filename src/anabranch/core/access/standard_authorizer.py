"""Who may do what by access control lists: the decisions of Kafka's StandardAuthorizer.

What: `decide` answers for one resource, `decide_by_type` for any resource of a type, and
`StandardAuthorizer` asks them for a request and keeps their answers until a rule changes. Rules:

- A super user may do everything. Before the rules are loaded only they may do anything.
- A rule applies if its resource (LITERAL name, LITERAL `*`, or PREFIXED), principal (or `User:*`),
  host (or `*`) and operation (or ALL) fit. A DENY that applies wins over each ALLOW.
- ALLOW of READ, WRITE, DELETE or ALTER also allows DESCRIBE, and ALLOW of ALTER_CONFIGS also
  DESCRIBE_CONFIGS. DENY implies nothing.
- A resource without any rule is open if `allow.everyone.if.no.acl.found` is true.

The rules are those of the image that the node acts on, read with each request: so an answer is
never older than the image. Sources: KIP-11, KIP-290, KIP-679, KIP-801; behaviour of Kafka 4.1.0.
Not here: who a request is from.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, TypeAlias

from immutables import Map

from anabranch.core.access.acls import (
    ALLOW,
    ANY_NAME,
    ANY_PRINCIPAL,
    DENY,
    LITERAL,
    PREFIXED,
    Acl,
    Acls,
)
from anabranch.core.access.authorize import Operation, ResourceType

if TYPE_CHECKING:
    from anabranch.core.request import Request

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""What `authorizer.class.name` must be."""
ALL = 2
"""Kafka's AclOperation code of a rule about every operation."""
ANY_HOST = "*"
KEPT_DECISIONS = 20_000
"""At most so many decisions are kept: about 5 MB. A fuller cache starts again."""
LONGEST_KEPT = 256
"""Letters of a name: one that a client asks about may have a megabyte, and topics have 249."""
ALLOWED_BY: dict[int, frozenset[int]] = {
    Operation.DESCRIBE: frozenset(
        {
            ALL, Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE,
            Operation.ALTER,
        }
    ),
    Operation.DESCRIBE_CONFIGS: frozenset(
        {ALL, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}
    ),
}  # fmt: skip
"""Operation -> those whose ALLOW allows it, where these are more than ALL and itself."""
Audit: TypeAlias = "Callable[[Request, Operation, ResourceType, str | None, bool], None]"
"""Told who asked for what operation, on which resource (None: on any of its type), and whether it
is allowed."""
NO_RULES: Map[str, Map[bytes, Acl]] = Map()
NONE: Map[bytes, Acl] = Map()


def decide(
    acls: Acls, principal: str, host: str, operation: int, resource: int, name: str,
    *, open_without_acl: bool,
) -> bool:  # fmt: skip
    """Whether the rules let a principal from a host do this to one resource."""
    allowing = ALLOWED_BY.get(operation) or {ALL, operation}
    is_allowed = has_rules = False
    for rules in _applying(acls, resource, name):
        has_rules = True
        for who in (principal, ANY_PRINCIPAL):
            for acl in rules.get(who, NONE).values():
                if acl.host not in (ANY_HOST, host):
                    continue
                if acl.permission == ALLOW:
                    is_allowed = is_allowed or acl.operation in allowing
                elif acl.operation in (ALL, operation):
                    return False
    return is_allowed if has_rules else open_without_acl


def _applying(acls: Acls, resource: int, name: str) -> Iterator[Map[str, Map[bytes, Acl]]]:
    """The rules, by principal, of each resource pattern that the name fits."""
    find = acls.by_resource.get
    patterns = [(resource, LITERAL, each) for each in {name, ANY_NAME}]
    for kind, length in acls.prefix_lengths:
        if kind == resource and length <= len(name):
            patterns.append((resource, PREFIXED, name[:length]))
    for pattern in patterns:
        if rules := find(pattern, NO_RULES):
            yield rules


def decide_by_type(
    acls: Acls, principal: str, host: str, operation: int, resource: int,
    *, open_without_acl: bool,
) -> bool:  # fmt: skip
    """Whether the rules let a principal do this to at least one resource of a type, whatever its
    name: an ALLOW of LITERAL `*` or one that no DENY covers wholly. Kafka's own rule asks for one
    name first, `hardcode`."""
    if decide(
        acls, principal, host, operation, resource, "hardcode", open_without_acl=open_without_acl
    ):
        return True
    allowed: set[tuple[int, str]] = set()
    denied: set[tuple[int, str]] = set()
    for who in {principal, ANY_PRINCIPAL}:
        for acl in acls.by_principal.get((resource, who), NONE).values():
            if acl.host in (ANY_HOST, host) and acl.operation in (ALL, operation):
                side = denied if acl.permission == DENY else allowed
                side.add((acl.pattern_type, acl.resource_name))
    if (LITERAL, ANY_NAME) in denied:
        return False
    if (LITERAL, ANY_NAME) in allowed:
        return True
    lengths = {len(name) for pattern, name in denied if pattern == PREFIXED}
    return any(
        not (pattern == LITERAL and (pattern, name) in denied)
        and not any((PREFIXED, name[:size]) in denied for size in lengths if size <= len(name))
        for pattern, name in allowed
    )


class StandardAuthorizer:
    """See the module's docstring.

    `rules` gives the rules as the node knows them now, None while it has not loaded them.
    On `trusted` listeners, which are the nodes' own, everything is allowed: as long as no one is
    authenticated, another node cannot be told from a client by its name. `audit` is told of each
    decision.
    """

    allows_all = False

    def __init__(
        self, rules: Callable[[], Acls | None], super_users: frozenset[str] = frozenset(),
        *, open_without_acl: bool = False, trusted: frozenset[str] = frozenset(),
        audit: Audit | None = None,
    ) -> None:  # fmt: skip
        self._rules = rules
        self._super_users = super_users
        self._open_without_acl = open_without_acl
        self._trusted = trusted
        self._audit = audit
        self._decided_by: Acls | None = None
        self._decisions: dict[Hashable, bool] = {}

    @property
    def rules(self) -> Acls | None:
        """The rules that decide now, None while they are not loaded."""
        return self._rules()

    def authorize(
        self, request: Request, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        """Whether the request's principal, from its host, may do `operation` to the resource."""
        return self._ask(request, operation, resource, name)

    def authorize_by_type(
        self, request: Request, operation: Operation, resource: ResourceType
    ) -> bool:
        """Whether it may do `operation` to any resource of that type."""
        return self._ask(request, operation, resource, None)

    def _ask(
        self, request: Request, operation: Operation, resource: ResourceType, name: str | None
    ) -> bool:
        is_allowed = self._decide(request, operation, resource, name)
        if self._audit is not None:
            self._audit(request, operation, resource, name, is_allowed)
        return is_allowed

    def _decide(
        self, request: Request, operation: Operation, resource: ResourceType, name: str | None
    ) -> bool:
        if request.listener in self._trusted:
            return True
        if self._super_users and str(request.principal) in self._super_users:
            return True
        acls = self._rules()
        if acls is None:
            return False
        if acls is not self._decided_by or len(self._decisions) >= KEPT_DECISIONS:
            self._decided_by, self._decisions = acls, {}
        key = request.principal, request.client_host, operation, resource, name
        decided = self._decisions.get(key)
        if decided is None:
            who, host = str(request.principal), java_host(request.client_host)
            is_open = self._open_without_acl
            if name is None:
                decided = decide_by_type(
                    acls, who, host, operation, resource, open_without_acl=is_open
                )
            else:
                decided = decide(
                    acls, who, host, operation, resource, name, open_without_acl=is_open
                )
            if name is None or len(name) <= LONGEST_KEPT:
                self._decisions[key] = decided
        return decided


def java_host(host: str) -> str:
    """An address as rules of Kafka's name it: IPv6 without `::`, what is mapped to it as IPv4."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return ":".join(f"{int(part, 16):x}" for part in address.exploded.split(":"))


def super_users_of(text: str) -> frozenset[str]:
    """What `super.users` names: `User:a;User:b`. Raises ValueError with a sentence."""
    users = {each.strip() for each in text.split(";") if each.strip()}
    for user in sorted(users):
        kind, colon, name = user.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"{user!r} is no principal; write TYPE:NAME, such as User:admin")
    return frozenset(users)
