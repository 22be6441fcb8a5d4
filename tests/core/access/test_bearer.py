"""OAUTHBEARER: which claims are good, what a client's message is, and what the others are told."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from anabranch.core.access.bearer import (
    INVALID_TOKEN,
    LARGEST_TOKEN_BYTES,
    LATEST_SECONDS,
    BearerServer,
    TokenRefused,
    TokenRules,
    read_first,
)
from anabranch.core.access.login import LoginRefused, Reply
from anabranch.core.access.unsecured_token import read_unsecured

NOW = 1_800_000_000
RULES = TokenRules(("kafka", "other"), "https://issuer")
GOOD = {"sub": "alice", "iat": NOW - 5, "exp": NOW + 60, "aud": "kafka", "iss": "https://issuer"}
OFFSETS = some.integers(-100, 100)


def message(token="a.b.c", gs2="n,,", more=""):
    return f"{gs2}\x01auth=Bearer {token}\x01{more}\x01".encode()


def judged(claims, rules=RULES, now=NOW):
    return rules.judge(claims, now * 1000)


def test_a_good_token_names_its_user_and_its_end():
    assert judged(GOOD) == ("alice", (NOW + 60) * 1000)


@pytest.mark.parametrize("subject", [" alice ", "alice\n", "\talice", "\0alice"])
def test_blanks_around_a_name_count_for_nothing(subject):
    """Kafka's broker takes them away: ACLs are about the same user."""
    assert judged({**GOOD, "sub": subject})[0] == "alice"


@given(ends=OFFSETS, starts=some.none() | OFFSETS, issued=OFFSETS, skew=some.integers(0, 50))
def test_a_token_is_good_between_its_times_give_or_take_the_skew(ends, starts, issued, skew):
    claims = {**GOOD, "exp": NOW + ends, "iat": NOW + issued}
    if starts is not None:
        claims["nbf"] = NOW + starts
    good = ends > -skew and (starts is None or starts <= skew)
    good = good and ends >= max(issued, -NOW if starts is None else starts)
    rules = TokenRules(("kafka",), "https://issuer", skew_seconds=skew)
    if good:
        assert judged(claims, rules) == ("alice", (NOW + ends) * 1000)
    else:
        with pytest.raises(TokenRefused):
            judged(claims, rules)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"sub": "\ud800"}, "no text"),
        ({"sub": "\0 "}, "no text"),
        ({"exp": None}, "no end"),
        ({"iat": None}, "no time of issue"),
        ({"exp": NOW - 30}, "ended 30 seconds ago"),
        ({"nbf": NOW + 31}, "begins in 31 seconds"),
        ({"iat": NOW + 61}, "ends before it begins"),
        ({"nbf": NOW + 20, "exp": NOW + 10}, "ends before it begins"),
        ({"exp": True}, "exp is no time"),
        ({"exp": str(NOW + 60)}, "exp is no time"),
        ({"exp": float("nan")}, "exp is no time"),
        ({"exp": float("inf")}, "exp is no time"),
        ({"exp": 10**400}, "exp is no time"),
        ({"iss": "https://other"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"iss": ["https://issuer"]}, "another issuer"),
        ({"aud": None}, "another audience"),
        ({"aud": "kafka2"}, "another audience"),
        ({"aud": ["x", "y"]}, "another audience"),
        ({"aud": ["kafka", 5]}, "another audience"),
        ({"aud": {"kafka": 1}}, "another audience"),
        ({"sub": None}, "no text in its claim sub"),
        ({"sub": "  "}, "no text in its claim sub"),
        ({"sub": 7}, "no text in its claim sub"),
        ({"scope": 7}, "neither a text nor a list"),
        ({"scope": ["a", 7]}, "neither a text nor a list"),
        ({"scope": [" "]}, "neither a text nor a list"),
    ],
)
def test_each_claim_counts(changed, why):
    claims = {name: value for name, value in {**GOOD, **changed}.items() if value is not None}
    with pytest.raises(TokenRefused, match=why):
        judged(claims)


@given(
    named=some.lists(some.sampled_from(["kafka", "other", "third"]), max_size=3),
    expected=some.lists(some.sampled_from(["kafka", "third", "fourth"]), max_size=3),
)
def test_one_audience_is_enough(named, expected):
    rules = TokenRules(tuple(expected))
    if not expected or set(named) & set(expected):
        assert judged({**GOOD, "aud": named}, rules)[0] == "alice"
    else:
        with pytest.raises(TokenRefused):
            judged({**GOOD, "aud": named}, rules)


def test_claims_have_the_names_of_the_settings():
    rules = TokenRules(scope_claim="scp", subject_claim="client_id")
    found = {**GOOD, "client_id": "bob", "scope": 7, "scp": ["a", "b"]}
    assert judged(found, rules)[0] == "bob"


def test_a_token_without_end_in_sight_has_one():
    assert judged({**GOOD, "exp": 1e300})[1] == LATEST_SECONDS * 1000


def test_fractions_of_seconds_count():
    assert judged({**GOOD, "exp": NOW + 60.5})[1] == NOW * 1000 + 60_500


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (message(), ("", "a.b.c")),
        (message(gs2="n,a=al=2Cice=3D,"), ("al,ice=", "a.b.c")),
        (message(more="key=a value\x01"), ("", "a.b.c")),
        (b"n,,\x01auth=bEARER   x\x01\x01", ("", "x")),
        (b"", None),
        (b"n,,", None),
        (b"n,,\x01\x01", None),
        (b"n,,\x01auth=Basic x\x01\x01", None),
        (b"n,,\x01auth=Bearer \x01\x01", None),
        (b"n,,\x01auth=Bearer x\x01", None),
        (b"n,,\x01auth=Bearer x\x01\x01\x01", None),
        (b"y,,\x01auth=Bearer x\x01\x01", None),
        (b"n,a=,\x01auth=Bearer x\x01\x01", None),
        (b"n,a=a=b,\x01auth=Bearer x\x01\x01", None),
        (b"n,,\x01auth=Bearer x\x01auth=Bearer y\x01\x01", None),
        (b"n,,\x01auth=Bearer x\x01k3y=v\x01\x01", None),
        (b"n,,\x01auth=Bearer x\x01key=\x01\x01", None),
        (b"n,,\x01auth=Bearer x\xff\x01\x01", None),
        (b"n,,\x01auth=Bearer x y\x01\x01", None),
    ],
)
def test_the_first_message_is_that_of_the_rfc(data, found):
    first = read_first(data)
    assert (first and (first.identity, first.token)) == found


@given(some.binary(max_size=200) | some.text(alphabet="n,a=\x01uthBearer .", max_size=60))
def test_any_message_is_read_or_refused(data):
    data = data.encode() if isinstance(data, str) else data
    reply = answer_of(BearerServer(read_unsecured, RULES), data)
    assert reply is None or reply[:3] == (INVALID_TOKEN.encode(), None, -1)


def answer_of(server, data):
    """None: the login is refused at once."""
    with contextlib.suppress(LoginRefused):
        return server.respond(data, NOW * 1000)


class Verified:
    """Claims for one token, a refusal for others."""

    def __init__(self, **changed):
        self.claims = {**GOOD, **changed}

    def __call__(self, token):
        if token != "good.t.oken":
            raise TokenRefused("its signature is wrong")
        return self.claims


def test_a_good_token_lets_its_user_in_until_its_end():
    reply = BearerServer(Verified(), RULES).respond(message("good.t.oken"), NOW * 1000)
    assert reply == Reply(b"", "alice", (NOW + 60) * 1000)
    named = message("good.t.oken", "n,a=alice,")
    assert BearerServer(Verified(), RULES).respond(named, NOW * 1000).user == "alice"


@pytest.mark.parametrize("changed", [{}, {"exp": NOW - 60}, {"aud": "x"}, {"sub": ""}])
def test_a_refused_token_is_answered_as_the_rfc_has_it_and_told_the_same(changed):
    token = "good.t.oken" if changed else "se.cr.et"
    server = BearerServer(Verified(**changed), RULES)
    reply = server.respond(message(token), NOW * 1000)
    assert json.loads(reply.answer) == {"status": "invalid_token"} and reply.user is None
    with pytest.raises(LoginRefused) as refused:
        server.respond(b"\x01", NOW * 1000)
    assert refused.value.told == INVALID_TOKEN
    assert "token is refused" in str(refused.value) and "se.cr.et" not in str(refused.value)


def test_nothing_but_the_end_follows_on_a_refused_token():
    server = BearerServer(Verified(), RULES)
    server.respond(message("another"), NOW * 1000)
    with pytest.raises(LoginRefused, match="more follows"):
        server.respond(message("good.t.oken"), NOW * 1000)


def test_a_user_does_not_act_as_another():
    with pytest.raises(LoginRefused, match="different from the token's"):
        BearerServer(Verified(), RULES).respond(message("good.t.oken", "n,a=bob,"), NOW * 1000)


@pytest.mark.parametrize("size", [LARGEST_TOKEN_BYTES, 1 << 20])
def test_a_token_that_is_too_large_is_not_looked_at(size):
    def verify(token):
        raise AssertionError

    with pytest.raises(LoginRefused, match="at most 65536 bytes, and this one") as refused:
        BearerServer(verify, RULES).respond(message("x" * size), NOW * 1000)
    assert "at most 65536 bytes" in refused.value.told
