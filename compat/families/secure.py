"""TLS and SASL: Kafka's tools, librdkafka, kafka-python and kafkajs with each mechanism and with
certificates.

Each server has a node of its own here, with a plaintext listener, one of SASL over TLS, and one
that asks for certificates. Keys are PEM files of an authority that the row makes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.servers import SERVERS, free_port
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError

from anabranch.testing.certificates import Authority, Identity
from compat.clients import CACHE, HERE, fetch_kafkajs
from compat.families.configs import CONFIGS
from compat.families.console import CONSUMER, PRODUCER, lines
from compat.families.topics import create
from compat.peer import Peer
from compat.row import Failed, row

SECONDS = 30.0
PASSWORD = "alice-secret"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM)
WAYS = (*MECHANISMS, "certificate")
PACKAGE = "org.apache.kafka.common.security"
TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
OF_ALICE = ("--describe", "--owner-principal", "User:alice")


class SecurePeer(Peer):
    """A node with listeners of three kinds."""

    authority: Authority
    alice: Identity
    addresses: dict[str, str]

    def address(self, way: str) -> str:
        """The listener for a way to show who one is."""
        return self.addresses["MTLS" if way == "certificate" else "SASL"]

    def properties(self, way: str, password: str = PASSWORD) -> Path:
        """A file of Kafka's client properties."""
        found = {
            "security.protocol": "SSL" if way == "certificate" else "SASL_SSL",
            "ssl.truststore.location": self.authority.certificate, "ssl.truststore.type": "PEM",
        }  # fmt: skip
        if way == "certificate":
            found |= {"ssl.keystore.location": self.alice.both, "ssl.keystore.type": "PEM"}
        else:
            found["sasl.mechanism"] = way
            found["sasl.jaas.config"] = login(way, f'username="alice" password="{password}"')
        text = "".join(f"{name}={value}\n" for name, value in found.items())
        return self.file(f"{way}-{len(password)}.properties", text)

    def librdkafka(self, way: str, password: str = PASSWORD) -> dict[str, Any]:
        """The same for librdkafka."""
        found = {
            "bootstrap.servers": self.address(way),
            "ssl.ca.location": self.authority.certificate, "log_level": 0,
        }  # fmt: skip
        if way == "certificate":
            return {
                **found, "security.protocol": "ssl", "ssl.key.location": self.alice.key,
                "ssl.certificate.location": self.alice.chain,
            }  # fmt: skip
        return {
            **found, "security.protocol": "sasl_ssl", "sasl.mechanism": way,
            "sasl.username": "alice", "sasl.password": password,
        }  # fmt: skip


def login(mechanism: str, options: str = "") -> str:
    """A login in JAAS notation."""
    kind = "Plain" if mechanism == "PLAIN" else "Scram"
    return f"{PACKAGE}.{kind.lower()}.{kind}LoginModule required {options};"


@contextmanager
def secured(peer: Peer, kind: str = "", **more: str) -> Iterator[SecurePeer]:
    """A node of the peer's kind or of another one, with the user alice; `more` are settings, dots
    as underscores."""
    folder = peer.scratch / f"secure{kind}"
    authority = Authority(folder / "tls")
    names = ("PLAINTEXT", "CONTROLLER", "SASL", "MTLS")
    ports = {name: free_port() for name in names}
    at = {name: f"{name}://127.0.0.1:{port}" for name, port in ports.items()}
    settings: dict[str, object] = {
        "listeners": ",".join(at.values()),
        "advertised.listeners": ",".join(at[each] for each in names if each != "CONTROLLER"),
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_SSL,MTLS:SSL"
        ),
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.location": authority.issue("node").both, "ssl.keystore.type": "PEM",
        "ssl.truststore.location": authority.certificate, "ssl.truststore.type": "PEM",
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.sasl.sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl.plain.sasl.jaas.config": login("PLAIN", f'user_alice="{PASSWORD}"'),
        **{f"listener.name.sasl.{each.lower()}.sasl.jaas.config": login(each) for each in SCRAM},
        **{name.replace("_", "."): text for name, text in more.items()},
    }  # fmt: skip
    server = SERVERS[kind or peer.name](
        {**peer.server.settings, **settings}, folder, (ports["PLAINTEXT"], ports["CONTROLLER"])
    )
    try:
        server.start()
        found = SecurePeer(server, peer.driver, folder)
        found.authority, found.alice = authority, authority.issue("alice")
        found.addresses = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        for mechanism in SCRAM:
            found.tool(CONFIGS, *found.at, *user("alice"), *added(mechanism, PASSWORD))
        yield found
        peer.said += found.said
        if not server.is_alive:
            raise Failed(f"the server ended: {server.last_words()}")
    finally:
        server.stop()


def user(name: str) -> tuple[str, ...]:
    """The words of kafka-configs.sh for a user."""
    return "--alter", "--entity-type", "users", "--entity-name", name


def added(mechanism: str, password: str, iterations: int = 4096) -> tuple[str, ...]:
    """A credential that is set."""
    return "--add-config", f"{mechanism}=[iterations={iterations},password={password}]"


@row("secure-console")
def carries_records(peer: Peer) -> object:
    """The console tools send and read over SASL_SSL with each mechanism, and with certificates."""
    seen = {}
    with secured(peer) as here:
        for way in WAYS:
            topic, at = f"console-{way.lower()}", ("--bootstrap-server", here.address(way))
            create(here, topic)
            file = here.properties(way)
            here.tool(PRODUCER, *at, "--topic", topic, "--producer.config", file, text=lines(0, 20))
            read = here.tool(
                CONSUMER, *at, "--topic", topic, "--from-beginning", "--max-messages", 20,
                "--consumer.config", file,
            )  # fmt: skip
            seen[way] = read.lines
    return seen


@row("secure-refused")
def refuses(peer: Peer) -> object:
    """A wrong password is refused with the same exception for each mechanism."""
    seen = {}
    with secured(peer) as here:
        for way in MECHANISMS:
            output = here.tool(
                CONFIGS, "--bootstrap-server", here.address(way), "--command-config",
                here.properties(way, "wrong"), "--describe", "--entity-type", "users", fails=True,
            )  # fmt: skip
            text = f"{output.out}\n{output.err}"
            found = [line.strip() for line in text.splitlines() if "AuthenticationExc" in line]
            seen[way] = [output.code, found[-1:]]
    return seen


@row("secure-users")
def keeps_users(peer: Peer) -> object:
    """kafka-configs.sh sets, describes and removes SCRAM credentials, and is refused like Kafka
    does.

    Kafka tells of users and their mechanisms in any order.
    """
    seen: list[Any] = []
    with secured(peer) as here:
        describe = ("--describe", "--entity-type", "users")
        steps: tuple[tuple[bool, tuple[str, ...]], ...] = (
            (False, (*user("bob"), *added(SCRAM[0], "x"))),
            (False, (*user("bob"), *added(SCRAM[1], "x", 8192))),
            (True, (*user("carol"), *added(SCRAM[1], "x", 4095))),
            (True, (*user("carol"), *added(SCRAM[1], "x", 16385))),
            (False, describe),
            (False, (*describe, "--entity-name", "bob")),
            (False, (*user("bob"), "--delete-config", SCRAM[0])),
            (True, (*user("bob"), "--delete-config", SCRAM[0])),
            (True, (*user("other"), "--delete-config", SCRAM[0])),
            (False, (*describe, "--entity-name", "bob")),
        )
        for fails, step in steps:
            output = here.tool(CONFIGS, *here.at, *step, fails=fails)
            told = sorted(sorted(re.split(r" are |, ", line)) for line in output.lines)
            seen.append([output.code, told, output.complaint if fails else ""])
    return seen


class Tokens:
    """kafka-delegation-tokens.sh at a node, with ids, HMACs and times left out of what it says."""

    def __init__(self, here: SecurePeer) -> None:
        self.here = here
        self.known: dict[str, str] = {}
        """What is replaced -> by what."""

    def run(self, properties: Path, *words: object, way: str = "PLAIN", fails: bool = False) -> Any:
        """Its exit code and what it says."""
        output = self.here.tool(
            TOKENS, "--bootstrap-server", self.here.address(way), "--command-config", properties,
            *words, fails=fails, raw=True,
        )  # fmt: skip
        if fails:
            return [output.code, self.plain(output.complaint)]
        return [output.code, [self.plain(each) for each in output.lines]]

    def plain(self, line: str) -> str:
        """A line that both servers can say."""
        for text, name in self.known.items():
            line = line.replace(text, name)
        return re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d", "TIME", line)

    def make(self, *words: object) -> tuple[str, str]:
        """Id and HMAC of a new token, which the node has heard of."""
        properties = self.here.properties("PLAIN")
        output = self.here.tool(
            TOKENS, "--bootstrap-server", self.here.address("PLAIN"), "--command-config",
            properties, "--create", *words, raw=True,
        )  # fmt: skip
        row = next(line.split() for line in output.lines if "User:alice" in line)
        self.known |= {row[0]: f"ID{len(self.known)}", row[1]: f"HMAC{len(self.known)}"}
        self.here.wait(
            lambda: f"ID{len(self.known) - 2}" in str(self.run(properties, *OF_ALICE)), "the token"
        )
        return row[0], row[1]

    def holder(self, mechanism: str, token_id: str, hmac: str) -> Path:
        """The client properties of who has a token."""
        options = f'username="{token_id}" password="{hmac}" tokenauth="true"'
        text = self.here.properties(mechanism).read_text()
        logs_in = f"sasl.jaas.config={login(mechanism, options)}"
        text = re.sub("sasl.jaas.config=.*", lambda _found: logs_in, text)
        return self.here.file(f"token-{mechanism}.properties", text)


@row("secure-tokens")
def takes_tokens(peer: Peer) -> object:
    """kafka-delegation-tokens.sh makes, describes, renews and expires tokens, with which console
    tools send and read; requests are refused where Kafka refuses them."""
    seen: dict[str, Any] = {}
    with secured(peer, delegation_token_secret_key="of-all-nodes") as here:
        tokens, alice = Tokens(here), here.properties("PLAIN")
        new, renew = ("--create", "--max-life-time-period"), ("--renew", "--renew-time-period")
        expire = ("--expire", "--expiry-time-period")
        nobody = here.file("nobody.properties", "security.protocol=PLAINTEXT\n")
        seen["plaintext"] = _at(here, tokens, nobody, *new, -1)
        token_id, hmac = tokens.make(*new[1:], 432_000_000, "--renewer-principal", "User:bob")
        seen["described"] = tokens.run(alice, *OF_ALICE)
        seen["of others"] = tokens.run(alice, "--describe", "--owner-principal", "User:carol")
        seen["renewed"] = tokens.run(alice, *renew, 60_000, "--hmac", hmac)
        seen["renewed by default"] = tokens.run(alice, *renew, -1, "--hmac", hmac)
        seen["unknown"] = tokens.run(alice, *renew, -1, "--hmac", "AAAA", fails=True)
        seen["unknown ends"] = tokens.run(alice, *expire, -1, "--hmac", "AAAA", fails=True)
        for mechanism in SCRAM:
            file = tokens.holder(mechanism, token_id, hmac)
            seen[mechanism] = _carried(here, mechanism, file)
            seen[f"{mechanism} asks"] = [
                tokens.run(file, *words, fails=True)
                for words in ((*new, -1), OF_ALICE, (*renew, -1, "--hmac", hmac),
                              (*expire, -1, "--hmac", hmac))
            ]  # fmt: skip
        certificate = here.properties("certificate")
        seen["by certificate"] = tokens.run(
            certificate, *expire, -1, "--hmac", hmac, way="certificate", fails=True
        )
        seen["ends later"] = tokens.run(alice, *expire, 60_000, "--hmac", hmac)
        seen["ends now"] = tokens.run(alice, *expire, -1, "--hmac", hmac)
        here.wait(lambda: "ID0" not in str(tokens.run(alice, *OF_ALICE)), "no token")
        seen["is gone"] = tokens.run(alice, *OF_ALICE)
        file = tokens.holder(SCRAM[0], token_id, hmac)
        seen["lets nobody in"] = tokens.run(file, *OF_ALICE, fails=True)
    with secured(peer) as here:
        tokens, alice = Tokens(here), here.properties("PLAIN")
        seen["switched off"] = [
            tokens.run(alice, *words, fails=True)
            for words in ((*new, -1), OF_ALICE, (*renew, -1, "--hmac", "AAAA"))
        ]
    return seen


def _at(here: SecurePeer, tokens: Tokens, file: Path, *words: object) -> object:
    """What is said at the listener without logins."""
    output = here.tool(
        TOKENS, *here.at, "--command-config", file, *words, fails=True, raw=True
    )  # fmt: skip
    return [output.code, tokens.plain(output.complaint)]


def _carried(here: SecurePeer, mechanism: str, file: Path) -> list[str]:
    topic, at = f"token-{mechanism.lower()}", ("--bootstrap-server", here.address(mechanism))
    create(here, topic)
    here.tool(PRODUCER, *at, "--topic", topic, "--producer.config", file, text=lines(0, 20))
    read = here.tool(
        CONSUMER, *at, "--topic", topic, "--from-beginning", "--max-messages", 20,
        "--consumer.config", file,
    )  # fmt: skip
    return read.lines


@row("secure-librdkafka")
def serves_librdkafka(peer: Peer) -> object:
    """librdkafka sends and reads with each mechanism and certificates, and hears of a wrong
    password."""
    seen: dict[str, Any] = {}
    with secured(peer) as here:
        for way in WAYS:
            topic, settings = f"rd-{way.lower()}", here.librdkafka(way)
            create(here, topic)
            producer = Producer(settings)
            for number in range(20):
                producer.produce(topic, str(number))
            left = producer.flush(SECONDS)
            consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
            consumer.subscribe([topic])
            found = [each.value().decode() for each in consumer.consume(20, SECONDS)]
            consumer.close()
            seen[way] = [left, found]
        for way in MECHANISMS:
            faults: list[KafkaError] = []
            admin = AdminClient({**here.librdkafka(way, "wrong"), "error_cb": faults.append})
            here.wait(
                lambda admin=admin, faults=faults: admin.poll(0.1) is not None and faults,
                "a fault",
            )  # fmt: skip
            seen[f"{way} wrong"] = faults[0].name()
    return seen


@row("secure-kafka-python")
def serves_kafka_python(peer: Peer) -> object:
    """kafka-python sends and reads with each mechanism and certificates; with a wrong password it
    stays outside."""
    seen: dict[str, Any] = {}
    with secured(peer) as here:
        for way in (*WAYS, "SCRAM-SHA-256 wrong"):
            name = way.partition(" ")[0]
            topic = f"py-{name.lower()}"
            how: dict[str, Any] = {
                "bootstrap_servers": here.address(name), "ssl_cafile": here.authority.certificate,
                "security_protocol": "SSL" if name == "certificate" else "SASL_SSL",
            }  # fmt: skip
            if name == "certificate":
                how |= {"ssl_certfile": here.alice.chain, "ssl_keyfile": here.alice.key}
            else:
                password = "wrong" if way != name else PASSWORD
                how |= {
                    "sasl_mechanism": name, "sasl_plain_username": "alice",
                    "sasl_plain_password": password,
                }  # fmt: skip
            if way == name:
                create(here, topic)
            else:
                how["bootstrap_timeout_ms"] = 5_000
            seen[way] = _kafka_python(topic, how)
    return seen


def _kafka_python(topic: str, how: dict[str, Any]) -> object:
    try:
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
    except KafkaPythonError as fault:
        return type(fault).__name__


@row("secure-kafkajs", prepare=fetch_kafkajs)
def serves_kafkajs(peer: Peer) -> object:
    """kafkajs compresses, transacts, shares a group and administers, each with another mechanism or
    with a certificate."""
    seen = {}
    scenarios = ("compresses", "transacts", "sharesAGroup", "administers")
    with secured(peer) as here:
        for way, scenario in zip(WAYS, scenarios, strict=True):
            ssl: dict[str, Any] = {"ca": [Path(here.authority.certificate).read_text()]}
            how: dict[str, Any] = {"ssl": ssl}
            if way == "certificate":
                ssl |= {
                    "key": Path(here.alice.key).read_text(),
                    "cert": Path(here.alice.chain).read_text(),
                }  # fmt: skip
            else:
                sasl = {"mechanism": way.lower(), "username": "alice", "password": PASSWORD}
                how["sasl"] = sasl
            modules = {
                **os.environ, "NODE_PATH": str(CACHE / "kafkajs" / "node_modules"),
                "KAFKAJS_SECURITY": json.dumps(how),
            }  # fmt: skip
            words = ("node", HERE / "kafkajs.js", here.address(way), scenario)
            seen[way] = json.loads(here.command(*words, env=modules, seconds=90).out)
    return seen
