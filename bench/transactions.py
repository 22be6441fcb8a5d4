"""What transactional producers and readers of committed records notice.

The client is confluent-kafka in this process, but for the ids of `many_ids`: these are asked for
with requests made here, since a hundred thousand producers have no room in one client process.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress

import lean
import outage
import workloads
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from scale import scaled, scaled_seconds
from servers import Server
from trio import NUMBERS, Trio
from workloads import CLIENT, WAIT_SECONDS, Sample

from anabranch.core.coordination.groups.offsets_topic import java_hash
from anabranch.core.wire.messages.find_coordinator import FindCoordinatorRequest
from anabranch.core.wire.messages.init_producer_id import InitProducerIdRequest

PARTITIONS = 6
RECORDS = 100
TRANSACTIONS = 1_500
VALUE_BYTES = 100
LARGE_BYTES = 1_000
LASTS_SECONDS = 0.1
ABORTED_EACH = 10
READ_BATCH = 100
READ_BYTES = 200_000_000
READ_TOPIC = "read-committed"
IDS = 100_000
STATE_TOPIC = "__transaction_state"
COORDINATORS = 50
"""Partitions of the topic, as both create it."""
IN_FLIGHT = 200
TRANSACTIONAL = 1
FIND_VERSION, INIT_VERSION = 4, 4
TIMEOUT_MS = 60_000
WARM_TRANSACTIONS = 50
PACE_SECONDS = 0.01


def producer_of(server: Server, name: str, **more: object) -> Producer:
    """A producer that has this transactional id."""
    made = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "transactional.id": name,
            "linger.ms": 0,
            "delivery.report.only.error": True,
            **CLIENT,
            **more,
        }
    )
    made.init_transactions(WAIT_SECONDS)
    return made


def commits(server: Server) -> Sample:
    """Transactions of 100 records over six partitions, one after the other: how many a second, and
    how long each commit took when its records were acknowledged."""
    topic = f"transactions-{time.monotonic_ns()}"
    workloads.create(server, [topic], PARTITIONS)
    producer = producer_of(server, topic)
    values = workloads.values_of(VALUE_BYTES)
    count, taken = scaled(TRANSACTIONS), list[float]()
    begin = time.perf_counter()
    for _ in range(count):
        producer.begin_transaction()
        for number in range(RECORDS):
            producer.produce(topic, values[number], partition=number % PARTITIONS)
        if producer.flush(WAIT_SECONDS):
            raise SystemExit(f"{server.name}: records were not acknowledged")
        asked = time.perf_counter()
        producer.commit_transaction(WAIT_SECONDS)
        taken.append((time.perf_counter() - asked) * 1000)
    seconds = time.perf_counter() - begin
    workloads.drop(server, topic)
    return Sample(
        {
            "transactions/s": count / seconds,
            "commit p50 ms": lean.quantile(taken, 0.5),
            "commit p99 ms": lean.quantile(taken, 0.99),
        }
    )


def full_rate(server: Server, *, total_bytes: int) -> Sample:
    """1 KB records as fast as they go, a commit every 100 ms."""
    topic = f"full-rate-{time.monotonic_ns()}"
    workloads.create(server, [topic], PARTITIONS)
    producer = producer_of(server, topic, **{"linger.ms": 5})
    values, count = workloads.values_of(LARGE_BYTES), scaled(total_bytes) // LARGE_BYTES
    before, begin = server.cpu_seconds(), time.perf_counter()
    producer.begin_transaction()
    due = begin + LASTS_SECONDS
    for number in range(count):
        _hand_over(producer, topic, values[number & 4095], number % PARTITIONS)
        if number % 64 == 0 and time.perf_counter() > due:
            producer.commit_transaction(WAIT_SECONDS)
            producer.begin_transaction()
            due = time.perf_counter() + LASTS_SECONDS
    producer.commit_transaction(WAIT_SECONDS)
    seconds = time.perf_counter() - begin
    cpu = server.cpu_seconds() - before
    workloads.drop(server, topic)
    written = count * LARGE_BYTES
    return Sample({"MB/s": written / seconds / 1e6, "CPU s/GB": cpu / (written / 1e9)})


def _hand_over(producer: Producer, topic: str, value: bytes, partition: int) -> None:
    while True:
        try:
            producer.produce(topic, value, partition=partition)
            return
        except BufferError:
            producer.poll(0.01)


def fill_with_aborts(server: Server) -> None:
    """A partition of batches of 100 records, a transaction each; every tenth is aborted."""
    workloads.create(server, [READ_TOPIC])
    producer = producer_of(server, READ_TOPIC)
    values = workloads.values_of(LARGE_BYTES)
    for number in range(_batches()):
        producer.begin_transaction()
        for index in range(READ_BATCH):
            producer.produce(READ_TOPIC, values[index], partition=0)
        if number % ABORTED_EACH:
            producer.commit_transaction(WAIT_SECONDS)
        else:
            producer.flush(WAIT_SECONDS)
            producer.abort_transaction(WAIT_SECONDS)


def _batches() -> int:
    return max(ABORTED_EACH, scaled(READ_BYTES) // LARGE_BYTES // READ_BATCH)


def read_committed(server: Server) -> Sample:
    """MB/s of committed values, of a log that lies in the page cache."""
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 1_048_576,
            "fetch.queue.backoff.ms": 1,
            **CLIENT,
        }
    )
    batches = _batches()
    wanted, have = (batches - -(-batches // ABORTED_EACH)) * READ_BATCH, 0
    before, begin = server.cpu_seconds(), time.perf_counter()
    consumer.assign([TopicPartition(READ_TOPIC, 0, 0)])
    while have < wanted:
        messages = consumer.consume(10_000, timeout=10)
        if not messages:
            raise SystemExit(f"{server.name}: {have} of {wanted} records came")
        have += len(messages)
    seconds = time.perf_counter() - begin
    cpu = server.cpu_seconds() - before
    consumer.close()
    if have != wanted:
        raise SystemExit(f"{server.name}: {have} records, not {wanted}: aborted ones were read")
    read = wanted * LARGE_BYTES
    return Sample({"MB/s": read / seconds / 1e6, "CPU s/GB": cpu / (read / 1e9)})


# An outage.


def coordinator_of(line: lean.socket.socket, name: str) -> int:
    """The node that coordinates a transactional id; -1 while that is not known."""
    request = FindCoordinatorRequest(key_type=TRANSACTIONAL, coordinator_keys=[name])
    (found,) = lean.ask(line, request, FIND_VERSION).coordinators  # type: ignore[attr-defined]
    return -1 if found.error_code else int(found.node_id)


def id_of(trio: Trio, victim: int) -> str:
    """A transactional id that a node coordinates."""
    with lean.dial(trio.nodes[victim].port) as line:
        for number in itertools.count():
            name = f"outage-{time.monotonic_ns()}-{number}"
            until = time.perf_counter() + WAIT_SECONDS
            while (found := coordinator_of(line, name)) < 0 and time.perf_counter() < until:
                time.sleep(0.05)
            if found == victim:
                return name
    raise AssertionError


class Committer:
    """Commits a transaction of one record every few milliseconds, whatever happens."""

    def __init__(self, server: Server, topic: str, name: str) -> None:
        self.committed_at: list[float] = []
        self.lost = 0
        """Transactions that were not committed, as far as is known."""
        self._server, self._topic, self._name = server, topic, name
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        producer = producer_of(self._server, self._name)
        while not self._over.is_set():
            try:
                producer.begin_transaction()
                producer.produce(self._topic, b"one", partition=0)
                _repeated(producer.commit_transaction)
                self.committed_at.append(time.perf_counter())
            except KafkaException as error:
                self.lost += 1
                if error.args[0].txn_requires_abort():
                    with suppress(KafkaException):
                        _repeated(producer.abort_transaction)
                else:
                    producer = producer_of(self._server, self._name)
            time.sleep(PACE_SECONDS)

    def __enter__(self) -> Committer:
        self._thread.start()
        return self

    def __exit__(self, *_fault: object) -> None:
        self._over.set()
        self._thread.join()


def _repeated(call: object) -> None:
    """What the library says may be repeated is repeated."""
    until = time.perf_counter() + WAIT_SECONDS
    while True:
        try:
            call(WAIT_SECONDS)  # type: ignore[operator]
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.perf_counter() > until:
                raise


def killed(server: Server) -> Sample:
    """SIGKILL of the coordinator, which leads no partition of the transaction: the longest time
    between two commits of an unmodified client."""
    trio, victim = outage.choose(server, decides=False)
    leader = next(number for number in NUMBERS if number != victim)
    topic = outage.create_led_by(trio, leader)
    with Committer(trio, topic, id_of(trio, victim)) as committer:
        outage.await_true(
            lambda: len(committer.committed_at) >= WARM_TRANSACTIONS, "no commit", WAIT_SECONDS
        )
        fault = time.perf_counter()
        trio.nodes[victim].kill()

        def goes_on() -> bool:
            later = [each for each in committer.committed_at if each > fault + 2]
            return len(later) > WARM_TRANSACTIONS

        outage.await_true(goes_on, f"{trio.name}: no commit", outage.OUTAGE_SECONDS)
        gap = outage.longest_gap(committer.committed_at, fault)
    trio.nodes[victim].start()
    outage.await_in_sync(trio, topic)
    outage.await_in_sync(trio, STATE_TOPIC)
    workloads.drop(trio, topic)
    return Sample({"gap s": gap, "lost": float(committer.lost)})


# Many ids.


def many_ids(server: Server) -> Sample:
    """Memory of the cluster for 100,000 transactional ids, seconds to begin them all, and from a
    SIGKILL of a coordinator to an answer for an id of each partition that it led."""
    assert isinstance(server, Trio)
    server.start()
    server.settle()
    first = producer_of(server, "first")
    del first
    outage.await_in_sync(server, STATE_TOPIC)
    time.sleep(scaled_seconds(3.0))
    before = server.resident_bytes()
    begin = time.perf_counter()
    names = defaultdict[int, list[str]](list)
    for number in range(scaled(IDS)):
        name = f"transactional-id-{number:06d}"
        names[java_hash(name) % COORDINATORS].append(name)
    leaders = leaders_of(server)
    for node, port in ((number, each.port) for number, each in server.nodes.items()):
        wanted = [name for index in names if leaders[index] == node for name in names[index]]
        begin_all(port, wanted)
    seconds = time.perf_counter() - begin
    grown = server.resident_bytes() - before
    victim = next(number for number in NUMBERS if number != server.controller())
    ids = [names[index][0] for index, node in leaders.items() if node == victim and names[index]]
    fault = time.perf_counter()
    server.nodes[victim].kill()
    taken_over = failed_over(server, victim, ids) - fault
    return Sample(
        {
            "MB": grown / 1e6,
            "bytes an id": grown / scaled(IDS),
            "ids/s": scaled(IDS) / seconds,
            "failover s": taken_over,
        }
    )


def leaders_of(server: Trio) -> dict[int, int]:
    """Partition of the coordinators' topic -> its leader."""
    known = workloads.admin_of(server).list_topics(STATE_TOPIC, timeout=30).topics[STATE_TOPIC]
    if len(known.partitions) != COORDINATORS:
        raise SystemExit(f"{STATE_TOPIC} has {len(known.partitions)} partitions")
    return {index: each.leader for index, each in known.partitions.items()}


def begin_all(port: int, names: list[str]) -> None:
    """InitProducerId for each of these ids, some at a time; what is refused is asked again."""
    with lean.dial(port) as line:
        while names:
            again: list[str] = []
            for some in (names[at : at + IN_FLIGHT] for at in range(0, len(names), IN_FLIGHT)):
                line.sendall(b"".join(_beginning(name) for name in some))
                again += [name for name, code in zip(some, _codes(line, len(some))) if code]
            if again:
                time.sleep(0.05)
            names = again


def _beginning(name: str) -> bytes:
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TIMEOUT_MS)
    return bytes(lean.frame_of(request, INIT_VERSION))


def _codes(line: lean.socket.socket, count: int) -> Iterator[int]:
    for _ in range(count):
        (size,) = lean.SIZE.unpack(lean.receive(line, 4))
        response = lean.API_KEYS[InitProducerIdRequest.api_key].response
        yield lean.read_response(lean.receive(line, size), response, INIT_VERSION)[1].error_code


def failed_over(server: Trio, victim: int, ids: list[str]) -> float:
    """When each of these ids was begun again, with the next coordinators of their partitions."""
    ports = {number: each.port for number, each in server.nodes.items() if number != victim}
    until = time.perf_counter() + outage.OUTAGE_SECONDS
    with lean.dial(next(iter(ports.values()))) as any_line:
        lines = {number: lean.dial(port) for number, port in ports.items()}
        left = list(ids)
        while left and time.perf_counter() < until:
            left = [name for name in left if not _begun(any_line, lines, name)]
        for each in lines.values():
            each.close()
    if left:
        raise SystemExit(f"{server.name}: {len(left)} ids have no coordinator again")
    return time.perf_counter()


def _begun(any_line: lean.socket.socket, lines: dict[int, lean.socket.socket], name: str) -> bool:
    line = lines.get(coordinator_of(any_line, name))
    if line is None:
        time.sleep(0.005)
        return False
    line.sendall(_beginning(name))
    (code,) = _codes(line, 1)
    return not code
