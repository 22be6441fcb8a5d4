"""The config target: a `server.properties` that says anything.

The rule in one sentence: a node gets its configuration or one line for people that names the place.
"""

from __future__ import annotations

from random import Random

from anabranch.core.settings.catalogue import BROKER_SETTINGS
from anabranch.server import properties
from anabranch.server.config import load_config
from anabranch.server.properties import ConfigError
from fuzz import havoc, messages
from fuzz.target import Features, Target
from fuzz.verdict import expect

FILE = "server.properties"
BASE = (
    b"process.roles=broker,controller", b"node.id=1", b"controller.listener.names=CONTROLLER",
    b"listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093", b"log.dirs=/data",
    b"controller.quorum.bootstrap.servers=127.0.0.1:9093", b"! a comment", b"broker.id = 2",
    b"controller.quorum.voters=1@127.0.0.1:9093", b"inter.broker.listener.name=PLAINTEXT",
    b"listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT", b"a\\u0041=1\\",
    b"advertised.listeners=PLAINTEXT://h:1", b"log.segment.bytes:1000", b"broker.rack r\\=1",
    b"num.partitions=3", b"log.retention.hours=-1", b"metadata.log.dir=/m", b"http.listen=1:2",
    b"metadata.store.url=sqlite:///x", b"compression.type=zstd", b"log.retention.ms=9999999999999",
)  # fmt: skip


class Held:
    """Stands for the path of a file that is in memory."""

    content = b""

    def __init__(self, _path: str) -> None:
        self.held = Held.content

    def read_bytes(self) -> bytes:
        """What the file holds."""
        return self.held


def run(entry: bytes) -> Features:
    """Load the configuration that an input is the file of."""
    Held.content = entry
    before = vars(properties)["Path"]
    vars(properties)["Path"] = Held
    try:
        loaded = load_config(FILE)
    except ConfigError as refused:
        text = str(refused)
        expect("\n" not in text, "a refusal is one line")
        expect(text, "a refusal says something")
        return {("refused", text.partition(": ")[2][:24])}
    finally:
        vars(properties)["Path"] = before
    expect(loaded.log_dirs, "a node has a folder")
    return {("loaded", loaded.process_roles, len(loaded.warnings))}


def _line(rng: Random) -> bytes:
    if rng.random() < 0.5:
        return rng.choice(BASE)
    text = rng.choice(messages.TEXTS + ("-1", "10", "2147483648", "1.5", "a,b", "[::1]:9092"))
    return f"{rng.choice(NAMES)}={text}".encode()


NAMES = tuple(BROKER_SETTINGS)


def make(rng: Random) -> bytes:
    """A file of some lines."""
    return b"\n".join(_line(rng) for _ in range(rng.choice((1, 2, 4, 8))))


def change(rng: Random, entry: bytes, other: bytes) -> bytes:
    """Change lines, or bytes."""
    lines, crossed = entry.split(b"\n"), other.split(b"\n")
    at, chance = rng.randrange(len(lines)), rng.random()
    if chance < 0.3:
        lines.insert(at, _line(rng))
    elif chance < 0.4:
        lines.insert(at, rng.choice(crossed))
    elif chance < 0.5:
        del lines[at]
    else:
        lines[at] = havoc.change(rng, lines[at], rng.choice(crossed))
    return b"\n".join(lines[:40])


TARGET = Target("config", run, make, change, share=3)
