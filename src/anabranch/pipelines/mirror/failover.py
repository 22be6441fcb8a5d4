"""Going over to the target of a flow, and back: what it costs is told before anything is done.

What: `failover_plan` says for a flow A->B where each group of A goes on on B, how much it reads
again, which records never arrived, and which topics of B have records that are not A's;
`failback_plan` says the same for groups that go back from B to A; `execute` commits the groups'
offsets and, for a flow back under the same names, the positions at which it begins. Rules kept:
while the cluster that is left answers, a group reads nothing again and skips nothing; a group with
members is never moved; every step has its undo. Source: KIP-545 for the part that MirrorMaker 2
has.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import msgspec

from anabranch.client.cluster import Cluster
from anabranch.client.committed import Committed
from anabranch.client.connection import ConnectionLost
from anabranch.client.fetch import list_offsets
from anabranch.client.groups import commit_offsets, committed_offsets, describe_group, list_groups
from anabranch.client.ranges import RangeLost, ReadingStalled, read_range
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.mirror.config import Config, Flow
from anabranch.core.mirror.formats import Position, position_record
from anabranch.core.partition.protocol import READ_COMMITTED
from anabranch.core.sentences import number_of
from anabranch.core.types import EARLIEST, LATEST
from anabranch.core.wire.batch import walk
from anabranch.pipelines.mirror.driver_flow import FlowState
from anabranch.pipelines.mirror.groups import Groups
from anabranch.pipelines.mirror.positions import Place
from anabranch.pipelines.mirror.remote_topics import shapes
from anabranch.pipelines.mirror.topic_reader import READING
from anabranch.pipelines.mirror.translation import checkpoints, look

FAULTS = (ApiError, ConnectionLost, RangeLost, ReadingStalled)
MARKER = 1
"""Offsets that the end of a transaction takes on the target, behind the last record."""


class GroupMove(msgspec.Struct, kw_only=True):
    """One group in one partition of the cluster that it goes to."""

    group: str
    topic: str
    partition: int
    offset: int
    """Where it goes on."""
    now: int
    """Where it is there now; -1 without an offset."""
    from_topic: str
    from_offset: int
    read_again: int | None
    """Records that it reads a second time; None where that cannot be known."""
    why: str = ""


class Missing(msgspec.Struct, frozen=True):
    """Records of a partition that never arrived."""

    topic: str
    partition: int
    first: int
    records: int


class Ahead(msgspec.Struct, frozen=True):
    """Records of a partition on the target that the mirror did not write."""

    topic: str
    partition: int
    first: int
    records: int


class Step(msgspec.Struct, kw_only=True):
    """One step, and how to undo it."""

    what: str
    undo: str
    is_ours: bool = False
    """Whether `--execute` does it."""
    group: str = ""
    """The group that it moves."""
    done: bool = False


class Plan(msgspec.Struct, kw_only=True):
    """What going over means."""

    kind: str
    flow: str
    to: str
    left_answers: bool
    left_fault: str = ""
    groups: list[GroupMove] = []
    missing: list[Missing] = []
    ahead: list[Ahead] = []
    steps: list[Step] = []
    notes: list[str] = []
    blocked: list[str] = []
    """Why nothing is executed."""
    starts: dict[str, int] = {}
    """`topic-partition` -> the offset at which the flow back begins, where it has no position."""


async def failover_plan(flow: Flow) -> Plan:
    """What going from the source of a flow to its target means. Raises ApiError and ConnectionLost
    where the target cannot be asked."""
    state = FlowState(flow, lambda _: None)
    plan = Plan(kind="failover", flow=flow.name, to=flow.target, left_answers=True)
    try:
        await state.target.metadata([])
        try:
            await state.source.metadata([])
            await look(state)
            await _from_a_living_source(state, plan)
        except FAULTS as fault:
            plan.left_answers, plan.left_fault = False, str(fault)
            await _from_checkpoints(state, plan)
        await _ahead(state, plan)
        await _block_active(state.target, plan)
        _failover_steps(flow, plan)
        return plan
    finally:
        await state.close()


async def _from_a_living_source(state: FlowState, plan: Plan) -> None:
    groups = Groups(state, plan.notes.append)
    await groups.refresh()
    for group in groups.names:
        there = await committed_offsets(state.target, group)
        for each in await groups.translated(group):
            place = each.topic, each.partition
            source = state.topics.mirrored[each.topic].name
            plan.groups.append(
                GroupMove(
                    group=group, topic=each.topic, partition=each.partition,
                    offset=each.downstream, now=there.get(place, -1), from_topic=source,
                    from_offset=each.upstream, read_again=0,
                )
            )  # fmt: skip
    for remote, shape in state.topics.mirrored.items():
        if state.policy.is_heartbeats(shape.name):
            continue  # they never cease, and no consumer misses them
        starts = await list_offsets(state.source, shape.name, EARLIEST, ready_only=True)
        ends = await list_offsets(state.source, shape.name, LATEST, ready_only=True)
        for partition, end in ends.items():
            first = starts.get(partition, 0)
            if remote in state.topics.there:
                first = max(first, state.ledger.positions.get((shape.name, partition), -1) + 1)
            if first < end:
                plan.missing.append(Missing(shape.name, partition, first, end - first))


async def _from_checkpoints(state: FlowState, plan: Plan) -> None:
    """The source is gone: groups go on at their last checkpoints, or where they were synced."""
    flow, policy = state.flow, state.flow.policy
    await state.ledger.read(state.target, looks=True)
    state.topics.there = await shapes(state.target)
    found = await checkpoints(state.target, flow)
    for each in sorted(found):
        there = await committed_offsets(state.target, each.group)
        now = there.get((each.topic, each.partition), -1)
        plan.groups.append(
            GroupMove(
                group=each.group, topic=each.topic, partition=each.partition,
                offset=max(each.downstream, now), now=now,
                from_topic=policy.upstream_topic(each.topic) or each.topic,
                from_offset=each.upstream, read_again=None,
                why="what it consumed since its last checkpoint is read again",
            )
        )  # fmt: skip
    plan.notes.append(
        f"{flow.source} does not answer, so what its groups consumed since their last checkpoints "
        "and what never arrived cannot be known. sync.group.offsets.continuous = true keeps the "
        "first about a second short."
    )


async def _ahead(state: FlowState, plan: Plan) -> None:
    """Partitions of the target with more than the mirror wrote."""
    policy = state.policy
    for place in sorted(state.ledger.chunks):
        remote = policy.remote_topic(place[0])
        shape = state.topics.there.get(remote)
        chunk = state.ledger.newest(place)
        if shape is None or chunk is None or chunk.target_id != shape.topic_id:
            continue
        behind = chunk.runs[-1].downstream_end
        records = await _records_from(state.target, remote, place[1], behind)
        if records:
            plan.ahead.append(Ahead(remote, place[1], behind, records))


async def _records_from(cluster: Cluster, topic: str, partition: int, start: int) -> int:
    """How many committed records a partition has from an offset on; markers are none."""
    end = (await list_offsets(cluster, topic, LATEST, [partition], isolation_level=READ_COMMITTED))[
        partition
    ]
    found = 0
    async for part in read_range(cluster, topic, partition, start, end, reading=READING):
        committed = Committed(part.aborted)
        for position, header in walk(part.records):
            if committed.shows(header, part.records, position) and header.base_offset >= start:
                found += header.record_count
    return found


async def _block_active(cluster: Cluster, plan: Plan) -> None:
    for group in dict.fromkeys(each.group for each in plan.groups):
        try:
            found = await describe_group(cluster, group)
        except ApiError as fault:
            if fault.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            continue
        if found.members:
            plan.blocked.append(
                f"Group {group} has {number_of(len(found.members), 'member')} on {plan.to}: stop "
                "them, since "
                "the offsets of a group with members cannot be changed."
            )


def _failover_steps(flow: Flow, plan: Plan) -> None:
    source, target = flow.source, flow.target
    if plan.left_answers:
        plan.steps.append(Step(
            what=f"Stop the producers and consumers of {source}.",
            undo=f"Start them again on {source}.",
        ))  # fmt: skip
        behind = sum(each.records for each in plan.missing)
        plan.steps.append(Step(
            what="Wait until `anabranch mirror status` shows 0 records, heartbeats aside, then "
                 f"stop the mirror (now it shows {number_of(behind, 'record')}).",
            undo="Start the mirror again.",
        ))  # fmt: skip
    else:
        plan.steps.append(Step(what="Stop the mirror.", undo="Start the mirror again."))
    _group_steps(flow.target_client["bootstrap.servers"], target, plan)
    names = "the same names" if flow.policy.is_identity else f"names such as {source}.orders"
    plan.steps.append(Step(
        what=f"Start consumers on {target}; they find the topics of {source} under {names}.",
        undo=f"Stop them. `anabranch mirror failback` brings their groups back to {source}.",
    ))  # fmt: skip
    plan.steps.append(Step(
        what=f"Start producers on {target}.",
        undo=f"Stop them; mirror {target}->{source} first if their records are to be kept.",
    ))  # fmt: skip


def _group_steps(bootstrap: str, cluster: str, plan: Plan) -> None:
    for group in dict.fromkeys(each.group for each in plan.groups):
        moves = [each for each in plan.groups if each.group == group and each.offset != each.now]
        if moves:
            plan.steps.append(Step(
                what=f"Commit {number_of(len(moves), 'offset')} of group {group} on {cluster}.",
                undo=_undo(bootstrap, group, moves), is_ours=True, group=group,
            ))  # fmt: skip


def _undo(bootstrap: str, group: str, moves: list[GroupMove]) -> str:
    """Commands that put a group back where it is now."""
    server, name = shlex.quote(bootstrap), shlex.quote(group)
    if all(each.now < 0 for each in moves):
        return f"anabranch groups delete --bootstrap-server {server} --group {name}"
    return "; ".join(
        f"anabranch groups reset-offsets --bootstrap-server {server} --group {name} "
        f"--topic {shlex.quote(f'{each.topic}:{each.partition}')} --to-offset {each.now} --execute"
        for each in moves
        if each.now >= 0
    )


async def failback_plan(config: Config, flow: Flow) -> Plan:
    """What going back from the target of a flow to its source means. Raises ApiError and
    ConnectionLost where either cannot be asked: nobody goes back to a cluster that is away."""
    state = FlowState(flow, lambda _: None)
    back = next((each for each in config.flows
                 if (each.source, each.target) == (flow.target, flow.source)), None)  # fmt: skip
    plan = Plan(kind="failback", flow=flow.name, to=flow.source, left_answers=True)
    try:
        await state.connect()
        await look(state)
        back_state = None if back is None else FlowState(back, lambda _: None)
        try:
            if back_state is not None:
                await look(back_state)
            await _groups_back(state, back_state, plan)
            await _ahead(state, plan)
            if back_state is not None:
                await _starts_back(state, back_state, plan)
        finally:
            if back_state is not None:
                await back_state.close()
        await _block_active(state.source, plan)
        _failback_steps(flow, back, plan)
        return plan
    finally:
        await state.close()


async def _groups_back(state: FlowState, back: FlowState | None, plan: Plan) -> None:
    flow = state.flow
    found = await list_groups(state.target)
    names = [each.group_id for each in found.groups if flow.groups.takes(each.group_id)]
    sources = {remote: shape.name for remote, shape in state.topics.mirrored.items()}
    for group in names:
        committed = await committed_offsets(state.target, group)
        there = await committed_offsets(state.source, group)
        own = {} if back is None else await _translated_back(back, group)
        for (topic, partition), offset in sorted(committed.items()):
            if topic in sources and topic in state.topics.there:
                place = sources[topic], partition
                known = own.get((topic, partition))
                plan.groups += _back(state, group, topic, place, offset, there, known)
            elif (topic, partition) in own:
                remote, back_offset = own[topic, partition]
                place = remote, partition
                plan.groups.append(_move(group, place, back_offset, there, topic, offset))


async def _translated_back(back: FlowState, group: str) -> dict[Place, tuple[str, int]]:
    """Place on the cluster that is left -> (topic, offset) where the flow back has brought it."""
    names = {remote: shape.name for remote, shape in back.topics.mirrored.items()}
    return {
        (names[each.topic], each.partition): (each.topic, each.downstream)
        for each in await Groups(back, lambda _: None).translated(group)
    }


def _back(
    state: FlowState, group: str, topic: str, place: Place, offset: int, there: Mapping[Place, int],
    known: tuple[str, int] | None,
) -> list[GroupMove]:  # fmt: skip
    """A mirrored topic of a group that goes back: by the index of the flow that brought it; behind
    its end, where records are not from there, by that of the flow back."""
    index = state.ledger.index(
        place, source_id=state.topics.mirrored[topic].topic_id,
        target_id=state.topics.there[topic].topic_id,
    )  # fmt: skip
    behind = offset - index.downstream_end - (MARKER if state.flow.is_exactly_once else 0)
    if behind > 0 and known is not None:
        return [_move(group, (known[0], place[1]), known[1], there, topic, offset)]
    upstream = index.upstream_of(offset)
    if upstream is None:
        return []
    move = _move(group, place, upstream, there, topic, offset)
    if behind > 0:
        move.read_again, move.why = behind, "these records are not mirrored back yet"
    return [move]


def _move(
    group: str, place: Place, offset: int, there: Mapping[Place, int], topic: str, before: int
) -> GroupMove:
    return GroupMove(
        group=group, topic=place[0], partition=place[1], offset=offset,
        now=there.get(place, -1), from_topic=topic, from_offset=before, read_again=0,
    )  # fmt: skip


async def _starts_back(state: FlowState, back: FlowState, plan: Plan) -> None:
    """Under the same names on both sides, the flow back must not bring back what came from there:
    it begins behind what was mirrored."""
    if not (state.policy.is_identity and back.policy.is_identity):
        return
    for remote, shape in state.topics.there.items():
        for partition in range(shape.partitions):
            place = state.topics.mirrored[remote].name, partition
            chunk = state.ledger.newest(place)
            if chunk is None or (remote, partition) in back.ledger.positions:
                continue
            plan.starts[f"{remote}-{partition}"] = chunk.runs[-1].downstream_end


def _failback_steps(flow: Flow, back: Flow | None, plan: Plan) -> None:
    source, target = flow.source, flow.target
    plan.steps.append(Step(
        what=f"Stop the producers and consumers of {target}.",
        undo=f"Start them again on {target}.",
    ))  # fmt: skip
    if plan.starts and back is not None:
        plan.steps.append(Step(
            what=f"Have {back.name} begin behind what {flow.name} brought, in "
                 f"{number_of(len(plan.starts), 'partition')}.",
            undo=f"Delete the positions in {back.policy.positions_topic()} on {source}: the flow "
                 "then begins at the start of each topic.",
            is_ours=True,
        ))  # fmt: skip
    if back is None and plan.ahead:
        plan.notes.append(
            f"{target} has records that are not from {source}; enable {target}->{source} to bring "
            "them there."
        )
    elif back is not None:
        plan.steps.append(Step(
            what=f"Mirror {back.name} until `anabranch mirror status` shows 0 records, heartbeats "
                 "aside.",
            undo="Stop the mirror.",
        ))  # fmt: skip
    _group_steps(flow.source_client["bootstrap.servers"], source, plan)
    plan.steps.append(Step(
        what=f"Start consumers and producers on {source}.",
        undo=f"Stop them. `anabranch mirror failover` brings their groups to {target} again.",
    ))  # fmt: skip


async def execute(plan: Plan, config: Config, flow: Flow) -> None:
    """Do the steps that are ours. Raises ApiError and ConnectionLost; what is done stays done, and
    is marked in the plan."""
    state = FlowState(flow, lambda _: None)
    cluster = state.target if plan.kind == "failover" else state.source
    try:
        await cluster.metadata([])
        for step in plan.steps:
            if step.group:
                moves = {
                    (each.topic, each.partition): each.offset
                    for each in plan.groups
                    if each.group == step.group and each.offset != each.now
                }
                await commit_offsets(cluster, step.group, moves)
            elif step.is_ours:
                await _write_starts(cluster, config, flow, plan)
            step.done = step.is_ours
    finally:
        await state.close()


async def _write_starts(cluster: Cluster, config: Config, flow: Flow, plan: Plan) -> None:
    from anabranch.pipelines.mirror.writer import AtLeastOnce, KeyedRecords

    back = next(each for each in config.flows
                if (each.source, each.target) == (flow.target, flow.source))  # fmt: skip
    state = FlowState(back, lambda _: None)
    try:
        await state.open()
        records = {}
        for name, start in plan.starts.items():
            topic, _, partition = name.rpartition("-")
            key, value = position_record(Position(back.source, topic, int(partition), start - 1))
            records[key] = value
        writer = await AtLeastOnce.open(cluster)
        topic = back.policy.positions_topic()
        count = len((await cluster.topic(topic)).partitions)
        await writer.note(KeyedRecords(topic, count, records))
        await writer.close()
    finally:
        await state.close()
