"""The clients of a run: processes of their own, started from a table, ended in order.

What: who writes, reads and forms groups, with which library and how fast. Rules kept: a client that
ends by itself is a finding; producers end before the last reads begin. Source: `clients.py` says
what each role does, `streams.py` what the one does that is no Python. Not here: what they are told
(`history`), judgement (`check`).
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos import client_logs
from chaos.network import Host
from chaos.stores import wait_at_most
from chaos.transfers import LINES, PARTITIONS

ROOT = Path(__file__).resolve().parents[1]
FLUSH_SECONDS = 60
BEGIN_SECONDS = 60.0
"""One that has just taken a killed one's place may still be loading its library."""
END_SECONDS = 150.0
READ_SECONDS = 900.0
KEPT = "plain,wide,rolling,compacted,moving,diskless,tiered"
EVERY = f"{KEPT},aging,bounded,reborn,{LINES}"


@dataclass(frozen=True, slots=True)
class Part:
    """One client: `more` are further options of its role."""

    name: str
    kind: str
    role: str
    topics: str
    more: tuple[str, ...] = ()


PARTS = (
    Part("p1", "confluent", "producer", "plain,wide", ("--rate", "400")),
    Part("p2", "confluent", "producer", "wide,rolling,moving,tiered", ("--rate", "400")),
    Part("p3", "confluent", "producer", "compacted,rolling", ("--rate", "200")),
    Part("p4", "kafka-python", "producer", "wide,plain,compacted,moving,tiered", ("--rate", "150")),
    Part("p5", "confluent", "producer", "aging,bounded", ("--rate", "300")),
    Part("p6", "confluent", "producer", "reborn", ("--rate", "100", "--stuck-seconds", "6")),
    Part("p7", "confluent", "producer", "diskless", ("--rate", "300")),
    Part("p8", "kafka-python", "producer", "diskless", ("--rate", "100")),
    Part("p9", "confluent", "producer", LINES, ("--rate", "60")),
    Part("r1", "confluent", "reader", KEPT, ("--rack", "b")),
    Part("r2", "kafka-python", "reader", "wide,moving,compacted,diskless,tiered"),
    Part("r3", "confluent", "reader", "aging,bounded"),
    Part("k1", "anabranch", "keeper", "aging,bounded", ("--group", "reborn")),
    Part("t1", "confluent", "transfer", "accounts,orders"),
    Part("t2", "aiokafka", "transfer", "accounts,orders"),
    Part("x1", "confluent", "processor", "orders", ("--group", "x")),
    Part("x2", "confluent", "processor", "orders", ("--group", "x")),
    Part("y1", "aiokafka", "processor", "orders", ("--group", "y")),
    Part("c1", "confluent", "committed", ",".join(PARTITIONS)),
    Part("g1a", "confluent", "member", "plain,wide", ("--group", "g1")),
    Part("g1b", "confluent", "member", "plain,wide", ("--group", "g1")),
    Part("g4a", "confluent", "member", "diskless", ("--group", "g4")),
    Part("g2a", "kafka-python", "member", "rolling,moving", ("--group", "g2")),
    Part("g2b", "confluent", "member", "wide", ("--group", "g3", "--protocol", "cooperative")),
    Part("g2c", "confluent", "member", "wide", ("--group", "g3", "--protocol", "cooperative")),
)


LAST = ("nice", "-n", "10")
"""Clients get what nodes leave of the processors, which a cluster elsewhere does not share with
them: the time that it takes to recover is judged."""


class Client:
    """One client's process, started again under another name when it was killed."""

    stdin = subprocess.DEVNULL

    def __init__(self, part: Part, folder: Path, seed: int) -> None:
        self.part = part
        self.folder, self._seed = folder, seed
        self.bootstrap = ""
        self.prefix: tuple[str, ...] = ()
        """What stands before its command."""
        self.lives = 0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        """Its name in the histories: one a process, since one process is what keeps an order."""
        return self.part.name + (f".{self.lives}" if self.lives > 1 else "")

    @property
    def history(self) -> Path:
        """What it writes down."""
        return self.folder / f"{self.name}.jsonl"

    @property
    def log(self) -> Path:
        """What it says."""
        return self.folder / f"{self.name}.log"

    def command(self) -> list[str]:
        """The program, and what it is told."""
        part = self.part
        words = [
            "--kind", part.kind, "--role", part.role, "--name", self.name,
            "--bootstrap", self.bootstrap, "--topics", part.topics,
            "--seed", str(self._seed + self.lives), "--out", str(self.history), *part.more,
        ]  # fmt: skip
        if part.role == "producer":
            words += ["--flush-seconds", str(FLUSH_SECONDS)]
        return [sys.executable, "-m", "chaos.clients", *words]

    def start(self) -> None:
        """Start it, as a client that nobody knows yet."""
        self.lives += 1
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [*LAST, *self.prefix, *self.command()], cwd=ROOT, stdin=self.stdin, stdout=output,
                stderr=output, start_new_session=True,
            )  # fmt: skip

    def signal(self, number: int) -> None:
        """Send it a signal, if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def ask_to_end(self) -> None:
        """In order, once it hears."""
        wait_at_most(BEGIN_SECONDS, lambda: self.hears)
        self.signal(signal.SIGTERM)

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return None if self.process is None else self.process.poll()

    @property
    def hears(self) -> bool:
        """Whether a signal does what it is sent for: a client says hello once it listens."""
        has_begun = self.history.exists() and self.history.stat().st_size > 0
        return has_begun or self.code is not None


class Crowd:
    """All clients of one cluster. `surprises` are ends that nobody asked for."""

    def __init__(
        self, folder: Path, seed: int, parts: Sequence[Part] = PARTS, host: Host | None = None,
        more: Sequence[Client] = (),
    ) -> None:  # fmt: skip
        self.folder, self.seed = folder, seed
        self.bootstrap = ""
        self._prefix = host.prefix if host else ()
        folder.mkdir(parents=True, exist_ok=True)
        self.clients = [
            Client(part, folder, seed * 1000 + index * 50) for index, part in enumerate(parts)
        ]
        self.clients += more
        self._last: list[Client] = []
        self._is_ending = False
        self.surprises: list[str] = []
        self.remarks: list[str] = []
        """What is no fault of ours and should be known."""
        self._lock = threading.Lock()

    @property
    def histories(self) -> list[Path]:
        """All files that were written."""
        return sorted(self.folder.glob("*.jsonl"))

    def start(self, bootstrap: str) -> None:
        """Start everybody."""
        self.bootstrap = bootstrap
        self._start(self.clients)

    def _start(self, clients: Iterable[Client]) -> None:
        for client in clients:
            client.bootstrap, client.prefix = self.bootstrap, self._prefix
            client.start()

    def pick(self, aim: float) -> Client:
        """One of them."""
        return self.clients[int(aim * len(self.clients)) % len(self.clients)]

    def one_of(self, role: str) -> Client | None:
        """The first that does this."""
        return next((each for each in self.clients if each.part.role == role), None)

    def kill(self, client: Client) -> None:
        """SIGKILL: what it had under way is not known."""
        with self._lock:
            client.signal(signal.SIGKILL)
            if client.process is not None:
                client.process.wait()

    def replace(self, client: Client) -> None:
        """Start a new one in the place of a killed one, unless another fault's end has."""
        with self._lock:
            if client.code is not None:
                client.start()

    def look(self) -> None:
        """Notice who has ended by himself, and start another in his place."""
        with self._lock:
            for client in () if self._is_ending else self.clients:
                if client.code not in (None, -signal.SIGKILL):
                    self.surprises.append(f"{self._ended(client)} before it was asked to")
                    client.start()

    def _ended(self, client: Client) -> str:
        lines = client.log.read_text(errors="replace").splitlines()
        own = [line for line in lines if line.strip() and not line.startswith(("%", "\t"))]
        word = own[-1] if own else "without a word"
        return f"client {client.name} ended with code {client.code} ({word})"

    def end(self, *roles: str) -> None:
        """SIGTERM all of these roles and wait."""
        with self._lock:
            self._is_ending = True
        chosen = [each for each in self.clients if each.part.role in roles]
        for client in chosen:
            client.signal(signal.SIGCONT)
        for client in chosen:
            client.ask_to_end()
        for client in end_all(END_SECONDS, chosen):
            self._not_ended(client)
        for client in chosen:
            if client.code not in (0, -signal.SIGKILL):
                self.surprises.append(self._ended(client))
            for log in sorted(self.folder.glob(f"{client.part.name}*.log")):
                raised = client_logs.raised_epochs(log)
                self.remarks += [f"{log.stem} raised its epoch: {why}" for why in raised[:4]]
                if left := client_logs.left_behind(log):
                    self.remarks.append(f"{log.stem}: {client_logs.NOT_RETURNED}, {left} times")

    def _not_ended(self, client: Client) -> None:
        log = client.log
        what = f"client {client.name} did not end when it was asked to"
        waited = client_logs.waits_for(log, time.time())
        if waited:
            self.surprises.append(f"{what}: {'; '.join(waited)}")
        else:
            words = client_logs.last_words(log)
            self.remarks.append(f"{what}, and waited for no broker (it said: {words})")

    def last_reads(self) -> None:
        """What each group and two libraries find when all is over, side by side."""
        last = [
            Part("auditor-c", "confluent", "audit", EVERY),
            Part("auditor-k", "kafka-python", "audit", EVERY),
            Part("auditor-t", "confluent", "audit", "compacted"),
            Part("auditor-v", "confluent", "verdict", ",".join(PARTITIONS)),
        ]
        groups: dict[str, Part] = {}
        for client in self.clients:
            if client.part.role == "member":
                groups.setdefault(client.part.more[1], client.part)
        for group, part in groups.items():
            last.append(Part(f"{group}-drain", "confluent", "drain", part.topics, part.more))
        clients = self._last = [Client(part, self.folder, self.seed) for part in last]
        self._start(clients)
        end_all(READ_SECONDS, clients)
        for client in clients:
            if client.code != 0:
                self.surprises.append(f"{self._ended(client)}: not everything could be read")

    def abandon(self) -> None:
        """Kill whoever is left."""
        for client in self.clients + self._last:
            client.signal(signal.SIGKILL)


def end_all(seconds: float, clients: Sequence[Client]) -> list[Client]:
    """Wait for all of them, and kill those that have not ended then; these."""
    until, killed = time.monotonic() + seconds, []
    for client in clients:
        assert client.process is not None
        try:
            client.process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            client.process.kill()
            client.process.wait()
            killed.append(client)
    return killed


class Acks:
    """Acknowledged records, counted from what was added to the histories; for the marks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._places: dict[Path, int] = {}
        self.count = 0

    def look(self) -> None:
        """Read what was added."""
        for path in self._folder.glob("p*.jsonl"):
            with path.open("rb") as file:
                file.seek(self._places.get(path, 0))
                added = file.read()
            whole = added.rfind(b"\n") + 1
            self._places[path] = self._places.get(path, 0) + whole
            for line in added[:whole].splitlines():
                if line.startswith(b'{"op":"ok"'):
                    self.count += int(line.partition(b'"count":')[2].partition(b",")[0])
