"""Clients of other years: what they ask for in old versions is answered to the last record."""

from __future__ import annotations

import hashlib
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Producer

from anabranch.core.wire.batch import walk
from anabranch.core.wire.frame import frame_request, read_response
from anabranch.core.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from compat.clients import fetch_kafka_python, fetch_kcat, kafka_python
from compat.families.kcat import BEGINNING, kcat
from compat.peer import Peer
from compat.row import Failed, row

TOPIC = "old-clients"
RECORDS = 2_000_000
FETCH_VERSIONS = range(4, 13)
"""Of which later clients know more; up to here a topic is named, not numbered."""
MOST_BYTES = 50 << 20
PARTITION_BYTES = 1 << 20
"""What the clients ask for by default: two thirds of the answers end within a batch."""
READER = Path(__file__).parents[1] / "clients" / "old_reader.py"
READ_SECONDS = 600.0
"""kafka-python decodes in Python: some 20,000 records a second on a busy machine."""


def fetch_old_clients() -> None:
    """Debian's kcat, and an old kafka-python in an environment of its own."""
    fetch_kcat()
    fetch_kafka_python()


@row("old-clients", prepare=fetch_old_clients)
def read(peer: Peer) -> object:
    """Old clients read 2,000,000 records: Debian's kcat, kafka-python 2.0.2, Fetch 4 to 12."""
    produce(peer)
    shown = kcat(
        peer, "-C", "-t", TOPIC, *BEGINNING, "-f", "%o %s\\n", raw=True, seconds=READ_SECONDS
    )
    lines = shown.out.encode()
    python = peer.command(
        kafka_python(), READER, peer.bootstrap, TOPIC, RECORDS, seconds=READ_SECONDS
    )
    return {
        "kcat": [lines.count(b"\n"), hashlib.sha256(lines).hexdigest()],
        "kafka-python": python.lines,
        "fetch": {version: count(peer, version) for version in FETCH_VERSIONS},
    }


def produce(peer: Peer) -> None:
    """The records, each with its number."""
    refused: list[object] = []
    settings = {
        "bootstrap.servers": peer.bootstrap,
        "enable.idempotence": True,
        "queue.buffering.max.messages": RECORDS,
        "delivery.report.only.error": True,
        "on_delivery": lambda fault, _message: refused.append(fault),
    }
    producer = Producer(settings)
    for number in range(RECORDS):
        producer.produce(TOPIC, b"%d" % number, partition=0)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(READ_SECONDS) or refused:
        raise Failed(f"not all records were taken: {refused[:1]}")


def count(peer: Peer, version: int) -> int:
    """Records that one connection reads in this version of Fetch, without a gap from the first."""
    offset = 0
    with Connection(peer.bootstrap) as connection:
        while offset < RECORDS:
            before = offset
            for header in connection.batches(version, offset):
                if not header[0] <= offset < header[1]:
                    raise Failed(f"Fetch {version}: {header[0]} follows {offset}")
                offset = header[1]
            if offset == before:
                raise Failed(f"Fetch {version}: nothing comes at {offset}")
    return offset


class Connection:
    """Sends one fetch after the other."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), READ_SECONDS)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_fault: object) -> None:
        self._socket.close()

    def batches(self, version: int, offset: int) -> Iterator[tuple[int, int]]:
        """Offset of each batch and of the next."""
        part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=PARTITION_BYTES)
        request = FetchRequest(
            replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=MOST_BYTES,
            topics=[FetchTopic(topic=TOPIC, partitions=[part])],
        )  # fmt: skip
        self._socket.sendall(b"".join(map(bytes, frame_request(1, "old", request, version))))
        _, answer = read_response(self._frame(), FetchResponse, version)
        found = answer.responses[0].partitions[0]
        if found.error_code:
            raise Failed(f"Fetch {version}: error {found.error_code}")
        for _, header in walk(memoryview(found.records or b"")):
            yield header.base_offset, header.next_offset

    def _frame(self) -> bytes:
        return self._read(struct.unpack(">i", self._read(4))[0])

    def _read(self, size: int) -> bytes:
        held = bytearray()
        while len(held) < size:
            came = self._socket.recv(min(1 << 20, size - len(held)))
            if not came:
                raise Failed(f"the connection was closed {len(held)} bytes into {size}")
            held += came
        return bytes(held)
