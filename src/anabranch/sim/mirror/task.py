"""One attempt at a slot, as a process that may end or wait for ever at each of its requests.

What: `attempt` is a generator; each `yield` is a request on its way, and whoever drives it may go
on with others first, stop it there, or throw Trouble into it, which says nothing about whether the
request was done. Rule kept: the decisions are those of `core.mirror`; this does in order what
`pipelines.mirror.slot` does.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import NamedTuple

from anabranch.core.mirror.formats import Position, position_record
from anabranch.core.mirror.index import UNKNOWN_EPOCH, Chunk, IndexRun, chunk_value
from anabranch.core.mirror.landed import (
    Origin,
    chunks_after,
    is_other_topic,
    landed_runs,
    notes_position,
)
from anabranch.core.mirror.ledger import Ledger
from anabranch.core.mirror.repack import repacked
from anabranch.core.mirror.restamp import Fit, Outgoing, codec_of, groups_of, restamped
from anabranch.core.mirror.wave_plan import (
    counted_position,
    is_superseded,
    start_of,
    transactional_id,
)
from anabranch.core.wire.batch import read_header
from anabranch.core.wire.records import Record, build_batch
from anabranch.sim.mirror.cluster import Cluster, Fenced, Place, Session, Trouble
from anabranch.sim.mirror.direction import SimFlow
from anabranch.sim.mirror.log import Entry, OutOfRange

Steps = Generator[None, None, None]
FIT = Fit(limit_bytes=1 << 20, small_bytes=110, merged_bytes=400)
"""A batch of a record is small, and some together are enough."""
MOST_ROUNDS = 6
MOST_BATCHES = 4
MOST_LIVES = 4
"""How often a task begins again after trouble before its time is over."""
LONGEST_WAIT = 60
"""Turns that a transaction of another slot is waited for."""
PLACE_OF_NOTES = 0
"""Positions and index have a partition each here: their order is what matters."""


class Work(NamedTuple):
    """A slot for a wave: what `SlotWork` has."""

    flow: SimFlow
    slot: int
    partitions: tuple[Origin, ...]
    plan: bytes


@dataclass
class Track:
    """A partition on its way."""

    origin: Origin
    following: int
    begins: bool
    chunk: Chunk | None
    epoch: int = UNKNOWN_EPOCH
    is_noted: bool = True
    unnoted: list[Chunk] = field(default_factory=list)

    @property
    def place(self) -> Place:
        """At the source."""
        return self.origin.topic, self.origin.partition


def attempt(work: Work) -> Steps:
    """Mirror for one wave."""
    for _ in range(MOST_LIVES):
        try:
            yield from _live(work)
            return
        except Trouble:
            continue
        except Fenced:
            return


def _live(work: Work) -> Steps:
    flow = work.flow
    session = None
    if flow.is_exactly_once:
        yield
        session = flow.target.init(transactional_id(flow.source.alias, work.slot))
    ledger = Ledger(flow.policy)
    yield from read_ledger(flow, ledger)
    if is_superseded(work.plan, ledger.plan):
        return
    tracks = []
    for origin in work.partitions:
        yield
        tracks.append(_begun(flow, ledger, origin))
    for _ in range(flow.random.randrange(1, MOST_ROUNDS)):
        yield
        yield from _round(flow, session, [each for each in tracks if each is not None])
        if session is None and flow.random.random() < 0.5:
            yield from _write_notes(flow, [each for each in tracks if each is not None])
    yield from _write_notes(flow, [each for each in tracks if each is not None])


def read_ledger(flow: SimFlow, ledger: Ledger) -> Steps:
    """Positions first, then the index, as `pipelines.mirror.positions` reads them."""
    positions, index = flow.policy.positions_topic(), flow.policy.index_topic()
    yield from _settled(flow, positions)
    ledger.take_positions(_read_on(flow.target, positions, ledger.positions_read_to))
    yield from _settled(flow, index)
    ledger.take_index(_read_on(flow.target, index, ledger.index_read_to))


def read_now(flow: SimFlow, ledger: Ledger) -> None:
    """What is committed and not behind an open transaction."""
    positions, index = flow.policy.positions_topic(), flow.policy.index_topic()
    ledger.take_positions(_read_on(flow.target, positions, ledger.positions_read_to))
    ledger.take_index(_read_on(flow.target, index, ledger.index_read_to))


def _settled(flow: SimFlow, topic: str) -> Steps:
    """Wait until the transactions have ended that are open when it begins: what is committed behind
    the first of them is not to be read before."""
    yield
    log = flow.target.log((topic, PLACE_OF_NOTES))
    end = log.end
    for _ in range(LONGEST_WAIT):
        if log.stable_end >= end:
            return
        yield
    raise Trouble


def _read_on(cluster: Cluster, topic: str, read_to: dict[int, int]) -> list[Record]:
    log = cluster.log((topic, PLACE_OF_NOTES))
    found = log.records(read_to.get(PLACE_OF_NOTES, 0))
    read_to[PLACE_OF_NOTES] = log.stable_end
    return found


def _begun(flow: SimFlow, ledger: Ledger, origin: Origin) -> Track | None:
    place = origin.topic, origin.partition
    if flow.source.topics[origin.topic].topic_id != origin.source_id:
        return None
    if flow.target.topics[flow.policy.remote_topic(origin.topic)].topic_id != origin.target_id:
        return None
    log = flow.source.log(place)
    chunk = ledger.newest(place, source_id=origin.source_id, target_id=origin.target_id)
    others = is_other_topic(chunk, origin)
    position = counted_position(
        ledger.positions.get(place),
        None if chunk is None or any(others) else chunk.runs[-1].upstream_end,
        is_exactly_once=flow.is_exactly_once,
    )
    following = 0 if position is None else position + 1
    epoch = UNKNOWN_EPOCH if chunk is None or any(others) else chunk.leader_epoch
    start = start_of(
        place, position, log_start=log.start, log_end=log.end, other_source=others[0],
        other_target=others[1], diverged_at=log.parted(epoch, following),
    )  # fmt: skip
    return Track(origin, start.offset, start.begins, None if start.begins else chunk, epoch)


def _round(flow: SimFlow, session: Session | None, tracks: list[Track]) -> Steps:
    """Take what is there, write it, and note it."""
    landed: list[tuple[Track, list[IndexRun], Entry]] = []
    for track in flow.random.sample(tracks, len(tracks)):
        entries = _fetched(flow, track)
        if not entries:
            continue
        runs: list[IndexRun] = []
        for outgoing in _packed(entries):
            yield
            place = flow.policy.remote_topic(track.origin.topic), track.origin.partition
            base = flow.target.produce(session, place, outgoing.batch)
            runs += landed_runs(outgoing.runs, [(base, read_header(outgoing.batch).record_count)])
        landed.append((track, runs, entries[-1]))
    for track, runs, last in landed:
        track.unnoted += chunks_after(
            track.chunk, runs, track.origin, begins=track.begins, leader_epoch=last.epoch
        )
        track.chunk = track.unnoted[-1] if track.unnoted else track.chunk
        track.following, track.epoch, track.is_noted = last.last_offset + 1, last.epoch, False
    if session is not None and landed:
        yield from _write_notes(flow, [track for track, _, _ in landed], session)
        yield
        flow.target.end(session, commits=True)
        yield


def _fetched(flow: SimFlow, track: Track) -> list[Entry]:
    """What comes next; where the log is another one, the track begins there."""
    log = flow.source.log(track.place)
    if flow.source.topics[track.origin.topic].topic_id != track.origin.source_id:
        return []
    diverged_at = log.parted(track.epoch, track.following)
    most = flow.random.randrange(1, MOST_BATCHES + 1)
    try:
        if diverged_at is None:
            return list(log.shown(track.following, committed=True, most=most))
    except OutOfRange:
        pass
    start = start_of(
        track.place, track.following - 1, log_start=log.start, log_end=log.end,
        diverged_at=diverged_at,
    )  # fmt: skip
    track.following, track.epoch = start.offset, UNKNOWN_EPOCH
    return []


def _packed(entries: list[Entry]) -> list[Outgoing]:
    """The batches for the target, as `pipelines.mirror.batches` makes them."""
    buffer = b"".join(entry.batch for entry in entries)
    found: list[Outgoing] = []
    at, batches = 0, []
    for entry in entries:
        if entry.batch:
            batches.append((at, read_header(entry.batch)))
            at += len(entry.batch)
    for group in groups_of(batches, FIT):
        if group.is_opened:
            positions = [position for position, _ in group.members]
            found += repacked(buffer, positions, codec_of(group, FIT), FIT.limit_bytes)
        else:
            found.append(restamped(buffer, *group.members[0]))
    return found


def _write_notes(flow: SimFlow, tracks: list[Track], session: Session | None = None) -> Steps:
    """The index first, then positions."""
    moved = [each for each in tracks if not each.is_noted]
    chunks = [chunk for each in moved for chunk in each.unnoted]
    yield from write(
        flow.target, session, flow.policy.index_topic(),
        {each.key: chunk_value(each) for each in chunks},
    )  # fmt: skip
    positions = [
        Position(flow.source.alias, *each.place, each.following - 1)
        for each in moved
        if notes_position(each.chunk, begins=each.begins)
    ]
    topic = flow.policy.positions_topic()
    yield from write(flow.target, session, topic, dict(map(position_record, positions)))
    for each in moved:
        each.unnoted.clear()
        each.is_noted = True


def write(
    target: Cluster, session: Session | None, topic: str, records: dict[bytes, bytes | None]
) -> Steps:
    """Keyed records into a topic of the mirror's own."""
    if records:
        yield
        pairs = enumerate(records.items())
        batch = build_batch([Record(at, 0, key, value) for at, (key, value) in pairs])
        target.produce(session, (topic, PLACE_OF_NOTES), batch)
