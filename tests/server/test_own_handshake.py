"""Which changes of keys and trust keep nodes able to reach each other."""

from __future__ import annotations

import ssl
from datetime import timedelta
from itertools import pairwise

import pytest

from anabranch.server.own_handshake import Side, why_apart
from anabranch.testing.certificates import Authority


@pytest.fixture(scope="module")
def authorities(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    return [Authority(folder / each, each) for each in ("one", "two")]


def side(keys, *trusted, shows=True):
    """A node with these keys, which trusts these authorities, and shows its keys to others."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in (server, client):
        for each in trusted:
            context.load_verify_locations(each.certificate)
    server.load_cert_chain(keys.both)
    if shows:
        client.load_cert_chain(keys.both)
    server.verify_mode = ssl.CERT_REQUIRED
    return Side(server, client)


def test_what_fits_on_both_sides_may_be_gone_over_to(authorities):
    one, two = authorities
    steps = [
        side(one.issue("a"), one), side(one.issue("a"), one, two), side(two.issue("a"), one, two),
        side(two.issue("a"), two),
    ]  # fmt: skip
    assert [why_apart(*pair) for pair in pairwise(steps)] == ["", "", ""]
    assert why_apart(steps[0], steps[0]) == ""


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (lambda one, two: side(two.issue("b"), one), "not trusted"),
        (lambda one, two: side(two.issue("b"), two), "not trusted"),
        (lambda one, two: side(one.issue("b"), two), "not trusted"),
        (lambda one, two: side(one.issue("b", valid=timedelta(days=-1)), one), "expired"),
        (lambda one, two: side(one.issue("b"), one, shows=False), "certificate"),
    ],
)
def test_what_parts_nodes_is_told(authorities, after, why):
    one, two = authorities
    assert why in why_apart(side(one.issue("b"), one), after(one, two))


def test_nodes_that_are_apart_already_may_be_repaired(authorities):
    one, two = authorities
    expired = side(one.issue("c", valid=timedelta(days=-1)), one)
    assert why_apart(expired, side(two.issue("c"), one)) == ""
    assert why_apart(None, side(two.issue("c"), two)) == ""
