"""How a group comes to its next generation: all join again, one leads, and it begins.

    prepare    members are told to join again (REBALANCE_IN_PROGRESS in heartbeats)
    complete   everybody has joined, or time is over: who is missing is out; the next generation
    refuse_*   what those get who wait for something that will not come

A group that was empty waits `group.initial.rebalance.delay.ms` for more members, again and again
while members come, up to their rebalance timeout. A dynamic member that does not join again within
the rebalance timeout is removed; static members stay until their session ends.

Source: Kafka 4.1's GroupMetadataManager (behaviour), KIP-134, KIP-345. Rule kept: whoever waits is
answered: by the next generation, an error, or the coordinator's end.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from anabranch.core.coordination.groups.classic.group_records import group_record
from anabranch.core.coordination.groups.classic.states import (
    COMPLETING_REBALANCE,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
)
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from anabranch.core.wire.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from anabranch.core.coordination.groups.classic.group import Group, Member
    from anabranch.core.coordination.groups.host import Groups

NEW_MEMBER_TIMEOUT_MS = 5 * 60_000
"""How long a member may wait for its first generation: its client may be gone meanwhile."""

SHORTEST_WAIT_MS = 500
"""How long a group whose only members are silent static ones waits at least before it looks again,
however little time they have asked for: a timeout of 0 ms would keep the coordinator busy."""


# Answers.


def joined(group: Group, member: Member, *, with_members: bool) -> JoinGroupResponse:
    """The generation as a member learns it; the leader also learns who is in it."""
    members = []
    if with_members:
        members = [
            JoinGroupResponseMember(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                metadata=each.metadata(group.protocol),
            )
            for each in group.members.values()
        ]
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader_id or "",
        member_id=member.member_id,
        members=members,
    )


def join_refused(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    """A join that leads to nothing."""
    return JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=None)


def synced(group: Group, member: Member) -> SyncGroupResponse:
    """A member's assignment."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=member.assignment,
    )


def refuse_join(group: Group, member: Member, code: ErrorCode) -> None:
    """Answer a member's waiting join with an error."""
    answer = member.awaiting_join
    if answer is not None:
        group.await_join(member, None)
        answer.give(join_refused(code, member.member_id))


def refuse_sync(member: Member, code: ErrorCode) -> None:
    """Answer a member's waiting sync with an error."""
    answer, member.awaiting_sync = member.awaiting_sync, None
    if answer is not None:
        answer.give(SyncGroupResponse(error_code=code))


def refuse_all(coordinator: Groups, group: Group, code: ErrorCode) -> None:
    """Answer everybody who waits in a group with an error."""
    for member in group.members.values():
        refuse_join(group, member, code)
        refuse_sync(member, code)
        member.is_new = False


# Sessions.


def keep_alive(coordinator: Groups, group: Group, member: Member) -> None:
    """A member was heard of: its session begins anew."""
    _expect_by(coordinator, group, member, member.session_timeout_ms)


def expect_first_generation(coordinator: Groups, group: Group, member: Member) -> None:
    """A new member waits for its first generation, but not for ever."""
    _expect_by(coordinator, group, member, NEW_MEMBER_TIMEOUT_MS)


def _expect_by(coordinator: Groups, group: Group, member: Member, within_ms: int) -> None:
    member.alive_until_ms = coordinator.broker.steady_ms + within_ms
    timer = member.timer
    if timer is not None and timer.action is not None:
        if timer.due_ms <= member.alive_until_ms:
            return  # when it rings, it looks again
        timer.cancel()
    member.timer = coordinator.after(within_ms, partial(_silent, coordinator, group, member))


def _silent(coordinator: Groups, group: Group, member: Member, now_ms: int) -> None:
    """A member's timer rings: it was heard of since, or waits for us, or its session is over."""
    if group.members.get(member.member_id) is not member:
        return
    left_ms = member.alive_until_ms - coordinator.broker.steady_ms
    if left_ms <= 0 and not member.is_kept_alive:
        expel(coordinator, group, member, now_ms)
        return
    if left_ms <= 0:
        left_ms = member.session_timeout_ms
        member.alive_until_ms = coordinator.broker.steady_ms + left_ms
    member.timer = coordinator.after(left_ms, partial(_silent, coordinator, group, member))


def expel_silent(coordinator: Groups, group: Group, now_ms: int) -> None:
    """Take out whose session is over, for a request that is read before their timers ring."""
    steady_ms = coordinator.broker.steady_ms
    for member in list(group.members.values()):
        if member.alive_until_ms <= steady_ms and not member.is_kept_alive:
            expel(coordinator, group, member, now_ms)


def expel(coordinator: Groups, group: Group, member: Member, now_ms: int) -> None:
    """A member has left or its session is over: the others take what it had."""
    refuse_join(group, member, ErrorCode.UNKNOWN_MEMBER_ID)
    refuse_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)
    group.remove(member)
    if group.state in (STABLE, COMPLETING_REBALANCE):
        prepare(coordinator, group, now_ms)
    elif group.state is PREPARING_REBALANCE:
        complete_if_all_joined(coordinator, group, now_ms)


# Rebalancing.


def prepare(coordinator: Groups, group: Group, now_ms: int) -> None:
    """Ask everybody to join again."""
    if group.state is COMPLETING_REBALANCE:
        for member in group.members.values():
            member.assignment = b""
            refuse_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
    _end_phase(group)
    was_empty = group.state is EMPTY
    group.become(PREPARING_REBALANCE, now_ms)
    coordinator.rebalances_total += 1
    if was_empty:
        group.new_member_added = False
        delay_ms = coordinator.config.group_initial_rebalance_delay_ms
        _wait_for_more(coordinator, group, delay_ms, group.rebalance_timeout_ms, now_ms)
        return
    timeout_ms = group.rebalance_timeout_ms
    group.phase_timer = coordinator.after(timeout_ms, partial(complete, coordinator, group))
    complete_if_all_joined(coordinator, group, now_ms)


def _wait_for_more(
    coordinator: Groups, group: Group, delay_ms: int, remaining_ms: int, now_ms: int
) -> None:
    """The first members of a group wait a little, so that the others need no rebalance."""

    def ring(now_ms: int) -> None:
        group.phase_timer = None
        left_ms = max(remaining_ms - delay_ms, 0)
        if group.new_member_added and left_ms > 0:
            group.new_member_added = False
            _wait_for_more(coordinator, group, min(delay_ms, left_ms), left_ms, now_ms)
        else:
            complete(coordinator, group, now_ms)

    if delay_ms <= 0:
        complete(coordinator, group, now_ms)
        return
    group.phase_timer = coordinator.after(delay_ms, ring)


def complete_if_all_joined(coordinator: Groups, group: Group, now_ms: int) -> None:
    """Begin the next generation if nobody is missing; a first one waits for its delay."""
    if (
        group.state is PREPARING_REBALANCE
        and group.previous_state is not EMPTY
        and group.has_all_joined
    ):
        complete(coordinator, group, now_ms)


def complete(coordinator: Groups, group: Group, now_ms: int) -> None:
    """Begin the next generation with those who have joined."""
    _end_phase(group)
    for member in list(group.members.values()):
        if member.awaiting_join is None and member.instance_id is None:
            refuse_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)
            group.remove(member)
    if group.members and not group.elect_joined_leader():
        # Only silent static members: wait for them.
        timeout_ms = max(group.rebalance_timeout_ms, SHORTEST_WAIT_MS)
        group.phase_timer = coordinator.after(timeout_ms, partial(complete, coordinator, group))
    elif not group.members:
        _become_empty(coordinator, group, now_ms)
    else:
        group.next_generation(now_ms, COMPLETING_REBALANCE)
        for member in group.members.values():
            _begin_generation(coordinator, group, member)
        timeout_ms = group.rebalance_timeout_ms
        group.phase_timer = coordinator.after(timeout_ms, partial(_not_synced, coordinator, group))


def _begin_generation(coordinator: Groups, group: Group, member: Member) -> None:
    answer = member.awaiting_join
    group.await_join(member, None)
    if answer is not None:
        is_leader = member.member_id == group.leader_id
        answer.give(joined(group, member, with_members=is_leader))
    member.is_new = False
    group.pending_syncs.add(member.member_id)
    keep_alive(coordinator, group, member)


def _become_empty(coordinator: Groups, group: Group, now_ms: int) -> None:
    """Nobody is left: write it down, so that its offsets expire from now on."""
    group.next_generation(now_ms, EMPTY)
    try:
        group.shard.write([group_record(group, {}, now_ms)], now_ms, _nothing)
    except ApiError:
        return  # the log has it as it was: it is read as a group whose members are silent


def _nothing(_now_ms: int) -> None:
    return None


def _not_synced(coordinator: Groups, group: Group, now_ms: int) -> None:
    """Time is over for those who joined and never asked for their assignment."""
    group.phase_timer = None
    late = [group.members[name] for name in sorted(group.pending_syncs) if name in group.members]
    if group.state not in (COMPLETING_REBALANCE, STABLE) or not late:
        return
    for member in late:
        group.remove(member)
    prepare(coordinator, group, now_ms)


def _end_phase(group: Group) -> None:
    if group.phase_timer is not None:
        group.phase_timer.cancel()
        group.phase_timer = None
