"""Delegation tokens: what Kafka's DelegationTokenControlManager answers, and what is removed."""

from __future__ import annotations

import pytest
from tests.core.token_kit import ALICE, BOB, CAROL, START_MS, TokenWorld

from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.access.principal import ANONYMOUS, Principal
from anabranch.core.controller.delegation_tokens import MOST_RECORDS, MOST_RENEWERS
from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.features import METADATA_VERSION
from anabranch.core.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from anabranch.core.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from anabranch.core.wire.metadata_records import DelegationTokenRecord

LONG = 2**63 - 1


def renew(world, who, hmac, period_ms=-1):
    answer = world.ask_as(who, RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms))
    return ErrorCode(answer.error_code), answer.expiry_timestamp_ms - world.controller.wall_ms


def expire(world, who, hmac, period_ms=-1):
    body = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    answer = world.ask_as(who, body)
    return ErrorCode(answer.error_code), answer.expiry_timestamp_ms - world.controller.wall_ms


@pytest.mark.parametrize(
    ("lifetime_ms", "max_ms", "expiry_ms"),
    [(-1, 10_000, 1_000), (0, 10_000, 1_000), (5_000, 5_000, 1_000), (400, 400, 400),
     (LONG, 10_000, 1_000)],
)  # fmt: skip
def test_a_token_lives_no_longer_than_allowed(lifetime_ms, max_ms, expiry_ms):
    made = TokenWorld().make(lifetime_ms=lifetime_ms)
    assert made.error_code == 0 and made.issue_timestamp_ms == START_MS
    assert made.max_timestamp_ms == START_MS + max_ms
    assert made.expiry_timestamp_ms == START_MS + expiry_ms


def test_times_never_pass_the_last_one():
    world = TokenWorld(
        delegation_token_max_lifetime_ms=str(LONG), delegation_token_expiry_time_ms=str(LONG)
    )
    made = world.make()
    assert made.max_timestamp_ms == made.expiry_timestamp_ms == LONG
    assert world.replayed().tokens == world.image.tokens


def test_what_is_kept_has_no_password():
    world = TokenWorld()
    made = world.make(renewers=[BOB])
    token = world.image.tokens[made.token_id]
    assert (token.owner, token.requester, token.renewers) == (ALICE, ALICE, (BOB,))
    assert len(made.hmac) == 64 and not any(made.hmac in each for each in world.batches)
    assert made.hmac.hex() not in repr(world.image)
    assert world.replayed().tokens == world.image.tokens


def test_for_another_owner():
    world = TokenWorld()
    made = world.make(owner=BOB)
    token = world.image.tokens[made.token_id]
    assert (token.owner, token.requester) == (BOB, ALICE)
    assert (made.principal_name, made.token_requester_principal_name) == ("bob", "alice")
    assert renew(world, ALICE, made.hmac)[0] == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert renew(world, BOB, made.hmac) == (ErrorCode.NONE, 1_000)


def test_another_owner_needs_a_right():
    world = TokenWorld()
    asked = []

    class Denying:
        allows_all = False

        def authorize(self, _request, operation, resource, name):
            asked.append((operation, resource, name))
            return False

    world.controller.authorizer = Denying()
    code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    refused = world.make(owner=BOB)
    assert refused.error_code == code and refused.max_timestamp_ms == -1
    assert asked == [(Operation.CREATE_TOKENS, ResourceType.USER, "User:bob")]
    assert world.make(owner=ALICE).error_code == world.make().error_code == 0
    assert len(asked) == 1


def test_renewers_are_users():
    world = TokenWorld()
    answer = world.make(renewers=[BOB, Principal("Team", "x")])
    assert answer.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE and not world.image.tokens


@pytest.mark.parametrize(
    ("age_ms", "period_ms", "left_ms"),
    [(0, -1, 1_000), (900, -1, 1_000), (900, 300, 300), (900, 5_000, 1_000), (900, 0, 1_000)],
)
def test_renewals_are_for_the_shorter_period(age_ms, period_ms, left_ms):
    world = TokenWorld()
    made = world.make(renewers=[BOB])
    world.later(age_ms)
    assert renew(world, BOB, made.hmac, period_ms) == (ErrorCode.NONE, left_ms)
    token = world.image.tokens[made.token_id]
    assert token.expiry_ms == world.controller.wall_ms + left_ms
    assert token.max_ms == made.max_timestamp_ms


def test_no_renewal_passes_the_maximum():
    world = TokenWorld()
    made = world.make(lifetime_ms=1_500)
    world.later(900)
    assert renew(world, ALICE, made.hmac) == (ErrorCode.NONE, 600)
    world.later(601)
    assert renew(world, ALICE, made.hmac)[0] in {
        ErrorCode.DELEGATION_TOKEN_EXPIRED, ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
    }  # fmt: skip


def test_who_may_end_it_and_how():
    world = TokenWorld(delegation_token_expiry_check_interval_ms="1000000")
    made = world.make(renewers=[BOB])
    assert expire(world, CAROL, made.hmac)[0] == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert expire(world, BOB, made.hmac, 50) == (ErrorCode.NONE, 50)
    assert expire(world, BOB, made.hmac, LONG) == (ErrorCode.NONE, 10_000)
    assert expire(world, BOB, made.hmac, 0) == (ErrorCode.NONE, 0)
    world.later(1)
    assert expire(world, BOB, made.hmac, 50)[0] == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert renew(world, BOB, made.hmac)[0] == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert expire(world, ALICE, made.hmac) == (ErrorCode.NONE, 0)
    assert not world.image.tokens
    assert expire(world, ALICE, made.hmac)[0] == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


@pytest.mark.parametrize("hmac", [b"", b"x", bytes(64)])
def test_a_token_that_nobody_was_given(hmac):
    world = TokenWorld()
    world.make()
    for ask in (renew, expire):
        assert ask(world, ALICE, hmac)[0] == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_without_a_secret_there_are_none():
    world = TokenWorld(delegation_token_secret_key="")
    code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert world.make().error_code == code
    assert renew(world, ALICE, b"x")[0] == code == expire(world, ALICE, b"x")[0]


def test_below_the_level_of_their_records_there_are_none():
    world = TokenWorld()
    world.level(METADATA_VERSION, 13)
    assert world.make().error_code == ErrorCode.UNSUPPORTED_VERSION
    world.level(METADATA_VERSION, 14)
    assert world.make().error_code == 0


def test_a_controller_that_is_asked_itself_looks_at_the_connection():
    world = TokenWorld()
    code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    for body in (RenewDelegationTokenRequest(), ExpireDelegationTokenRequest()):
        assert world.ask_as(ANONYMOUS, body, "CONTROLLER").error_code == code


def test_what_is_over_is_removed_in_time():
    world = TokenWorld()
    first, second = world.make(), world.make(lifetime_ms=-1)
    world.later(700)
    renew(world, ALICE, second.hmac)
    assert world.later(300) == [] and first.token_id in world.image.tokens
    assert world.later(500) == ["TOKENS_CHANGED"]
    assert list(world.image.tokens) == [second.token_id]
    world.later(1_500)
    assert not world.image.tokens and world.replayed().tokens == world.image.tokens


def test_many_are_removed_in_pieces():
    world = TokenWorld(delegation_token_expiry_check_interval_ms="2000")
    count = MOST_RECORDS + 5
    world.commit([
        DelegationTokenRecord(owner="User:a", requester="User:a", token_id=f"t{number:05}",
                              max_timestamp=START_MS, expiration_timestamp=START_MS)
        for number in range(count)
    ])  # fmt: skip
    world.later(1_900)
    assert len(world.image.tokens) == count
    world.later(400)
    assert not world.image.tokens
    said = world.sentences("TOKENS_CHANGED")
    assert said[0].startswith("removed 1,000 delegation tokens") and len(said) == 2


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"renewers": [BOB] * (MOST_RENEWERS + 1)}, ErrorCode.INVALID_REQUEST),
        ({"renewers": [BOB] * MOST_RENEWERS}, ErrorCode.NONE),
        ({"renewers": [Principal("User", "x" * 32_767)]}, ErrorCode.INVALID_REQUEST),
        ({"owner": Principal("User", "x" * 32_767)}, ErrorCode.INVALID_REQUEST),
        ({"owner": Principal("User", "x" * 1_025)}, ErrorCode.INVALID_REQUEST),
        ({"owner": Principal("User", "x:,=\0é" * 100)}, ErrorCode.NONE),
        ({"owner": Principal("Group", "admin")}, ErrorCode.INVALID_PRINCIPAL_TYPE),
        ({"owner": Principal("", "admin")}, ErrorCode.INVALID_PRINCIPAL_TYPE),
    ],
)  # fmt: skip
def test_names_that_no_record_or_login_can_have_are_refused(given, code):
    world = TokenWorld()
    assert world.make(**given).error_code == code
    assert len(world.image.tokens) == (code == ErrorCode.NONE)
    assert world.replayed().tokens == world.image.tokens
