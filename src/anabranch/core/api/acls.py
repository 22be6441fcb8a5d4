"""What the three requests about access rules (ACLs) share.

Without `authorizer.class.name` each of them is answered with SECURITY_DISABLED, as by Kafka; tools
and MirrorMaker know that answer, and go on without ACLs. With it the controller decides, and every
node describes what it knows. Source: KIP-140; text and codes of Kafka 4.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from anabranch.core.access.authorize import Operation, cluster_allowed
from anabranch.core.access.standard_authorizer import StandardAuthorizer
from anabranch.core.errors import ErrorCode
from anabranch.core.outcome import Forward, Outcome

if TYPE_CHECKING:
    from anabranch.core.access.authorize import Authorizer
    from anabranch.core.request import Request
    from anabranch.core.wire.schema import Message

SENTENCE = "No Authorizer is configured."


class Authorizing(Protocol):
    """A broker or a controller."""

    @property
    def authorizer(self) -> Authorizer:
        """Who may do what."""


def has_acls(node: Authorizing) -> bool:
    """Whether access rules decide on this node."""
    return isinstance(node.authorizer, StandardAuthorizer)


def controller_decides(
    broker: Authorizing,
    request: Request,
    same: Callable[[Request, ErrorCode, str | None], Message],
) -> Outcome:
    """A broker's half of a change: left to the controller if access rules decide here, otherwise
    refused, each part of it with the `same` error."""
    if has_acls(broker):
        return Forward()
    refused = refusal(broker, request, Operation.ALTER)
    assert refused is not None
    return same(request, *refused)


def refusal(
    node: Authorizing, request: Request, operation: Operation, sentence: str = SENTENCE
) -> tuple[ErrorCode, str | None] | None:
    """Code and text if there is no right to ask, or nothing to ask about."""
    if not cluster_allowed(node.authorizer, request, operation):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."
    return None if has_acls(node) else (ErrorCode.SECURITY_DISABLED, sentence)
