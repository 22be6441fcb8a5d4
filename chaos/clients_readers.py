"""What reading processes do: a reader, a member of a group, the audit at the end, a group's drain.

Rule kept: what was read is on the file before an offset behind it is committed, so that a committed
offset never covers what no history shows. Not here: the clients, what is wrong (`check.py`).
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from chaos.clients_ports import Read
from chaos.history import Place, Records, Writer

if TYPE_CHECKING:
    from chaos.clients_confluent import ConfluentConsuming
    from chaos.clients_kafka_python import KafkaPythonConsuming

    Consuming = ConfluentConsuming | KafkaPythonConsuming

POLL_SECONDS = 0.2
TRY_AGAIN_SECONDS = 0.5
COMMIT_SECONDS = 1.0
STAY_SECONDS = (20.0, 90.0)
"""How long a member stays before it leaves and joins again."""
AWAY_SECONDS = (0.5, 4.0)
LOOK_SECONDS = 2.0
STUCK_SECONDS = 20.0
"""A drain that is given nothing for so long joins again. kafka-python 3.0 forgets a join that is
under way when a poll ends within it and the topics' metadata have just come: it stays without
partitions and sends no more heartbeats."""
NOTES_SECONDS = 5.0
FOREVER_SECONDS = 1e9
NOBODY_KNOWS = -1

Stopping = Callable[[], bool]


class Notes:
    """Errors that a client reports, counted: a cut would otherwise fill the disk."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._counts: dict[str, int] = {}
        self._due = 0.0

    def add(self, what: str) -> None:
        """One more of these."""
        self._counts[what] = self._counts.get(what, 0) + 1

    def write(self) -> None:
        """Write down what came since the last time, now and then."""
        if self._counts and time.monotonic() >= self._due:
            for what, count in self._counts.items():
                self._writer.line("note", what=what, count=count)
            self._counts.clear()
            self._due = time.monotonic() + NOTES_SECONDS


class Reading:
    """One reading process: opens clients, polls, writes down what came."""

    def __init__(self, arguments: Namespace, writer: Writer, stopping: Stopping) -> None:
        self.arguments = arguments
        self.topics: list[str] = arguments.topics.split(",")
        self.writer = writer
        self.stopping = stopping
        self.random = Random(f"{arguments.seed}:{arguments.name}")
        self.notes = Notes(writer)
        self.positions: dict[Place, int] = {}
        """Where it stands; -1 where that is not known before the first record."""
        self.ends: dict[Place, int] = {}
        """Where it came to a log's end, which may be behind the last record that is left."""

    def stands(self, place: Place) -> int:
        """How far it has come."""
        return max(self.positions.get(place, -1), self.ends.get(place, -1))

    def open(self, seconds: float = FOREVER_SECONDS) -> Consuming | None:
        """A client that has reached the cluster; None when it is time to end."""
        told = self.arguments
        if told.kind == "confluent":
            from chaos.clients_confluent import ConfluentConsuming as Kind
        else:
            from chaos.clients_kafka_python import KafkaPythonConsuming as Kind
        settings = {"group": told.group, "protocol": told.protocol, "rack": told.rack}
        begin = lambda: Kind(told.bootstrap, told.name, self.random, **settings)  # noqa: E731
        client: Consuming | None = self.ask(begin, seconds)
        return client

    def fault(self, error: BaseException) -> None:
        """An error that will pass: counted, and a pause."""
        self.notes.add(f"{type(error).__name__}: {error}"[:200])
        self.notes.write()
        time.sleep(TRY_AGAIN_SECONDS)

    def ask(self, question: Callable[[], Any], seconds: float = FOREVER_SECONDS) -> Any:
        """An answer, asked for until it comes; None when it is time to end."""
        end = time.monotonic() + seconds
        while not self.stopping() and time.monotonic() < end:
            try:
                return question()
            except Exception as error:
                self.fault(error)
        return None

    def poll(self, client: Consuming) -> Read:
        """One poll, written down."""
        try:
            read = client.poll(POLL_SECONDS)
        except Exception as error:
            self.fault(error)
            return Read()
        by_place: dict[Place, Records] = {}
        for place, offset, value in read.records:
            records = by_place.get(place)
            if records is None:
                records = by_place[place] = Records()
            records.add(offset, value)
        for place, records in by_place.items():
            position = self.positions.get(place, -1)
            self.writer.polled(place, position if position >= 0 else records.first, records)
            if place in self.positions:  # else it was taken away while this answer came
                self.positions[place] = records.last + 1
        self.ends.update(read.ends)
        for place, why in read.thrown:
            self.ends.pop(place, None)
            position = self.positions.get(place, -1)
            self.writer.line("thrown", at=place.text, position=position, why=why)
        for error in read.errors:
            self.notes.add(error)
        self.notes.write()
        if by_place:
            self.writer.flush()
        return read

    def poll_again(self, client: Consuming) -> Read:
        """One poll, written down; where retention deleted what it stood at, it begins anew."""
        read = self.poll(client)
        if read.thrown:
            for place, _ in read.thrown:
                self.positions[place] = -1
            self.assign(client)
        return read

    def assign(self, client: Consuming) -> None:
        """Read on from where it stands."""
        client.assign(self.positions)


def read_on(reading: Reading) -> int:
    """Read all partitions from their starts on until told to end."""
    client = reading.open()
    places = reading.ask(lambda: client.partitions(reading.topics)) if client else None
    if client is None or places is None:
        return 0
    reading.positions = dict.fromkeys(places, -1)
    reading.assign(client)
    while not reading.stopping():
        reading.poll_again(client)
    _come_to_the_ends(reading, client)
    return 0


def _come_to_the_ends(reading: Reading, client: Consuming) -> None:
    """Nobody writes any more: a reader that goes on reading stands at every end."""
    reading.stopping = lambda: False
    ends = {place: reading.ask(_ends(client, place), STUCK_SECONDS) for place in reading.positions}
    left, until = dict[Place, int](), time.monotonic() + STUCK_SECONDS
    while time.monotonic() < until:
        if reading.poll_again(client).records:
            until = time.monotonic() + STUCK_SECONDS
        left = {place: end[1] for place, end in ends.items() if end and end[1] > end[0]}
        left = {place: end for place, end in left.items() if reading.stands(place) < end}
        if not left:
            break
    for place, end in left.items():
        reading.writer.line("stood", at=place.text, position=reading.stands(place), end=end)


class Member(Reading):
    """A member of a group: reads what it is given, commits, leaves, and joins again."""

    def __init__(self, arguments: Namespace, writer: Writer, stopping: Stopping) -> None:
        super().__init__(arguments, writer, stopping)
        self._done: dict[Place, int] = {}
        """Read and not committed."""
        self._asked: dict[tuple[Place, int], int] = {}
        """What was asked for, and when, in microseconds; no longer than it is not answered."""
        self._due = 0.0
        self.must_renew = False
        """Whether only a new client shows what is there: librdkafka goes on asking for the first
        offset of a partition that was taken away meanwhile, begins to fetch it, and shows what that
        brought when the partition is given back, before what the group has not read."""

    def assigned(self, places: list[Place]) -> None:
        """Begin anew with these."""
        told = [place.text for place in places]
        self.writer.line("assigned", group=self.arguments.group, places=told)
        for place in places:
            self.positions[place] = -1
            self.ends.pop(place, None)
            self._done.pop(place, None)

    def revoked(self, places: list[Place]) -> None:
        """No longer read these."""
        for place in places:
            self.must_renew |= self.positions.pop(place, 0) < 0
            self.ends.pop(place, None)
            self._done.pop(place, None)

    @property
    def is_behind(self) -> bool:
        """Whether it has read what it has not committed."""
        return bool(self._done)

    def step(self, client: Consuming) -> bool:
        """Read, and commit now and then; whether there was something to read."""
        read = self.poll(client)
        for place, offset, _ in read.records:
            if place in self.positions:
                self._done[place] = offset + 1
        if self._done and time.monotonic() >= self._due:
            self._due = time.monotonic() + COMMIT_SECONDS
            for asked in self._done.items():
                self._asked.setdefault(asked, time.monotonic_ns() // 1000)
            try:
                client.commit(self._done, self._committed)
            except Exception as error:
                self.notes.add(f"commit {type(error).__name__}: {error}"[:200])
            self._done = {}
        return bool(read.records)

    def _committed(self, place: Place, offset: int, why: str) -> None:
        self.writer.line(
            "commit", group=self.arguments.group, at=place.text, offset=offset,
            asked=self._asked.pop((place, offset), NOBODY_KNOWS), ok=not why, why=why,
        )  # fmt: skip

    def join(self, seconds: float = FOREVER_SECONDS) -> Consuming | None:
        """A client that is, or will be, a member."""
        client, self.must_renew = self.open(seconds), False
        if client is not None:
            client.subscribe(self.topics, self.assigned, self.revoked)
        return client

    def leave(self, client: Consuming) -> None:
        """Leave the group, as far as it can be reached."""
        try:
            client.close()
        except Exception as error:
            self.notes.add(f"close {type(error).__name__}: {error}"[:200])
        self.positions.clear()
        self.ends.clear()
        self._done = {}


def be_member(member: Member) -> int:
    """Be a member until told to end."""
    while not member.stopping():
        client = member.join()
        if client is None:
            break
        end = time.monotonic() + member.random.uniform(*STAY_SECONDS)
        while not (member.stopping() or member.must_renew) and time.monotonic() < end:
            member.step(client)
        member.leave(client)
        if not member.stopping():
            time.sleep(member.random.uniform(*AWAY_SECONDS))
    return 0


def audit(reading: Reading) -> int:
    """Read everything once; 0 when all partitions were read to their ends."""
    seconds = reading.arguments.seconds
    deadline = time.monotonic() + seconds
    client = reading.open(seconds)
    if client is None:
        return 1
    places = reading.ask(lambda: client.partitions(reading.topics), seconds)
    compacted = reading.ask(lambda: client.compacted(reading.topics), seconds)
    ends = {place: reading.ask(_ends(client, place), seconds) for place in places or ()}
    if compacted is None or not ends or None in ends.values():
        return 1
    reading.positions, began = dict.fromkeys(ends, -1), time.monotonic_ns() // 1000
    reading.assign(client)
    missing = {place for place, (low, high) in ends.items() if high > low}
    while missing and time.monotonic() < deadline and not reading.stopping():
        reading.poll_again(client)
        missing = {place for place in missing if reading.stands(place) < ends[place][1]}
    for place, (_, high) in ends.items():
        low = reading.ask(_ends(client, place), seconds)[0]
        reading.writer.line(
            "ends", at=place.text, began=began, start=low, end=high, whole=place not in missing,
            compacted=place.topic in compacted,
        )  # fmt: skip
    return 1 if missing else 0


def _ends(client: Consuming, place: Place) -> Callable[[], tuple[int, int]]:
    return lambda: client.bounds(place)


def drain(member: Member) -> int:
    """Read to the ends what a group has not read; 0 when it has come to all ends."""
    deadline = time.monotonic() + member.arguments.seconds
    client = member.join(member.arguments.seconds)
    left: dict[Place, int] = {}
    look, stands_since = 0.0, time.monotonic()
    while client is not None and time.monotonic() < deadline and not member.stopping():
        if member.step(client):
            stands_since = time.monotonic()
        elif member.must_renew or time.monotonic() > stands_since + STUCK_SECONDS:
            member.leave(client)
            client, stands_since = member.join(deadline - time.monotonic()), time.monotonic()
        elif time.monotonic() > look:
            look = time.monotonic() + LOOK_SECONDS
            left = _left(member, client)
            if not left and not member.is_behind:
                member.leave(client)
                return 0
    member.writer.line("note", what=f"not drained: {left}", count=1)
    if client is not None:
        member.leave(client)
    return 1


def _left(member: Member, client: Consuming) -> dict[Place, int]:
    """Partitions whose end the group has not come to, and where it stands."""
    try:
        places = client.partitions(member.topics)
        ends = {place: client.bounds(place) for place in places}
        committed = client.committed(places)
    except Exception as error:
        member.fault(error)
        return {Place("unknown", 0): -1}
    return {
        place: committed[place]
        for place, (low, high) in ends.items()
        if high > low and max(committed[place], member.stands(place)) < high
    }
