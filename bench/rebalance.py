"""A group of 100 members: how soon all have an assignment, and again after one of them has died.

Members are coroutines over the project's own small client, so that the server is what takes time.
Each does what a classic consumer does: JoinGroup for a member id, JoinGroup with it, SyncGroup (the
leader hands out one partition each), then Heartbeat, and from the start when a heartbeat says that
the group is rebalancing. Heartbeats are sixty times more frequent than by default: the time until
members hear of a rebalance is theirs, not the server's.

Both servers have the same `group.initial.rebalance.delay.ms` (a thirtieth of the default: it would
be nearly all of the time) and `group.min.session.timeout.ms`; a dead member is one whose connection
is aborted, and its session expires `SESSION_MS` after its last heartbeat was answered.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import commits
from servers import Server
from workloads import Sample

from anabranch.client.connection import Connection
from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.heartbeat import HeartbeatRequest
from anabranch.core.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from anabranch.core.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from anabranch.core.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

MEMBERS = 100
SESSION_MS = 3_000
REBALANCE_MS = 60_000
HEARTBEAT_SECONDS = 0.05
WAIT_SECONDS = 60.0
SETTINGS = {
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": str(SESSION_MS),
}
SUBSCRIPTION = bytes(100)
REJOIN = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)
TRY_AGAIN = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


@dataclass
class Progress:
    """What the members of one group have come to."""

    assigned: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Member -> generation of its newest assignment, and when it came."""
    joins: int = 0

    def stable_since(self, members: range) -> float | None:
        """When the last of `members` got its assignment; None before all are in one generation."""
        if any(number not in self.assigned for number in members):
            return None
        known = [self.assigned[number] for number in members]
        if len({generation for generation, _ in known}) > 1:
            return None
        return max(when for _, when in known)


class Member:
    """One member of a classic group."""

    def __init__(self, number: int, group: str, progress: Progress) -> None:
        self.number = number
        self.group = group
        self.progress = progress
        self.member_id = ""
        self.generation = -1
        self.heard_at = 0.0
        self.answered = asyncio.Event()
        self.connection: Connection | None = None
        self.next_heartbeat = number / MEMBERS * HEARTBEAT_SECONDS

    async def live(self) -> None:
        """Join and stay until cancelled."""
        while True:
            await self.join()
            if await self.sync():
                await self.stay()

    async def join(self) -> None:
        """JoinGroup until it is in a generation."""
        assert self.connection is not None
        while True:
            self.progress.joins += 1
            answer = await self.connection.send(
                JoinGroupRequest(
                    group_id=self.group,
                    session_timeout_ms=SESSION_MS,
                    rebalance_timeout_ms=REBALANCE_MS,
                    member_id=self.member_id,
                    protocol_type="consumer",
                    protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
                ),
                timeout_seconds=WAIT_SECONDS,
            )
            code = answer.error_code
            self.member_id = answer.member_id or self.member_id
            if not code:
                break
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            elif code in TRY_AGAIN:
                await asyncio.sleep(0.05)
            elif code != ErrorCode.MEMBER_ID_REQUIRED:
                raise SystemExit(f"JoinGroup of {self.group}: {ErrorCode(code).name}")
        self.generation = answer.generation_id
        self.chosen = answer.protocol_name
        self.others = [each.member_id for each in answer.members]

    async def sync(self) -> bool:
        """SyncGroup; the leader brings an assignment for everybody. False: join again."""
        assert self.connection is not None
        answer = await self.connection.send(
            SyncGroupRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.member_id,
                protocol_type="consumer",
                protocol_name=self.chosen,
                assignments=[
                    SyncGroupRequestAssignment(member_id=each, assignment=SUBSCRIPTION)
                    for each in self.others
                ],
            ),
            timeout_seconds=WAIT_SECONDS,
        )
        if answer.error_code in REJOIN:
            return False
        if answer.error_code or len(answer.assignment) != len(SUBSCRIPTION):
            raise SystemExit(f"SyncGroup of {self.group}: {ErrorCode(answer.error_code).name}")
        self.progress.assigned[self.number] = self.generation, time.perf_counter()
        return True

    async def stay(self) -> None:
        """Heartbeats until one says that the group rebalances."""
        assert self.connection is not None
        beat = HeartbeatRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.member_id
        )
        pause = self.next_heartbeat
        self.next_heartbeat = HEARTBEAT_SECONDS
        while True:
            await asyncio.sleep(pause)
            pause = HEARTBEAT_SECONDS
            code = (await self.connection.send(beat)).error_code
            self.heard_at = time.perf_counter()
            self.answered.set()
            if code in REJOIN:
                return
            if code:
                raise SystemExit(f"Heartbeat of {self.group}: {ErrorCode(code).name}")

    async def leave(self) -> None:
        """Go for good."""
        assert self.connection is not None
        gone = LeaveGroupRequest(
            group_id=self.group, members=[MemberIdentity(member_id=self.member_id)]
        )
        await self.connection.send(gone)
        await self.connection.close()


async def until_stable(
    progress: Progress, members: range, tasks: list[asyncio.Task[None]]
) -> float:
    """Wait for one generation of all `members`; returns when its last assignment came."""
    deadline = time.perf_counter() + WAIT_SECONDS
    while True:
        since = progress.stable_since(members)
        if since is not None:
            return since
        for task in tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                raise SystemExit(f"a member ended: {task.exception()!r}")
        if time.perf_counter() > deadline:
            raise SystemExit(f"no common generation after {WAIT_SECONDS:g} s")
        await asyncio.sleep(0.005)


async def _round(server: Server, group: str) -> Sample:
    progress = Progress()
    members = [Member(number, group, progress) for number in range(MEMBERS)]
    for member in members:
        member.connection = await Connection.open("127.0.0.1", server.port)
    begin, cpu = time.perf_counter(), server.cpu_seconds()
    tasks = [asyncio.create_task(member.live()) for member in members]
    first = await until_stable(progress, range(MEMBERS), tasks) - begin
    first_cpu = server.cpu_seconds() - cpu
    await asyncio.sleep(5 * HEARTBEAT_SECONDS)

    victim = members.pop()
    assert victim.connection is not None
    victim.answered.clear()
    await victim.answered.wait()  # nothing of its own is under way now
    tasks.pop().cancel()
    victim.connection.abort()
    expires = victim.heard_at + SESSION_MS / 1000
    for number in range(len(members)):
        progress.assigned.pop(number)
    stable = await until_stable(progress, range(len(members)), tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.gather(*(member.leave() for member in members))
    return Sample(
        {
            "first assignment s": first,
            "after a crash s": stable - expires,
            "CPU ms of the first": first_cpu * 1000,
            "joins": float(progress.joins),
        }
    )


def group_of_many(server: Server) -> Sample:
    """Seconds to the first assignment of all, and from a session's expiry to that of the others."""
    group = f"many-{time.monotonic_ns()}"
    commits.find_coordinators(server, [group])
    return asyncio.run(_round(server, group))
