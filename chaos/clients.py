"""`python -m chaos.clients`: one client process, which writes down what it did and was told.

    producer   idempotent, acks=all; bursts of records to random partitions, at a steady rate
    reader     all partitions, each from its start on
    member     of a group: reads, commits, leaves and joins again now and then
    audit      reads everything once and ends: 0 when it came to every end
    drain      joins a group, reads to every end and ends: 0 when the group has read everything
    keeper     commits offsets that expire, and asks for them; asks where logs begin
    transfer, processor, committed, verdict: see `clients_transactions.py`

SIGTERM ends it in order. Rule kept: an error that will pass is waited for, whatever it is; a
producer that can do nothing any more is followed by another one under a new name, whose order is
its own. Not here: the clients (`clients_*.py`), judgement (`check.py`).
"""

from __future__ import annotations

import argparse
import signal
import time
from collections import deque
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from chaos.clients_offsets import keep
from chaos.clients_ports import Full, Token
from chaos.clients_readers import Member, Reading, audit, be_member, drain, read_on
from chaos.history import Place, Writer, is_tombstone, key_of, make_value

if TYPE_CHECKING:
    from chaos.clients_confluent import ConfluentProducing
    from chaos.clients_kafka_python import KafkaPythonProducing

    Producing = ConfluentProducing | KafkaPythonProducing

BURSTS = (1, 2, 10, 20, 40)
OPEN_LIMIT = 400
"""Records under way to one partition: one that stands still must not stop the others."""
LATE_SECONDS = 1.0
"""A producer that fell behind its rate by more does not make up for it."""
WAIT_SECONDS = 0.02
FLUSH_SECONDS = 0.2
LIFE_SECONDS = 0.5
"""Before a producer that can do nothing any more is followed: its topic may be gone for a while."""

KINDS = ("confluent", "kafka-python", "aiokafka", "anabranch")
TRANSACTIONAL = ("transfer", "processor", "committed", "verdict")
ROLES = ("producer", "reader", "member", "audit", "drain", "keeper", *TRANSACTIONAL)

is_stopping = False


def stop(_signal: int, _frame: object) -> None:
    """SIGTERM, SIGINT."""
    global is_stopping
    is_stopping = True


class Sender:
    """One producing process."""

    def __init__(self, arguments: argparse.Namespace, writer: Writer) -> None:
        self.arguments = arguments
        self.writer = writer
        self.random = Random(f"{arguments.seed}:{arguments.name}")
        self.reading = Reading(arguments, writer, lambda: is_stopping)
        self.notes = self.reading.notes
        self.n = 0
        self.client = ""
        self.open: dict[Place, int] = {}
        self._silent_since: dict[Place, float] = {}
        """Partitions with records under way: since when no outcome was heard."""
        self._heard: deque[tuple[Token, int, str]] = deque()
        self._flush_due = 0.0

    def run(self) -> int:
        """Send until told to end, then wait for what is under way."""
        places = self._places()
        while places and not is_stopping:
            producer = self._begin(places)
            if producer is not None:
                self._send_on(producer, places)
                self._finish(producer)
        return 0

    def _places(self) -> list[Place]:
        client = self.reading.open()
        if client is None:
            return []
        places = self.reading.ask(lambda: client.partitions(self.reading.topics))
        client.close()
        return places or []

    def _begin(self, places: list[Place]) -> Producing | None:
        """The next life: a new producer, whose order is its own."""
        told = self.arguments
        self.client = f"{told.name}.{time.monotonic_ns() // 1_000_000}"
        self.open = dict.fromkeys(places, 0)
        self._silent_since = {}
        if told.kind == "confluent":
            from chaos.clients_confluent import ConfluentProducing as Kind
        else:
            from chaos.clients_kafka_python import KafkaPythonProducing as Kind
        listeners = (self._done, self._lost)
        begin = lambda: Kind(told.bootstrap, self.client, self.random, *listeners)  # noqa: E731
        producer: Producing | None = self.reading.ask(begin)
        return producer

    def _done(self, token: Token, offset: int) -> None:
        self._heard.append((token, offset, ""))

    def _lost(self, token: Token, why: str) -> None:
        self._heard.append((token, -1, why))

    def _listen(self, producer: Producing, seconds: float) -> None:
        """Hear of outcomes and write them down."""
        producer.poll(seconds)
        acks: dict[tuple[str, Place], list[tuple[Place, int, int]]] = {}
        while self._heard:
            token, offset, why = self._heard.popleft()
            if token.client == self.client:
                self.open[token.place] -= 1
                self._silent_since.pop(token.place, None)
                if self.open[token.place]:
                    self._silent_since[token.place] = time.monotonic()
            if why:
                self.writer.line(
                    "unknown", client=token.client, at=token.place.text, n=token.n, count=1, why=why
                )
            else:
                named = (token.client, token.place)
                acks.setdefault(named, []).append((token.place, token.n, offset))
        for (client, _), each in acks.items():
            self.writer.acknowledged(client, each)
        self.notes.write()
        if time.monotonic() >= self._flush_due:
            self._flush_due = time.monotonic() + FLUSH_SECONDS
            self.writer.flush()

    def _send_on(self, producer: Producing, places: list[Place]) -> None:
        due = time.monotonic()
        while not (is_stopping or producer.dead or self._is_stuck):
            pause = due - time.monotonic()
            if pause > 0:
                is_polled = self.arguments.kind == "confluent"
                self._listen(producer, min(pause, WAIT_SECONDS) if is_polled else 0)
                if not is_polled:
                    time.sleep(min(pause, WAIT_SECONDS))
                continue
            due = max(due, time.monotonic() - LATE_SECONDS)
            free = [place for place in places if self.open[place] < OPEN_LIMIT]
            count = self.random.choice(BURSTS)
            due += count / self.arguments.rate
            if free:
                self._send(producer, self.random.choice(free), count)
            self._listen(producer, 0)

    @property
    def _is_stuck(self) -> bool:
        """Whether nothing was heard of a partition for too long, where that is told apart.

        librdkafka goes on sending to the leader that a deleted topic had (its issue 4898)."""
        longest = self.arguments.stuck_seconds
        if not longest or not self._silent_since:
            return False
        return time.monotonic() - min(self._silent_since.values()) > longest

    def _send(self, producer: Producing, place: Place, count: int) -> None:
        """A burst: on the file first, then to the client."""
        first = self.n
        self.n += count
        self.writer.line("send", client=self.client, at=place.text, n=first, count=count)
        self.writer.flush()
        for n in range(first, first + count):
            token = Token(self.client, place, n)
            value = None if is_tombstone(place.topic, n) else make_value(self.client, n)
            self.open[place] += 1
            self._silent_since.setdefault(place, time.monotonic())
            while not producer.dead:
                try:
                    producer.send(place, key_of(n), value, token)
                    break
                except Full:
                    self._listen(producer, WAIT_SECONDS)

    def _finish(self, producer: Producing) -> None:
        """Wait for what is under way; what remains stays unknown."""
        why = producer.dead or ("nothing is heard" if self._is_stuck else "")
        end = time.monotonic() + (0 if why else self.arguments.flush_seconds)
        while (
            any(self.open.values())
            and time.monotonic() < end
            and not (producer.dead or self._is_stuck)
        ):
            self._listen(producer, WAIT_SECONDS)
            time.sleep(WAIT_SECONDS)
        if why:
            self.writer.line("note", what=f"{self.client} ended: {why}", count=1)
            time.sleep(LIFE_SECONDS)
        try:
            producer.close()
        except Exception as error:
            self.notes.add(f"close {type(error).__name__}: {error}"[:200])
        self._listen(producer, 0)
        self.writer.flush()


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m chaos.clients", description=__doc__)
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--role", choices=ROLES, required=True)
    parser.add_argument("--name", required=True, help="unique in a run")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT,…")
    parser.add_argument("--topics", required=True, metavar="A,B,…")
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="its history")
    parser.add_argument("--seed", type=int, default=0, help="of its settings and choices")
    parser.add_argument("--rate", type=float, default=300, help="a producer's records a second")
    parser.add_argument("--flush-seconds", type=float, default=60, help="a producer's last wait")
    said = "after which a producer that is told nothing of a partition is followed (default: never)"
    parser.add_argument("--stuck-seconds", type=float, default=0, help=said)
    parser.add_argument("--group", default="", help="a member's and a drain's")
    parser.add_argument("--protocol", choices=("range", "cooperative"), default="range")
    parser.add_argument("--rack", default="", help="a reader's, to fetch from the closest replica")
    parser.add_argument("--seconds", type=float, default=600, help="an audit's or drain's patience")
    return parser.parse_args()


def main() -> int:
    """Run one client."""
    arguments = parse()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    writer = Writer(arguments.out, arguments.name)
    told = {name: getattr(arguments, name) for name in ("kind", "role", "group", "topics")}
    writer.line("hello", **told)
    writer.flush()
    stopping = lambda: is_stopping  # noqa: E731
    if arguments.role == "producer":
        status = Sender(arguments, writer).run()
    elif arguments.role == "keeper":
        status = keep(arguments, writer, stopping)
    elif arguments.role in TRANSACTIONAL:
        from chaos.clients_processors import run

        status = run(arguments, writer, stopping)
    elif arguments.role in ("reader", "audit"):
        read = read_on if arguments.role == "reader" else audit
        status = read(Reading(arguments, writer, stopping))
    else:
        status = (be_member if arguments.role == "member" else drain)(
            Member(arguments, writer, stopping)
        )
    writer.close(status)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
