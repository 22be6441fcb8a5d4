"""64 producers and 64 consumers in 8 groups on 64 partitions: every record is read eight times.

Producers and consumers are confluent-kafka's, each with a connection and threads of its own, the
same for both servers, with automatic commits as by default. The producers are one process, the
consumers `CONSUMER_PROCESSES`, each polled by one thread: a thread a consumer would spend the two
cores on switching. The clock runs from the first record until each group has all of them.

This file is also the program of those processes: `python fan_out.py consume|produce JSON`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import workloads
from confluent_kafka import Consumer, Producer
from scale import scaled
from servers import Server
from workloads import Sample

PARTITIONS = 64
PRODUCERS = 64
GROUPS = 8
CONSUMERS_OF_A_GROUP = 8
CONSUMER_PROCESSES = 2
VALUE_BYTES = 1_000
RECORDS = 200_000
RECORDS_AT_ONCE = 2_000
WAIT_SECONDS = 120.0
GO = "go"


def fan_out(server: Server) -> Sample:
    """Records and bytes a second that reach consumers, and the server's CPU for a million."""
    topic = f"fan-out-{time.monotonic_ns()}"
    records = scaled(RECORDS)
    workloads.create(server, [topic], PARTITIONS)
    work = {"bootstrap": server.bootstrap, "topic": topic, "records": records}
    share = GROUPS // CONSUMER_PROCESSES
    with ExitStack() as stack:
        readers = [
            _process(stack, "consume", {**work, "groups": _groups(topic, part * share, share)})
            for part in range(CONSUMER_PROCESSES)
        ]
        writer = _process(stack, "produce", work)
        for each in (*readers, writer):
            _line_of(server, each)
        before, begin = server.cpu_seconds(), time.perf_counter()
        _say_go(writer)
        ends = [float(_line_of(server, each)) for each in (writer, *readers)]
        seconds = time.perf_counter() - begin
        cpu = server.cpu_seconds() - before
        for each in (writer, *readers):
            _say_go(each)
        clients = sum(float(_line_of(server, each)) for each in (writer, *readers))
    workloads.drop(server, topic)
    delivered = records * GROUPS
    return Sample(
        {
            "records/s": delivered / seconds,
            "MB/s": delivered * VALUE_BYTES / seconds / 1e6,
            "CPU s/M": cpu / delivered * 1e6,
            "clients' CPU s/M": clients / delivered * 1e6,
            "produced in s": ends[0],
        }
    )


def _groups(topic: str, first: int, count: int) -> list[str]:
    return [f"{topic}-{number}" for number in range(first, first + count)]


def _process(stack: ExitStack, role: str, work: dict[str, Any]) -> subprocess.Popen[str]:
    words = [sys.executable, str(Path(__file__)), role, json.dumps(work)]
    started = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    stack.callback(started.wait)
    stack.callback(started.kill)
    return started


def _say_go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    print(GO, file=process.stdin, flush=True)


def _line_of(server: Server, process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"{server.name}: a client of the fan-out ended: see above")
    return line


# The processes.


def produce(work: dict[str, Any]) -> tuple[float, float]:
    """Hand the records to all producers in turn, until the last was acknowledged.

    Returns seconds and CPU seconds.
    """
    failures = workloads.Failures()
    settings = {
        "bootstrap.servers": work["bootstrap"],
        "acks": 1,
        "linger.ms": 5,
        "delivery.report.only.error": True,
        "on_delivery": failures,
        **workloads.CLIENT,
    }
    producers = [Producer(settings) for _ in range(PRODUCERS)]
    for each in producers:
        each.list_topics(work["topic"], timeout=WAIT_SECONDS)
    values = workloads.values_of(VALUE_BYTES)
    _say("ready")
    sys.stdin.readline()
    begin, cpu = time.perf_counter(), time.process_time()
    topic, records = work["topic"], work["records"]
    for number in range(records):
        producer = producers[number % PRODUCERS]
        while True:
            try:
                producer.produce(topic, values[number & 4095])
                break
            except BufferError:
                producer.poll(0.001)
    left = sum(each.flush(WAIT_SECONDS) for each in producers)
    if left or failures.count:
        raise SystemExit(f"{left} records unsent, {failures.count} refused")
    return time.perf_counter() - begin, time.process_time() - cpu


def consume(work: dict[str, Any]) -> tuple[float, float]:
    """Poll all consumers of some groups until each group has every record: seconds, CPU seconds."""
    consumers = [
        (group, _consumer(work, group))
        for group in work["groups"]
        for _ in range(CONSUMERS_OF_A_GROUP)
    ]
    _poll_until(consumers, {}, lambda: _are_assigned(consumers))
    _say("ready")
    begin, cpu = time.perf_counter(), time.process_time()
    counts = dict.fromkeys(work["groups"], 0)
    _poll_until(consumers, counts, lambda: min(counts.values()) >= work["records"])
    seconds = time.perf_counter() - begin, time.process_time() - cpu
    if max(counts.values()) > work["records"]:
        raise SystemExit(f"records came twice: {counts}")
    return seconds


def _consumer(work: dict[str, Any], group: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": work["bootstrap"],
            "group.id": group,
            "auto.offset.reset": "earliest",
            **workloads.CLIENT,
        }
    )
    consumer.subscribe([work["topic"]])
    return consumer


def _are_assigned(consumers: list[tuple[str, Consumer]]) -> bool:
    return sum(len(each.assignment()) for _, each in consumers) == PARTITIONS * len(
        {group for group, _ in consumers}
    )


def _poll_until(
    consumers: list[tuple[str, Consumer]], counts: dict[str, int], is_enough: Callable[[], bool]
) -> None:
    deadline = time.perf_counter() + WAIT_SECONDS
    while not is_enough():
        some = 0
        for group, consumer in consumers:
            messages = consumer.consume(RECORDS_AT_ONCE, timeout=0)
            for message in messages[-1:]:
                if message.error():
                    raise SystemExit(f"{group}: {message.error()}")
            if messages:
                some += len(messages)
                counts[group] = counts.get(group, 0) + len(messages)
        if not some:
            time.sleep(0.002)
            if time.perf_counter() > deadline:
                raise SystemExit(f"not all records came within {WAIT_SECONDS:g} s: {counts}")


def _say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    """One process of the row: ready, work, its seconds; and when asked, its CPU seconds."""
    role, work = sys.argv[1], json.loads(sys.argv[2])
    seconds, cpu_seconds = {"consume": consume, "produce": produce}[role](work)
    _say(str(seconds))
    sys.stdin.readline()
    _say(str(cpu_seconds))


if __name__ == "__main__":
    main()
