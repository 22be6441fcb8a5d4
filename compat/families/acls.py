"""Access control lists: `kafka-acls.sh`, clients that are allowed and denied, and every decision.

Each server has a node of its own with StandardAuthorizer here. Nobody is authenticated: all are
User:ANONYMOUS. The first rule gives that user all rights of the cluster, as
`allow.everyone.if.no.acl.found` no longer opens it then.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.servers import SERVERS
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from compat.access import kafkas_answers, our_answers, worlds
from compat.clients import HERE, fetch_kcat
from compat.families.cluster import ACLS
from compat.families.kcat import kcat
from compat.families.topics import create, refused
from compat.java import java
from compat.peer import Output, Peer
from compat.rights import Table
from compat.rights_table import without_texts
from compat.row import Failed, row

SECONDS = 30.0
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "false",
}
ADMIN = ("--allow-principal", "User:ANONYMOUS", "--allow-host", "127.0.0.1")
US = ("--allow-principal", "User:ANONYMOUS")
NOT_US = ("--deny-principal", "User:ANONYMOUS")
NOBODY = ("--allow-principal", "User:nobody")


@contextmanager
def with_authorizer(peer: Peer) -> Iterator[Peer]:
    """A node of the peer's kind with an authorizer, where we administer the cluster."""
    server = SERVERS[peer.name]({**peer.server.settings, **AUTHORIZER}, peer.scratch)
    try:
        server.start()
        found = Peer(server, peer.driver, peer.scratch / "acls")
        acls(found, "--add", *ADMIN, "--operation", "All", "--cluster")
        yield found
        peer.said += found.said
        if not server.is_alive:
            raise Failed(f"the server ended: {server.last_words()}")
    finally:
        server.stop()


def acls(peer: Peer, *words: object, **options: Any) -> Output:
    """kafka-acls.sh with these words."""
    return peer.tool(ACLS, *peer.at, *words, **options)


def printed(output: Output) -> list[Any]:
    """Exit code and what kafka-acls.sh prints, the rules of each resource in one order."""
    lines = [line for line in output.lines if line]
    blocks: list[list[str]] = []
    for line in lines:
        if line.startswith("(") and blocks:
            blocks[-1].append(line)
        else:
            blocks.append([line])
    return [output.code, *sorted([block[0], *sorted(block[1:])] for block in blocks)]


STEPS = {
    "one rule": ("--add", "--allow-principal", "User:a", "--operation", "Read", "--topic", "t"),
    "the same again": ("--add", "--allow-principal", "User:a", "--operation", "Read",
                       "--topic", "t"),
    "hosts and operations": (
        "--add", "--allow-principal", "User:a", "--allow-principal", "User:b", "--allow-host",
        "10.0.0.1", "--allow-host", "10.0.0.2", "--deny-principal", "User:c", "--deny-host",
        "10.0.0.3", "--operation", "Read", "--operation", "DescribeConfigs", "--topic", "t",
        "--topic", "u",
    ),
    "prefixed": (
        "--add", "--allow-principal", "User:*", "--operation", "All", "--topic", "t-",
        "--group", "t-", "--resource-pattern-type", "prefixed",
    ),
    "everything": ("--add", "--allow-principal", "User:a", "--operation", "All", "--topic", "*"),
    "a producer": ("--add", "--producer", "--allow-principal", "User:p", "--topic", "p",
                   "--transactional-id", "x", "--idempotent"),
    "a consumer": ("--add", "--consumer", "--allow-principal", "User:k", "--topic", "p",
                   "--group", "g"),
    "a delegation token": ("--add", "--allow-principal", "User:a", "--operation", "Describe",
                           "--delegation-token", "x"),
    "a user": ("--add", "--allow-principal", "User:a", "--operation", "CreateTokens",
               "--user-principal", "User:b"),
    "a name with odd characters": ("--add", "--allow-principal", "User:CN=ä,O=b c", "--operation",
                                   "Write", "--topic", "ü t"),
    "list": ("--list",),
    "list one topic": ("--list", "--topic", "t"),
    "list what applies": ("--list", "--topic", "t-1", "--resource-pattern-type", "match"),
    "list any pattern": ("--list", "--topic", "t-", "--resource-pattern-type", "any"),
    "list of a principal": ("--list", "--principal", "User:a"),
    "list of two principals": ("--list", "--principal", "User:a", "--principal", "User:k",
                               "--topic", "t"),
    "list the cluster": ("--list", "--cluster"),
    "remove one": ("--remove", "--force", "--allow-principal", "User:a", "--operation", "Read",
                   "--topic", "t"),
    "remove none": ("--remove", "--force", "--allow-principal", "User:none", "--operation", "Read",
                    "--topic", "t"),
    "remove a producer": ("--remove", "--force", "--producer", "--allow-principal", "User:p",
                          "--topic", "p", "--transactional-id", "x"),
    "remove a consumer": ("--remove", "--force", "--consumer", "--allow-principal", "User:k",
                          "--topic", "p", "--group", "g"),
    "remove what applies": ("--remove", "--force", "--topic", "t-1", "--resource-pattern-type",
                            "match"),
    "list after": ("--list",),
}  # fmt: skip
"""What kafka-acls.sh is told, one after another."""
BAD_STEPS = {
    "a prefix of the cluster": ("--add", *US, "--operation", "Describe", "--cluster",
                                "--resource-pattern-type", "prefixed"),
    "an operation that topics lack": ("--add", *US, "--operation", "ClusterAction", "--topic", "t"),
    "an unknown operation": ("--add", *US, "--operation", "Fly", "--topic", "t"),
    "a principal without a type": ("--add", "--allow-principal", "anon", "--operation", "Read",
                                   "--topic", "t"),
    "no resource": ("--add", *US, "--operation", "Read"),
    "no principal": ("--add", "--operation", "Read", "--topic", "t"),
    "an empty name": ("--add", *US, "--operation", "Read", "--topic", ""),
    "any pattern": ("--add", *US, "--operation", "Read", "--topic", "t",
                    "--resource-pattern-type", "match"),
}  # fmt: skip


@row("acls-tool")
def administers(peer: Peer) -> object:
    """kafka-acls.sh adds, lists and removes rules of each resource, also --producer, --consumer."""
    with with_authorizer(peer) as node:
        seen = {name: printed(acls(node, *words)) for name, words in STEPS.items()}
        for name, words in BAD_STEPS.items():
            output = acls(node, *words, fails=True)
            seen[name] = [output.code, *re.findall(r"\w+Exception", output.err + output.out)[:1]]
            node.say(output.complaint)
        return {**seen, "after": printed(acls(node, "--list"))}


@row("acls-clients", prepare=fetch_kcat)
def lets_clients_in(peer: Peer) -> object:
    """Without rules for it a client is denied, with them it is allowed: kcat lists, librdkafka
    produces, consumes, in a group too, and transacts, Kafka's tools create and delete topics."""
    with with_authorizer(peer) as node:
        for topic in ("open", "closed", "given"):
            create(node, topic)
        for words in (("--topic", "closed"), ("--topic", "given"), ("--group", "*"),
                      ("--transactional-id", "*")):  # fmt: skip
            acls(node, "--add", *NOBODY, "--operation", "All", *words)
        seen: dict[str, object] = {"denied": tried(node, "closed"), "open": tried(node, "open")}
        acls(node, "--add", *US, "--producer", "--topic", "given", "--transactional-id", "id-given")
        seen["a producer"] = tried(node, "given")
        acls(node, "--add", *US, "--consumer", "--topic", "given", "--group", "g-given")
        seen["a consumer"] = tried(node, "given")
        acls(node, "--add", *NOT_US, "--operation", "Write", "--topic", "giv",
             "--resource-pattern-type", "prefixed")  # fmt: skip
        seen["denied again"] = tried(node, "given")
        for words in (("--cluster",), ("--topic", "new")):
            acls(node, "--add", *NOT_US, "--operation", "Create", *words)
        acls(node, "--add", *NOT_US, "--operation", "Delete", "--topic", "open")
        seen["tools"] = [
            refused(node, "--create", "--topic", "new"),
            refused(node, "--delete", "--topic", "open"),
            refused(node, "--delete", "--topic", "closed"),
        ]
        return seen


def tried(peer: Peer, topic: str) -> dict[str, object]:
    """What clients of a topic end with."""
    listed = kcat(peer, "-L", "-t", topic).out
    return {
        "listed": re.findall(r'topic "\w+".*', listed),
        "produced": produced(peer, topic),
        "consumed": consumed(peer, topic),
        "transacted": transacted(peer, topic),
        "group": grouped(peer, topic),
    }


def produced(peer: Peer, topic: str) -> object:
    """The error's name of a record; "" for none."""
    told: list[object] = []
    producer = Producer({"bootstrap.servers": peer.bootstrap, "log_level": 0, "linger.ms": 0})
    producer.produce(topic, "v", on_delivery=lambda fault, _: told.append(named(fault)))
    producer.flush(SECONDS)
    return told


def consumed(peer: Peer, topic: str) -> object:
    """The first record's value without a group, or the sentence of the error."""
    try:
        return kcat(peer, "-C", "-t", topic, "-p", 0, "-o", 0, "-c", 1, "-e", "-q").lines
    except Failed as fault:
        return re.findall(r"Broker: [\w ]+", str(fault)) or str(fault)


def grouped(peer: Peer, topic: str) -> object:
    """The error's name, or the first record's value, as a member of a group. That it may not use
    the topic either is told only if librdkafka looks at the topic first: this is passed over."""
    group = {"group.id": f"g-{topic}", "auto.offset.reset": "earliest", "log_level": 0,
             "enable.auto.commit": False}  # fmt: skip
    consumer = Consumer({"bootstrap.servers": peer.bootstrap, **group})
    consumer.subscribe([topic])
    until = time.monotonic() + SECONDS
    try:
        while time.monotonic() < until:
            message = consumer.poll(1.0)
            if message is None or named(message.error()) == "TOPIC_AUTHORIZATION_FAILED":
                continue
            return named(message.error()) or (message.value() or b"").decode()
        raise Failed(f"nothing of {topic} within {SECONDS:.0f} s")
    finally:
        consumer.close()


def transacted(peer: Peer, topic: str) -> object:
    """The error's name of a transaction; "" for none."""
    name = {"transactional.id": f"id-{topic}", "log_level": 0}
    producer = Producer({"bootstrap.servers": peer.bootstrap, **name})
    try:
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        producer.produce(topic, "t")
        producer.commit_transaction(SECONDS)
    except KafkaException as fault:
        return named(fault.args[0])
    return ""


def named(fault: KafkaError | None) -> str:
    """The name of an error."""
    return "" if fault is None else str(fault.name())


@row("acls-decisions")
def decides(peer: Peer) -> object:
    """The authorizer's class itself: 3,000 random sets of rules with twelve questions each and four
    filters, answered by Kafka's StandardAuthorizer and by ours."""
    given = worlds()
    return kafkas_answers(given, peer.scratch) if peer.name == "kafka" else our_answers(given)


@row("acls-table")
def tells_rights_apart(peer: Peer) -> object:
    """Each request, in its oldest and newest version, from a client with no right, with every
    right, and with all but one: the codes, names and authorized operations of the answers."""
    with with_authorizer(peer) as node:
        rows = Table(node).rows()
    return {missing: without_texts(answers) for missing, answers in rows.items()}


@row("acls-java-admin")
def administers_in_java(peer: Peer) -> object:
    """Kafka's Java Admin client makes, describes and removes rules, SCRAM credentials and quotas,
    with the same exceptions and texts."""
    with with_authorizer(peer) as node:
        command = java(node.scratch, HERE / "SecurityAdmin.java", node.bootstrap)
        return node.command(*command).lines
