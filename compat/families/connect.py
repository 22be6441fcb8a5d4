"""Kafka Connect in standalone mode: its file source and its file sink."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from bench.servers import free_port

from compat.clients import fetch_maven_jars
from compat.families.console import produce
from compat.families.groups import described
from compat.families.records import held
from compat.families.streams import with_sorted_configs
from compat.families.topics import create, topics
from compat.peer import Peer
from compat.row import row

MAIN = "org.apache.kafka.connect.cli.ConnectStandalone"
STRING = "org.apache.kafka.connect.storage.StringConverter"
JSON = "org.apache.kafka.connect.json.JsonConverter"
SECONDS = 60.0
QUIET = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xmx256m",
)


def fetch() -> None:
    """Kafka Connect and its file connectors."""
    fetch_maven_jars("connect")


def properties(peer: Peer, name: str, settings: Mapping[str, object]) -> Path:
    """A properties file."""
    text = "".join(f"{setting}={value}\n" for setting, value in settings.items())
    return peer.file(f"{name}.properties", text)


def source(peer: Peer, name: str, **more: object) -> Path:
    """The file source `name`-source: lines of `name`.in go to topic `name`."""
    settings = {
        "name": f"{name}-source",
        "connector.class": "FileStreamSource",
        "file": peer.scratch / f"{name}.in",
        "topic": name,
    }
    return properties(peer, f"{name}-source", {**settings, **dotted(more)})


def sink(peer: Peer, name: str, **more: object) -> Path:
    """The file sink `name`-sink: records of topic `name` go to `name`.out, a line each."""
    settings = {
        "name": f"{name}-sink",
        "connector.class": "FileStreamSink",
        "file": peer.scratch / f"{name}.out",
        "topics": name,
    }
    return properties(peer, f"{name}-sink", {**settings, **dotted(more)})


def dotted(settings: Mapping[str, object]) -> dict[str, object]:
    """Settings whose names have dots for underscores."""
    return {name.replace("_", "."): value for name, value in settings.items()}


@contextmanager
def worker(peer: Peer, name: str, *connectors: Path, converter: str = STRING) -> Iterator[int]:
    """A standalone worker with these connectors; yields its port once each of them runs."""
    port = free_port()
    settings = {
        "bootstrap.servers": peer.bootstrap,
        "listeners": f"http://127.0.0.1:{port}",
        "key.converter": STRING,
        "value.converter": converter,
        "offset.storage.file.filename": peer.scratch / f"{name}.offsets",
        "offset.flush.interval.ms": 500,
        "consumer.auto.offset.reset": "earliest",
        "consumer.allow.auto.create.topics": "false",
    }
    file = properties(peer, f"{name}-worker", settings)
    jars = fetch_maven_jars("connect")
    command = ("java", *QUIET, "-cp", f"{jars}/*", MAIN, file, *connectors)
    with peer.background(*command):
        names = [connector.stem for connector in connectors]
        peer.wait(lambda: all(runs(port, each) for each in names), f"{names} run", SECONDS)
        yield port


def runs(port: int, connector: str) -> bool:
    """Whether the worker says that the connector and its one task run."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/connectors/{connector}/status") as answer:
            status = json.load(answer)
    except (URLError, ConnectionError):
        return False
    parts = (status["connector"], *status["tasks"])
    return [part["state"] for part in parts] == ["RUNNING", "RUNNING"]


def append(peer: Peer, name: str, first: int, beyond: int) -> None:
    """Lines at the end of the source's file."""
    with open(peer.scratch / f"{name}.in", "a") as file:
        file.writelines(f"line {number}\n" for number in range(first, beyond))


def arrived(peer: Peer, name: str, count: int) -> list[str]:
    """The lines of the sink's file, once there are so many."""
    path = peer.scratch / f"{name}.out"

    def lines() -> list[str]:
        return path.read_text().splitlines() if path.exists() else []

    peer.wait(lambda: len(lines()) >= count, f"{count} lines in {path.name}", SECONDS)
    return lines()


@row("connect-file", prepare=fetch)
def carries_a_file(peer: Peer) -> object:
    """Lines of a file go through a topic that Connect makes into another file."""
    name = "connect-file"
    append(peer, name, 0, 100)
    made = {
        "topic_creation_default_partitions": 2,
        "topic_creation_default_replication_factor": 1,
        "topic_creation_default_retention_ms": 86_400_000,
    }
    with worker(peer, name, source(peer, name, **made), sink(peer, name)):
        first = arrived(peer, name, 100)
        append(peer, name, 100, 150)
        both = arrived(peer, name, 150)
    described_topic = topics(peer, "--describe", "--topic", name).lines
    records = [(key, (value or b"").decode()) for _, key, value in held(peer, name)]
    return {
        "lines": sorted(first),
        "more": sorted(both),
        "topic": [with_sorted_configs(line) for line in described_topic],
        "records": sorted(value for key, value in records if key is None),
        "lag": sum(int(offsets[-1]) for offsets in described(peer, f"connect-{name}-sink")),
    }


@row("connect-restart", prepare=fetch)
def goes_on_after_a_restart(peer: Peer) -> object:
    """A restarted worker continues where source and sink had stopped."""
    name = "connect-restart"
    create(peer, name)
    append(peer, name, 0, 50)
    connectors = source(peer, name), sink(peer, name)
    with worker(peer, name, *connectors, converter=JSON):
        arrived(peer, name, 50)
    offsets = described(peer, f"connect-{name}-sink")
    append(peer, name, 50, 80)
    with worker(peer, name, *connectors, converter=JSON):
        lines = arrived(peer, name, 80)
    records = [(value or b"").decode() for _, _, value in held(peer, name)]
    return offsets, lines, records, described(peer, f"connect-{name}-sink")


@row("connect-dead-letters", prepare=fetch)
def sets_aside_what_it_cannot_read(peer: Peer) -> object:
    """A sink skips records that are not JSON, and writes them to a topic that it creates."""
    name = "connect-letters"
    create(peer, name)
    produce(peer, name, '{"good": 1}\nbad\n{"good": 2}\nworse\n')
    tolerant = {
        "errors_tolerance": "all",
        "errors_deadletterqueue_topic_name": f"{name}-dead",
        "errors_deadletterqueue_topic_replication_factor": 1,
        "errors_deadletterqueue_context_headers_enable": "true",
        "value_converter": JSON,
        "value_converter_schemas_enable": "false",
    }
    with worker(peer, name, sink(peer, name, **tolerant)):
        lines = arrived(peer, name, 2)
        peer.wait(lambda: len(held(peer, f"{name}-dead")) == 2, "two dead letters", SECONDS)
    return lines, [value.decode() for _, _, value in held(peer, f"{name}-dead") if value]
