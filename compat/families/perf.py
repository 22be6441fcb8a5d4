"""Producer and consumer performance, end-to-end latency, verifiable producer and consumer."""

from __future__ import annotations

import json
import re

from compat.families.console import KEYED
from compat.families.console import produce as produce_lines
from compat.families.offsets import offsets
from compat.families.topics import create
from compat.peer import Output, Peer
from compat.row import Failed, row

PRODUCER = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER = "org.apache.kafka.tools.ConsumerPerformance"
LATENCY = "org.apache.kafka.tools.EndToEndLatency"
VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
RECORDS = 20_000
RECORD_BYTES = 200
NUMBERS = "".join(f"{number}:{number}\n" for number in range(500))
"""What the verifiable consumer reads: numbers, in both partitions of a topic by their keys."""


def produce(peer: Peer, topic: str, *props: str, words: tuple[object, ...] = ()) -> Output:
    """kafka-producer-perf-test.sh: RECORDS records as fast as they go."""
    size = ("--record-size", RECORD_BYTES, "--num-records", RECORDS, "--throughput", -1)
    servers = f"bootstrap.servers={peer.bootstrap}"
    return peer.tool(PRODUCER, "--topic", topic, *size, *words, "--producer-props", servers, *props)


def sent(output: Output) -> str:
    """How many records the last line says were sent."""
    return output.lines[-1].partition(",")[0]


@row("producer-perf")
def measures_a_producer(peer: Peer) -> object:
    """The producer's performance test sends its records, with each acks and codec."""
    create(peer, "perf", 4)
    ways = ("acks=all", "acks=1", "acks=0", "compression.type=zstd", "compression.type=lz4")
    seen = {props: sent(produce(peer, "perf", props)) for props in ways}
    return seen, sum(int(line.rpartition(":")[2]) for line in offsets(peer, "--topic", "perf"))


@row("producer-perf-transactional")
def measures_a_transactional_producer(peer: Peer) -> object:
    """The producer's performance test commits transactions."""
    create(peer, "perf-transactional")
    words = ("--transactional-id", "perf", "--transaction-duration-ms", 100)
    return sent(produce(peer, "perf-transactional", words=words))


@row("consumer-perf")
def measures_a_consumer(peer: Peer) -> object:
    """The consumer's performance test reads every record in a group."""
    create(peer, "perf-consumer", 4)
    produce(peer, "perf-consumer")
    words = ("--topic", "perf-consumer", "--messages", RECORDS, "--group", "perf-consumer")
    lines = peer.tool(CONSUMER, *peer.at, *words, "--timeout", 20_000).lines
    names, figures = ([each.strip() for each in line.split(",")] for line in lines[-2:])
    found = dict(zip(names, figures, strict=True))
    return found["data.consumed.in.MB"], found["data.consumed.in.nMsg"]


@row("end-to-end-latency")
def measures_latency(peer: Peer) -> object:
    """The end-to-end latency test reads each record before it sends the next."""
    create(peer, "latency")
    output = peer.tool(LATENCY, peer.bootstrap, "latency", 200, "all", 100)
    return [re.sub(r"[\d.]+", "<n>", line) for line in output.lines if "ercentile" in line]


def events(output: Output, name: str) -> list[dict[str, object]]:
    """Events of one name among the lines of JSON that the verifiable tools print."""
    found = [json.loads(line) for line in output.out.splitlines() if line.startswith("{")]
    return [event for event in found if event.get("name") == name]


@row("verifiable-producer")
def produces_verifiably(peer: Peer) -> object:
    """The verifiable producer gets an acknowledgement for each record, at each offset once."""
    create(peer, "verified")
    words = ("--topic", "verified", "--max-messages", 1000, "--repeating-keys", 5)
    output = peer.tool(VERIFIABLE_PRODUCER, *peer.at, *words, raw=True, alone=True)
    acknowledged = events(output, "producer_send_success")
    offsets_seen = sorted(int(str(event["offset"])) for event in acknowledged)
    if offsets_seen != list(range(1000)):
        raise Failed(f"{len(offsets_seen)} offsets acknowledged, not 0 to 999")
    totals = [(each["sent"], each["acked"]) for each in events(output, "tool_data")]
    return totals, acknowledged[-1]["key"], acknowledged[-1]["value"]


@row("verifiable-consumer")
def consumes_verifiably(peer: Peer) -> object:
    """The verifiable consumer joins, reads each record once and commits."""
    create(peer, "verified-group", 2)
    produce_lines(peer, "verified-group", NUMBERS, *KEYED)
    return consumed(peer, "verified-group", "verified")


@row("verifiable-consumer-cooperative")
def consumes_verifiably_with_cooperation(peer: Peer) -> object:
    """The verifiable consumer as a static member with the cooperative assignor."""
    create(peer, "verified-sticky", 2)
    produce_lines(peer, "verified-sticky", NUMBERS, *KEYED)
    assignor = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
    static = ("--assignment-strategy", assignor, "--group-instance-id", "one")
    return consumed(peer, "verified-sticky", "verified-sticky", *static)


def consumed(peer: Peer, topic: str, group: str, *words: object) -> object:
    """What the verifiable consumer saw of 500 records in a group."""
    some = ("--topic", topic, "--group-id", group, "--max-messages", 500, "--verbose")
    output = peer.tool(VERIFIABLE_CONSUMER, *peer.at, *some, *words, raw=True)
    values = sorted(int(str(event["value"])) for event in events(output, "record_data"))
    committed: dict[str, object] = {}
    for event in events(output, "offsets_committed"):
        if not event["success"]:
            raise Failed(f"a commit failed: {event}")
        for each in event["offsets"]:  # type: ignore[attr-defined]
            committed[f"{each['topic']}-{each['partition']}"] = each["offset"]
    assigned = [event["partitions"] for event in events(output, "partitions_assigned")]
    return values == list(range(500)), sorted(committed), assigned
