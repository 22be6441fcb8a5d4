"""What real clients did and saw, one line of JSON an operation, and the values that they wrote.

    {"op": "hello", "t", "client", "kind", "role", "group", "topics"}  a process began …
    {"op": "bye", "t", "client", "status"}                          … and ended in order
    {"op": "send", "t", "client", "at", "n", "count"}               about to send `client:n` …
    {"op": "ok", "t", "client", "at", "n", "count", "offset"}       … acknowledged from offset on
    {"op": "unknown", "t", "client", "at", "n", "count", "why"}     … perhaps there, perhaps not
    {"op": "poll", "t", "client", "at", "position", "runs", "odd"}  a reader was given records
    {"op": "assigned", "t", "client", "group", "places"}            a member may read these
    {"op": "commit", "t", "client", "group", "at", "offset", "asked", "ok"}
                                                    what a member asked for then, and was told now
    {"op": "thrown", "t", "client", "at", "position"}               "offset out of range" at …
    {"op": "ends", "t", "client", "at", "began", "start", "end", "compacted", "whole"}
                                                    what the last read covered, and since when
    {"op": "stood", "t", "client", "at", "position", "end"}  a reader ended before a log's end
    {"op": "start", "t", "client", "at", "start"}   where a log begins, as its leader told
    {"op": "kept", "t", "client", "group", "at", "offset", "asked", "retention_ms", "ok"}
    {"op": "recalled", "t", "client", "group", "at", "offset", "asked"}
                                                    a commit that expires, and what is left of it
    {"op": "clock", "t", "client", "began", "seconds"}  a broker's clock was ahead since `began`
    {"op": "deletion", "t", "client", "topic"}      an operator asks for a topic to be deleted
    {"op": "reborn", "t", "client", "topic", "asked", "created"}
                                    a topic of that name is new: when its deletion and its creation
                                    were asked for; now all brokers know it
    {"op": "transaction", "t", "client", "name", "outcome", "records"}
                                    a transfer begun, committed or aborted, as far as is known
    {"op": "processed", "t", "client", "group", "count"}    so many orders, with their receipts
    {"op": "counting", "t", "client"}       Kafka Streams counts words, exactly once
    {"op": "committed", "t", "client", "at", "records"}     [offset, value] as they were shown; the
                                    value of a count is its word, a blank, and the count
    {"op": "held-back", "t", "client", "at", "position", "end"}
                                    a reader of committed records did not come to the end
    {"op": "note", "t", "client", "what"}                           an error that a client reported

`t` is CLOCK_MONOTONIC in microseconds, one clock for all processes of a machine. `at` is
`topic-partition`. A run in `runs` is `[offset, client, n, count]`: so many records with consecutive
offsets and numbers. A record whose value is not what its name says is in `odd`, as `[offset, hex]`.
A tombstone has no value that could name it: a header does.

Why runs: a million acknowledged records cost tens of thousands of lines. Rule kept: a send is on
the file before the client has it, an outcome after the client said it, so that a history that ends
anywhere claims nothing that is not so. Not here: judgement (`check.py`), clients (`clients.py`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

FILL = b"abcdefghijklmnopqrstuvwxyz0123456789" * 700
FILL_TURN = 36
SMALLEST_FILL = 40
FILL_SPREAD = 160
BIG_EVERY = 997
BIG_FILL = 20_000
KEYS = 97
TOMBSTONED = frozenset({"compacted"})
"""Topics in which some records delete their key."""
TOMBSTONE_EVERY, TOMBSTONE_TURN = 7, 3
NAME_HEADER = "name"
TOMBSTONE = b"\0tombstone\0"
"""How a tombstone is shown here: this and its name."""
ODD_SHOWN = 80
"""How much of a value that is not what it should be is written down."""


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int

    @property
    def text(self) -> str:
        """As in the files."""
        return f"{self.topic}-{self.partition}"


def parse_place(text: str) -> Place:
    """The partition of `topic-partition`."""
    topic, _, partition = text.rpartition("-")
    return Place(topic, int(partition))


def key_of(n: int) -> bytes:
    """The key of a client's record `n`: few keys, shared by all clients."""
    return b"key-%d" % (n * 31 % KEYS)


def is_tombstone(topic: str, n: int) -> bool:
    """Whether a client's record `n` deletes its key; over time that happens to every key."""
    return topic in TOMBSTONED and n % TOMBSTONE_EVERY == TOMBSTONE_TURN


def name_of(client: str, n: int) -> bytes:
    """A record's name."""
    return b"%s:%d" % (client.encode(), n)


def content(value: bytes | None, headers: Iterable[tuple[str, bytes | None]] | None) -> bytes:
    """What a reader was shown: a value, or which tombstone it is."""
    if value is not None:
        return value
    names = [text or b"" for key, text in headers or () if key == NAME_HEADER]
    return TOMBSTONE + b"".join(names)


def make_value(client: str, n: int) -> bytes:
    """The value of a client's record `n`: its name, and bytes of a length that depends on it."""
    size = BIG_FILL if n % BIG_EVERY == 0 else SMALLEST_FILL + n * 7919 % FILL_SPREAD
    turn = n % FILL_TURN
    return b"%s:%d:%s" % (client.encode(), n, FILL[turn : turn + size])


def read_value(value: bytes | None) -> tuple[str, int] | None:
    """(client, n) of a value; None when it is not exactly what that client wrote."""
    if value is not None and value.startswith(TOMBSTONE):
        name, _, number = value.removeprefix(TOMBSTONE).rpartition(b":")
        is_one = number.isdigit() and int(number) % TOMBSTONE_EVERY == TOMBSTONE_TURN
        return (name.decode("utf-8", "replace"), int(number)) if is_one else None
    parts = (value or b"").split(b":", 2)
    if len(parts) != 3 or not parts[1].isdigit():
        return None
    client, n = parts[0].decode("utf-8", "replace"), int(parts[1])
    return (client, n) if make_value(client, n) == value else None


class Records:
    """Records of one answer and partition, gathered into runs."""

    def __init__(self) -> None:
        self.runs: list[list[Any]] = []
        self.odd: list[tuple[int, str]] = []
        self.first = self.last = -1

    def add(self, offset: int, value: bytes | None) -> None:
        """One more record, as it was read."""
        if self.first < 0:
            self.first = offset
        self.last = offset
        name = read_value(value)
        if name is None:
            self.odd.append((offset, (value or b"")[:ODD_SHOWN].hex()))
            return
        client, n = name
        if self.runs:
            run = self.runs[-1]
            count = run[3]
            if run[0] + count == offset and run[2] + count == n and run[1] == client:
                run[3] = count + 1
                return
        self.runs.append([offset, client, n, 1])


class Writer:
    """One client's file. Threads may share it."""

    def __init__(self, path: Path, client: str) -> None:
        self.client = client
        self._file = path.open("ab", buffering=1 << 16)
        if self._file.tell():
            self._file.write(b"\n")  # the process before may have been killed within a line
        self._lock = threading.Lock()
        self._encode = msgspec.json.Encoder().encode

    def line(self, op: str, **fields: Any) -> None:
        """Write an operation down, as of now."""
        entry = {"op": op, "t": time.monotonic_ns() // 1000, "client": self.client, **fields}
        encoded = self._encode(entry) + b"\n"
        with self._lock:
            self._file.write(encoded)

    def flush(self) -> None:
        """What was written outlives this process."""
        with self._lock:
            self._file.flush()

    def close(self, status: int = 0) -> None:
        """The file is whole, and its process did what it was to do, if `status` is 0."""
        self.line("bye", status=status)
        with self._lock:
            self._file.close()

    def acknowledged(self, client: str, acks: Iterable[tuple[Place, int, int]]) -> None:
        """(partition, n, offset) in the order in which the client heard of them, -1 for an offset
        that it was not told."""
        runs: list[tuple[Place, int, int, int]] = []
        for place, n, offset in acks:
            if runs:
                at, first, base, count = runs[-1]
                follows = offset == (base + count if base >= 0 else base)
                if at == place and n == first + count and follows:
                    runs[-1] = (at, first, base, count + 1)
                    continue
            runs.append((place, n, offset, 1))
        for place, n, offset, count in runs:
            self.line("ok", client=client, at=place.text, n=n, count=count, offset=offset)

    def polled(self, place: Place, position: int, records: Records) -> None:
        """Records that a reader was given when it stood at `position`."""
        runs, odd = records.runs, records.odd
        self.line("poll", at=place.text, position=position, runs=runs, odd=odd)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """All whole lines of a file; those within which a process was killed are left out."""
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    with path.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"}\n"):
                continue
            with contextlib.suppress(msgspec.DecodeError):
                yield decode(line)
