"""Kafka Streams: `clients/WordCount.java`, at least once and exactly once, with its own topics and
its store."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

from compat.clients import HERE, fetch_maven_jars
from compat.families.console import KEYED, produce
from compat.families.groups import groups
from compat.families.records import held, latest
from compat.families.topics import create, topics
from compat.peer import Background, Peer
from compat.row import row

WORDS = ("anabranch", "billabong", "creek", "delta", "estuary", "fjord", "gulf", "headwater")
AT_LEAST_ONCE, EXACTLY_ONCE = "at_least_once", "exactly_once_v2"
SECONDS = 90.0
"""More than two sessions of a member that does not come back, and a JVM's start."""


def fetch() -> None:
    """Kafka Streams and RocksDB."""
    fetch_maven_jars("streams")


def said(seed: int, count: int) -> list[str]:
    """Lines of words, the same for every peer."""
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=8)) for _ in range(count)]


def say(peer: Peer, application: str, sentences: list[str]) -> None:
    """Send the lines; keys spread them over the partitions."""
    text = "".join(f"{number}:{line}\n" for number, line in enumerate(sentences))
    produce(peer, f"{application}-lines", text, *KEYED)


def counted(*sentences: list[str]) -> dict[str, int]:
    """What the count must come to."""
    return dict(sorted(Counter(" ".join(chain(*sentences)).split()).items()))


@contextmanager
def running(
    peer: Peer, application: str, instance: str, threads: int = 1, guarantee: str = AT_LEAST_ONCE
) -> Iterator[Background]:
    """One instance of the application; its state lies in a folder of its own."""
    jars, folder = fetch_maven_jars("streams"), peer.scratch / f"{application}-{instance}"
    quiet = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-Xmx256m", "-XX:+UseSerialGC")
    program = (HERE / "WordCount.java", peer.bootstrap, application, folder, threads, guarantee)
    command = ("java", "-XX:TieredStopAtLevel=1", *quiet, "-cp", f"{jars}/*", *program)
    with peer.background(*command) as program_running:
        yield program_running


def finish(program: Background) -> bool:
    """Close its input and wait: whether it closed in time, and well."""
    assert program.process.stdin is not None
    program.process.stdin.close()
    return program.process.wait(SECONDS) == 0 and "closed true" in program.printed


def counts(peer: Peer, application: str) -> dict[str, int]:
    """The latest count of each word."""
    found = latest(peer, f"{application}-counts")
    return {word: int(count or b"0") for word, count in sorted(found.items())}


def await_counts(peer: Peer, application: str, wanted: dict[str, int]) -> dict[str, int]:
    """The counts, once each has come to what is wanted, or passed it."""

    def complete() -> bool:
        seen = counts(peer, application)
        return all(seen.get(word, 0) >= count for word, count in wanted.items())

    peer.wait(complete, f"{application} has counted everything", SECONDS)
    return counts(peer, application)


def prepare_topics(peer: Peer, application: str) -> None:
    """The application's own topics; those within it are made by Kafka Streams."""
    create(peer, f"{application}-lines", 3)
    create(peer, f"{application}-counts")


def internal(peer: Peer, application: str) -> list[str]:
    """The topics that Kafka Streams made: partitions and configurations."""
    kinds = ("counts-changelog", "counts-repartition")
    names = [f"{application}-{kind}" for kind in kinds]
    described = [topics(peer, "--describe", "--topic", name).lines for name in names]
    return [with_sorted_configs(line) for line in chain(*described)]


def with_sorted_configs(line: str) -> str:
    """A line of kafka-topics.sh with configurations by name: Kafka gives them as its map does."""
    head, heading, configs = line.partition("Configs: ")
    return head + heading + ",".join(sorted(configs.split(",")))


@row("streams-word-count", prepare=fetch)
def counts_words(peer: Peer) -> object:
    """Kafka Streams' word count, at least once: counts, repartition and changelog topics."""
    name = "streams-words"
    prepare_topics(peer, name)
    first = said(1, 200)
    say(peer, name, first)
    with running(peer, name, "one", threads=2) as program:
        seen = await_counts(peer, name, counted(first))
        state = groups(peer, "--describe", "--group", name, "--state")
        members = groups(peer, "--describe", "--group", name, "--members")
        closed = finish(program)
    changes = latest(peer, f"{name}-counts-changelog")
    return {
        "counts": seen,
        "as wanted": seen == counted(first),
        "changelog": {
            word: int.from_bytes(count or b"") for word, count in sorted(changes.items())
        },
        "topics": internal(peer, name),
        "state": state.columns("STATE", "#MEMBERS"),
        "tasks": members.columns("#PARTITIONS"),
        "closed": closed,
    }


@row("streams-restore", prepare=fetch)
def restores_its_store(peer: Peer) -> object:
    """Started again without its state folder, it restores the store from the changelog."""
    name = "streams-restored"
    prepare_topics(peer, name)
    first, second = said(2, 100), said(3, 100)
    say(peer, name, first)
    with running(peer, name, "one") as program:
        before = await_counts(peer, name, counted(first))
        closed = finish(program)
    shutil.rmtree(peer.scratch / f"{name}-one")
    say(peer, name, second)
    with running(peer, name, "one") as program:
        after = await_counts(peer, name, counted(first, second))
        printed = program.printed.splitlines()
        finish(program)
    restored = {line.rpartition(" ")[0] for line in printed if line.startswith("restored")}
    return before, closed, after, after == counted(first, second), sorted(restored)


@row("streams-takeover", prepare=fetch)
def takes_over(peer: Peer) -> object:
    """Two instances share the tasks; one is killed, the other takes over and loses nothing."""
    name = "streams-takeover"
    prepare_topics(peer, name)
    first, second = said(4, 100), said(5, 100)
    say(peer, name, first)
    with running(peer, name, "one") as killed, running(peer, name, "two") as left:
        peer.wait(lambda: shares(peer, name) == ["3", "3"], "both have tasks", SECONDS)
        await_counts(peer, name, counted(first))
        killed.process.kill()
        say(peer, name, second)
        seen = await_counts(peer, name, counted(first, second))
        peer.wait(lambda: shares(peer, name) == ["6"], "one has all tasks", SECONDS)
        finish(left)
    return sorted(seen), all(seen[word] >= count for word, count in counted(first, second).items())


@row("streams-exactly-once", prepare=fetch)
def counts_exactly_once(peer: Peer) -> object:
    """The word count with exactly_once_v2 is killed while it counts, and resumed: every word is
    counted once, as in a run without a kill."""
    name = "streams-exactly-once"
    prepare_topics(peer, name)
    first, second = said(6, 400), said(7, 400)
    say(peer, name, first)
    with running(peer, name, "one", 2, EXACTLY_ONCE) as killed:
        peer.wait(lambda: counts(peer, name), "something is counted", SECONDS)
        killed.process.kill()
        say(peer, name, second)
    with running(peer, name, "one", 2, EXACTLY_ONCE) as resumed:
        seen = await_counts(peer, name, counted(first, second))
        closed = finish(resumed)
    told = [(key, int(value or b"0")) for _, key, value in held(peer, f"{name}-counts")]
    return seen, seen == counted(first, second), ascending(told), closed


def ascending(told: list[tuple[bytes | None, int]]) -> bool:
    """Whether each count of a word is above the one before: none was told twice."""
    last: dict[bytes | None, int] = {}
    for word, count in told:
        if count <= last.get(word, 0):
            return False
        last[word] = count
    return True


def shares(peer: Peer, application: str) -> list[str]:
    """How many partitions each member has; no member, no share."""
    described = groups(peer, "--describe", "--group", application, "--members")
    return sorted(share for (share,) in described.columns("#PARTITIONS"))
