"""A client with short requests beside one that pipelines long ones.

The long ones are incremental fetches of a session with idle partitions: 47 bytes each, for which a
server looks at all partitions. All are sent at once, and their answers are read but not looked at.
Meanwhile the other client produces one small batch every 10 ms, acks=1; what it waits is measured.
"""

from __future__ import annotations

import socket
import threading
import time

import lean
import workloads
from scale import scaled
from servers import Server
from workloads import Sample

from anabranch.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.core.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from anabranch.core.wire.records import Record, build_batch

REQUESTS = 1_500
PARTITIONS = 4_000
TOPIC, IDLE_TOPIC = "beside", "idle"
FETCH_VERSION, PRODUCE_VERSION = 12, 9
PAUSE_SECONDS = 0.01
MAX_BYTES = 1 << 20


def flood(server: Server) -> Sample:
    """What the client with short requests waits while the others are answered."""
    server.start()
    workloads.create_first(server, TOPIC)
    workloads.create(server, [IDLE_TOPIC], PARTITIONS)
    time.sleep(2)  # a new topic is read and written to by the server for a moment
    with lean.dial(server.port) as line, lean.dial(server.port) as other:
        quiet_ms = [produce_ms(line) for _ in range(100)]
        frames = _frames(other, scaled(REQUESTS))
        ended = threading.Event()
        begin = time.perf_counter()
        flooding = threading.Thread(target=_flood, args=(other, frames, ended))
        flooding.start()
        waited_ms = [produce_ms(line)]
        while not ended.is_set():
            waited_ms.append(produce_ms(line))
        seconds = time.perf_counter() - begin
        flooding.join()
    quiet_ms.sort()
    waited_ms.sort()
    return Sample(
        {
            "longest ms": waited_ms[-1],
            "p99 ms": waited_ms[len(waited_ms) * 99 // 100],
            "p50 ms": waited_ms[len(waited_ms) // 2],
            "p50 ms quiet": quiet_ms[len(quiet_ms) // 2],
            "flood s": seconds,
        }
    )


def produce_ms(line: socket.socket) -> float:
    """What a small batch waits for its acknowledgement, after a pause."""
    time.sleep(PAUSE_SECONDS)
    batch = build_batch([Record(0, int(time.time() * 1000), None, b"x" * 100)])
    data = TopicProduceData(
        name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)]
    )
    begin = time.perf_counter()
    answer = lean.ask(
        line, ProduceRequest(acks=1, timeout_ms=60_000, topic_data=[data]), PRODUCE_VERSION
    )
    if answer.responses[0].partition_responses[0].error_code:
        raise SystemExit("a record was refused")
    return (time.perf_counter() - begin) * 1000


def _fetch(session_id: int, epoch: int, partitions: int) -> FetchRequest:
    wanted = [
        FetchPartition(partition=each, fetch_offset=0, partition_max_bytes=MAX_BYTES)
        for each in range(partitions)
    ]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=MAX_BYTES,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic=IDLE_TOPIC, partitions=wanted)] if wanted else [],
    )


def _frames(line: socket.socket, count: int) -> bytes:
    """All the requests, after a session was begun for them."""
    begun = lean.ask(line, _fetch(0, 0, PARTITIONS), FETCH_VERSION)
    if not begun.session_id:
        raise SystemExit("the server began no session")
    return b"".join(
        lean.frame_of(_fetch(begun.session_id, number + 1, 0), FETCH_VERSION, number)
        for number in range(count)
    )


def _flood(line: socket.socket, frames: bytes, ended: threading.Event) -> None:
    count = scaled(REQUESTS)
    line.settimeout(300)
    line.sendall(frames)
    for _ in range(count):
        (size,) = lean.SIZE.unpack(lean.receive(line, 4))
        lean.receive(line, size)
    ended.set()
