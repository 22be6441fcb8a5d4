"""What a flow would do, looked up and not done: for `--validate-only`."""

from __future__ import annotations

from typing import NamedTuple

from anabranch.client.connection import ConnectionLost
from anabranch.core.errors import ApiError
from anabranch.core.mirror.config import Flow
from anabranch.core.mirror.policy import HEARTBEATS
from anabranch.core.mirror.topics import topic_work
from anabranch.core.sentences import number_of
from anabranch.pipelines.mirror.driver_flow import FlowState, SameCluster
from anabranch.pipelines.mirror.groups import Groups
from anabranch.pipelines.mirror.remote_topics import shapes


class FlowReport(NamedTuple):
    """What a flow would do."""

    flow: str
    mode: str
    topics: list[tuple[str, str, int, str]]
    """(name at the source, name on the target, partitions, what happens to it)."""
    groups: list[str]
    notes: list[str]
    faults: list[str]


async def look_at(flow: Flow) -> FlowReport:
    """Look at both ends; what keeps the flow from running is in `faults`."""
    report = FlowReport(flow.name, mode_of(flow), [], [], [], [])
    state = FlowState(flow, report.notes.append)
    try:
        await state.connect()
        mirrored = state.topics.wanted(await shapes(state.source))
        work = topic_work(mirrored, await shapes(state.target))
        report.notes.extend(work.notes)
        for remote, shape in mirrored.items():
            what = "is there"
            if remote in work.create:
                what = "would be created"
            elif remote in work.grow:
                what = f"would grow to {number_of(work.grow[remote], 'partition')}"
            report.topics.append((shape.name, remote, shape.partitions, what))
        report.faults.extend(await factor_faults(state, creates=bool(work.create)))
        groups = Groups(state, report.notes.append)
        await groups.refresh()
        report.groups.extend(groups.names)
        report.notes.append(f"{number_of(len(groups.names), 'group')} would get checkpoints")
    except (ApiError, ConnectionLost, SameCluster) as fault:
        report.faults.append(str(fault))
    finally:
        await state.close()
    return report


async def factor_faults(state: FlowState, *, creates: bool) -> list[str]:
    """What is wrong with the replication factors of topics that would be created: those of the
    mirror's own, and with `creates` mirrored ones."""
    flow, policy = state.flow, state.policy
    source, target = (state.source, flow.source), (state.target, flow.target)
    wanted = [
        ("offset.storage.", policy.positions_topic(), *target),
        ("offset.storage.", policy.index_topic(), *target),
    ]
    if flow.on("emit.checkpoints.enabled"):
        wanted.append(("checkpoints.topic.", policy.checkpoints_topic(), *target))
    if flow.on("emit.offset-syncs.enabled"):
        if flow.settings["offset-syncs.topic.location"] == "target":
            wanted.append(("offset-syncs.topic.", policy.offset_syncs_topic(flow.source), *target))
        else:
            wanted.append(("offset-syncs.topic.", policy.offset_syncs_topic(flow.target), *source))
    if flow.on("emit.heartbeats.enabled"):
        wanted.append(("heartbeats.topic.", HEARTBEATS, *target))
    there = {alias: await shapes(cluster) for cluster, alias in (source, target)}
    found = {}
    if creates:
        found["replication.factor"] = target
    found |= {f"{prefix}replication.factor": (cluster, alias)
              for prefix, name, cluster, alias in wanted if name not in there[alias]}  # fmt: skip
    return [
        f"{key} = {flow.number(key)}: {alias} has {number_of(len(cluster.brokers), 'broker')}. Set "
        f"it to at most {len(cluster.brokers)}, or to -1 for the cluster's default."
        for key, (cluster, alias) in found.items()
        if flow.number(key) > len(cluster.brokers)
    ]


def mode_of(flow: Flow) -> str:
    """How a flow writes, in a sentence."""
    if flow.is_exactly_once:
        return "exactly once, in transactions"
    committed = ", committed records only" if flow.read_committed else ""
    return f"at least once, with an idempotent producer{committed}"
