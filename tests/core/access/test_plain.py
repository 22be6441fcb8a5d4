"""PLAIN: who is let in, and what is said to the others."""

from __future__ import annotations

import pytest

from anabranch.core.access.jaas import parse_jaas
from anabranch.core.access.login import LoginRefused
from anabranch.core.access.plain import PlainServer, plain_users

USERS = plain_users(
    parse_jaas('x.PlainLoginModule required user_alice="s=1;,\\"" user_b="2" username="n";')[1]
)


def test_the_users_are_those_of_the_login_module():
    assert USERS == {"alice": b's=1;,"', "b": b"2"}


def test_a_user_is_let_in_with_its_password():
    for identity in ("", "alice"):
        reply = PlainServer(USERS).respond(f'{identity}\0alice\0s=1;,"'.encode(), 0)
        assert reply.user == "alice" and reply.answer == b""


def told(message):
    with pytest.raises(LoginRefused) as refused:
        PlainServer(USERS).respond(message, 0)
    assert "hidden" not in str(refused.value) + refused.value.told
    return refused.value.told


def test_an_unknown_user_cannot_be_told_from_a_wrong_password():
    answers = {told(b"\0alice\0hidden"), told(b"\0carol\0hidden"), told(b"\0carol\0\x01")}
    assert answers == {"Authentication failed: Invalid username or password"}


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"", "3 tokens"), (b"alice", "3 tokens"), (b"\0alice\0a\0hidden", "3 tokens"),
        (b"\xff\0a\0b", "3 tokens"), (b"\0\0hidden", "username not specified"),
        (b"\0alice\0", "password not specified"), (b"b\0alice\0s=1;,\"", "authorization id"),
    ],
)  # fmt: skip
def test_what_is_no_login_is_told_so(message, why):
    assert why in told(message)
