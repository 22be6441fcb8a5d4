"""A simulated member of a consumer group, with the classic protocol.

What: it finds the coordinator, joins, divides the partitions if it leads, takes its share, reads
from the committed offsets on, commits now and then, heartbeats, and leaves or dies. When anything
is refused it does what the Java consumer does: find the coordinator again, join again, or begin as
a new member.

Rule kept: a member reads a partition only between the answer that assigned it and the first sign
that its generation is over. Source: KIP-62, KIP-345, KIP-394. Not here: cooperative rebalancing.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import pack
from typing import TYPE_CHECKING, Any

from anabranch.core.coordination.groups.classic.subscription import assigned_partitions
from anabranch.core.coordination.groups.offsets import NO_GENERATION
from anabranch.core.errors import ErrorCode
from anabranch.core.types import TopicPartition
from anabranch.core.wire.messages.heartbeat import HeartbeatRequest
from anabranch.core.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from anabranch.core.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from anabranch.core.wire.messages.offset_commit import OffsetCommitRequest
from anabranch.core.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from anabranch.sim.clients.client import NOBODY, Client, Patience
from anabranch.sim.clients.fetcher import Fetcher, ReadOptions
from anabranch.sim.clients.group_requests import (
    committed_offsets,
    coordinator_in,
    find_coordinator,
    group_in,
    offsets_to_commit,
    partitions_in,
)
from anabranch.sim.history import Assigned, Commit

if TYPE_CHECKING:
    from anabranch.core.wire.messages.join_group import JoinGroupResponse
    from anabranch.core.wire.messages.sync_group import SyncGroupResponse
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.history import History

PROTOCOL_TYPE, PROTOCOL = "consumer", "range"

_FIND_AGAIN = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
_NEW_MEMBER = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


@dataclass(frozen=True, slots=True)
class Membership:
    """Which group, and how a member behaves in it."""

    group: str
    instance_id: str | None = None
    session_timeout_ms: int = 6_000
    rebalance_timeout_ms: int = 8_000
    heartbeat_ms: int = 2_000
    commit_ms: int = 3_000
    commit_timeout_ms: int = 0
    """How long it waits to hear of a commit, as long as of anything else by default."""


class Member(Client):
    """See the module."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        history: History,
        topics: tuple[str, ...],
        patience: Patience,
        membership: Membership,
        reading: ReadOptions,
        versions: dict[int, int] | None = None,
    ) -> None:
        super().__init__(cluster, name, history, topics, patience, versions)
        self.membership = membership
        self.reading = reading
        self.coordinator = NOBODY
        self.last_coordinator = NOBODY
        self.member_id = ""
        self.generation = NO_GENERATION
        self.fetcher: Fetcher | None = None
        self.dirty: dict[TopicPartition, int] = {}
        self._turn = 0
        """Counts attempts to be a member: what was begun in an older one is over."""
        self._failures = 0

    @property
    def is_stable(self) -> bool:
        """Whether it is a member of a generation now."""
        return self.fetcher is not None

    def start(self) -> None:
        """Begin to be a member."""
        self.refresh(self._find)

    def leave(self) -> None:
        """Tell the coordinator that this member goes, and stop."""
        if self.stopped:
            return
        if self.member_id and self.coordinator != NOBODY:
            identity = MemberIdentity(
                member_id=self.member_id, group_instance_id=self.membership.instance_id
            )
            message = LeaveGroupRequest(group_id=self.membership.group, members=[identity])
            self.ask(self.coordinator, message, lambda _response: None)
        self._lose_partitions()
        self.stop()

    # Becoming a member.

    def _again(self, *, find: bool) -> None:
        """This attempt has failed: begin the next one after a pause."""
        self._lose_partitions()
        self._turn += 1
        self._failures += 1
        if find:
            self.coordinator = NOBODY
        self.later(self.backoff_ms(self._failures), self._begin, self._turn)

    def _begin(self, turn: int) -> None:
        if turn == self._turn:
            if self.coordinator == NOBODY:
                self._find()
            else:
                self._join()

    def _lose_partitions(self) -> None:
        if self.fetcher is not None:
            self.fetcher.forget()
            self.fetcher = None
        self.dirty = {}

    def _find(self) -> None:
        node_id = self.anybody()
        message = find_coordinator(self.membership.group)
        turn = self._turn

        def told(response: Any) -> None:
            if turn != self._turn:
                return
            self.coordinator = coordinator_in(response)
            if self.coordinator == NOBODY:
                self._again(find=True)
                return
            if self.last_coordinator not in (NOBODY, self.coordinator):
                self.history.mark("coordinator-moved")
            self.last_coordinator = self.coordinator
            self._join()

        self.ask(node_id, message, told)

    def _join(self) -> None:
        member = self.membership
        protocol = JoinGroupRequestProtocol(name=PROTOCOL, metadata=_subscription(self.topics))
        message = JoinGroupRequest(
            group_id=member.group,
            session_timeout_ms=member.session_timeout_ms,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=member.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[protocol],
        )
        turn = self._turn
        self.ask(
            self.coordinator,
            message,
            lambda response: self._joined(turn, response),
            timeout_ms=member.rebalance_timeout_ms + self.patience.request_timeout_ms,
        )

    def _joined(self, turn: int, response: JoinGroupResponse | None) -> None:
        if turn != self._turn:
            return
        if response is not None and response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self._join()
            return
        if self._refused(response):
            return
        assert response is not None
        self.member_id = response.member_id
        self.generation = response.generation_id
        if response.leader == self.member_id and not response.skip_assignment:
            members = sorted(member.member_id for member in response.members)
            self.refresh(lambda: self._sync(turn, members))
        else:
            self._sync(turn, [])

    def _refused(self, response: Any) -> bool:
        """Whether the answer is none or an error; the next attempt is then on its way."""
        if response is None:
            self._again(find=True)
            return True
        code = response.error_code
        if code in _NEW_MEMBER and self.membership.instance_id is None:
            self.member_id = ""
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if code == ErrorCode.FENCED_INSTANCE_ID:
            self._lose_partitions()
            self.stop()
        elif code:
            self._again(find=code in _FIND_AGAIN)
        return bool(code)

    def _sync(self, turn: int, members: list[str]) -> None:
        if turn != self._turn:
            return
        message = SyncGroupRequest(
            group_id=self.membership.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.membership.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=_divided(members, self._divided_places()),
        )
        self.ask(
            self.coordinator,
            message,
            lambda response: self._synced(turn, response),
            timeout_ms=self.membership.rebalance_timeout_ms + self.patience.request_timeout_ms,
        )

    def _divided_places(self) -> list[TopicPartition]:
        """What the group reads."""
        return sorted(self.places)

    def _synced(self, turn: int, response: SyncGroupResponse | None) -> None:
        if turn != self._turn or self._refused(response):
            return
        assert response is not None
        self._failures = 0
        places = [TopicPartition(*place) for place in assigned_partitions(response.assignment)]
        self.history.add(
            Assigned(
                group=self.membership.group,
                client=self.name,
                generation=self.generation,
                places=tuple(places),
                at_us=self.world.now_us,
            )
        )
        self.fetcher = self._new_fetcher()
        self.later(self.membership.heartbeat_ms, self._heartbeat, turn)
        self.later(self.membership.commit_ms, self._commit, turn)
        if places:
            self._fetch_offsets(turn, places)

    def _new_fetcher(self) -> Fetcher:
        """What reads the partitions of one generation."""
        return Fetcher(self, self.reading, in_group=True, on_polled=self._polled)

    # Being one.

    def _fetch_offsets(self, turn: int, places: list[TopicPartition]) -> None:
        if turn != self._turn:
            return

        def told(response: Any) -> None:
            if turn != self._turn or self.fetcher is None:
                return
            answer = group_in(response)
            if answer is None:
                self.later(self.backoff_ms(2), self._fetch_offsets, turn, places)
                return
            for place, part in partitions_in(answer):
                self.fetcher.read(place, part.committed_offset)
            self.fetcher.turn()

        self.ask(self.coordinator, committed_offsets(self.membership.group, places), told)

    def _polled(self, place: TopicPartition, offset: int) -> None:
        self.dirty[place] = offset

    def _heartbeat(self, turn: int) -> None:
        if turn != self._turn:
            return
        message = HeartbeatRequest(
            group_id=self.membership.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.membership.instance_id,
        )

        def told(response: Any) -> None:
            if turn != self._turn or self._refused(response):
                return
            self.later(self.membership.heartbeat_ms, self._heartbeat, turn)

        self.ask(self.coordinator, message, told)

    def _commit(self, turn: int) -> None:
        if turn != self._turn:
            return
        self.later(self.membership.commit_ms, self._commit, turn)
        if not self.dirty:
            return
        commits, self.dirty = self.dirty, {}
        message = OffsetCommitRequest(
            group_id=self.membership.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.membership.instance_id,
            topics=offsets_to_commit(dict(sorted(commits.items()))),
        )
        self.ask(
            self.coordinator,
            message,
            lambda response: self._committed(turn, commits, response),
            timeout_ms=self.membership.commit_timeout_ms,
        )

    def _committed(self, turn: int, commits: dict[TopicPartition, int], response: Any) -> None:
        parts = partitions_in(response) if response is not None else ()
        codes = {place: part.error_code for place, part in parts}
        for place, offset in sorted(commits.items()):
            self.history.add(
                Commit(
                    group=self.membership.group,
                    place=place,
                    offset=offset,
                    ok=codes.get(place, NO_GENERATION) == ErrorCode.NONE,
                    at_us=self.world.now_us,
                )
            )
        if turn != self._turn:
            return
        worst = next((code for code in codes.values() if code), 0)
        if worst in _FIND_AGAIN or worst in _NEW_MEMBER:
            if worst in _NEW_MEMBER:
                self.member_id = ""
            self._again(find=worst in _FIND_AGAIN)
        elif worst == ErrorCode.REBALANCE_IN_PROGRESS:
            self._again(find=False)


def _subscription(topics: tuple[str, ...]) -> bytes:
    return pack(">hi", 0, len(topics)) + b"".join(map(_string, topics)) + pack(">i", -1)


def _string(text: str) -> bytes:
    return pack(">h", len(text)) + text.encode()


def _divided(members: list[str], places: list[TopicPartition]) -> list[SyncGroupRequestAssignment]:
    """The partitions dealt out in turn."""
    if not members:
        return []
    shares: dict[str, dict[str, list[int]]] = {member: {} for member in members}
    for number, (topic, index) in enumerate(places):
        shares[members[number % len(members)]].setdefault(topic, []).append(index)
    return [
        SyncGroupRequestAssignment(member_id=member, assignment=_assignment(share))
        for member, share in shares.items()
    ]


def _assignment(share: dict[str, list[int]]) -> bytes:
    parts = [pack(">hi", 0, len(share))]
    for topic, indexes in share.items():
        parts.append(_string(topic) + pack(f">i{len(indexes)}i", len(indexes), *indexes))
    parts.append(pack(">i", -1))
    return b"".join(parts)
