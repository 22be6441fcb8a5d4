"""Transactions by Kafka's own programs: its Java producer, kafka-transactions, the copier."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from compat.clients import HERE
from compat.families.cluster import TRANSACTIONS
from compat.families.console import KEYED, produce
from compat.families.librdkafka import SECONDS, producer
from compat.families.perf import NUMBERS, VERIFIABLE_CONSUMER, VERIFIABLE_PRODUCER, events
from compat.families.records import held
from compat.families.topics import create, topics
from compat.java import java
from compat.peer import Output, Peer
from compat.row import Failed, row
from compat.three import LONG_SECONDS, three

COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
COPIED_SECONDS = 90.0
"""The tool's session lasts 10 s: so long the next one has no partitions."""
COMMITTED = re.compile(r'"totalProcessed":[1-9]')
"""What the tool prints once it has committed something: its loop begins before that."""
COUNT = 500
"""Lines of NUMBERS."""


def transactions(peer: Peer, *words: object, **options: bool) -> Output:
    """kafka-transactions.sh."""
    return peer.tool(TRANSACTIONS, *peer.at, *words, **options)


@row("transactions-java-producer")
def transacts_in_java(peer: Peer) -> object:
    """Kafka's Java producer commits, aborts, copies with offsets, is fenced, oversleeps.

    A producer that overslept is refused; with which error is noted: Anabranch always fences it.
    """
    command = java(peer.scratch, HERE / "Transactions.java", peer.bootstrap, "java-transactions")
    lines = peer.command(*command).lines
    late = [line for line in lines if line.startswith("late ")]
    for line in late:
        peer.say(line)
    return [line for line in lines if line not in late], len(late)


@contextmanager
def opened(peer: Peer, topic: str) -> Iterator[Producer]:
    """A producer with an open transaction of five records, and its transactional id the topic's."""
    create(peer, topic)
    found = producer(peer, topic)
    found.begin_transaction()
    for number in range(5):
        found.produce(topic, f"open-{number}", partition=0)
    if found.flush(SECONDS):
        raise Failed("the records of an open transaction were not acknowledged")
    yield found


STATES = ("ProducerEpoch", "LastSequence", "CurrentTransactionStartOffset")


def producers(peer: Peer, topic: str) -> list[list[str]]:
    """What the tool prints of a partition's producers, without ids and times."""
    words = ("describe-producers", "--topic", topic, "--partition", 0)
    return transactions(peer, *words).columns(*STATES)


@row("transactions-describe")
def describes_transactions(peer: Peer) -> object:
    """kafka-transactions: an open transaction is listed by pattern and duration, and described."""
    name = "tool-open"
    listed = ("TransactionalId", "TransactionState")
    described = ("TransactionalId", "ProducerEpoch", "TransactionState", "TransactionTimeoutMs")
    with opened(peer, name) as one:
        pattern = ("--transactional-id-pattern", "tool-o.*|[a-z]+-nobody")
        seen = [
            transactions(peer, "list", *pattern).columns(*listed),
            transactions(peer, "list", "--transactional-id-pattern", "tool").columns(*listed),
            transactions(peer, "list", *pattern, "--duration-filter", 600_000).columns(*listed),
            transactions(peer, "describe", "--transactional-id", name).columns(*described),
            producers(peer, name),
        ]
        words = ("list", "--transactional-id-pattern", "(")
        refused = transactions(peer, *words, fails=True)
        peer.say(refused.complaint)
        one.commit_transaction(SECONDS)
    missing = transactions(peer, "describe", "--transactional-id", "nobody", fails=True)
    peer.say(missing.complaint)
    return seen, refused.code, missing.code, producers(peer, name)


@row("transactions-abort")
def aborts_transactions(peer: Peer) -> object:
    """kafka-transactions: nothing hangs; a marker by an administrator ends an open transaction."""
    name = "tool-aborted"
    with opened(peer, name):
        hanging = transactions(peer, "find-hanging", "--topic", name).lines
        before = producers(peer, name)
        wrong = ("abort", "--topic", name, "--partition", 0, "--start-offset", 3)
        refused = transactions(peer, *wrong, fails=True)
        peer.say(refused.complaint)
        right = ("abort", "--topic", name, "--partition", 0, "--start-offset", 0)
        aborted = transactions(peer, *right).lines
        return hanging, before, refused.code, aborted, producers(peer, name)


@row("transactions-of-a-broker")
def asks_one_broker(peer: Peer) -> object:
    """On three brokers, kafka-transactions asks each for its replicas, followers as well."""
    name = "tool-brokers"
    with three(peer) as cluster:
        words = ("--topic", name, "--replica-assignment", "1:2:3")
        topics(cluster, "--create", *words)
        found = producer(cluster, name)
        found.begin_transaction()
        found.produce(name, b"open", partition=0)
        if found.flush(LONG_SECONDS):
            raise Failed("the record of an open transaction was not acknowledged")
        seen = []
        for number in ("1", "2", "3"):
            at = ("--topic", name, "--broker-id", number)
            described = transactions(cluster, "describe-producers", *at, "--partition", 0)
            seen.append(described.columns(*STATES))
            seen.append(transactions(cluster, "find-hanging", *at).lines)
            seen.append(transactions(cluster, "find-hanging", "--broker-id", number).lines)
        found.abort_transaction(LONG_SECONDS)
        return seen


@row("transactions-terminate")
def terminates_transactions(peer: Peer) -> object:
    """kafka-transactions: an open transaction is ended by its id, and its producer fenced."""
    name = "tool-ended"
    with opened(peer, name) as one:
        ended = transactions(peer, "forceTerminateTransaction", "--transactionalId", name).lines
        try:
            one.commit_transaction(SECONDS)
        except Exception as error:
            return ended, type(error).__name__
    raise Failed("a producer whose transaction was terminated committed")


def copier(peer: Peer, source: str, target: str, *words: object) -> list[str]:
    """The words of a TransactionalMessageCopier."""
    places = ("--input-topic", source, "--input-partition", 0, "--output-topic", target)
    who = ("--consumer-group", target, "--transactional-id", target, "--transaction-size", 25)
    at = ("--broker-list", peer.bootstrap)
    return java(peer.scratch, COPIER, *at, *places, *who, *words)


def copied(peer: Peer, topic: str) -> list[bytes | None]:
    """Values of the copy, sorted, as committed."""
    found = [value for _, _, value in held(peer, topic)]
    return sorted(found, key=lambda value: int(value or b"-1"))


WANTED = [str(number).encode() for number in range(COUNT)]


@row("transactions-copier")
def copies_transactionally(peer: Peer) -> object:
    """TransactionalMessageCopier with random aborts copies each record of a partition once."""
    create(peer, "copier-input")
    create(peer, "copier-output")
    words = ("--topic", "copier-input", "--max-messages", COUNT)
    peer.tool(VERIFIABLE_PRODUCER, *peer.at, *words, raw=True, alone=True)
    command = copier(peer, "copier-input", "copier-output", "--enable-random-aborts")
    peer.command(*command, raw=True)
    return copied(peer, "copier-output") == WANTED, verified(peer, "copier-output")


@row("transactions-copier-killed")
def copies_after_a_kill(peer: Peer) -> object:
    """TransactionalMessageCopier in group mode is killed and started again: each record once."""
    create(peer, "killed-input", 2)
    create(peer, "killed-output", 2)  # the tool copies into the same partition
    produce(peer, "killed-input", NUMBERS, *KEYED)
    mode = ("--group-mode", "--use-group-metadata", "--transaction-timeout", 5_000)
    command = copier(peer, "killed-input", "killed-output", *mode, "--enable-random-aborts")
    with peer.background(*command) as running:
        peer.wait(lambda: COMMITTED.search(running.printed), "a transaction is over", 60.0)
        running.process.kill()
    with peer.background(*command) as running:
        peer.wait(lambda: is_copied(peer, "killed-output"), "all is copied", COPIED_SECONDS)
        running.process.kill()
    return copied(peer, "killed-output") == WANTED


def is_copied(peer: Peer, topic: str) -> bool:
    """Whether as many records as there are to be are committed."""
    return len(copied(peer, topic)) >= COUNT


def verified(peer: Peer, topic: str) -> tuple[bool, list[object]]:
    """What the verifiable consumer finds, reading committed records alone."""
    config = peer.file(f"{topic}.properties", "isolation.level=read_committed\n")
    words = ("--topic", topic, "--group-id", f"{topic}-verified", "--max-messages", COUNT)
    more = ("--verbose", "--consumer.config", config)
    output = peer.tool(VERIFIABLE_CONSUMER, *peer.at, *words, *more, raw=True)
    values = sorted(int(str(event["value"])) for event in events(output, "record_data"))
    commits = [event["success"] for event in events(output, "offsets_committed")]
    return values == list(range(COUNT)), sorted({json.dumps(each) for each in commits})
