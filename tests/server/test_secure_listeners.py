"""Listeners with TLS and SASL on a node: who gets in, as whom, and what the others cost."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from datetime import timedelta

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.server.node_kit import free_ports
from tests.server.secure_kit import KINDS, SecureNode

from anabranch.client.cluster import Cluster
from anabranch.client.connection import Connection, ConnectionLost
from anabranch.client.security import security_of
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.running_nodes import NodeAddress
from anabranch.core.wire.messages.describe_cluster import DescribeClusterRequest
from anabranch.core.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from anabranch.core.wire.messages.sasl_handshake import SaslHandshakeRequest
from anabranch.server import listener, logs, tls_transport
from anabranch.server.running_nodes import answering
from anabranch.testing.certificates import Authority

SECONDS = 20
LISTENERS = [each for each in KINDS if each != "CONTROLLER"]


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    running = SecureNode(tmp_path_factory.mktemp("secure")).start()
    yield running
    running.stop()


def eventually(told):
    until = time.monotonic() + SECONDS
    while not told():
        assert time.monotonic() < until
        time.sleep(0.05)


def acceptor(node, name):
    return next(each for each in node.node.acceptors if each.name == name)


@pytest.mark.parametrize("name", LISTENERS)
def test_records_come_back_over_each_listener(node, name):
    """Also large ones, which a plaintext connection would be lent out of the page cache."""
    settings = node.properties(name)
    admin = AdminClient(settings)
    (made,) = admin.create_topics([NewTopic(f"t-{name}", 1, 1)]).values()
    made.result(SECONDS)
    sent = [bytes([each]) * 300_000 for each in range(20)]
    producer = Producer({**settings, "linger.ms": 20})
    for each in sent:
        producer.produce(f"t-{name}", each)
    assert producer.flush(SECONDS) == 0
    consumer = Consumer({**settings, "group.id": f"g-{name}", "auto.offset.reset": "earliest"})
    consumer.subscribe([f"t-{name}"])
    found = []
    until = time.monotonic() + SECONDS
    while len(found) < len(sent) and time.monotonic() < until:
        found += [each.value() for each in consumer.consume(50, 0.5) if not each.error()]
    consumer.close()
    assert found == sent


@pytest.mark.parametrize("name", LISTENERS)
def test_our_own_client_speaks_to_each_listener(node, name):
    async def topics():
        security = security_of(node.kafka_properties(name))
        async with Cluster(node.address(name), security=security) as cluster:
            return await cluster.metadata(None)

    assert asyncio.run(topics()).brokers


@pytest.mark.parametrize(
    ("name", "who"), [("SSL", "ANONYMOUS"), ("MTLS", "alice"), ("BOTH", "alice")]
)
def test_requests_are_made_as_the_client_that_has_shown_who_it_is(node, name, who):
    async def work():
        connection = await opened(node, name)
        await connection.send(DescribeClusterRequest())
        found = {each.channel.session.principal.name for each in acceptor(node, name).connections}
        await connection.close()
        return found

    assert asyncio.run(work()) & {who}


async def opened(node, name, **login):
    security = security_of(node.kafka_properties(name, **login))
    host, _, port = node.address(name).partition(":")
    return await Connection.open(
        host, int(port), ssl=security.context(), login=security.login, timeout_seconds=SECONDS
    )


@pytest.mark.parametrize("name", ["SASL", "BOTH"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_an_unknown_user_and_a_wrong_password_get_the_same_answer(node, name, mechanism):
    said = []
    for user in ("alice", "carol"):
        with pytest.raises(ApiError) as fault:
            asyncio.run(opened(node, name, user=user, password="wrong", mechanism=mechanism))
        assert fault.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        said.append(str(fault.value).replace(user, "USER"))
    assert said[0] == said[1]


def test_a_refused_login_is_known_to_librdkafka(node):
    faults = []
    settings = {**node.properties("BOTH", password="wrong"), "error_cb": faults.append}
    admin = AdminClient(settings)
    until = time.monotonic() + SECONDS
    while not faults and time.monotonic() < until:
        admin.poll(0.2)
    assert KafkaError._AUTHENTICATION in {each.code() for each in faults}


def handshake(node, name, authority=None, identity=None, **limits):
    """A client's handshake, and one byte of what follows. Raises ssl.SSLError or OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations((authority or node.authority).certificate)
    for limit, value in limits.items():
        setattr(context, limit, value)
    if identity is not None:
        context.load_cert_chain(identity.chain, identity.key)
    host, _, port = node.address(name).partition(":")
    raw = socket.create_connection((host, int(port)), SECONDS)
    with raw, context.wrap_socket(raw, server_hostname=host) as tls:
        tls.sendall(b"\0\0\0\0")
        return tls.recv(1)


@pytest.mark.parametrize(
    "case", ["no certificate", "another authority", "expired", "untrusted server", "old version"]
)
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_a_handshake_that_fails_is_counted(node, tmp_path, case):
    before = acceptor(node, "MTLS").failed_handshakes_total
    other = Authority(tmp_path)
    arguments = {
        "no certificate": {}, "another authority": {"identity": other.issue("alice")},
        "expired": {"identity": node.authority.issue("old", valid=timedelta(days=-1))},
        "untrusted server": {"authority": other, "identity": node.alice},
        "old version": {
            "identity": node.alice, "minimum_version": ssl.TLSVersion.TLSv1,
            "maximum_version": ssl.TLSVersion.TLSv1_1,
        },
    }[case]  # fmt: skip
    with pytest.raises((ssl.SSLError, ConnectionError)):
        handshake(node, "MTLS", **arguments)
    eventually(lambda: acceptor(node, "MTLS").failed_handshakes_total == before + 1)
    assert not [each for each in acceptor(node, "MTLS").connections if each.channel.closing]


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0\0\0\x10" + bytes(16),
        b"\x16\x03\x01\xff\xff" + bytes(70_000),
        bytes(300_000),
    ],
)
def test_what_is_no_handshake_is_let_go(node, said):
    before = acceptor(node, "SSL").failed_handshakes_total
    host, _, port = node.address("SSL").partition(":")
    raw = socket.create_connection((host, int(port)), SECONDS)
    with raw, contextlib.suppress(ConnectionError):
        raw.sendall(said)
        while raw.recv(4096):
            pass
    eventually(lambda: acceptor(node, "SSL").failed_handshakes_total == before + 1)


def test_silent_and_slow_handshakes_end_and_hold_up_no_one(node, monkeypatch):
    monkeypatch.setattr(tls_transport, "HANDSHAKE_SECONDS", 1.0)
    before = acceptor(node, "SSL").failed_handshakes_total
    host, _, port = node.address("SSL").partition(":")
    silent = [socket.create_connection((host, int(port)), SECONDS) for _ in range(20)]
    for each in silent[:10]:
        each.sendall(b"\x16\x03\x01")
    began = time.monotonic()
    asyncio.run(opened(node, "SSL"))
    assert time.monotonic() - began < 1.0
    for each in silent:
        each.settimeout(SECONDS)
        with contextlib.suppress(ConnectionError):
            assert each.recv(1) == b""
        each.close()
    eventually(lambda: acceptor(node, "SSL").failed_handshakes_total == before + 10)


def test_a_plaintext_client_is_told_what_to_do(node):
    async def work():
        host, _, port = node.address("SSL").partition(":")
        await Connection.open(host, int(port), timeout_seconds=SECONDS)

    with pytest.raises(ConnectionLost):
        asyncio.run(work())


def test_a_large_frame_before_the_login_closes(node):
    host, _, port = node.address("SASL").partition(":")
    with socket.create_connection((host, int(port)), SECONDS) as raw:
        raw.sendall((600_000).to_bytes(4, "big") + b"\0\x12\0\0")
        assert raw.recv(1) == b""


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "M" * 30_000])
def test_what_the_log_repeats_of_a_login_is_short(node, mechanism, monkeypatch):
    """Who has not logged in may not fill the disk with long names."""
    lines = []
    monkeypatch.setattr(logs, "WATCHERS", [lambda event: lines.append(getattr(event, logs.FIELDS))])
    name = "\x01" * 400_000
    if mechanism == "PLAIN":
        said = [f"\0{name}\0x".encode()]
    else:
        said = [f"n,,n={name},r=x".encode(), b"c=biws,r=x,p=x"]

    async def work():
        host, _, port = node.address("SASL").partition(":")
        connection = await Connection.open(host, int(port), timeout_seconds=SECONDS)
        await connection.send(SaslHandshakeRequest(mechanism=mechanism))
        for each in said:
            await connection.send(SaslAuthenticateRequest(auth_bytes=each))
        await connection.close()

    with contextlib.suppress(ConnectionLost):
        asyncio.run(work())
    eventually(lambda: any("why" in each for each in lines))
    assert max(len(str(each)) for each in lines) < 2_000


@pytest.mark.parametrize("name", KINDS)
def test_a_running_node_is_seen_by_commands_that_only_a_stopped_cluster_bears(node, name):
    """They have no login, and must not take a secure node for none."""
    host, _, port = node.address(name).partition(":")
    found = asyncio.run(answering([NodeAddress(1, host, int(port))], "", print))
    assert len(found) == 1


def test_new_keys_are_used_without_a_restart(tmp_path, monkeypatch):
    monkeypatch.setattr(listener, "RELOAD_SECONDS", 0.1)
    running = SecureNode(tmp_path).start()
    try:
        handshake(running, "SSL")
        other = Authority(tmp_path / "other")
        fresh = other.issue("node")
        with open(running.own.both, "w") as file:
            file.write("rubbish")
        time.sleep(0.5)
        handshake(running, "SSL")
        with open(running.own.both, "w") as file, open(fresh.both) as content:
            file.write(content.read())

        def is_new():
            try:
                handshake(running, "SSL", authority=other)
            except ssl.SSLError:
                return False
            return True

        eventually(is_new)
        with pytest.raises(ssl.SSLError):
            handshake(running, "SSL")
    finally:
        running.stop()


def test_a_node_calls_its_own_controller_by_the_name_in_its_certificate(tmp_path):
    """Not by the address that it listens on, which no certificate has to name."""
    (port,), authority = free_ports(1), Authority(tmp_path / "named")
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{port}",
        "advertised.listeners": f"CONTROLLER://localhost:{port}",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.location": authority.issue("node", ["localhost"]).both,
        "ssl.truststore.location": authority.certificate,
    }
    kinds = "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_SSL"
    running = SecureNode(tmp_path, **settings, **{"listener.security.protocol.map": kinds}).start()
    try:
        time.sleep(1)
        acceptors = running.node._acceptors_of(running.node.config.controller_listeners)
        assert acceptors and not any(each.failed_handshakes_total for each in acceptors)
    finally:
        running.stop()
