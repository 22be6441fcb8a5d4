"""Tokens of a client: from a file or an endpoint, kept while they are good, and told to nobody."""

from __future__ import annotations

import asyncio
import pickle
import time

import pytest
from compat.token_provider import Provider, unsecured

from anabranch.client import tokens
from anabranch.client.security import security_of
from anabranch.client.tokens import TokenSource, token_of
from anabranch.core.errors import ClientFault
from anabranch.testing.certificates import Authority

SECRET = "hunter2secret"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
URL = "sasl.oauthbearer.token.endpoint.url"
CLIENT = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET = "sasl.oauthbearer.client.credentials.client.secret"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(tokens, "PAUSE_SECONDS", 0.01)


@pytest.fixture
def issuer():
    running = Provider(secret=SECRET)
    yield running
    running.stop()


def properties(**more):
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", **more}


def endpoint(url="https://idp/token", **more):
    return properties(**{URL: url, CLIENT: "me", CLIENT_SECRET: SECRET, **more})


def source(url, secret=SECRET, **more):
    return TokenSource(url, "me", secret, **more)


def test_properties_are_kafkas():
    found = security_of(endpoint(**{"sasl.oauthbearer.scope": "a b"}))
    assert found.login.tokens == TokenSource("https://idp/token", "me", SECRET, "a b")
    text = f'{MODULE} required clientId="me" clientSecret="{SECRET}" scope="a b" extension_x="y";'
    older = security_of(properties(**{URL: "https://idp/token", "sasl.jaas.config": text}))
    assert older.login.tokens == found.login.tokens and older.login.extensions == (("x", "y"),)
    assert pickle.loads(pickle.dumps(older)) == older
    assert SECRET not in repr(older) + str(found)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (properties(), URL),
        (endpoint("ftp://idp"), URL),
        (endpoint("file://"), URL),
        (endpoint(f"https://[{SECRET}"), URL),
        (endpoint(f"https://idp:{SECRET}/token"), URL),
        (endpoint(f"https://idp:0/?{SECRET}"), URL),
        (endpoint("http://idp/token"), URL),
        (endpoint(**{CLIENT: ""}), CLIENT),
        (endpoint(**{CLIENT_SECRET: ""}), CLIENT_SECRET),
        (endpoint(**{"sasl.login.read.timeout.ms": SECRET}), "sasl.login.read.timeout.ms"),
        (endpoint(**{"sasl.oauthbearer.assertion.file": SECRET}), "sasl.oauthbearer.assertion.file"),
        (endpoint(**{"sasl.jaas.config": f"x.PlainLoginModule required a={SECRET};"}), "sasl.jaas.config"),
        (endpoint(**{"sasl.jaas.config": SECRET}), "sasl.jaas.config"),
        (endpoint(**{"sasl.jaas.config": f'{MODULE} required extension_auth="{SECRET}";'}), "sasl.jaas.config"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named_without_its_value(given, name):
    with pytest.raises(ClientFault) as refused:
        security_of(given, prefix="kafka.")
    assert str(refused.value).startswith(f"kafka.{name} ") and SECRET not in str(refused.value)


def test_an_endpoint_is_asked_once_while_its_token_is_good(issuer, monkeypatch):
    at = source(f"{issuer.url}/token?x=1", scope="a b")

    async def work():
        found = set(await asyncio.gather(*(token_of(at) for _ in range(10))))
        assert len(found) == 1 and len(issuer.asked) == 1
        later = time.monotonic() + 0.79 * 300
        monkeypatch.setattr(tokens.time, "monotonic", lambda: later)
        await token_of(at)
        assert len(issuer.asked) == 1
        later += 0.02 * 300
        await token_of(at)
        assert len(issuer.asked) == 2

    asyncio.run(work())
    assert issuer.asked[0][1] == {"grant_type": "client_credentials", "scope": "a b"}


@pytest.mark.parametrize(("answer", "times"), [({"expires_in": 300}, 1), ({}, 2), ({"expires_in": "x"}, 2)])  # fmt: skip
def test_a_token_that_only_its_provider_understands_is_kept_as_long_as_that_says(
    issuer, monkeypatch, answer, times
):
    asked = []

    def fetch(ask, _context):
        asked.append(ask)
        return tokens.json.dumps({"access_token": "opaque", **answer}).encode()

    monkeypatch.setattr(tokens, "fetch", fetch)

    async def work():
        at = source(issuer.url)
        assert [await token_of(at), await token_of(at)] == ["opaque"] * 2

    asyncio.run(work())
    assert len(asked) == times


def why(at):
    with pytest.raises(ClientFault) as refused:
        asyncio.run(token_of(at))
    assert SECRET not in str(refused.value) and "x=1" not in str(refused.value)
    return str(refused.value)


def test_a_wrong_secret_is_not_tried_again(issuer):
    assert "401" in why(source(f"{issuer.url}/?x=1", secret="wrong"))
    assert len(issuer.asked) == 1


def test_a_provider_that_fails_is_asked_again(issuer):
    issuer.status = 503
    assert "503" in why(source(f"{issuer.url}/?x=1"))
    assert len(issuer.asked) == tokens.TRIES


def test_no_redirect_is_followed(issuer):
    issuer.status = 302
    assert "302" in why(source(f"{issuer.url}/?x=1"))
    assert len(issuer.asked) == 1


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"access_token": 7}', b'{"access_token": "a b"}',
                                  b'{"access_token": "a\\u0001b"}', b"[" * 100_000])  # fmt: skip
def test_an_answer_without_a_token_is_told(monkeypatch, body):
    monkeypatch.setattr(tokens, "fetch", lambda _ask, _context: body)
    assert "has no token" in why(source("https://idp/token?x=1"))


def test_a_file_is_read_for_each_login(tmp_path):
    path = tmp_path / "token"
    at = security_of(properties(**{URL: path.as_uri()})).login.tokens
    assert "No such file" in why(at)
    for text in ("one.two.three", "four.five.six\n"):
        path.write_text(text)
        assert asyncio.run(token_of(at)) == text.strip()
    path.write_bytes(b"\xff not a token")
    assert "has no token" in why(at)


def test_an_endpoint_is_trusted_by_the_authority_of_the_login_module(tmp_path):
    import ssl

    authority = Authority(tmp_path)
    own = authority.issue("idp")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.chain, own.key)
    issuer = Provider(context, SECRET)
    try:
        text = f'{MODULE} required ssl.truststore.location="{authority.certificate}";'
        given = endpoint(issuer.url, **{"sasl.jaas.config": text})
        assert asyncio.run(token_of(security_of(given).login.tokens)).count(".") == 2
        assert "certificate" in why(security_of(endpoint(issuer.url)).login.tokens).lower()
    finally:
        issuer.stop()


def test_the_end_of_a_token_is_read_from_it():
    now = time.time()
    assert tokens._seconds(unsecured({"exp": now + 100}), 300) == pytest.approx(100, abs=2)
    assert tokens._seconds(unsecured({"exp": now + 1000}), 300) == 300
    assert tokens._seconds(unsecured({"exp": now - 5}), 300) == 0
    assert tokens._seconds("a.b", None) == tokens._seconds("opaque", "x") == 0
