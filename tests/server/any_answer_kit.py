"""What the random tests of answers share: nodes on either loop, a blocking client, a log's files.

The files are read here without the code that is tested: a batch's header as Kafka documents it.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path

import uvloop
from node_kit import ThreadNode

from anabranch.core.wire.frame import frame_request, read_response
from anabranch.core.wire.messages import API_KEYS
from anabranch.core.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.core.wire.records import Codec, Record, build_batch

LOOPS = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
SECONDS = 20
HEADER = struct.Struct(">qiibIhiqqqhii")
LARGEST_BATCH = 3 << 20
TIMESTAMP_MS = 1_700_000_000_000
TRANSACTIONAL, CONTROL = 0x10, 0x20


def seconds(default):
    """How long a random test goes on: `ANABRANCH_TEST_SECONDS=600` for a long run."""
    return float(os.environ.get("ANABRANCH_TEST_SECONDS", default))


def seed():
    """Another one in each run; `ANABRANCH_TEST_SEED` repeats one."""
    return int(os.environ.get("ANABRANCH_TEST_SEED") or random.randrange(1 << 32))


class LoopNode(ThreadNode):
    """A node on a loop of a kind."""

    def __init__(self, loop, folder, **settings):
        super().__init__(folder, **settings)
        self._loop_factory = LOOPS[loop]

    def _run(self):
        with asyncio.Runner(loop_factory=self._loop_factory) as runner:
            runner.run(self._serve())


class Client:
    """A blocking client on one connection; it may send in pieces and read slowly."""

    def __init__(self, bootstrap, receive_buffer_bytes=0):
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.socket()
        if receive_buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(SECONDS)
        self.socket.connect((host, int(port)))
        self.sent = 0
        self.waiting = []

    def send(self, body, version, piece_bytes=1 << 30):
        self.sent += 1
        frame = memoryview(b"".join(map(bytes, frame_request(self.sent, "any", body, version))))
        for begin in range(0, len(frame), piece_bytes):
            self.socket.sendall(frame[begin : begin + piece_bytes])
        self.waiting.append((self.sent, body.api_key, version))

    def answer(self, chunk_bytes=1 << 20, pause_s=0.0):
        correlation_id, api_key, version = self.waiting.pop(0)
        size = struct.unpack(">i", self._read(4, 4, 0))[0]
        frame = self._read(size, chunk_bytes, pause_s)
        found, body = read_response(frame, API_KEYS[api_key].response, version)
        assert found == correlation_id
        return body

    def ask(self, body, version):
        self.send(body, version)
        return self.answer()

    def _read(self, size, chunk_bytes, pause_s):
        held, count = bytearray(size), 0
        while count < size:
            came = self.socket.recv_into(memoryview(held)[count:], min(chunk_bytes, size - count))
            if not came:
                raise AssertionError(f"the node closed the connection {count} bytes into {size}")
            count += came
            if pause_s:
                time.sleep(pause_s)
        return bytes(held)

    def close(self):
        self.socket.close()


@dataclass
class Batch:
    """Where a batch lies in its segment's bytes, and what its header says."""

    start: int
    end: int
    base_offset: int
    last_offset: int
    attributes: int
    producer_id: int


@dataclass
class Log:
    """One partition, as its files are."""

    segments: list[tuple[bytes, list[Batch]]] = field(default_factory=list)
    end_offset: int = 0
    last_stable_offset: int = 0
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    """Producer id, first offset, offset of the marker."""

    def read(self, offset, limit, upto, at_least_one):
        """What a reader gets, and the offset where it ends."""
        for held, batches in self.segments:
            found = [each for each in batches if offset <= each.last_offset < upto]
            if not found:
                continue
            start = found[0].start
            fitting = [each for each in found if each.end - start <= limit]
            if not fitting and at_least_one:
                fitting = found[:1]
            return (held[start : fitting[-1].end], fitting[-1].last_offset + 1) if fitting else (
                b"", offset
            )  # fmt: skip
        return b"", offset

    def aborted_within(self, offset, end):
        return sorted(
            (producer_id, first)
            for producer_id, first, last in self.aborted
            if first < end and last >= offset
        )


def read_log(folder):
    """The log in a folder, by its files alone."""
    log, opened = Log(), {}
    for path in sorted(Path(folder).glob("*.log")):
        held = path.read_bytes()
        batches = list(batches_in(held))
        log.segments.append((held, batches))
        for each in batches:
            log.end_offset = each.last_offset + 1
            if not each.attributes & TRANSACTIONAL:
                continue
            if not each.attributes & CONTROL:
                opened.setdefault(each.producer_id, each.base_offset)
            elif (first := opened.pop(each.producer_id, None)) is not None and not is_commit(
                held, each
            ):
                log.aborted.append((each.producer_id, first, each.base_offset))
    log.last_stable_offset = min(opened.values(), default=log.end_offset)
    return log


def batches_in(held):
    """The batches of a segment."""
    position = 0
    while position + HEADER.size <= len(held):
        base, length, _, magic, _, attributes, delta, _, _, producer_id, *_ = HEADER.unpack_from(
            held, position
        )
        assert magic == 2
        end = position + 12 + length
        yield Batch(position, end, base, base + delta, attributes, producer_id)
        position = end
    assert position == len(held)


def is_commit(held, batch):
    """Whether a marker commits: its record's key is a version and a type, two numbers of 16 bits;
    before it are five numbers of a byte each."""
    return struct.unpack_from(">hh", held, batch.start + HEADER.size + 5)[1] == 1


def topic_ids_of(client, names):
    """Topic -> id, as soon as the node knows them all."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=each) for each in names])
    until = time.monotonic() + SECONDS
    while True:
        found = {each.name: each.topic_id for each in client.ask(request, 12).topics}
        if all(any(each) for each in found.values()):
            return found
        assert time.monotonic() < until, found


def any_batch(chance, **producer):
    """A batch of no to 3 million bytes of values, in any codec."""
    most = chance.choice((0, 10, 500, 500, 30_000, 100_000, LARGEST_BATCH))
    count = chance.choice((1, 1, 3, 20))
    size = chance.randint(0, most) // count
    codec = chance.choice(list(Codec)) if size < 1 << 20 else Codec.NONE
    value = chance.randbytes(size)
    records = [Record(each, TIMESTAMP_MS, None, value, ()) for each in range(count)]
    return build_batch(records, codec=codec, **producer)


def wait_for(condition):
    """Wait on a condition of a node in another thread."""
    until = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < until, f"what was awaited did not happen within {SECONDS} s"
        time.sleep(0.001)
