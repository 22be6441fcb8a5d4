"""A node as a user runs it, clients that send what they like, and one that must not notice."""

from __future__ import annotations

import itertools
import re
import socket
import struct
import threading
import time

import psutil
from node_kit import ProcessNode, free_port

from anabranch.core.types import ZERO_TOPIC_ID
from anabranch.core.wire.frame import frame_request, read_response
from anabranch.core.wire.messages import API_KEYS
from anabranch.core.wire.messages.api_versions import ApiVersionsRequest
from anabranch.core.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from anabranch.core.wire.messages.describe_producers import (
    DescribeProducersRequest,
    TopicRequest,
)
from anabranch.core.wire.messages.find_coordinator import FindCoordinatorRequest
from anabranch.core.wire.messages.list_groups import ListGroupsRequest
from anabranch.core.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from anabranch.core.wire.messages.metadata import MetadataRequest
from anabranch.core.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from anabranch.core.wire.records import Record, build_batch

SECONDS = 20
HELLO = ApiVersionsRequest(client_software_name="test", client_software_version="1")
LATEST = -1
GROUP, TRANSACTION = 0, 1
TOPICS = {
    "bystander": {},
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "gzipped": {"compression.type": "gzip"},
    "repacked": {"compression.type": "zstd", "message.timestamp.type": "LogAppendTime"},
    "dotted.name": {},
    "scored_name": {},
    "ranged": {"message.timestamp.before.max.ms": "3600000"},
    "short": {"segment.bytes": str(1 << 20), "max.message.bytes": str(4 << 20)},
    "wide": {"max.message.bytes": str(90 << 20)},
}
"""The topics that there are; a test may bring no other into being."""


class Raw:
    """A connection that sends bytes; what comes back is read as frames."""

    def __init__(self, node):
        self.socket = socket.create_connection(("127.0.0.1", node.port), SECONDS)
        self.numbers = itertools.count(1)

    def __enter__(self):
        return self

    def __exit__(self, *_fault):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)
        return self

    def frame(self):
        """The next answer, without its size."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, count):
        held = bytearray()
        while len(held) < count:
            piece = self.socket.recv(count - len(held))
            if not piece:
                raise ConnectionResetError("the node closed the connection")
            held += piece
        return bytes(held)

    def ask(self, body, version):
        """Send a request and read its answer."""
        number = next(self.numbers)
        self.send(framed(body, version, number))
        found, answer = read_response(self.frame(), API_KEYS[type(body).api_key].response, version)
        assert found == number
        return answer

    def ended(self):
        """Whether the node closes the connection; what it still answers is dropped."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except ConnectionResetError:
            pass
        return True


def framed(body, version, number=1):
    return b"".join(map(bytes, frame_request(number, "bad", body, version)))


class RunningNode(ProcessNode):
    """A node whose log lines are kept."""

    def __init__(self, folder, **settings):
        self.http_port = free_port()
        super().__init__(folder, **{"http.listener": f"127.0.0.1:{self.http_port}", **settings})
        self.folder = folder
        self.lines = []

    def start(self):
        super().start()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))

    def close(self):
        self.process.terminate()
        self.process.wait(SECONDS)

    @property
    def resident_bytes(self):
        return psutil.Process(self.process.pid).memory_info().rss

    @property
    def open_files(self):
        """Files and sockets of the process."""
        return psutil.Process(self.process.pid).num_fds()

    @property
    def connections(self):
        """Connections of clients; not those of the node to itself, which have both ends here. A
        client may have the port of one end: ports are given anew for each address."""
        found = psutil.Process(self.process.pid).net_connections("tcp")
        taken = [each for each in found if each.laddr.port == self.port and each.raddr != ()]
        ends = {(each.laddr, each.raddr) for each in found}
        return sum((each.raddr, each.laddr) not in ends for each in taken)

    def says(self, *words):
        """Wait for a line of the log that holds all words; returns it and forgets what was."""
        found = []

        def come():
            found[:] = [line for line in self.lines if all(word in line for word in words)]
            return found

        eventually(come, f"a line with {words} among {self.lines[-5:]}")
        self.lines.clear()
        return found[-1]

    def speaks_again(self):
        """Send rubbish until its line tells how many were left unsaid: the log is not muted."""

        def said():
            with Raw(self) as client:
                assert client.send(b"GET / HTTP/1.1\r\n\r\n").ended()
            return any("unsaid=" in line for line in self.lines)

        eventually(said, "a line that counts the unsaid ones")

    def prepare(self):
        """Create the topics, and those of coordinators."""
        topics = [
            CreatableTopic(
                name=name,
                num_partitions=1,
                replication_factor=1,
                configs=[CreatableTopicConfig(name=key, value=text) for key, text in each.items()],
            )
            for name, each in TOPICS.items()
        ]
        with Raw(self) as client:
            answer = client.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
            assert [each.error_code for each in answer.topics] == [0] * len(topics)
            for kind in (GROUP, TRANSACTION):
                eventually(lambda: self._has_coordinator(client, kind), "a coordinator")  # noqa: B023
        return self

    def _has_coordinator(self, client, kind):
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["g"])
        return not client.ask(request, 4).coordinators[0].error_code

    def exists(self):
        """Topics, groups and partition folders."""
        with Raw(self) as client:
            topics = client.ask(MetadataRequest(topics=None), 12).topics
            groups = client.ask(ListGroupsRequest(), 4).groups
        folders = {each.name for each in self.folder.iterdir() if re.search(r"-\d+$", each.name)}
        return {each.name for each in topics}, {each.group_id for each in groups}, folders

    def state(self, topic):
        """End of the log, and its producers with their epochs and sequence numbers."""
        part = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
        offsets = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[part])]
        )
        producers = DescribeProducersRequest(
            topics=[TopicRequest(name=topic, partition_indexes=[0])]
        )
        with Raw(self) as client:
            end = client.ask(offsets, 5).topics[0].partitions[0].offset
            active = client.ask(producers, 0).topics[0].partitions[0].active_producers
        return end, {(each.producer_id, each.producer_epoch, each.last_sequence) for each in active}


class Bystander:
    """A client that goes on producing; `worst_seconds` is the longest that it had to wait."""

    PAUSE_SECONDS = 0.01

    def __init__(self, node):
        self.node = node
        self.worst_seconds = 0.0
        self.fault = None
        self.sent = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_fault):
        self._ends.set()
        self._thread.join(SECONDS)

    def _run(self):
        try:
            with Raw(self.node) as client:
                while not self._ends.wait(self.PAUSE_SECONDS):
                    started = time.perf_counter()
                    assert code_of(client, "bystander", batch()) == 0
                    self.worst_seconds = max(self.worst_seconds, time.perf_counter() - started)
                    self.sent += 1
        except Exception as fault:
            self.fault = fault


def eventually(condition, what, seconds=SECONDS):
    """Wait on a condition, not on a time."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"there was not: {what}"
        time.sleep(0.005)


def batch(count=1, *, value=b"v", key=b"k", at_ms=None, **how):
    """A batch of equal records of now."""
    now_ms = int(time.time() * 1000) if at_ms is None else at_ms
    return build_batch([Record(each, now_ms, key, value) for each in range(count)], **how)


def produce(topic, records, *, acks=1, index=0, topic_id=ZERO_TOPIC_ID):
    part = PartitionProduceData(index=index, records=records)
    name = TopicProduceData(name=topic, topic_id=topic_id, partition_data=[part])
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[name])


def code_of(client, topic, records, version=9, **how):
    """The error code of one batch."""
    answer = client.ask(produce(topic, records, **how), version)
    return answer.responses[0].partition_responses[0].error_code
