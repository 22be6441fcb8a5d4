"""What a producer notices when the leader of its partition dies, or stands still.

A client with its own defaults and acks=all hands over a record every few milliseconds, whether the
ones before were acknowledged or not. The figure is the longest time between two acknowledgements,
from before the fault until everything handed over is acknowledged again. The victim leads the
partition and either is the active controller (`decides`) or is not; it is back, and in sync, when
the round ends, so that rounds follow each other on one cluster.

A frozen leader (SIGSTOP) keeps its connections open. How soon the cluster works again is seen by
producers that have just been made, one every 200 ms, each given up after a second: the first
acknowledgement of any of them ends that clock. How long the old client waits is its own affair, as
its requests lie in the frozen process's socket; it is given `OLD_CLIENT_SECONDS`.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import workloads
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.cimpl import NewTopic
from servers import Server
from trio import NUMBERS, Trio
from workloads import Sample

VALUE_BYTES = 100
PACE_SECONDS = 0.005
WARM_RECORDS = 400
SETTLED_SECONDS = 2.0
"""No round ends sooner after its fault: a second gap would be missed."""
SETTLED_RECORDS = 20
"""So few records under way: the client has caught up."""
OUTAGE_SECONDS = 120.0
OLD_CLIENT_SECONDS = 90.0
PROBE_SECONDS = 1.0
PROBE_EACH_SECONDS = 0.2
WAIT_SECONDS = 180.0
QUIET = {"log_level": 0, "error_cb": lambda _error: None}


class Ticker:
    """A producer with its own defaults that hands over a record every `PACE_SECONDS`."""

    def __init__(self, server: Server, topic: str) -> None:
        self.acked_at: list[float] = []
        self.refused = 0
        self.handed_over = 0
        self._topic = topic
        self._over = threading.Event()
        settings = {"bootstrap.servers": server.bootstrap, "acks": "all", **QUIET}
        self._producer = Producer({**settings, "on_delivery": self._delivered})
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.acked_at.append(time.perf_counter())
        else:
            self.refused += 1

    def _run(self) -> None:
        (value,) = workloads.values_of(VALUE_BYTES, 1)
        due = time.perf_counter()
        while not self._over.is_set():
            self._producer.produce(self._topic, value, partition=0)
            self.handed_over += 1
            due += PACE_SECONDS
            while (left := due - time.perf_counter()) > 0:
                self._producer.poll(left)
            self._producer.poll(0)

    def __enter__(self) -> Ticker:
        self._thread.start()
        return self

    def __exit__(self, *_fault: object) -> None:
        self._over.set()
        self._thread.join()
        self._producer.purge()

    @property
    def under_way(self) -> int:
        """Records that were neither acknowledged nor refused yet."""
        return self.handed_over - len(self.acked_at) - self.refused

    def warm_up(self) -> None:
        """Wait until acknowledgements flow."""
        await_true(lambda: len(self.acked_at) >= WARM_RECORDS, "no acknowledgements", WAIT_SECONDS)

    def has_settled_since(self, fault: float) -> bool:
        """Whether acknowledgements flow again."""
        is_late = time.perf_counter() - fault >= SETTLED_SECONDS
        return is_late and self.under_way <= SETTLED_RECORDS

    def longest_gap(self, fault: float) -> float:
        """Seconds; a gap that has not ended yet counts up to now."""
        return longest_gap([*self.acked_at, time.perf_counter()], fault)


def longest_gap(acked_at: list[float], fault: float) -> float:
    """The longest time between two acknowledgements of which the later is after the fault."""
    pairs = itertools.pairwise(acked_at)
    return max((later - sooner for sooner, later in pairs if later >= fault), default=0.0)


def await_true(
    condition: object, sentence: str, seconds: float, *, every_seconds: float = 0.02
) -> None:
    """Ask again until it is so. Ends the run with the sentence when it does not become so."""
    deadline = time.perf_counter() + seconds
    while not condition():  # type: ignore[operator]
        if time.perf_counter() > deadline:
            raise SystemExit(f"{sentence} within {seconds:g} s")
        time.sleep(every_seconds)


def choose(server: Server, *, decides: bool) -> tuple[Trio, int]:
    """The victim: the active controller, or one of the others in turn, as a node that dies more
    than three times a minute is left to its session."""
    assert isinstance(server, Trio)
    controller = server.controller()
    if decides:
        return server, controller
    server.turn += 1
    others = [number for number in NUMBERS if number != controller]
    return server, others[server.turn % len(others)]


def create_led_by(server: Trio, leader: int) -> str:
    """A topic of one partition with a replica on each node, led by that node."""
    topic = f"outage-{time.monotonic_ns()}"
    replicas = [leader, *(number for number in NUMBERS if number != leader)]
    wanted = NewTopic(topic, 1, replica_assignment=[replicas])
    admin = workloads.admin_of(server)
    admin.create_topics([wanted])[topic].result(WAIT_SECONDS)
    workloads.await_leaders(admin, [topic], 1)
    return topic


def await_in_sync(server: Trio, topic: str) -> None:
    """Wait until every replica of every partition of the topic is in sync."""
    admin = workloads.admin_of(server)

    def is_in_sync() -> bool:
        try:
            known = admin.list_topics(topic, timeout=10).topics[topic].partitions.values()
        except KafkaException:
            return False
        return all(len(each.isrs) == len(NUMBERS) for each in known)

    await_true(is_in_sync, f"{server.name}: {topic} was not in sync again", WAIT_SECONDS)


def killed(server: Server, *, decides: bool) -> Sample:
    """SIGKILL of the leader: the longest gap between acknowledgements of an unmodified client."""
    trio, victim = choose(server, decides=decides)
    topic = create_led_by(trio, victim)
    with Ticker(trio, topic) as ticker:
        ticker.warm_up()
        fault = time.perf_counter()
        trio.nodes[victim].kill()
        await_true(lambda: ticker.has_settled_since(fault), f"{trio.name}: no ack", OUTAGE_SECONDS)
        gap = ticker.longest_gap(fault)
    trio.nodes[victim].start()
    await_in_sync(trio, topic)
    workloads.drop(trio, topic)
    return Sample({"gap s": gap, "refused": float(ticker.refused)})


def frozen_with_old_client(server: Server) -> Sample:
    """SIGSTOP of the leader: until new clients can write, and how long the old one waited."""
    trio, victim = choose(server, decides=False)
    topic = create_led_by(trio, victim)
    with Ticker(trio, topic) as ticker:
        ticker.warm_up()
        fault = time.perf_counter()
        with standing_still(trio, victim):
            fresh = until_fresh_write(trio, topic, fault)
            while time.perf_counter() - fault < OLD_CLIENT_SECONDS:
                if ticker.has_settled_since(fault):
                    break
                time.sleep(0.02)
            gap = ticker.longest_gap(fault)
    await_in_sync(trio, topic)
    workloads.drop(trio, topic)
    return Sample({"fresh producer s": fresh, "old client's gap s": gap})


def frozen_controller(server: Server) -> Sample:
    """SIGSTOP of the leader that is also the active controller: until new clients can write."""
    trio, victim = choose(server, decides=True)
    topic = create_led_by(trio, victim)
    workloads.acknowledge_one(trio, topic)
    fault = time.perf_counter()
    with standing_still(trio, victim):
        fresh = until_fresh_write(trio, topic, fault)
    await_in_sync(trio, topic)
    workloads.drop(trio, topic)
    return Sample({"fresh producer s": fresh})


@contextmanager
def standing_still(trio: Trio, number: int) -> Iterator[None]:
    """A node stands still while the block runs."""
    trio.nodes[number].pause()
    try:
        yield
    finally:
        trio.nodes[number].resume()


def until_fresh_write(server: Trio, topic: str, fault: float) -> float:
    """Seconds from the fault to the first acks=all write of a producer made after it."""
    acked: list[float] = []
    probes: deque[tuple[float, Producer]] = deque()

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is None:
            acked.append(time.perf_counter())

    settings = {"bootstrap.servers": server.bootstrap, "acks": "all", **QUIET}
    next_at = fault
    while not acked:
        now = time.perf_counter()
        if now - fault > OUTAGE_SECONDS:
            raise SystemExit(f"{server.name}: no write within {OUTAGE_SECONDS:g} s")
        if now >= next_at:
            next_at = now + PROBE_EACH_SECONDS
            probe = Producer({**settings, "linger.ms": 0})
            probe.produce(topic, b"fresh", partition=0, on_delivery=delivered)
            probes.append((now, probe))
        if now - probes[0][0] > PROBE_SECONDS:
            probes.popleft()[1].purge()
        for _, probe in probes:
            probe.poll(0.005)
    for _, probe in probes:
        probe.purge()
    return acked[0] - fault
