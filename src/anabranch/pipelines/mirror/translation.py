"""Where a group of the source goes on on the target: `translate` for programs, no Spark needed.

    from anabranch.pipelines.mirror.translation import translate
    offsets = translate("mm2.properties", "readers")     # {("east.orders", 0): 41, …}

What: the offsets that the group has at the source, by the exact index; where the source does not
answer, those of its checkpoints on the target. Rule kept: which of the two it is is told.
"""

from __future__ import annotations

import asyncio
import os
from typing import NamedTuple

from anabranch.client.cluster import Cluster
from anabranch.client.connection import ConnectionLost
from anabranch.core.errors import ApiError
from anabranch.core.mirror.config import Config, Flow
from anabranch.core.mirror.formats import Checkpoint, ForeignRecord, read_checkpoint
from anabranch.pipelines.mirror.driver_flow import FlowState
from anabranch.pipelines.mirror.groups import Groups
from anabranch.pipelines.mirror.positions import Place
from anabranch.pipelines.mirror.properties import load_config
from anabranch.pipelines.mirror.remote_topics import shapes
from anabranch.pipelines.mirror.topic_reader import read_on

FAULTS = (ApiError, ConnectionLost)


class Translated(NamedTuple):
    """A group's offsets on the target of a flow."""

    flow: str
    offsets: list[Checkpoint]
    source_fault: str
    """Why the source could not be asked, so that these are its last checkpoints; else empty."""


def translate(
    path: str | os.PathLike[str], group: str, *, flow: str | None = None
) -> dict[Place, int]:
    """(topic on the target, partition) -> the offset at which the group goes on there.

    `path` is the mm2.properties; `flow` names one of its flows, as `east->west`, where there are
    several. Raises BadConfig, ApiError, ConnectionLost, and LookupError for an unknown flow.
    """
    chosen = flow_of(load_config(path), flow)
    found = asyncio.run(translated(chosen, group))
    return {(each.topic, each.partition): each.downstream for each in found.offsets}


def flow_of(config: Config, name: str | None) -> Flow:
    """The flow of a name, or the only one. Raises LookupError."""
    names = [each.name for each in config.flows]
    if name is None and len(names) == 1:
        return config.flows[0]
    for each in config.flows:
        if each.name == name:
            return each
    which = "Name a flow" if name is None else f"There is no flow {name!r}"
    raise LookupError(f"{which}: {', '.join(names)}.")


async def translated(flow: Flow, group: str) -> Translated:
    """A group's offsets on the target. Raises ApiError and ConnectionLost of the target."""
    state = FlowState(flow, lambda _: None)
    try:
        await state.target.metadata([])
        try:
            await state.source.metadata([])
            await look(state)
            return Translated(flow.name, await Groups(state, print).translated(group), "")
        except FAULTS as fault:
            found = await checkpoints(state.target, flow)
            return Translated(
                flow.name, [each for each in found if each.group == group], str(fault)
            )
    finally:
        await state.close()


async def look(state: FlowState) -> None:
    """Learn what both ends have, and change nothing."""
    await state.ledger.read(state.target, looks=True)
    state.topics.mirrored = state.topics.wanted(await shapes(state.source))
    there = await shapes(state.target)
    state.topics.there = {
        name: each for name, each in there.items() if name in state.topics.mirrored
    }


async def checkpoints(target: Cluster, flow: Flow) -> list[Checkpoint]:
    """The newest checkpoint of each group and partition."""
    found: dict[tuple[str, str, int], Checkpoint] = {}
    read = await read_on(target, flow.policy.checkpoints_topic(), {}, looks=True)
    for record in read.records:
        try:
            each = read_checkpoint(record.key or b"", record.value or b"")
        except ForeignRecord:
            continue
        found[each.group, each.topic, each.partition] = each
    return list(found.values())
