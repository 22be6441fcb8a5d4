"""How many OffsetCommit requests a second a server answers, from 100 groups at once.

Each group is one connection that keeps some requests of one partition in flight, as the commits of
an asynchronous consumer are. The groups have no members: what is measured is the commit, its record
in `__consumer_offsets` and its answer. Both servers write without fsync, as both do by default.
"""

from __future__ import annotations

import time
from struct import Struct

import lean
import workloads
from scale import scaled_seconds
from servers import Server
from workloads import Sample

from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.find_coordinator import FindCoordinatorRequest
from anabranch.core.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

TOPIC = "committed"
GROUPS = 100
IN_FLIGHT = 8
SECONDS = 6.0
VERSION = 9
FIND_VERSION = 6
MARK = 0x1122334455667788
"""Stands where the offset goes, to find its place in the frame."""
OFFSET = Struct(">q")
NUMBER = Struct(">i")


def find_coordinators(server: Server, groups: list[str]) -> None:
    """Ask until every group has a coordinator that has loaded its offsets."""
    with lean.dial(server.port) as line:
        deadline = time.perf_counter() + lean.WAIT_SECONDS
        while time.perf_counter() < deadline:
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=groups)
            answer = lean.ask(line, request, FIND_VERSION)
            if not any(each.error_code for each in answer.coordinators):
                return
            time.sleep(0.05)
    raise SystemExit(f"{server.name}: groups without a coordinator")


def request_of(group: str) -> OffsetCommitRequest:
    """A commit of one partition."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=MARK)
    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
    return OffsetCommitRequest(group_id=group, topics=[topic])


def first_commit(server: Server, line: lean.socket.socket, group: str) -> None:
    """Commit once, again while the group's offsets are being loaded."""
    deadline = time.perf_counter() + lean.WAIT_SECONDS
    while True:
        answer = lean.ask(line, request_of(group), VERSION)
        code = answer.topics[0].partitions[0].error_code
        if not code:
            return
        if time.perf_counter() > deadline:
            raise SystemExit(f"{server.name}: commits get {ErrorCode(code).name}")
        time.sleep(0.05)


def prepare(server: Server) -> None:
    """The topic that the offsets are of."""
    workloads.create(server, [TOPIC])


def offset_commits(server: Server) -> Sample:
    """Commits a second, how long one takes with all of them in flight, and what they cost."""
    groups = [f"commits-{number:03d}" for number in range(GROUPS)]
    find_coordinators(server, groups)
    lines = []
    for group in groups:
        line = lean.dial(server.port)
        first_commit(server, line, group)
        lines.append(lean.Line(line, lean.frame_of(request_of(group), VERSION)))
    place = lines[0].frame.index(OFFSET.pack(MARK))

    def change(frame: bytearray, number: int) -> None:
        NUMBER.pack_into(frame, lean.CORRELATION_AT, number & 0x7FFFFFFF)
        OFFSET.pack_into(frame, place, number)

    crowd = lean.Crowd(lines, change=change)
    before = server.cpu_seconds()
    seconds = crowd.run(scaled_seconds(SECONDS), IN_FLIGHT, expected_answer())
    cpu = server.cpu_seconds() - before
    for each in lines:
        each.socket.close()
    if crowd.refused:
        raise SystemExit(f"{server.name}: {crowd.refused} of {crowd.sent} commits were refused")
    return Sample(
        {
            "commits/s": crowd.sent / seconds,
            "p99 ms": lean.quantile(crowd.taken_ms, 0.99),
            "CPU us": cpu / crowd.sent * 1e6,
        }
    )


def expected_answer() -> bytes:
    """The answer to a commit that was taken, behind its correlation id."""
    from anabranch.core.wire.frame import frame_response
    from anabranch.core.wire.messages.offset_commit import (
        OffsetCommitResponse,
        OffsetCommitResponsePartition,
        OffsetCommitResponseTopic,
    )

    topic = OffsetCommitResponseTopic(name=TOPIC, partitions=[OffsetCommitResponsePartition()])
    answer = frame_response(0, OffsetCommitResponse(topics=[topic]), VERSION)
    return b"".join(answer)[8:]
