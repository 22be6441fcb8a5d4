"""Requests about delegation tokens on a broker: which connections may ask, and who sees what."""

from __future__ import annotations

import pytest
from immutables import Map
from msgspec.structs import replace
from tests.core.api.in_memory_node import Denying, InMemoryNode
from tests.core.token_kit import ALICE, BOB, CAROL, SETTINGS, START_MS

from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.access.delegation_tokens import DelegationToken
from anabranch.core.access.principal import ANONYMOUS, Principal
from anabranch.core.api.registry import handlers
from anabranch.core.broker.authentication import Logins
from anabranch.core.broker.gate import Session
from anabranch.core.errors import ErrorCode
from anabranch.core.outcome import Forward
from anabranch.core.request import Request
from anabranch.core.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from anabranch.core.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from anabranch.core.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from anabranch.core.wire.messages.renew_delegation_token import RenewDelegationTokenRequest

NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
BODIES = (
    CreateDelegationTokenRequest(), RenewDelegationTokenRequest(), ExpireDelegationTokenRequest(),
    DescribeDelegationTokenRequest(owners=None),
)  # fmt: skip
UNSEEN = (
    (Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, None),
    (Operation.DESCRIBE_TOKENS, ResourceType.USER, None),
)


def token(token_id, owner, requester=None, renewers=()):
    return DelegationToken(
        token_id, owner, requester or owner, renewers, START_MS, START_MS + 9, START_MS + 5
    )


def node(*denied, **settings):
    made = InMemoryNode(config={**SETTINGS, **settings}, authorizer=Denying(*denied))
    made.broker.logins = {"SASL": Logins({})}
    tokens = [token("a", ALICE, renewers=(CAROL,)), token("b", BOB), token("c", BOB, ALICE)]
    made.broker.image = replace(
        made.broker.image, tokens=Map({each.token_id: each for each in tokens})
    )
    return made


def ask(made, body, who=ALICE, listener="SASL", *, by_token=False):
    handler = handlers()[body.api_key]
    session = Session(who, is_restricted=True)
    session.accept(who, is_by_token=by_token)
    request = Request(
        body.api_key, handler.versions[-1], 1, "test", body, who, listener, "127.0.0.1", 1, session
    )
    return handler.broker(made.broker, request, made.now_ms)


def seen(made, who=ALICE, owners=None):
    named = owners and [DescribeDelegationTokenOwner(*each) for each in owners]
    body = DescribeDelegationTokenRequest(owners=owners if owners is None else named or [])
    answer = ask(made, body, who)
    assert answer.error_code == 0
    return "".join(each.token_id for each in answer.tokens)


@pytest.mark.parametrize("body", BODIES, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize(
    ("who", "listener", "by_token", "is_taken"),
    [
        (ALICE, "SASL", False, True), (ANONYMOUS, "SASL", False, True),
        (ALICE, "MTLS", False, True), (ANONYMOUS, "PLAINTEXT", False, False),
        (ALICE, "SASL", True, False),
    ],
)  # fmt: skip
def test_only_who_has_shown_who_it_is_without_a_token(body, who, listener, by_token, is_taken):
    answer = ask(node(), body, who, listener, by_token=by_token)
    assert getattr(answer, "error_code", 0) == (0 if is_taken else NOT_ALLOWED)


def test_a_token_of_another_owner_needs_a_right():
    made = node((Operation.CREATE_TOKENS, ResourceType.USER, "User:bob"))
    body = CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="bob")
    answer = ask(made, body)
    assert not isinstance(answer, Forward)
    assert answer.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert (answer.principal_name, answer.token_requester_principal_name) == ("bob", "alice")
    assert isinstance(ask(made, body, who=BOB), Forward)


@pytest.mark.parametrize(
    ("denied", "who", "owners", "shown"),
    [
        (UNSEEN, ALICE, None, "ac"), (UNSEEN, BOB, None, "bc"), (UNSEEN, CAROL, None, "a"),
        (UNSEEN, ALICE, [BOB], "c"), (UNSEEN, ALICE, [CAROL], "a"), (UNSEEN, ALICE, [], ""),
        ((), CAROL, None, "abc"), ((), CAROL, [BOB], "bc"),
        ((UNSEEN[1], (*UNSEEN[0][:2], "b")), CAROL, None, "ac"),
        ((UNSEEN[0], (*UNSEEN[1][:2], "User:bob")), CAROL, None, "a"),
    ],
)  # fmt: skip
def test_who_sees_which_tokens(denied, who, owners, shown):
    assert seen(node(*denied), who, owners) == shown


def test_without_a_secret_nothing_is_told():
    made = node(**{"delegation.token.secret.key": ""})
    answer = ask(made, BODIES[3])
    assert answer.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED and not answer.tokens


def test_many_owners_are_looked_for_among_many_tokens_at_once():
    """Each of one with each of the other would stop a broker for minutes."""
    made, compared = node(*UNSEEN), []

    class Counting(Principal):
        def __eq__(self, other):
            compared.append(other)
            return tuple.__eq__(self, other)

        __hash__ = Principal.__hash__

    many = {str(n): token(str(n), Counting("User", f"o{n}")) for n in range(300)}
    made.broker.image = replace(made.broker.image, tokens=Map(many))
    assert seen(made, owners=[("User", f"p{n}") for n in range(300)]) == ""
    assert len(compared) < 3_000
