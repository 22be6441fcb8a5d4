"""Groups' offsets on both sides: which checkpoints are written, which groups are moved.

What: `due` decides for one offset of a group, `to_sync` which offsets of a group the target is
given, `syncs_of` which pairs MirrorMaker 2's own readers need. Rules kept: a checkpoint moves back
on the target only when the group moved back at the source; a group is moved on the target only
while it has no members there, forward, to where it has no offset yet, or back as its own member did
at the source. Source: KIP-382, KIP-545, and MirrorMaker 2's `MirrorCheckpointTask` and
`OffsetSyncWriter`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from anabranch.core.mirror.formats import Checkpoint, OffsetSync
from anabranch.core.mirror.index import IndexRun
from anabranch.core.mirror.policy import Policy

Place = tuple[str, int]


def remote_name(topic: str, policy: Policy, target: str) -> str:
    """What a group of the source reads on the target: a topic that came from there has its own
    name again."""
    upstream = policy.upstream_topic(topic)
    if policy.topic_source(topic) == target and upstream is not None:
        return upstream
    return policy.remote_topic(topic)


def due(last: Checkpoint | None, upstream: int, downstream: int) -> bool:
    """Whether a group's offset, and where that is on the target, make a new checkpoint."""
    if last is None or upstream < last.upstream:
        return True
    return downstream > last.downstream


class SyncState(msgspec.Struct):
    """What was last written of a partition's offset syncs, in one life of the mirror."""

    synced_downstream: int = -1
    upstream: int = -1
    """Of the last record that was seen."""
    downstream: int = -1


def syncs_of(
    state: SyncState, topic: str, partition: int, run: IndexRun, most_lag: int
) -> list[OffsetSync]:
    """The syncs that a run calls for, `state` going on: its first record after a gap, where the
    target went back and as the first of this life; its last one where the last sync is `most_lag`
    records behind."""
    found = []
    last = run.upstream_end - 1, run.downstream_end - 1
    is_new = state.synced_downstream < 0 or run.upstream != state.upstream + 1
    if is_new or run.downstream < state.downstream:
        found.append(OffsetSync(topic, partition, run.upstream, run.downstream))
        state.synced_downstream = run.downstream
    if last[1] > state.synced_downstream and last[1] - state.synced_downstream > most_lag:
        found.append(OffsetSync(topic, partition, *last))
        state.synced_downstream = last[1]
    state.upstream, state.downstream = last
    return found


class Synced(NamedTuple):
    """What a group was given on the target, and the source's offset that it stands for."""

    upstream: int
    downstream: int


def to_sync(
    wanted: Mapping[Place, Synced], there: Mapping[Place, int], given: Mapping[Place, Synced],
) -> dict[Place, int]:  # fmt: skip
    """The offsets that a group without members gets on the target.

    `there` is what it has now, `given` what it last got from here. It goes back only where it still
    has what it got, and has gone back at the source since.
    """
    found = {}
    for place, synced in wanted.items():
        current = there.get(place, -1)
        before = given.get(place)
        is_rewind = (
            before is not None
            and current == before.downstream
            and synced.upstream < before.upstream
            and synced.downstream < current
        )
        if current < 0 or synced.downstream > current or is_rewind:
            found[place] = synced.downstream
    return found


class ReadAgain(NamedTuple):
    """What a group reads twice when it goes over: records of a partition."""

    topic: str
    partition: int
    records: int


def read_again(committed: Mapping[Place, int], synced: Mapping[Place, int]) -> list[ReadAgain]:
    """What each partition's readers would read again: what was consumed at the source since the
    offset that stands for theirs on the target. 0 where that is the offset they committed."""
    found: Iterable[tuple[Place, int]] = (
        (place, offset - synced.get(place, 0)) for place, offset in sorted(committed.items())
    )
    return [ReadAgain(*place, max(0, count)) for place, count in found]
