"""What the requests about delegation tokens have in common: on which connections they are taken.

Rule kept: who does not show who it is gets no token, and who came with a token neither: a token
that was found could else be renewed for ever. Source: KIP-48. Not here: what the controller
decides (`core/controller/delegation_tokens.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from anabranch.core.access.authorize import Authorizer, Operation, ResourceType
from anabranch.core.access.principal import ANONYMOUS, Principal
from anabranch.core.api.handler import Run
from anabranch.core.broker.authentication import Logins
from anabranch.core.controller.controller import Controller, decides
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.outcome import Decided, Forward, Outcome
from anabranch.core.request import NO_LISTENER, Request
from anabranch.core.wire.schema import Message

Refuse = Callable[[Request, ErrorCode, str], Message]


class Node(Protocol):
    """A broker or a controller."""

    logins: Mapping[str, Logins]
    authorizer: Authorizer


def check_connection(node: Node, request: Request) -> None:
    """Raise ClientFault unless its connection may ask about tokens: without TLS that needs a login,
    with TLS a login or a certificate."""
    if request.listener == NO_LISTENER:  # its broker has looked
        return
    is_shown = request.listener in node.logins or request.principal != ANONYMOUS
    is_by_token = request.session is not None and request.session.is_by_token
    if not is_shown or is_by_token:
        raise ClientFault(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def may(
    node: Node, request: Request, operation: Operation, resource: ResourceType, name: str
) -> bool:
    """`authorize`, also where all is allowed."""
    return node.authorizer.allows_all or node.authorizer.authorize(
        request, operation, resource, name
    )


def owner_of(request: Request) -> Principal:
    """For whom a token is to be made: the requester, unless another is named."""
    body: Any = request.body
    if not body.owner_principal_name:
        return request.principal
    return Principal(body.owner_principal_type or "", body.owner_principal_name)


def check_owner(node: Node, request: Request) -> None:
    """Raise ClientFault unless it may make tokens of this owner (KIP-373)."""
    owner = owner_of(request)
    if owner != request.principal and not may(
        node, request, Operation.CREATE_TOKENS, ResourceType.USER, str(owner)
    ):
        raise ClientFault(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)


Check = Callable[[Any, Request], None]


def passes_on(checks: tuple[Check, ...], refuse: Refuse) -> Run:
    """The broker's half: it checks the connection, and leaves the rest to the controller."""

    def run(broker: Any, request: Request, _now_ms: int) -> Outcome:
        try:
            for check in checks:
                check(broker, request)
        except ClientFault as fault:
            return refuse(request, fault.code, fault.message)
        return Forward()

    return run


def decided_by(
    checks: tuple[Check, ...], decide: Callable[[Controller, Request], Decided], refuse: Refuse
) -> Callable[[Controller, Request, int], Outcome]:
    """The controller's half."""

    def run(controller: Controller, request: Request, _now_ms: int) -> Decided:
        for check in checks:
            check(controller, request)
        return decide(controller, request)

    return decides(run, refuse)
