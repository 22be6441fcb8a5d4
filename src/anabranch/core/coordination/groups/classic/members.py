"""What members ask of their group: join, sync, heartbeat, leave.

Each function answers with a message, or with an `Answer` that is given later. The order of checks
and the codes are those of Kafka 4.1's GroupMetadataManager (behaviour): the group id, the session
timeout, the group's size, the protocols, then who the member is.

Source: KIP-62, KIP-345 (static members), KIP-394 (a member id before the first join), KIP-559,
KIP-800, KIP-814 (a static leader that restarts assigns nothing). Not here: authorization.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from anabranch.core.coordination.answers import Answer
from anabranch.core.coordination.groups.classic import rebalance
from anabranch.core.coordination.groups.classic.group import Group, Member, Protocols
from anabranch.core.coordination.groups.classic.group_records import group_record
from anabranch.core.coordination.groups.classic.rebalance import (
    join_refused,
    joined,
    keep_alive,
    synced,
)
from anabranch.core.coordination.groups.classic.states import (
    COMPLETING_REBALANCE,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
)
from anabranch.core.coordination.groups.offset_records import nothing_said
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.wire.messages.join_group import JoinGroupResponse
from anabranch.core.wire.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from anabranch.core.coordination.groups.host import Groups

UNKNOWN_MEMBER = ""

MOST_PROTOCOLS = 100
"""Ways to assign that one member may offer; clients have four."""
MOST_OFFERED = 8
"""Of `message.max.bytes`: what a member says under all of them together, which stays in memory."""

MOST_IDS_GIVEN = 10_000
"""Member ids of one group that were given out and not joined with, each until its session's time is
over: over ten times the largest group that anybody runs."""


class Join(NamedTuple):
    """What a JoinGroup request says, whatever its version."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    new_member_id: str
    """The id that the member gets when it has none."""
    needs_known_id: bool = False
    """A new dynamic member is only given its id, and joins with it (from version 4 on)."""
    may_skip_assignment: bool = False
    """The client knows `skip_assignment` (from version 9 on)."""


# Joining.


def join(coordinator: Groups, asked: Join, now_ms: int) -> JoinGroupResponse | Answer:
    """A member joins, again or for the first time. Raises ApiError for the coordinator's state."""
    if not asked.group_id:
        return join_refused(ErrorCode.INVALID_GROUP_ID, asked.member_id)
    config = coordinator.config
    lower, upper = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if not lower <= asked.session_timeout_ms <= upper:
        return join_refused(ErrorCode.INVALID_SESSION_TIMEOUT, asked.member_id)
    if not _is_storable(coordinator, asked):
        return join_refused(ErrorCode.INVALID_REQUEST, asked.member_id)
    if asked.member_id == UNKNOWN_MEMBER:
        group: Group | None = coordinator.find_or_create(asked.group_id, now_ms)
    else:
        group = coordinator.find(asked.group_id, now_ms)
    if group is None:
        return join_refused(ErrorCode.UNKNOWN_MEMBER_ID, asked.member_id)
    if not _has_room(coordinator, group, asked.member_id):
        _drop(coordinator, group, asked.member_id, now_ms)
        return join_refused(ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER)
    if not group.supports(asked.protocol_type, asked.protocols):
        code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        outcome: JoinGroupResponse | Answer = join_refused(code, asked.member_id)
    elif asked.member_id == UNKNOWN_MEMBER:
        outcome = _join_new(coordinator, group, asked, now_ms)
    else:
        outcome = _join_known(coordinator, group, asked, now_ms)
    forget_if_unused(coordinator, group, now_ms)
    return outcome


def _is_storable(coordinator: Groups, asked: Join) -> bool:
    """Whether what the member says under any protocol, which may be the one that is chosen, could
    be part of its group's record (KAFKA-2017).

    Kafka keeps it in memory and fails when the group is to be written.
    """
    most_bytes = coordinator.config.message_max_bytes
    sizes = [len(name) + len(metadata) for name, metadata in asked.protocols]
    return (
        len(sizes) <= MOST_PROTOCOLS
        and max(sizes, default=0) < most_bytes
        and sum(sizes) <= MOST_OFFERED * most_bytes
    )


def _has_room(coordinator: Groups, group: Group, member_id: str) -> bool:
    most = coordinator.config.group_max_size
    member = group.members.get(member_id)
    if group.state is EMPTY:
        return True
    if group.state is PREPARING_REBALANCE:
        waits = member is not None and member.awaiting_join is not None
        return waits or group.awaiting_joins < most
    return member is not None or len(group.members) < most


def _drop(coordinator: Groups, group: Group, member_id: str, now_ms: int) -> None:
    member = group.members.get(member_id)
    if member is not None:
        rebalance.refuse_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)
        group.remove(member)
        rebalance.complete_if_all_joined(coordinator, group, now_ms)


def forget_if_unused(coordinator: Groups, group: Group, now_ms: int) -> None:
    """A group that only a refused or silent client has named leaves nothing behind."""
    if (
        group.state is EMPTY
        and group.generation_id == 0
        and group.protocol_type is None
        and not (group.members or group.pending_members or group.offsets)
        and not group.shard.under_way(group.group_id)
    ):
        coordinator.forget(group, now_ms)


def _join_new(
    coordinator: Groups, group: Group, asked: Join, now_ms: int
) -> JoinGroupResponse | Answer:
    if asked.instance_id is not None:
        replaced_id = group.static_members.get(asked.instance_id)
        if replaced_id is not None:
            replaced = group.members[replaced_id]
            return _replace_static(coordinator, group, asked, replaced, now_ms)
    elif asked.needs_known_id:
        if len(group.pending_members) >= MOST_IDS_GIVEN:
            return join_refused(ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER)
        new_id = asked.new_member_id
        group.pending_members[new_id] = coordinator.after(
            asked.session_timeout_ms, partial(_never_joined, coordinator, group, new_id)
        )
        return join_refused(ErrorCode.MEMBER_ID_REQUIRED, new_id)
    return _add(coordinator, group, asked, asked.new_member_id, now_ms)


def _never_joined(coordinator: Groups, group: Group, member_id: str, now_ms: int) -> None:
    """A client was given a member id and did not come back with it."""
    del group.pending_members[member_id]
    rebalance.complete_if_all_joined(coordinator, group, now_ms)
    forget_if_unused(coordinator, group, now_ms)


def _add(coordinator: Groups, group: Group, asked: Join, member_id: str, now_ms: int) -> Answer:
    pending = group.pending_members.pop(member_id, None)
    if pending is not None:
        pending.cancel()
    if not group.members:
        group.protocol_type = asked.protocol_type
    if group.state is PREPARING_REBALANCE and group.previous_state is EMPTY:
        group.new_member_added = True
    member = Member(member_id, asked.instance_id, asked.client_id, asked.client_host)
    member.protocols = asked.protocols
    member.session_timeout_ms = asked.session_timeout_ms
    member.rebalance_timeout_ms = asked.rebalance_timeout_ms
    member.is_new = True
    group.add(member)
    answer = coordinator.answer()
    group.await_join(member, answer)
    rebalance.expect_first_generation(coordinator, group, member)
    _go_on(coordinator, group, now_ms)
    return answer


def _go_on(coordinator: Groups, group: Group, now_ms: int) -> None:
    if group.state is PREPARING_REBALANCE:
        rebalance.complete_if_all_joined(coordinator, group, now_ms)
    else:
        rebalance.prepare(coordinator, group, now_ms)


def _join_known(
    coordinator: Groups, group: Group, asked: Join, now_ms: int
) -> JoinGroupResponse | Answer:
    if asked.member_id in group.pending_members and asked.instance_id is None:
        return _add(coordinator, group, asked, asked.member_id, now_ms)
    fault = member_fault(group, asked.member_id, asked.instance_id)
    if fault is not None:
        return join_refused(fault, asked.member_id)
    member = group.members[asked.member_id]
    is_leader = member.member_id == group.leader_id
    is_same = member.protocols == asked.protocols
    if group.state is COMPLETING_REBALANCE and is_same:
        return _stay(coordinator, group, member, now_ms)  # its answer was lost on the way
    if group.state is STABLE and is_same and not is_leader:
        return _stay(coordinator, group, member, now_ms)
    return _join_again(coordinator, group, member, asked, now_ms)


def _stay(
    coordinator: Groups, group: Group, member: Member, now_ms: int
) -> JoinGroupResponse | Answer:
    """The generation that there is, once a record that is written now is committed: who leads after
    this broker has it, so that nobody had begun a later generation when the member asked."""
    answer = coordinator.answer()
    response = joined(group, member, with_members=member.member_id == group.leader_id)
    late = join_refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, member.member_id)
    timer = coordinator.after(
        coordinator.config.offsets_commit_timeout_ms, lambda _now_ms: answer.give(late)
    )

    def tell(_now_ms: int) -> None:
        timer.cancel()
        answer.give(response)

    try:
        group.shard.write([nothing_said(group.group_id, now_ms)], now_ms, tell)
    except ApiError as fault:
        timer.cancel()
        return join_refused(fault.code, member.member_id)
    return answer


def _join_again(
    coordinator: Groups, group: Group, member: Member, asked: Join, now_ms: int
) -> Answer:
    """Take over what the member says now, and have everybody join again."""
    _update(group, member, asked)
    rebalance.refuse_join(group, member, ErrorCode.REBALANCE_IN_PROGRESS)
    answer = coordinator.answer()
    group.await_join(member, answer)
    _go_on(coordinator, group, now_ms)
    return answer


def _update(group: Group, member: Member, asked: Join) -> None:
    group.set_protocols(member, asked.protocols)
    member.session_timeout_ms = asked.session_timeout_ms
    member.rebalance_timeout_ms = asked.rebalance_timeout_ms


def member_fault(group: Group, member_id: str, instance_id: str | None) -> ErrorCode | None:
    """Whether the group knows somebody of this id, and of this instance id when one is given."""
    if instance_id is not None:
        known = group.static_members.get(instance_id)
        if known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if known != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return None if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


# Static members that come back.


def _replace_static(
    coordinator: Groups, group: Group, asked: Join, old: Member, now_ms: int
) -> JoinGroupResponse | Answer:
    """A static member started again: it takes its predecessor's place, if possible in peace."""
    was_leader, old_leader = group.leader_id == old.member_id, group.leader_id or ""
    rebalance.refuse_join(group, old, ErrorCode.FENCED_INSTANCE_ID)
    rebalance.refuse_sync(old, ErrorCode.FENCED_INSTANCE_ID)
    was_pending_sync = old.member_id in group.pending_syncs
    assignment = old.assignment
    group.remove(old)
    member = Member(asked.new_member_id, asked.instance_id, asked.client_id, asked.client_host)
    member.assignment = assignment
    group.add(member)
    if was_leader:
        group.leader_id = member.member_id
    if was_pending_sync:
        group.pending_syncs.add(member.member_id)
    _update(group, member, asked)
    keep_alive(coordinator, group, member)
    if group.state is not STABLE or group.choose_protocol() != group.protocol:
        answer = coordinator.answer()
        group.await_join(member, answer)
        _go_on(coordinator, group, now_ms)
        return answer
    return _keep_generation(coordinator, group, member, asked, old_leader, now_ms)


def _keep_generation(
    coordinator: Groups,
    group: Group,
    member: Member,
    asked: Join,
    old_leader: str,
    now_ms: int,
) -> JoinGroupResponse | Answer:
    """The generation stays; only who the member is is written anew."""
    answer = coordinator.answer()
    response = joined(group, member, with_members=False)
    if not asked.may_skip_assignment:
        response.leader = old_leader  # its predecessor, so that it does not assign
    elif group.leader_id == member.member_id:
        response = joined(group, member, with_members=True)
        response.skip_assignment = True
    assignments = {name: each.assignment for name, each in group.members.items()}
    try:
        record = group_record(group, assignments, now_ms)
        group.shard.write([record], now_ms, lambda _now_ms: answer.give(response))
    except ApiError as fault:
        return join_refused(fault.code, member.member_id)
    return answer


# Syncing.


class Sync(NamedTuple):
    """What a SyncGroup request says, whatever its version."""

    group_id: str
    generation_id: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol: str | None
    assignments: dict[str, bytes]


def sync(coordinator: Groups, asked: Sync, now_ms: int) -> SyncGroupResponse | Answer:
    """A member asks for its assignment; the leader brings those of all."""
    if not asked.group_id:
        return SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    group = coordinator.find(asked.group_id, now_ms)
    if group is None:
        return SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    fault = _sync_fault(group, asked)
    if fault is not None:
        return SyncGroupResponse(error_code=fault)
    member = group.members[asked.member_id]
    _note_synced(group, member)
    if group.state is STABLE:
        keep_alive(coordinator, group, member)
        return synced(group, member)
    rebalance.refuse_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
    answer = member.awaiting_sync = coordinator.answer()
    if member.member_id == group.leader_id:
        _assign(coordinator, group, asked.assignments, now_ms)
    return answer


def _sync_fault(group: Group, asked: Sync) -> ErrorCode | None:
    fault = _generation_fault(group, asked.member_id, asked.instance_id, asked.generation_id)
    if fault is not None:
        return fault
    if asked.protocol_type not in (None, group.protocol_type):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if asked.protocol not in (None, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if group.state is PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return None


def _generation_fault(
    group: Group, member_id: str, instance_id: str | None, generation_id: int
) -> ErrorCode | None:
    fault = member_fault(group, member_id, instance_id)
    if fault is None and generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    return fault


def _note_synced(group: Group, member: Member) -> None:
    group.pending_syncs.discard(member.member_id)
    if not group.pending_syncs and group.phase_timer is not None:
        group.phase_timer.cancel()
        group.phase_timer = None


def _assign(coordinator: Groups, group: Group, assignments: dict[str, bytes], now_ms: int) -> None:
    """The leader's word: written first, then handed out."""
    generation_id = group.generation_id

    def hand_out(now_ms: int) -> None:
        if group.state is not COMPLETING_REBALANCE or group.generation_id != generation_id:
            return
        group.become(STABLE, now_ms)
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            answer, member.awaiting_sync = member.awaiting_sync, None
            if answer is not None:
                answer.give(synced(group, member))
                keep_alive(coordinator, group, member)

    try:
        group.shard.write([group_record(group, assignments, now_ms)], now_ms, hand_out)
    except ApiError as fault:
        for member in group.members.values():
            rebalance.refuse_sync(member, fault.code)
        rebalance.prepare(coordinator, group, now_ms)


# Heartbeats.


def heartbeat(
    coordinator: Groups,
    group_id: str,
    generation_id: int,
    member_id: str,
    instance_id: str | None,
    now_ms: int,
) -> ErrorCode:
    """A member is alive, and learns whether it has to join again."""
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    group = coordinator.find(group_id, now_ms)
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    fault = _generation_fault(group, member_id, instance_id, generation_id)
    if fault is not None:
        return fault
    if group.state is EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    keep_alive(coordinator, group, group.members[member_id])
    if group.state is PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


# Leaving.


def leave(
    coordinator: Groups,
    group_id: str,
    member_id: str,
    instance_id: str | None,
    now_ms: int,
) -> ErrorCode:
    """A member leaves; an administrator may name a static one by its instance id alone."""
    group = coordinator.find(group_id, now_ms)
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member_id == UNKNOWN_MEMBER and instance_id is not None:
        member_id = group.static_members.get(instance_id, UNKNOWN_MEMBER)
    pending = group.pending_members.pop(member_id, None)
    if pending is not None:
        pending.cancel()
        rebalance.complete_if_all_joined(coordinator, group, now_ms)
        forget_if_unused(coordinator, group, now_ms)
        return ErrorCode.NONE
    fault = member_fault(group, member_id, instance_id)
    if fault is not None:
        return fault
    rebalance.expel(coordinator, group, group.members[member_id], now_ms)
    return ErrorCode.NONE
