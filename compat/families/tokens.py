"""OAUTHBEARER: Kafka's tools, librdkafka and kafka-python with signed tokens.

Each server has a node of its own here, whose listeners SASL_PLAINTEXT and SASL_SSL take tokens that
a provider of the row has signed. Kafka asks only addresses that a property of its JVM allows, and
4.1.0 looks at signature, issuer and audience only with the validator class that is named here.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.servers import SERVERS, Kafka, free_port
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

from anabranch.testing.certificates import Authority
from compat.families.console import CONSUMER, PRODUCER, lines
from compat.families.topics import create
from compat.java import java
from compat.peer import Output, Peer
from compat.row import Failed, row
from compat.token_provider import Provider

SECONDS = 30.0
PACKAGE = "org.apache.kafka.common.security.oauthbearer"
OAUTH = "sasl.oauthbearer."
ISSUER = {"iss": "https://issuer", "aud": "kafka"}
LISTENERS = ("PLAIN", "TLS")
SECRET = "provider-secret"


class TokenPeer(Peer):
    """A node with two listeners that take tokens, and their provider."""

    authority: Authority
    provider: Provider
    addresses: dict[str, str]

    def properties(self, listener: str) -> Path:
        """A file of Kafka's client properties, with a token of the endpoint."""
        module = f"{PACKAGE}.OAuthBearerLoginModule required clientId='me' clientSecret='{SECRET}';"
        found = {
            "security.protocol": "SASL_SSL" if listener == "TLS" else "SASL_PLAINTEXT",
            "ssl.truststore.location": self.authority.certificate, "ssl.truststore.type": "PEM",
            "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": module.replace("'", '"'),
            "sasl.login.callback.handler.class": f"{PACKAGE}.OAuthBearerLoginCallbackHandler",
            f"{OAUTH}token.endpoint.url": f"{self.provider.url}/token",
        }  # fmt: skip
        text = "".join(f"{name}={value}\n" for name, value in found.items())
        return self.file(f"{listener}.properties", text)

    def librdkafka(self, listener: str, **more: Any) -> dict[str, Any]:
        """What librdkafka needs, without its way to a token."""
        return {
            "bootstrap.servers": self.addresses[listener], "log_level": 0,
            "security.protocol": "sasl_ssl" if listener == "TLS" else "sasl_plaintext",
            "ssl.ca.location": self.authority.certificate, "sasl.mechanism": "OAUTHBEARER", **more,
        }  # fmt: skip

    def kafka_tool(self, main: str, *words: object, text: str = "", fails: bool = False) -> Output:
        """One of Kafka's tools, in a JVM that may ask the provider."""
        command = java(self.scratch, main, *words)
        return self.command(
            command[0], *allowed(self.provider), *command[1:], text=text, fails=fails
        )


def allowed(provider: Provider) -> tuple[str, ...]:
    """The property of a JVM that lets Kafka ask addresses."""
    names = (f"{provider.url}/token", f"{provider.url}/jwks")
    return (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={','.join(names)}",)


@contextmanager
def with_tokens(peer: Peer) -> Iterator[TokenPeer]:
    """A node of the peer's kind, and a provider."""
    folder = peer.scratch / "tokens"
    authority, provider = Authority(folder / "tls"), Provider(secret=SECRET)
    provider.more = ISSUER
    names = ("PLAINTEXT", "CONTROLLER", *LISTENERS)
    ports = {name: free_port() for name in names}
    at = {name: f"{name}://127.0.0.1:{port}" for name, port in ports.items()}
    settings: dict[str, object] = {
        "listeners": ",".join(at.values()),
        "advertised.listeners": ",".join(at[each] for each in names if each != "CONTROLLER"),
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PLAIN:SASL_PLAINTEXT,TLS:SASL_SSL"
        ),
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.location": authority.issue("node").both, "ssl.keystore.type": "PEM",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{OAUTH}jwks.endpoint.url": f"{provider.url}/jwks",
        f"{OAUTH}expected.issuer": ISSUER["iss"], f"{OAUTH}expected.audience": ISSUER["aud"],
        f"{OAUTH}jwt.validator.class": f"{PACKAGE}.BrokerJwtValidator",
    }  # fmt: skip
    for name in LISTENERS:
        prefix = f"listener.name.{name.lower()}.oauthbearer.sasl"
        settings[f"{prefix}.jaas.config"] = f"{PACKAGE}.OAuthBearerLoginModule required;"
        settings[f"{prefix}.server.callback.handler.class"] = (
            f"{PACKAGE}.OAuthBearerValidatorCallbackHandler"
        )
    server = SERVERS[peer.name](
        {**peer.server.settings, **settings}, folder, (ports["PLAINTEXT"], ports["CONTROLLER"])
    )
    if isinstance(server, Kafka):
        plain_java = server._java
        server._java = lambda: [plain_java()[0], *allowed(provider), *plain_java()[1:]]  # type: ignore[method-assign]
    try:
        server.start()
        found = TokenPeer(server, peer.driver, folder)
        found.authority, found.provider = authority, provider
        found.addresses = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        for name, address in found.addresses.items():
            found.wait(lambda address=address: is_open(address), f"the listener {name}")
        yield found
        peer.said += found.said
        if not server.is_alive:
            raise Failed(f"the server ended: {server.last_words()}")
    finally:
        server.stop()
        provider.stop()


def is_open(address: str) -> bool:
    """Whether a port takes connections: Kafka opens its listeners one after another."""
    host, port = address.split(":")
    with socket.socket() as probe:
        return not probe.connect_ex((host, int(port)))


@row("secure-oauth")
def carries_records(peer: Peer) -> object:
    """Kafka's console tools and librdkafka (oauth_cb and OIDC) and kafka-python send and read with
    signed tokens, with and without TLS."""
    seen: dict[str, Any] = {}
    with with_tokens(peer) as here:
        for listener in LISTENERS:
            for way in ("tools", "callback", "oidc", "python"):
                topic = f"{way}-{listener.lower()}"
                create(here, topic)
                seen[topic] = WAYS[way](here, listener, topic)
    return seen


def _tools(here: TokenPeer, listener: str, topic: str) -> object:
    at, file = ("--bootstrap-server", here.addresses[listener]), here.properties(listener)
    words = ("--topic", topic)
    here.kafka_tool(PRODUCER, *at, *words, "--producer.config", file, text=lines(0, 20))
    read = here.kafka_tool(
        CONSUMER, *at, *words, "--from-beginning", "--max-messages", 20, "--consumer.config", file
    )
    return read.lines


def _librdkafka(here: TokenPeer, topic: str, settings: dict[str, Any]) -> object:
    producer = Producer(settings)
    for number in range(20):
        producer.produce(topic, str(number))
    left = producer.flush(SECONDS)
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = [each.value().decode() for each in consumer.consume(20, SECONDS)]
    consumer.close()
    return [left, found]


def _callback(here: TokenPeer, listener: str, topic: str) -> object:
    def token(_config: str) -> tuple[str, float, str, dict[str, str]]:
        return here.provider.token(), time.time() + 300, "alice", {"more": "value"}

    return _librdkafka(here, topic, here.librdkafka(listener, oauth_cb=token))


def _oidc(here: TokenPeer, listener: str, topic: str) -> object:
    more = {
        f"{OAUTH}method": "oidc", f"{OAUTH}client.id": "me", f"{OAUTH}client.secret": SECRET,
        f"{OAUTH}token.endpoint.url": f"{here.provider.url}/token",
    }  # fmt: skip
    return _librdkafka(here, topic, here.librdkafka(listener, **more))


class Given(AbstractTokenProvider):  # type: ignore[misc]
    """A token for kafka-python."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    def token(self) -> str:
        """A new one for each login."""
        return self._provider.token()


def _python(here: TokenPeer, listener: str, topic: str) -> object:
    how: dict[str, Any] = {
        "bootstrap_servers": here.addresses[listener], "sasl_mechanism": "OAUTHBEARER",
        "ssl_cafile": here.authority.certificate,
        "sasl_oauth_token_provider": Given(here.provider),
        "security_protocol": "SASL_SSL" if listener == "TLS" else "SASL_PLAINTEXT",
    }  # fmt: skip
    producer = KafkaProducer(**how)
    for number in range(20):
        producer.send(topic, str(number).encode())
    producer.flush(SECONDS)
    producer.close()
    reader = KafkaConsumer(
        topic, **how, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=10_000
    )
    found = [record.value.decode() for _, record in zip(range(20), reader, strict=False)]
    reader.close()
    return found


WAYS = {"tools": _tools, "callback": _callback, "oidc": _oidc, "python": _python}
