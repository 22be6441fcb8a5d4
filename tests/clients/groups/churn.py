"""A group that churns while records flow, and the book that says whether it was done right.

What: `Flow` writes numbered records, `Churn` lets members join, leave and crash, `Book` keeps who
owned which partition when, and what was read. The rules: a partition has one owner at a time; an
owner reads its partition without a gap; in the end every record was read, and every offset is
committed. A member that crashed or was put out owns nothing from then on, whatever it believes: it
is excused when the next owner is of a later generation.

Not here: the clients (member_clients.py).
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field

import confluent_kafka
from tests.clients.adapters import SECONDS
from tests.clients.members import until

RECORDS_A_ROUND = 20
ROUND_SECONDS = 0.05
PUT_OUT_SECONDS = 3.0
"""How long after it was told a member may take to say that it lost its partitions."""


class Flow:
    """Writes records round all partitions until stopped; `written` is {partition: values}."""

    def __init__(self, bootstrap, topic, partitions):
        self.topic = topic
        self.partitions = partitions
        self.written = {number: {} for number in range(partitions)}
        self.faults = []
        self._over = threading.Event()
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5,
             "message.timeout.ms": 60_000, "log_level": 0}
        )  # fmt: skip
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        self._thread.start()
        return self

    def stop(self):
        self._over.set()
        self._thread.join(SECONDS)
        assert self._producer.flush(60) == 0
        assert self.faults == []

    def count(self):
        return sum(map(len, self.written.values()))

    def _run(self):
        number = 0
        while not self._over.wait(ROUND_SECONDS):
            for _ in range(RECORDS_A_ROUND):
                self._producer.produce(
                    self.topic,
                    b"%d" % number,
                    partition=number % self.partitions,
                    on_delivery=self._delivered,
                )
                number += 1
            self._producer.poll(0)

    def _delivered(self, fault, message):
        if fault is not None:
            self.faults.append(fault)
        else:
            self.written[message.partition()][message.offset()] = message.value()


@dataclass
class Window:
    """A time in which a member owned a partition; `end` is None while it does."""

    member: object
    generation: int
    begin: float
    end: float | None = None
    excused: bool = False
    offsets: list[int] = field(default_factory=list)


class Book:
    """What members report, and the faults that it proves. One lock: many threads report."""

    def __init__(self):
        self.windows = {}
        self.values = {}
        self.faults = []
        self._open = {}
        self._lock = threading.Lock()

    def read(self, member, read):
        with self._lock:
            self.values.setdefault(read.partition, {})[read.offset] = read.value
            window = self._open.get((member, read.partition))
            if window is not None:
                self._follow(window, read)

    def _follow(self, window, read):
        if window.offsets and read.offset != window.offsets[-1] + 1:
            name = window.member.client_id
            self.faults.append(f"{name} read {read} after offset {window.offsets[-1]}")
        window.offsets.append(read.offset)

    def changed(self, member, event):
        with self._lock:
            for partition in event.partitions:
                if event.kind == "assigned":
                    window = Window(member, event.generation, event.at)
                    self._open[member, partition] = window
                    self.windows.setdefault(partition, []).append(window)
                else:
                    self._close(member, partition, event.kind == "lost")

    def crashed(self, member):
        with self._lock:
            for who, partition in list(self._open):
                if who is member:
                    self._close(member, partition, True)

    def _close(self, member, partition, excused):
        window = self._open.pop((member, partition), None)
        if window is not None:
            window.end, window.excused = time.monotonic(), excused

    def owned_twice(self, wire):
        """Pairs of windows in which one partition had two owners that both were of the group."""
        found = []
        for partition, windows in self.windows.items():
            for at, first in enumerate(windows):
                for second in windows[at + 1 :]:
                    if self._overlap(first, second) and not self._excused(first, second, wire):
                        found.append((partition, first, second))
        return found

    @staticmethod
    def _overlap(first, second):
        return first.end is None or second.begin < first.end

    @staticmethod
    def _excused(first, second, wire):
        until_seconds = (first.end or time.monotonic()) + PUT_OUT_SECONDS
        told = any(
            first.begin <= at <= until_seconds
            for at in wire.put_out.get(first.member.client_id, ())
        )
        return (first.excused or told) and second.generation > first.generation

    def missing(self, flow):
        """Records that were written and that no member read, or read differently."""
        return [
            (number, offset)
            for number, written in flow.written.items()
            for offset, value in list(written.items())
            if self.values.get((flow.topic, number), {}).get(offset) != value
        ]


class Churn:
    """Members of a group that come and go. `kinds` join in turn."""

    def __init__(self, join, kinds, topic, *, seed, size, strategy, session_ms=2000):
        self.book = Book()
        self.members = []
        self.done = {"joined": 0, "left": 0, "crashed": 0}
        self._random = random.Random(seed)
        self._size = size
        self._join = lambda: join(
            kinds[self.done["joined"] % len(kinds)], topic, watcher=self.book,
            strategy=strategy, session_ms=session_ms, heartbeat_ms=200, commit_each=True,
        )  # fmt: skip

    def fill(self):
        while len(self.members) < self._size:
            self.members.append(self._join())
            self.done["joined"] += 1

    def step(self):
        """One to three members go, each by leaving or crashing, and as many come."""
        for _ in range(self._random.randint(1, 3)):
            member = self.members.pop(self._random.randrange(len(self.members)))
            if self._random.random() < 0.5:
                self.done["left"] += 1
                member.leave()
            else:
                self.done["crashed"] += 1
                self.book.crashed(member)
                member.crash()
        self.fill()

    def read_on(self, records):
        """Wait until members have read so many records more."""
        goal = self.read() + records
        until(lambda: self.read() >= goal, f"{records} more records")

    def read(self):
        return sum(len(member.records) for member in self.members)
