"""Delegation tokens by HMAC and by end: what a scan of all would find, without a scan."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from immutables import Map
from msgspec.structs import replace
from tests.core.token_kit import ALICE, SECRET, START_MS, TokenWorld

from anabranch.core.access.delegation_tokens import DelegationToken, hmac_of
from anabranch.core.api.registry import handlers
from anabranch.core.controller.token_index import LEAST_ENDS, PREFIX_BYTES, TokenIndex
from anabranch.core.errors import ErrorCode
from anabranch.core.outcome import Propose
from anabranch.core.request import Request
from anabranch.core.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from anabranch.core.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from anabranch.core.wire.metadata_records import DelegationTokenRecord

IDS = [f"id{number}" for number in range(6)]
MAX_MS = 50
CHANGES = st.lists(
    st.tuples(st.sampled_from(IDS), st.none() | st.integers(0, MAX_MS + 10)), max_size=40
)


def token(token_id, expiry_ms):
    return DelegationToken(token_id, ALICE, ALICE, (), 0, MAX_MS, expiry_ms)


def scanned(tokens, token_hmac):
    return next((t for i, t in tokens.items() if hmac_of(SECRET, i) == token_hmac), None)


@settings(deadline=None)
@given(CHANGES, st.integers(0, 40), st.integers(0, MAX_MS + 20))
def test_it_finds_what_a_scan_of_all_tokens_finds(changes, begun, wall_ms):
    tokens, index = Map(), TokenIndex(SECRET, {})
    for number, (token_id, expiry_ms) in enumerate(changes):
        if number == begun:  # another controller begins a term
            index = TokenIndex(SECRET, tokens)
        if expiry_ms is not None:
            tokens = tokens.set(token_id, token(token_id, expiry_ms))
        elif token_id in tokens:
            tokens = tokens.delete(token_id)
        index.follow(tokens, {token_id})
        for each in IDS:
            whole = hmac_of(SECRET, each)
            for asked in (whole, whole[:PREFIX_BYTES], whole[:-1], whole + b"x", b"",
                          whole[:PREFIX_BYTES] + bytes(64 - PREFIX_BYTES)):  # fmt: skip
                assert index.find(tokens, asked) is scanned(tokens, asked)
        over = sorted(i for i, t in tokens.items() if t.is_over(wall_ms))
        for most in (len(IDS), len(IDS), 2):  # they are told until they are removed
            found = index.over(tokens, wall_ms, most)
            assert len(found) == min(most, len(over)) and set(found) <= set(over)
        assert len(index._ends) <= 2 * len(tokens) + LEAST_ENDS


def test_ends_of_tokens_that_are_renewed_for_ever_are_forgotten():
    tokens = {"id": token("id", 5)}
    index = TokenIndex(SECRET, tokens)
    for number in range(5 * LEAST_ENDS):
        tokens["id"] = token("id", number)
        index.follow(tokens, ["id"])
        assert len(index._ends) <= LEAST_ENDS + 2
    assert index.over(tokens, MAX_MS + 1, 5) == ["id"]


class NeverAll(dict):
    """Tokens of which nobody may look at all."""

    def __iter__(self):
        raise AssertionError("all tokens are looked at")

    items = keys = values = __iter__


def test_no_request_about_one_token_and_no_tick_looks_at_all_of_them():
    world = TokenWorld()
    made = world.make()
    long_over = [
        DelegationTokenRecord(
            owner="User:a", requester="User:a", token_id=f"t{number}",
            max_timestamp=START_MS - number, expiration_timestamp=START_MS,
        )
        for number in range(20)
    ]  # fmt: skip
    world.commit(long_over)
    controller = world.controller
    image = controller.image
    controller.state.image = replace(image, tokens=NeverAll(image.tokens))
    bodies = (
        RenewDelegationTokenRequest(hmac=made.hmac), ExpireDelegationTokenRequest(hmac=made.hmac),
        RenewDelegationTokenRequest(hmac=bytes(64)),
    )  # fmt: skip
    answers = []
    for body in bodies:
        handler = handlers()[body.api_key]
        request = Request(
            body.api_key, handler.versions[-1], 1, "test", body, ALICE, "", "127.0.0.1", 1
        )
        outcome = handler.controller(controller, request, world.now_ms)
        answers.append(outcome.result.response if isinstance(outcome, Propose) else outcome)
    not_found = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert [each.error_code for each in answers] == [ErrorCode.NONE, ErrorCode.NONE, not_found]
    duty = controller.duties.tokens
    result = duty.due(
        controller.image.tokens, controller.tokens, controller.config, duty.due_ms, START_MS
    )
    assert {each.token_id for each in result.records} == {f"t{each}" for each in range(1, 20)}
