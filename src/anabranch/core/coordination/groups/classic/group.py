"""One group: its members, its generation, and its committed offsets.

What: the state, and the questions and small changes that keep it consistent; `rebalance`, `members`
and `offsets` hold the rules. Rule kept: counts (`awaiting_joins`, `supporters`) follow the members
in `add`, `remove` and `update` only, so that a join of a group of thousands costs no walk.
Source: KIP-62, KIP-345 (static members), KIP-394 (pending members). Not here: KIP-848 groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from anabranch.core.coordination.answers import Answer
from anabranch.core.coordination.groups.classic.states import EMPTY, MAY_COME_FROM, GroupState
from anabranch.core.coordination.groups.classic.subscription import subscribed_topics
from anabranch.core.coordination.groups.committed_offset import CommittedOffset
from anabranch.core.coordination.timers import Timer
from anabranch.core.errors import Bug

if TYPE_CHECKING:
    from anabranch.core.coordination.groups.shard import Shard

CONSUMER = "consumer"
"""The protocol type of consumers; only there the coordinator reads subscriptions."""

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) in the order of the member's preference."""


class Member:
    """One member of a group."""

    __slots__ = (
        "alive_until_ms",
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "timer",
    )

    def __init__(
        self, member_id: str, instance_id: str | None, client_id: str, client_host: str
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = self.rebalance_timeout_ms = 0
        self.protocols: Protocols = ()
        self.assignment = b""
        self.awaiting_join: Answer | None = None
        self.awaiting_sync: Answer | None = None
        self.is_new = False
        self.alive_until_ms = 0
        self.timer: Timer | None = None

    def metadata(self, protocol: str | None) -> bytes:
        """What the member said under a protocol, b"" when it does not know it."""
        return next((said for name, said in self.protocols if name == protocol), b"")

    def vote(self, candidates: Iterable[str]) -> str | None:
        """The candidate that the member likes best."""
        return next((name for name, _ in self.protocols if name in candidates), None)

    @property
    def is_kept_alive(self) -> bool:
        """Whether silence is no sign of death: the member waits for us."""
        if self.is_new:
            return False
        return self.awaiting_join is not None or self.awaiting_sync is not None


class Group:
    """A classic group, or a name under which somebody commits offsets."""

    def __init__(self, group_id: str, shard: Shard, now_ms: int) -> None:
        self.group_id = group_id
        self.shard = shard
        self.state: GroupState = EMPTY
        self.previous_state: GroupState = EMPTY
        self.state_since_ms = now_ms
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.generation_id = 0
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: dict[str, Timer] = {}
        self.pending_syncs: set[str] = set()
        self.awaiting_joins = 0
        self.new_member_added = False
        self.supporters: Counter[str] = Counter()
        self.phase_timer: Timer | None = None
        self.offsets: dict[str, dict[int, CommittedOffset]] = {}
        self.subscriptions: frozenset[str] | None = frozenset()

    def become(self, state: GroupState, now_ms: int) -> None:
        """Move to another state; a move that the table does not know is a bug."""
        if self.state not in MAY_COME_FROM[state]:
            raise Bug(f"group {self.group_id!r} cannot go from {self.state} to {state}")
        self.previous_state, self.state = self.state, state
        self.state_since_ms = now_ms

    # Members.

    def add(self, member: Member) -> None:
        """A new member; its answers are set by the caller through `await_join`."""
        if not self.members:
            self.leader_id = None
        self.members[member.member_id] = member
        self.supporters.update({name for name, _ in member.protocols})
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member: Member) -> None:
        """Forget a member; another one leads when it was the leader."""
        del self.members[member.member_id]
        self.supporters.subtract({name for name, _ in member.protocols})
        self.await_join(member, None)
        self.pending_syncs.discard(member.member_id)
        if member.timer is not None:
            member.timer.cancel()
        instance = member.instance_id
        if instance is not None and self.static_members.get(instance) == member.member_id:
            del self.static_members[instance]
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        """A member that is in the group says what it supports now."""
        self.supporters.subtract({name for name, _ in member.protocols})
        member.protocols = protocols
        self.supporters.update({name for name, _ in protocols})

    def await_join(self, member: Member, answer: Answer | None) -> None:
        """Note that a member has joined and waits for its answer, or that it waits no longer."""
        self.awaiting_joins += (answer is not None) - (member.awaiting_join is not None)
        member.awaiting_join = answer

    @property
    def has_all_joined(self) -> bool:
        """Whether every member, and everybody who was given a member id, has joined again."""
        return self.awaiting_joins == len(self.members) and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest time that a member asks the others to wait for it."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has joined again, else take the first who has; False: nobody."""
        leader = None if self.leader_id is None else self.members.get(self.leader_id)
        if leader is not None and leader.awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    # Protocols.

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether somebody who says this may be a member beside those there are."""
        if not protocol_type or not protocols:
            return False
        if self.state is EMPTY:
            return True
        count = len(self.members)
        return self.protocol_type == protocol_type and any(
            self.supporters[name] == count for name, _ in protocols
        )

    def choose_protocol(self) -> str:
        """What most members like best among what all of them support."""
        count = len(self.members)
        candidates = {name for name, supporters in self.supporters.items() if supporters == count}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return min(votes, key=lambda name: (-votes[name], name or "")) or ""

    def next_generation(self, now_ms: int, state: GroupState) -> None:
        """One generation further, in `state`."""
        self.generation_id += 1
        self.become(state, now_ms)
        self.pending_syncs.clear()
        self.protocol = self.choose_protocol() if self.members else None
        self.note_subscriptions()

    def note_subscriptions(self) -> None:
        """Remember which topics the members read; None when that cannot be told."""
        self.subscriptions = frozenset()
        if self.protocol_type == CONSUMER and self.members:
            said = [member.metadata(self.protocol) for member in self.members.values()]
            self.subscriptions = subscribed_topics(said)

    def reads(self, topic: str) -> bool:
        """Whether a member may be subscribed to a topic."""
        if self.subscriptions is None:
            return self.protocol_type == CONSUMER
        return topic in self.subscriptions

    @property
    def is_consumer(self) -> bool:
        """Whether members speak the consumer protocol, so that their topics are known."""
        return self.protocol_type == CONSUMER
