"""Logins with OAUTHBEARER on a node: librdkafka, kafka-python, and messages of all kinds."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time

import pytest
from compat.token_provider import Provider, claims_of, first_message, new_key, signed, unsecured
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.net.sasl.oauth import AbstractTokenProvider
from tests.server.secure_kit import SecureNode

from anabranch.client.cluster import Cluster
from anabranch.client.connection import Connection, ConnectionLost
from anabranch.client.security import security_of
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.wire.messages.describe_cluster import DescribeClusterRequest
from anabranch.core.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from anabranch.core.wire.messages.sasl_handshake import SaslHandshakeRequest

SECONDS = 20
MECHANISMS = "PLAIN,SCRAM-SHA-256,OAUTHBEARER"
OAUTH = "sasl.oauthbearer."
"""Prefix of settings."""
REFUSED = '{"status":"invalid_token"}'


def token_settings(url, **more):
    return {
        "sasl.enabled.mechanisms": MECHANISMS,
        f"{OAUTH}jwks.endpoint.url": url,
        f"{OAUTH}expected.audience": "kafka",
        f"{OAUTH}expected.issuer": "https://issuer",
        **more,
    }


@pytest.fixture(scope="module")
def issuer():
    running = Provider()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def node(tmp_path_factory, issuer):
    folder = tmp_path_factory.mktemp("tokens")
    running = SecureNode(folder, **token_settings(f"{issuer.url}/jwks")).start()
    until = time.monotonic() + SECONDS
    while any(each.has_changed for each in running.node.changed.listeners._by_name.values()):
        assert time.monotonic() < until
        time.sleep(0.05)
    yield running
    running.stop()


def claims(user="alice", seconds=300, **more):
    return claims_of(user, seconds, iss="https://issuer", aud=["kafka", "x"]) | more


def token(issuer, *said, algorithm="RS256", **more):
    return signed(issuer.key, algorithm, claims(*said, **more))


def rdkafka(node, listener, given):
    settings = node.properties(listener, mechanism="OAUTHBEARER")
    del settings["sasl.username"], settings["sasl.password"]
    return {**settings, "oauth_cb": lambda _config: (given, time.time() + 300, "alice", {"x": "y"})}


@pytest.mark.parametrize("listener", ["SASL", "BOTH"])
def test_librdkafka_logs_in_with_a_token(node, issuer, listener):
    producer = Producer({**rdkafka(node, listener, token(issuer)), "linger.ms": 0})
    sent = []
    producer.produce("tokens", b"x", on_delivery=lambda fault, _record: sent.append(fault))
    assert producer.flush(SECONDS) == 0 and sent == [None]


def test_librdkafka_hears_that_a_token_is_refused(node, issuer):
    faults = []
    settings = rdkafka(node, "BOTH", token(issuer, aud="other"))
    admin = AdminClient({**settings, "error_cb": faults.append})
    until = time.monotonic() + SECONDS
    while not any(each.code() == KafkaError._AUTHENTICATION for each in faults):
        assert time.monotonic() < until
        admin.poll(0.1)


class Given(AbstractTokenProvider):
    def __init__(self, text):
        self._text = text

    def token(self):
        return self._text


def test_kafka_python_logs_in_with_a_token(node, issuer):
    admin = KafkaAdminClient(
        bootstrap_servers=node.address("SASL"), security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=Given(token(issuer)),
    )  # fmt: skip
    assert admin.describe_cluster()
    admin.close()


def test_a_connection_may_nothing_before_its_handshake_is_over(node):
    """A node looks at connections while handshakes are under way."""
    host, _, port = node.address("MTLS").partition(":")
    acceptor = next(each for each in node.node.acceptors if each.name == "MTLS")
    with socket.create_connection((host, int(port))):
        until = time.monotonic() + SECONDS
        while not acceptor.connections:
            assert time.monotonic() < until
            time.sleep(0.01)
        (session,) = {each.channel.session for each in acceptor.connections}
        assert session.is_restricted and not session.is_begun


async def opened(node, listener="SASL"):
    security = security_of(node.kafka_properties(listener))
    host, _, port = node.address(listener).partition(":")
    return await Connection.open(host, int(port), ssl=security.context(), timeout_seconds=SECONDS)


async def said(connection, *messages, mechanism="OAUTHBEARER"):
    shake = await connection.send(SaslHandshakeRequest(mechanism=mechanism))
    answers = [shake]
    for each in messages:
        answers.append(await connection.send(SaslAuthenticateRequest(auth_bytes=each)))
    return answers


def answered(node, *messages):
    async def work():
        connection = await opened(node)
        try:
            return (await said(connection, *messages))[1:]
        finally:
            await connection.close()

    return asyncio.run(work())


@pytest.mark.parametrize(
    "changed",
    [
        {"exp": 1_000_000_000}, {"nbf": 4_000_000_000}, {"aud": "other"},
        {"iss": "https://other"}, {"sub": ""}, {"exp": "soon"}, {"iat": None},
    ],
    ids=str,
)  # fmt: skip
def test_a_token_whose_claims_are_wrong_is_refused(node, issuer, changed):
    first, second = answered(node, first_message(token(issuer, **changed)), b"\x01")
    assert first.error_code == 0 and bytes(first.auth_bytes).decode() == REFUSED
    assert second.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert second.error_message == REFUSED


def test_a_token_of_another_key_and_one_of_no_key_are_refused(node, issuer):
    other = new_key("RSA", "one")
    unknown = new_key("P-256", "none-such")
    for each in (
        signed(other, "RS256", claims()), signed(unknown, "ES256", claims()), unsecured(claims()),
    ):  # fmt: skip
        first, second = answered(node, first_message(each), b"\x01")
        assert bytes(first.auth_bytes).decode() == second.error_message == REFUSED


def test_a_token_that_is_too_large_ends_the_connection(node):
    with pytest.raises(ConnectionLost):
        answered(node, first_message("x" * (1 << 20)))


def test_a_storm_of_bad_tokens_does_not_stop_other_clients(tmp_path, issuer):
    """Tokens that name no key, and as large as a stranger may send them, of many connections."""
    path = tmp_path / "jwks.json"
    keys = [*issuer.keys, *(new_key("P-521", None) for _ in range(99))]
    path.write_text(json.dumps({"keys": [each.as_dict(private=False) for each in keys]}))
    running = SecureNode(tmp_path, **token_settings(path.as_uri())).start()
    bad = signed(new_key("P-521", None), "ES512", claims(more="x" * 380_000))
    over, refused = asyncio.Event(), []

    async def stranger():
        while not over.is_set():
            with contextlib.suppress(ConnectionLost):
                connection = await opened(running)
                await said(connection, first_message(bad))
                refused.append(1)
                await connection.close()

    async def work():
        connection = await opened(running)
        await said(connection, first_message(token(issuer)))
        strangers = [asyncio.create_task(stranger()) for _ in range(30)]
        longest, until = 0.0, time.monotonic() + 3
        while time.monotonic() < until:
            begun = time.monotonic()
            await connection.send(DescribeClusterRequest())
            longest = max(longest, time.monotonic() - begun)
            await asyncio.sleep(0.01)
        over.set()
        await asyncio.gather(*strangers)
        await connection.close()
        return longest

    try:
        assert asyncio.run(work()) < 2 and len(refused) > 30
    finally:
        running.stop()


def own_properties(node, listener, url, secret="provider-secret"):
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    found = node.kafka_properties(listener)
    return {
        **found, "sasl.mechanism": "OAUTHBEARER", f"{OAUTH}token.endpoint.url": url,
        "sasl.jaas.config": f'{module} clientId="me" clientSecret="{secret}" extension_a="b";',
    }  # fmt: skip


@pytest.mark.parametrize("listener", ["SASL", "BOTH"])
@pytest.mark.parametrize("kind", ["file", "endpoint"])
def test_our_own_client_logs_in_with_a_token(node, issuer, tmp_path, listener, kind):
    path = tmp_path / "token"
    path.write_text(token(issuer))
    issuer.more = {"iss": "https://issuer", "aud": "kafka"}
    url = path.as_uri() if kind == "file" else f"{issuer.url}/token"

    async def work():
        security = security_of(own_properties(node, listener, url))
        async with Cluster(node.address(listener), security=security) as cluster:
            return await cluster.metadata(None)

    assert asyncio.run(work()).brokers


def test_our_own_client_hears_that_its_token_is_refused(node, issuer, tmp_path):
    path = tmp_path / "token"
    path.write_text(token(issuer, aud="other"))
    security = security_of(own_properties(node, "SASL", path.as_uri()))
    host, _, port = node.address("SASL").partition(":")
    with pytest.raises(ApiError) as refused:
        asyncio.run(Connection.open(host, int(port), login=security.login))
    assert "does not accept the token" in str(refused.value) and "invalid_token" in str(
        refused.value
    )
    assert path.read_text() not in str(refused.value)


def test_our_own_client_renews_its_login_while_requests_are_under_way(node, issuer, tmp_path):
    """Each request is answered on the one connection, over many lives of a token."""
    path = tmp_path / "token"

    def renew():
        new = tmp_path / "new"
        new.write_text(signed(issuer.key, "RS256", claims(seconds=2)))
        new.replace(path)

    async def work():
        renew()
        security = security_of(own_properties(node, "SASL", path.as_uri()))
        host, _, port = node.address("SASL").partition(":")
        connection = await Connection.open(host, int(port), login=security.login)
        until = time.monotonic() + 6
        answered, posted = 0, []
        while time.monotonic() < until:
            renew()
            assert connection.is_open, connection.lost
            version = connection.version_for(DescribeClusterRequest.api_key)
            connection.post(DescribeClusterRequest(), version, posted.append)
            asked = (connection.send(DescribeClusterRequest()) for _ in range(5))
            found = await asyncio.gather(*asked, return_exceptions=True)
            assert not any(isinstance(each, Exception) for each in found), found
            answered += 1
        assert len(posted) == answered and not any(isinstance(each, Exception) for each in posted)
        await connection.close()

    asyncio.run(work())


def test_a_login_that_cannot_be_renewed_ends_the_connection_with_its_reason(node, issuer, tmp_path):
    path = tmp_path / "token"
    path.write_text(signed(issuer.key, "RS256", claims(seconds=2)))

    async def work():
        security = security_of(own_properties(node, "SASL", path.as_uri()))
        host, _, port = node.address("SASL").partition(":")
        connection = await Connection.open(host, int(port), login=security.login)
        path.unlink()
        until = time.monotonic() + SECONDS
        while connection.is_open:
            assert time.monotonic() < until
            await asyncio.sleep(0.05)
        return str(connection.lost)

    told = asyncio.run(work())
    assert "did not renew the login" in told and "No such file" in told


def test_nodes_log_in_with_tokens_and_renew_them(tmp_path, issuer):
    """Broker and controller speak over OAUTHBEARER, longer than a token lives."""
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps(issuer.jwks))
    issuer.more, issuer.seconds, issuer.user = {}, 3, "admin"
    settings = {
        "sasl.enabled.mechanisms": MECHANISMS, "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.mechanism.controller.protocol": "OAUTHBEARER",
        "listener.name.controller.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{OAUTH}jwks.endpoint.url": path.as_uri(),
        f"{OAUTH}token.endpoint.url": f"{issuer.url}/token",
        f"{OAUTH}client.credentials.client.id": "node",
        f"{OAUTH}client.credentials.client.secret": "provider-secret",
    }  # fmt: skip
    running = SecureNode(tmp_path, **settings).start()
    try:
        asked = len(issuer.asked)
        until = time.monotonic() + SECONDS
        while len(issuer.asked) < asked + 2:
            assert time.monotonic() < until
            time.sleep(0.1)
        names = {
            each.channel.session.principal.name
            for acceptor in running.node.acceptors
            if acceptor.name == "CONTROLLER"
            for each in acceptor.connections
        }
        assert names == {"admin"}
    finally:
        running.stop()
        issuer.seconds, issuer.user = 300, "alice"


def test_a_session_is_as_long_as_its_token(node, issuer):
    (answer,) = answered(node, first_message(token(issuer, "alice", 100)))
    assert 90_000 < answer.session_lifetime_ms <= 100_000


def test_a_session_ends_with_its_token_unless_it_is_renewed(node, issuer):
    async def work():
        lasting, ending = await opened(node), await opened(node)
        short = first_message(signed(issuer.key, "RS256", claims(seconds=2)))
        for each in (lasting, ending):
            assert (await said(each, short))[1].session_lifetime_ms <= 2_000
            await each.send(DescribeClusterRequest())
        renewed = await said(lasting, first_message(token(issuer)))
        assert renewed[1].session_lifetime_ms > 200_000
        await asyncio.sleep(2.5)
        await lasting.send(DescribeClusterRequest())
        with pytest.raises(ConnectionLost):
            await ending.send(DescribeClusterRequest())
        await lasting.close()

    asyncio.run(work())


@pytest.mark.parametrize(
    ("mechanism", "message", "why"),
    [
        ("OAUTHBEARER", "bob", "Cannot change principals"),
        ("PLAIN", b"\0alice\0alice-secret", "not supported for re-authentication of mechanism"),
    ],
)
def test_a_session_that_is_renewed_stays_what_it_was(node, issuer, mechanism, message, why):
    async def work():
        connection = await opened(node)
        assert (await said(connection, first_message(token(issuer))))[1].error_code == 0
        text = message if isinstance(message, bytes) else first_message(token(issuer, message))
        answer = (await said(connection, text, mechanism=mechanism))[1]
        await connection.close()
        return answer

    answer = asyncio.run(work())
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert why in answer.error_message


def test_a_refused_token_is_counted_and_logged_without_the_token(node, issuer, capfd):
    acceptor = next(each for each in node.node.acceptors if each.name == "SASL")
    before = acceptor.statistics()["failed_logins_total"]
    secret = token(issuer, aud="other")
    answered(node, first_message(secret), b"\x01")
    assert acceptor.statistics()["failed_logins_total"] == before + 1
    told = "".join(capfd.readouterr())
    assert secret.split(".")[2] not in told and secret.split(".")[1] not in told


def test_unsecured_tokens_are_taken_where_that_is_meant(tmp_path):
    settings = {
        "sasl.enabled.mechanisms": MECHANISMS, f"{OAUTH}unsecured.tokens.allow": "true",
    }  # fmt: skip
    running = SecureNode(tmp_path, **settings).start()
    try:
        (good,) = answered(running, first_message(unsecured(claims_of())))
        assert good.error_code == 0 and good.session_lifetime_ms > 0
        own = new_key("RSA", "a")
        (bad,) = answered(running, first_message(signed(own, "RS256", claims_of())))
        assert bytes(bad.auth_bytes) == b'{"status":"invalid_token"}'
    finally:
        running.stop()
