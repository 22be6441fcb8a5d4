"""Several nodes as processes of this machine: what `anabranch up --brokers` and the demo run.

What: each node is broker and controller, with a folder and ports of its own; one SQLite file in the
common folder is where their metadata is committed, and whoever holds its lease is the active
controller. Every node runs in a session of its own, so that Ctrl-C reaches the supervisor alone and
it decides the order of goodbyes. Rule kept: whatever happens, `close` leaves no process behind, and
a supervisor that is killed takes its nodes along: each reads a pipe that only the supervisor holds
open, and stops in order at its end.
Not here: several machines; their nodes run `anabranch serve`, each with its own configuration.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from anabranch.cli.cluster_command import SILENCE_SECONDS
from anabranch.client.ports import free_ports
from anabranch.testing.server_process import ServerProcess

START_SECONDS = 30.0
STOP_SECONDS = 15.0
PORT_SECONDS = 5.0
"""As long as nodes usually take to stop once their supervisor is gone."""
ASK_AGAIN_SECONDS = 0.02
LOG_TAIL_LINES = 15
STORE_FILE = "metadata-store.db"
USUAL_REPLICAS = 3
HTTP_LISTENER = "http.listener"


class LocalBroker(ServerProcess):
    """One node: how it is started, and what it said last."""

    def __init__(self, node_id: int, folder: str, port: int, rack: str | None) -> None:
        super().__init__(Path(folder, f"broker-{node_id}.log"))
        self.node_id = node_id
        self.port = port
        self.rack = rack
        self.log_dir = os.path.join(folder, f"broker-{node_id}")
        self.http = ""
        """Where metrics and health are served; empty for nowhere."""
        self.settings: dict[str, str] = {}

    @property
    def bootstrap(self) -> str:
        """Where clients find it."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the process; returns at once."""
        words = [sys.executable, "-m", "anabranch", "serve", "--stop-with-stdin"]
        for name, value in self.settings.items():
            words += ["--set", f"{name}={value}"]
        self.run(words, stdin=subprocess.PIPE)

    def wait_ready(self) -> None:
        """Return when it serves clients. Raises ClickException with the node's last words."""
        begin = time.monotonic()
        silent_until = SILENCE_SECONDS
        while not answers(self.port):
            self.check_alive()
            waited = time.monotonic() - begin
            if waited > START_SECONDS:
                raise self.failure(f"did not answer within {START_SECONDS:.0f} s")
            if waited > silent_until:
                silent_until = waited + SILENCE_SECONDS
                said = f"broker {self.node_id} does not serve yet, after {waited:.0f} s"
                click.echo(f"{said}; its log is {self.output}", err=True)
            time.sleep(ASK_AGAIN_SECONDS)

    def check_alive(self) -> None:
        """Raises ClickException with the node's last words when its process has ended."""
        if not self.is_alive:
            code = None if self.process is None else self.process.returncode
            raise self.failure(f"ended with exit code {code}")

    def stop(self) -> None:
        """SIGTERM, so that leaderships move; made to end when it does not."""
        self.terminate(STOP_SECONDS)

    def failure(self, what: str) -> click.ClickException:
        """What happened to the node, and what it said last."""
        sentence = f"broker {self.node_id} {what}; its last words:"
        return click.ClickException("\n  ".join([sentence, *self.last_lines(LOG_TAIL_LINES)]))

    def disk_bytes(self) -> int:
        """Bytes of everything that the node keeps in its folder."""
        files = (each for each in Path(self.log_dir).rglob("*") if each.is_file())
        return sum(each.stat().st_size for each in files)


class LocalBrokers:
    """The nodes of one cluster in `folder`, which is made when it is not there.

    `port` is the first broker's, the others take the following ones; 0: free ports. `racks` are
    given out in turn.
    """

    def __init__(
        self,
        folder: str,
        *,
        brokers: int,
        port: int = 0,
        racks: Sequence[str] = (),
        settings: Sequence[str] = (),
    ) -> None:
        os.makedirs(folder, exist_ok=True)
        ports = [port + each for each in range(brokers)] if port else free_ports(brokers)
        self.nodes = [
            LocalBroker(
                index + 1, folder, ports[index], racks[index % len(racks)] if racks else None
            )
            for index in range(brokers)
        ]
        self._configure(os.path.abspath(folder), settings)

    @property
    def bootstrap(self) -> str:
        """Where clients find the cluster: every broker."""
        return ",".join(node.bootstrap for node in self.nodes)

    def node(self, node_id: int) -> LocalBroker:
        """The node with that id."""
        return self.nodes[node_id - 1]

    def start(self) -> None:
        """Start every node and wait until each of them serves."""
        for node in self.nodes:
            wait_free(node.port)
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.wait_ready()

    def wait(self) -> None:
        """Until a node ends by itself, which it should not; raises ClickException then."""
        while True:
            for node in self.nodes:
                node.check_alive()
            time.sleep(ASK_AGAIN_SECONDS * 10)

    def close(self) -> None:
        """Ask every node to stop, one after the other so that leaderships can move; make it."""
        for node in self.nodes:
            node.stop()

    def _configure(self, folder: str, settings: Sequence[str]) -> None:
        controllers = free_ports(len(self.nodes))
        servers = ",".join(f"127.0.0.1:{port}" for port in controllers)
        replicas = min(USUAL_REPLICAS, len(self.nodes))
        from anabranch.server.one_machine import diskless_settings

        diskless = diskless_settings(folder)
        given = dict(each.partition("=")[::2] for each in settings)
        pages = http_listeners(given.get(HTTP_LISTENER, ""), len(self.nodes))
        for node, controller, page in zip(self.nodes, controllers, pages, strict=True):
            node.http = page
            node.settings = {
                "node.id": str(node.node_id),
                "log.dirs": node.log_dir,
                "listeners": f"PLAINTEXT://{node.bootstrap},CONTROLLER://127.0.0.1:{controller}",
                "controller.quorum.bootstrap.servers": servers,
                "metadata.store.url": f"sqlite://{folder}/{STORE_FILE}",
                "default.replication.factor": str(replicas),
                "min.insync.replicas": str(max(1, replicas - 1)),
                **({"broker.rack": node.rack} if node.rack else {}),
                **diskless,
                **given,
                **({HTTP_LISTENER: page} if page else {}),
            }


def http_listeners(given: str, count: int) -> list[str]:
    """An address for the pages of each node: the first has the port that is given, the others get
    the next ones; with port 0 all get free ones. What is no address stays, for the node to say."""
    host, _, text = given.rpartition(":")
    if not host or not text.isdecimal():
        return [given] * count
    first = int(text)
    ports = range(first, first + count) if first else free_ports(count)
    return [f"{host}:{port}" for port in ports]


def wait_free(port: int) -> None:
    """Wait until no process listens at that port of the loopback interface: nodes of a killed
    supervisor may still be stopping. Raises ClickException when one goes on."""
    if not is_taken(port):
        return
    in_use = f"port {port} of 127.0.0.1 is in use"
    click.echo(f"{in_use}; waiting {PORT_SECONDS:.0f} s for it to become free", err=True)
    until = time.monotonic() + PORT_SECONDS
    while is_taken(port):
        if time.monotonic() > until:
            raise click.ClickException(
                f"{in_use}; stop the process that listens there, or take another --port"
            )
        time.sleep(ASK_AGAIN_SECONDS)


def is_taken(port: int) -> bool:
    """Whether a process listens at that port of the loopback interface."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as fault:
            return fault.errno == errno.EADDRINUSE
    return False


def answers(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a node serves clients there: a listener that is only bound says nothing yet."""
    from anabranch.client.connection import Connection
    from anabranch.core.errors import ApiError

    async def ask() -> bool:
        try:
            connection = await Connection.open(host, port, timeout_seconds=1.0)
        except (OSError, ApiError):
            return False
        await connection.close()
        return True

    return asyncio.run(ask())
