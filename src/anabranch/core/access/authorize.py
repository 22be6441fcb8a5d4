"""May this principal do this to that: the seam that access control fills.

What: the vocabulary of Kafka's ACLs (operations, resource types) and the one question handlers ask.
Rule kept: a handler asks before it looks, so that a refusal does
not tell whether the thing exists. Source: KIP-11, KIP-430 (authorized operations). Not
here: access control lists (`standard_authorizer.py`).
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from anabranch.core.request import Request

CLUSTER = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""

NOT_ASKED = -(2**31)
"""What an authorized-operations field holds when the client did not ask for it."""


class Operation(IntEnum):
    """Kafka's AclOperation codes."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class ResourceType(IntEnum):
    """Kafka's ResourceType codes."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


# fmt: off
POSSIBLE = {
    ResourceType.TOPIC: (
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER,
        Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE,
    ),
}
# fmt: on
"""The operations that a resource type knows (Kafka's AclEntry.supportedOperations)."""


class Authorizer(Protocol):
    """Answers `authorize`. `allows_all` lets the data path skip the question."""

    allows_all: bool

    def authorize(
        self, request: Request, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        """Whether the request's principal, from its host, may do `operation` to the resource."""

    def authorize_by_type(
        self, request: Request, operation: Operation, resource: ResourceType
    ) -> bool:
        """Whether it may do `operation` to any resource of that type (KIP-679)."""


class AllowAll:
    """No access control: Kafka without an `authorizer.class.name`."""

    allows_all = True

    def authorize(
        self, _request: Request, _operation: Operation, _resource: ResourceType, _name: str
    ) -> bool:
        """Always yes."""
        return True

    def authorize_by_type(
        self, _request: Request, _operation: Operation, _resource: ResourceType
    ) -> bool:
        """Always yes."""
        return True


class BrokersApart:
    """No access control, but what only brokers ask is taken on the brokers' own listener alone.

    Kafka takes it on any listener unless an authorizer forbids it. Who gave brokers a listener of
    their own meant them to use it: a client must not count as a follower.
    """

    allows_all = False

    def __init__(
        self, inter_broker_listener: str, super_users: frozenset[str] = frozenset()
    ) -> None:
        """`super_users` may ask on any listener: while brokers move to another listener one after
        the other, some still use the old one."""
        self._listener = inter_broker_listener
        self._super_users = super_users

    def authorize(
        self, request: Request, operation: Operation, _resource: ResourceType, _name: str
    ) -> bool:
        """Yes, but for CLUSTER_ACTION on a clients' listener."""
        return (
            operation is not Operation.CLUSTER_ACTION
            or request.listener == self._listener
            or (bool(self._super_users) and str(request.principal) in self._super_users)
        )

    def authorize_by_type(
        self, _request: Request, _operation: Operation, _resource: ResourceType
    ) -> bool:
        """Always yes: no client asks for CLUSTER_ACTION so."""
        return True


def topic_allowed(
    authorizer: Authorizer, request: Request, operation: Operation, topic: str
) -> bool:
    """`authorize` for a topic."""
    return authorizer.allows_all or authorizer.authorize(
        request, operation, ResourceType.TOPIC, topic
    )


def cluster_allowed(authorizer: Authorizer, request: Request, operation: Operation) -> bool:
    """`authorize` for the cluster."""
    return authorizer.allows_all or authorizer.authorize(
        request, operation, ResourceType.CLUSTER, CLUSTER
    )


def authorized_operations(
    authorizer: Authorizer, request: Request, resource: ResourceType, name: str
) -> int:
    """The bit field of KIP-430: bit n says that the operation with code n is allowed."""
    return sum(
        1 << operation
        for operation in POSSIBLE[resource]
        if authorizer.authorize(request, operation, resource, name)
    )
