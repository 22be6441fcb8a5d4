"""The two servers that are compared: each one process, one folder, loopback, its own defaults.

Three of them that are one cluster are in trio.py.

Both are started by the same code, in folders on the same disk, and looked at through /proc only.
Apache Kafka runs as its own start script runs it: KRaft, one combined node, 1 GB heap, G1 with the
script's flags. Linux only: CPU seconds and memory come from /proc.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from anabranch.testing.server_process import ServerProcess, family_of

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / ".cache" / "bench" / str(os.getpid())
JARS = ROOT / ".cache" / "kafka"
START_SECONDS = 180.0
STOP_SECONDS = 30.0
LOG_TAIL_LINES = 20
HEAP = "1g"
DELETE_DELAY_MS = 1_000
"""Deleted topics give their memory back within a round, so that the next one gets pages that the
machine has used before: a virtual machine's first touch of a page costs more than the write itself,
and by chance would hit one server or the other."""
JVM_FLAGS = [
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
]
LOGGING = """<Configuration><Appenders><Console name="out" target="SYSTEM_OUT">
<PatternLayout pattern="[%d] %p %m (%c)%n"/></Console></Appenders>
<Loggers><Root level="WARN"><AppenderRef ref="out"/></Root></Loggers></Configuration>
"""


def free_port() -> int:
    """A port of the loopback interface that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server(ServerProcess):
    """One broker in a folder of its own."""

    name = "server"
    replicas = 1
    """Of each topic that a workload creates."""
    acks: int | str = 1
    """What its producers wait for."""
    client: Mapping[str, Any] = {}
    """Properties that its clients need beside its address."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        work: Path = WORK,
        ports: tuple[int, int] | None = None,
    ) -> None:
        self.port, self.controller_port = ports or (free_port(), free_port())
        self.settings = {"log.segment.delete.delay.ms": DELETE_DELAY_MS, **(settings or {})}
        self.folder = work / f"{self.name}-{self.port}"
        super().__init__(self.folder / "output.log")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.prepare()

    @property
    def bootstrap(self) -> str:
        """Where clients find it."""
        return f"127.0.0.1:{self.port}"

    def prepare(self) -> None:
        """Whatever the product wants done once before its first start; not timed."""

    def command(self) -> list[str]:
        """The command line of the broker."""
        raise NotImplementedError

    def launch(self) -> None:
        """Start the process without waiting for anything."""
        self.run(self.command(), cwd=ROOT)

    def start(self) -> None:
        """Start the process and wait until it accepts connections."""
        self.launch()
        self.await_port()

    def await_port(self) -> None:
        """Wait until the port accepts a connection."""
        deadline = time.perf_counter() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
                return
            except OSError:
                if time.perf_counter() > deadline or not self.is_alive:
                    raise SystemExit(self.last_words()) from None
                time.sleep(0.002)

    def settle(self) -> None:
        """Wait until it is ready for work, where an open port does not say so."""

    def last_words(self) -> str:
        """Why it did not start, as far as its output says."""
        lines = self.last_lines(LOG_TAIL_LINES)
        return "\n  ".join([f"{self.name} did not start:", *lines])

    def stop(self) -> None:
        """End it and remove its folder."""
        self.terminate(STOP_SECONDS)
        shutil.rmtree(self.folder, ignore_errors=True)

    def cpu_seconds(self) -> float:
        """User and system seconds so far, those of its own child processes included."""
        ticks = 0
        for pid in family_of(self.pid):
            with suppress(OSError):  # a child may end meanwhile: its parent then has its ticks
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += sum(map(int, fields[11:15]))
        return ticks / os.sysconf("SC_CLK_TCK")

    @contextmanager
    def watched(self) -> Iterator[list[int]]:
        """Collects resident memory every 20 ms while the block runs; the list holds the peak."""
        peak = [self.resident_bytes()]
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.02):
                peak[0] = max(peak[0], self.resident_bytes())

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield peak
        finally:
            over.set()
            thread.join()


class Anabranch(Server):
    """A combined node with nothing but its folder and addresses configured."""

    name = "anabranch"
    profile: Path | None = None
    """Where to leave cProfile's figures when the node stops; they cost speed."""

    def command(self) -> list[str]:
        """`anabranch serve` of this checkout."""
        listeners = (
            f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}"
        )
        profiler = ["-m", "cProfile", "-o", str(self.profile)] if self.profile else []
        words = [sys.executable, *profiler, "-m", "anabranch", "serve"]
        settings = (
            f"log.dirs={self.folder / 'data'}",
            f"listeners={listeners}",
            *(f"{name}={value}" for name, value in self.settings.items()),
        )
        for setting in settings:
            words += ["--set", setting]
        return words


class Kafka(Server):
    """Apache Kafka 4.1, one combined KRaft node."""

    name = "kafka"

    def _java(self) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self.folder / 'log4j2.xml'}"
        heap = [f"-Xmx{HEAP}", f"-Xms{HEAP}"]
        return ["java", *heap, *JVM_FLAGS, logging, "-cp", f"{JARS}/*"]

    def prepare(self) -> None:
        """Write the configuration and format the folder, which Kafka wants before its start."""
        (self.folder / "log4j2.xml").write_text(LOGGING)
        client, controller = f"127.0.0.1:{self.port}", f"127.0.0.1:{self.controller_port}"
        lines = [
            "process.roles=broker,controller",
            "node.id=1",
            f"listeners=PLAINTEXT://{client},CONTROLLER://{controller}",
            f"advertised.listeners=PLAINTEXT://{client}",
            "controller.listener.names=CONTROLLER",
            f"controller.quorum.voters=1@{controller}",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            f"log.dirs={self.folder / 'data'}",
            "offsets.topic.replication.factor=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
            "share.coordinator.state.topic.replication.factor=1",
            "share.coordinator.state.topic.min.isr=1",
            *(f"{name}={value}" for name, value in self.settings.items()),
        ]
        properties = self.folder / "server.properties"
        properties.write_text("\n".join(lines) + "\n")
        voters = self.settings.get("controller.quorum.voters", f"1@{controller}")
        first = int(str(voters).partition(",")[0].rpartition(":")[2])
        cluster_id = f"AAAAAAAAQACAAAA{first:05}AQ"  # nodes are of one cluster when voters are
        tool = ["kafka.tools.StorageTool", "format", "-t", cluster_id]
        subprocess.run(
            [*self._java(), *tool, "-c", str(properties)], check=True, capture_output=True
        )

    def command(self) -> list[str]:
        """The broker's main class, as its start script calls it."""
        return [*self._java(), "kafka.Kafka", str(self.folder / "server.properties")]


SERVERS: dict[str, type[Server]] = {"anabranch": Anabranch, "kafka": Kafka}
