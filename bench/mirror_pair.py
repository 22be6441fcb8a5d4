"""Two Apache Kafka nodes and one of the two programs that mirror from the first to the second.

What: `Ours` and `Maker` are what the rows of mirror_rows.py compare: both mirror between the same
two nodes, one at a time. Each run of a program has an alias of its own for the source, so that it
begins without positions and writes topics of its own. Memory and CPU are read from /proc, in parts:
the JVM, the Python of the driver, and the Python workers.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import workloads
from confluent_kafka import Consumer, KafkaException, TopicPartition
from mirrors import EXACTLY_ONCE, maker_command, our_command, properties
from servers import LOGGING, ROOT, WORK, Kafka, Server

from anabranch.testing.server_process import family_of

END_SECONDS = 90.0
CORES = 2


class Nodes:
    """The two nodes, which run while a side needs them."""

    east: Kafka
    west: Kafka
    users = 0
    runs = 0
    filled: set[str] = set()


class Pair(Server):
    """One of the two programs beside both nodes; clients of `Server` see the source."""

    node = Kafka
    """Whose jars are needed."""

    def __init__(self, settings: Mapping[str, object] | None = None) -> None:
        self.settings = settings or {}
        self.is_started = False

    def start(self) -> None:
        """Start the nodes, unless they run for the other side."""
        if not Nodes.users:
            Nodes.east, Nodes.west = Kafka(self.settings), Kafka(self.settings)
            for each in (Nodes.east, Nodes.west):
                each.start()
            Nodes.filled = set()
        Nodes.users += 1
        self.is_started = True

    def stop(self) -> None:
        """End the nodes after the last side."""
        if not self.is_started:
            return
        self.is_started = False
        Nodes.users -= 1
        if not Nodes.users:
            for each in (Nodes.east, Nodes.west):
                each.stop()

    @property
    def is_alive(self) -> bool:
        """Whether both nodes run."""
        return Nodes.east.is_alive and Nodes.west.is_alive

    @property
    def bootstrap(self) -> str:
        """Of the source."""
        return Nodes.east.bootstrap

    def words(self, file: Path) -> list[str]:
        """The command of the program."""
        raise NotImplementedError

    @contextmanager
    def mirroring(
        self, topics: str, *, exactly_once: bool = False, more: Mapping[str, object] | None = None
    ) -> Iterator[Program]:
        """Mirror these topics while the block lasts."""
        Nodes.runs += 1
        alias = f"east{Nodes.runs}"
        once = EXACTLY_ONCE if exactly_once else {}
        text = properties(
            Nodes.east.bootstrap, Nodes.west.bootstrap, topics,
            tasks={"tasks.max": CORES}, once=once, more=more or {},
        )  # fmt: skip
        folder = WORK / alias
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "log4j2.xml").write_text(LOGGING)
        file = folder / "mm2.properties"
        file.write_text(text.replace("east", alias))
        program = Program(self.words(file), folder, alias)
        try:
            yield program
        finally:
            program.end()


class Ours(Pair):
    """`anabranch mirror run`."""

    name = "anabranch"

    def words(self, file: Path) -> list[str]:
        """On two cores."""
        return our_command(file)


class Maker(Pair):
    """MirrorMaker 2 of Kafka 4.1."""

    name = "mirrormaker"

    def words(self, file: Path) -> list[str]:
        """In its dedicated mode."""
        return maker_command(file, file.parent / "log4j2.xml")


PAIRS: dict[str, type[Server]] = {"anabranch": Ours, "mirrormaker": Maker}


class Program:
    """A program that mirrors, as a process."""

    def __init__(self, words: list[str], folder: Path, alias: str) -> None:
        self.alias = alias
        self.file = folder / "mm2.properties"
        self._log = folder / "output.log"
        self._gone = 0.0
        self._seen: dict[int, float] = {}
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(
                words, stdout=log, stderr=log, cwd=ROOT, start_new_session=True
            )

    def remote(self, topic: str) -> str:
        """What a topic is called on the target."""
        return f"{self.alias}.{topic}"

    def last_words(self) -> str:
        """The end of what it printed."""
        return self._log.read_text(errors="replace")[-1000:]

    def end(self) -> None:
        """As Ctrl-C does; whatever is left of it after a while is killed."""
        family = family_of(self.process.pid)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(END_SECONDS)
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def cpu_seconds(self) -> float:
        """User and system seconds of all its processes so far, those that have ended included."""
        for pid in family_of(self.process.pid):
            with suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                self._seen[pid] = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
        return sum(self._seen.values())

    @contextmanager
    def watched(self) -> Iterator[dict[str, float]]:
        """The peaks of its memory in MB while the block runs, by part and in all."""
        peaks: dict[str, float] = {}
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.25):
                self.cpu_seconds()
                parts = self._parts()
                parts["memory MB"] = sum(parts.values())
                for part, size in parts.items():
                    peaks[part] = max(peaks.get(part, 0.0), size)

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield peaks
        finally:
            over.set()
            thread.join()

    def _parts(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for pid in family_of(self.process.pid):
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_text()
                is_java = words.partition("\0")[0].endswith("java")
                part = "JVM MB" if is_java else "workers MB" if "pyspark" in words else "driver MB"
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                size = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
                found[part] = found.get(part, 0.0) + size
        return found


class Ends:
    """Asks the target again and again how far a topic is."""

    def __init__(self, topic: str, partitions: int) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": Nodes.west.bootstrap,
                "group.id": "ends",
                "isolation.level": "read_committed",
                **workloads.CLIENT,
            }
        )
        self._places = [TopicPartition(topic, number) for number in range(partitions)]

    def sum(self) -> int:
        """The sum of the ends; 0 while one is not known."""
        try:
            return sum(
                self._consumer.get_watermark_offsets(each, timeout=5.0)[1] for each in self._places
            )
        except KafkaException:
            return 0

    def wait(self, wanted: int, program: Program) -> float:
        """Until there are so many; when that was. Raises SystemExit."""
        until = time.perf_counter() + workloads.WAIT_SECONDS
        while (have := self.sum()) < wanted:
            if time.perf_counter() > until or program.process.poll() is not None:
                raise SystemExit(f"{have} of {wanted} records came: {program.last_words()}")
            time.sleep(0.1)
        return time.perf_counter()
