"""What the three requests about access rules (ACLs) share: there are none, and no authorizer.

Kafka without `authorizer.class.name` answers each of them with SECURITY_DISABLED; tools and
MirrorMaker know that answer, and go on without ACLs. Source: KIP-140; text and codes of Kafka 4.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from anabranch.core.access.authorize import Operation, ResourceType, cluster_allowed
from anabranch.core.api.handler import Handler
from anabranch.core.broker.gate import Need
from anabranch.core.errors import ErrorCode

if TYPE_CHECKING:
    from anabranch.core.access.authorize import Authorizer
    from anabranch.core.request import Request

SENTENCE = "No Authorizer is configured."


class Authorizing(Protocol):
    """A broker or a controller."""

    @property
    def authorizer(self) -> Authorizer:
        """Who may do what."""


def no_acls(
    node: Authorizing, request: Request, operation: Operation, sentence: str = SENTENCE
) -> tuple[ErrorCode, str | None]:
    """Code and text of the answer: no right to ask, or nothing to ask about."""
    if not cluster_allowed(node.authorizer, request, operation):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None
    return ErrorCode.SECURITY_DISABLED, sentence


def refusing(
    api_key: int, name: str, operation: Operation, run: Callable[[Any, Request, int], Any]
) -> Handler:
    """The handler of one of the three."""
    return Handler(
        api_key=api_key,
        name=name,
        versions=range(1, 4),
        broker=run,
        controller=run,
        needs=(Need(operation, ResourceType.CLUSTER),),
        kips=("KIP-140", "KIP-290"),
        skipped=("There are no ACLs: the answer is SECURITY_DISABLED.",),
    )
