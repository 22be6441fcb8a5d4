"""Delegation tokens at a login: whose they are, until when, and when they are refused."""

from __future__ import annotations

import base64
import hashlib
import hmac
from itertools import count

import pytest
from immutables import Map
from msgspec.structs import replace

from anabranch.client.scram import ScramClient
from anabranch.core.access.delegation_tokens import (
    DelegationToken,
    hmac_of,
    password_of,
)
from anabranch.core.access.login import LoginRefused
from anabranch.core.access.principal import Principal
from anabranch.core.access.scram_server import HASHES, make_credential, salted
from anabranch.core.broker.listener_logins import Chance, logins_of
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.listener_security import ListenerSettings
from anabranch.core.settings.listeners import Listener

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
SECRET, NOW_MS = "the-key-of-all-nodes", 1_700_000_000_000
TOKEN = DelegationToken("an-id", ALICE, BOB, (BOB,), NOW_MS, NOW_MS + 9_000, NOW_MS + 1_000)
PASSWORD = password_of(hmac_of(SECRET, "an-id"))
NUMBERS = count()
CHANCE = Chance(lambda: f"nonce{next(NUMBERS)}", lambda: b"secret" * 5)


def machine(image, mechanism="SCRAM-SHA-256", secret=SECRET):
    static = {"sasl.enabled.mechanisms": mechanism, "delegation.token.secret.key": secret}
    settings = ListenerSettings(BrokerConfig.of(static), Listener("L", "127.0.0.1", 1, "SASL_SSL"))
    return logins_of(settings, lambda: image, CHANCE).mechanisms[mechanism]()


def log_in(server, name="an-id", password=PASSWORD, mechanism="SCRAM-SHA-256", now_ms=NOW_MS,
           *, is_token=True):  # fmt: skip
    client = ScramClient(mechanism, name, password, "mine", is_token=is_token)
    first = server.respond(client.first(), now_ms)
    last = server.respond(client.final(first.answer), now_ms)
    client.check(last.answer)
    return last


@pytest.fixture
def image():
    return replace(MetadataImage.empty(), tokens=Map({"an-id": TOKEN}))


def test_the_password_is_kafkas():
    """HmacSHA512 of the id under the secret's bytes, in Base64."""
    expected = hmac.new(SECRET.encode(), b"an-id", hashlib.sha512).digest()
    assert base64.b64encode(expected).decode() == PASSWORD and len(PASSWORD) == 88


@pytest.mark.parametrize("mechanism", HASHES)
def test_who_has_a_token_comes_as_its_owner_until_its_end(image, mechanism):
    reply = log_in(machine(image, mechanism), mechanism=mechanism)
    assert (reply.user, reply.ends_ms, reply.is_by_token) == ("alice", TOKEN.expiry_ms, True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"password": "x"}, {"name": "another"}, {"now_ms": TOKEN.expiry_ms + 1},
        {"is_token": False}, {"name": "alice"},
    ],
)  # fmt: skip
def test_another_password_or_id_or_one_that_is_over_is_refused(image, wrong):
    with pytest.raises(LoginRefused) as refused:
        log_in(machine(image), **wrong)
    assert PASSWORD not in str(refused.value) + refused.value.told
    assert "invalid credentials" in refused.value.told


def test_a_users_password_is_none_of_a_token_of_that_name(image):
    credential = make_credential(
        "SCRAM-SHA-256", salted("SCRAM-SHA-256", "pw", b"s", 4096), b"s", 4096
    )
    image = replace(image, scram=Map({(1, "an-id"): credential}))
    assert log_in(machine(image), password="pw", is_token=False).user == "an-id"
    with pytest.raises(LoginRefused):
        log_in(machine(image), password="pw")


def test_tokens_follow_the_image_and_the_secret(image):
    for changed in (MetadataImage.empty(), replace(image, tokens=Map())):
        with pytest.raises(LoginRefused):
            log_in(machine(changed))
    for secret in ("", "another"):
        with pytest.raises(LoginRefused):
            log_in(machine(image, secret=secret))
    renewed = replace(TOKEN, expiry_ms=TOKEN.max_ms)
    longer = replace(image, tokens=Map({"an-id": renewed}))
    late_ms = TOKEN.expiry_ms + 1
    assert log_in(machine(longer), now_ms=late_ms).ends_ms == TOKEN.max_ms


@pytest.mark.parametrize(("now_ms", "is_over"), [(0, False), (1_000, False), (1_001, True)])
def test_a_token_is_good_up_to_its_end(now_ms, is_over):
    assert TOKEN.is_over(NOW_MS + now_ms) is is_over
    assert replace(TOKEN, max_ms=0).is_over(NOW_MS)


def test_rights_to_a_token():
    carol = Principal("User", "carol")
    token = replace(TOKEN, requester=carol)
    assert [token.may_renew(each) for each in (ALICE, BOB, carol)] == [True, True, False]
    assert set(token.people) == {ALICE, BOB, carol}
