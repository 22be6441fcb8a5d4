"""Kafka Streams among the clients: the word count of `make compat`, exactly once.

What: `WordCount.java` with exactly_once_v2 counts the words of orders, which transfers place, and
of lines, which a producer writes. It has one application id in all of its lives. Its state stays on
disk, also when it is killed; what it cannot trust then, it restores from its changelog. It writes
each count, not only the last of a transaction. When told to end, it has come to the ends of its
topics. Rule kept: it takes part where Java is; a run without says so and goes on. Not here: what
its counts must be (`check_counts.py`), when it is killed (`plan.py`).
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from compat.clients import (
    HERE,
    compile_word_count,
    fetch_maven_jars,
    is_fetched,
    word_count_version,
)

from anabranch.client import groups
from anabranch.client.cluster import Cluster
from anabranch.core.errors import ApiError
from anabranch.core.types import LATEST
from chaos import secure
from chaos.crowd import Client, Part
from chaos.history import Writer
from chaos.stores import wait_at_most
from chaos.transfers import APPLICATION, COUNTED, COUNTS

ROLE = "streams"
NAME = "s1"
SORTED = f"{APPLICATION}-counts-repartition"
"""All words, sorted into partitions; Kafka Streams makes this topic itself."""
PROGRAMS = ("java", "javac", "mvn")
LEFT_OUT = "it needs a JDK (17 or newer), Maven and, for the first time, a network"
HEAP = "-Xmx192m"
"""Of one instance with three partitions of small counts; what is beyond it lies in RocksDB."""
THREADS = 2
END_SECONDS = 120.0
"""Until it has counted everything: a session, a JVM's start, and what has heaped up."""
ASK_SECONDS = 5.0
LONGEST_WORD = 160
EACH_COUNT = "statestore.cache.max.bytes=0"
"""So that each count is written, not only the last of a transaction."""


class Program(NamedTuple):
    """Where it lies."""

    jars: Path
    classes: Path


class Figures(NamedTuple):
    """What became of it, for the report."""

    takes_part: bool = False
    counted: int = 0
    """Orders and lines."""
    restarts: int = 0
    rebalances: int = 0
    replaced: tuple[str, ...] = ()
    """Why threads of it ended, which others followed."""

    def line(self) -> str:
        """For people."""
        if not self.takes_part:
            return f"Kafka Streams: left out, as {LEFT_OUT}"
        return (
            f"Kafka Streams: {self.counted:,} records counted, {self.restarts} restarts, "
            f"{self.rebalances} rebalances, {len(self.replaced)} threads replaced"
        )


def fetch(say: Callable[[str], None]) -> None:
    """Fetch and compile the program, once, where that can be done."""
    if find() is not None or not all(map(shutil.which, PROGRAMS)):
        return
    say("fetching Kafka Streams with Maven, once")
    try:
        compile_word_count(fetch_maven_jars("streams"))
    except (SystemExit, OSError, subprocess.SubprocessError) as fault:
        say(f"Kafka Streams cannot be fetched: {fault}")


def find() -> Program | None:
    """The program, if it can be run."""
    pom = (HERE / "streams.pom.xml").read_text()
    fetched = is_fetched("streams", pom) and is_fetched("word-count", word_count_version())
    if not fetched or not all(map(shutil.which, PROGRAMS)):
        return None
    jars = fetch_maven_jars("streams")
    return Program(jars, compile_word_count(jars))


class StreamsClient(Client):
    """The application, one process after the other."""

    stdin = subprocess.PIPE

    def __init__(self, program: Program, folder: Path, state: Path) -> None:
        super().__init__(Part(NAME, "java", ROLE, ",".join((*COUNTED, COUNTS))), folder, 0)
        self._program, self._state = program, state

    def command(self) -> list[str]:
        """See Client."""
        jars, classes = self._program
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        light = (HEAP, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        told = [self.bootstrap, APPLICATION, str(self._state), str(THREADS), "exactly_once_v2"]
        java = ["java", *light, quiet, "-cp", f"{classes}:{jars}/*", "WordCount"]
        return [*java, *told, ",".join(COUNTED), EACH_COUNT, *secure.java()]

    def start(self) -> None:
        """See Client; that it counts is in its history at once."""
        super().start()
        part, writer = self.part, Writer(self.history, self.name)
        told = {"kind": part.kind, "role": part.role, "group": APPLICATION, "topics": part.topics}
        writer.line("hello", **told)
        writer.line("counting")
        writer.close()

    def ask_to_end(self) -> None:
        """Wait until it has counted everything, and end its input."""
        is_over = lambda: self.code is not None or has_counted_all(self.bootstrap)  # noqa: E731
        wait_at_most(END_SECONDS, is_over)
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()

    def figures(self, counted: int) -> Figures:
        """What its logs say of all of its lives."""
        logs = sorted(self.folder.glob(f"{NAME}*.log"))
        said = [line for log in logs for line in log.read_text(errors="replace").splitlines()]
        rebalances = sum(line == "state REBALANCING" for line in said)
        return Figures(True, counted, self.lives - 1, rebalances, tuple(replaced(said)))


def replaced(said: Iterable[str]) -> list[str]:
    """Why threads ended, in the words of Java."""
    found = (re.match("replaced (.*)", line) for line in said)
    return [each.group(1)[:LONGEST_WORD] for each in found if each is not None]


def has_counted_all(bootstrap: str) -> bool:
    """Whether the application has committed the ends of what it reads."""
    try:
        return asyncio.run(_has_counted_all(bootstrap))
    except (ApiError, OSError):
        return False


async def _has_counted_all(bootstrap: str) -> bool:
    async with Cluster(bootstrap, deadline_seconds=ASK_SECONDS, security=secure.own()) as cluster:
        places = [
            (topic, index) for topic in (*COUNTED, SORTED) for index in await cluster.leaders(topic)
        ]
        ends = await groups.offsets_at(cluster, places, LATEST)
        committed = await groups.committed_offsets(cluster, APPLICATION)
    return all(committed.get(place, 0) >= end for place, end in ends.items())
