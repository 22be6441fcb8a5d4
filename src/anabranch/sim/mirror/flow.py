"""The driver of a flow, as a process that may end at each of its requests.

What: `Driver.run` plans waves, starts attempts, and writes checkpoints meanwhile; another driver
begins with nothing but what the target says. Rule kept: decisions are those of `core.mirror`; this
does in order what `pipelines.mirror` does.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from anabranch.core.mirror.checkpoints import Synced, due, to_sync
from anabranch.core.mirror.formats import Checkpoint, checkpoint_record, read_checkpoint
from anabranch.core.mirror.index import PLAN_KEY, below
from anabranch.core.mirror.landed import Origin, is_other_topic
from anabranch.core.mirror.ledger import Ledger
from anabranch.core.mirror.topics import TopicShape, topic_work
from anabranch.core.mirror.wave_plan import assigned, slots_of
from anabranch.sim.mirror.checks import Checks
from anabranch.sim.mirror.cluster import Place, Trouble
from anabranch.sim.mirror.direction import SimFlow
from anabranch.sim.mirror.task import PLACE_OF_NOTES, Steps, Work, read_ledger, read_now, write

Start = Callable[[Work], Callable[[], bool]]
"""Starts the attempts at a slot, and hands back what says that they are over."""

DUTIES_A_STEP = 0.1
"""How often checkpoints are looked at in a wave."""


class Driver:
    """One life of a driver."""

    def __init__(self, flow: SimFlow, checks: Checks, start: Start) -> None:
        self.flow = flow
        self._checks = checks
        self.waves = 0
        self._start = start
        self._slots: dict[Place, int] | None = None
        self._name = b""
        """Of the plan."""
        self._ledger = Ledger(flow.policy)
        self._mirrored: dict[str, TopicShape] = {}
        self._there: dict[str, TopicShape] = {}
        self._last: dict[tuple[str, Place], Checkpoint] | None = None
        self._given: dict[str, dict[Place, Synced]] = {}

    def run(self) -> Steps:
        """Wave after wave."""
        while True:
            try:
                yield from self._wave()
            except Trouble:
                continue

    def _wave(self) -> Steps:
        yield from self._refresh()
        running = [self._start(work) for work in (yield from self._plan())]
        while not all(is_over() for is_over in running):
            yield
            if self.flow.random.random() < DUTIES_A_STEP:
                yield from self._duties()
        yield from self._duties()
        self.waves += 1

    def _refresh(self) -> Steps:
        yield
        self._mirrored = self.flow.wanted()
        target = self.flow.target
        work = topic_work(self._mirrored, target.shapes())
        for name, partitions in (work.create | work.grow).items():
            yield
            target.create(name, partitions)
        yield
        self._there = target.shapes()

    def _plan(self) -> Generator[None, None, list[Work]]:
        flow = self.flow
        origins = [
            Origin(shape.name, partition, shape.topic_id, self._there[name].topic_id)
            for name, shape in self._mirrored.items()
            if name in self._there
            for partition in range(min(shape.partitions, self._there[name].partitions))
        ]
        known = list(flow.target.producers) if self._slots is None else []
        places = [each[:2] for each in origins]
        plan = assigned(flow.source.alias, places, flow.slots, self._slots, known_ids=known)
        if plan.fence:
            self._slots = None  # unless it comes to an end, the next plan is a first one
            self._name = flow.random.randbytes(8)
            yield from write(flow.target, None, flow.policy.index_topic(), {PLAN_KEY: self._name})
        for name in plan.fence if flow.is_exactly_once else ():
            yield
            flow.target.init(name)
        yield from read_ledger(flow, self._ledger)
        self._slots = slots_of(plan)
        by_place = {each[:2]: each for each in origins}
        return [
            Work(flow, slot, tuple(by_place[each] for each in places), self._name)
            for slot, places in plan.by_slot.items()
            if places
        ]

    # Duties.

    def _duties(self) -> Steps:
        try:
            yield from read_ledger(self.flow, self._ledger)
            yield from self._groups()
            yield from self._trim()
        except Trouble:
            return

    def _groups(self) -> Steps:
        flow = self.flow
        if self._last is None:
            yield
            log = flow.target.log((flow.policy.checkpoints_topic(), PLACE_OF_NOTES))
            read = [read_checkpoint(r.key or b"", r.value or b"") for r in log.records()]
            self._last = {(each.group, each[1:3]): each for each in read}
        for group in sorted(flow.source.groups):
            yield
            found = self._translated(group)
            for each in found:
                if due(self._last.get((group, each[1:3])), each.upstream, each.downstream):
                    key, value = checkpoint_record(each)
                    yield from write(
                        flow.target, None, flow.policy.checkpoints_topic(), {key: value}
                    )
                    self._checks.checkpoint(flow, each)
                    self._last[group, each[1:3]] = each
            yield from self._sync(group, found)

    def _translated(self, group: str) -> list[Checkpoint]:
        flow, found = self.flow, []
        for place, offset in sorted(flow.source.groups[group].items()):
            name = flow.policy.remote_topic(place[0])
            if name not in self._mirrored or name not in self._there:
                continue
            ids = self._mirrored[name].topic_id, self._there[name].topic_id
            if ids != (flow.source.topics[place[0]].topic_id, flow.target.topics[name].topic_id):
                continue  # the next look at the topics tells
            index = self._ledger.index(place, source_id=ids[0], target_id=ids[1])
            start = flow.target.log((name, place[1])).start
            downstream = index.translate(offset, log_start=start)
            if downstream is not None:
                known_to = index.upstream_end
                self._checks.translated(flow, place, offset, downstream, known_to=known_to)
                found.append(Checkpoint(group, name, place[1], offset, downstream))
        return found

    def _sync(self, group: str, found: list[Checkpoint]) -> Steps:
        flow = self.flow
        wanted = {each[1:3]: Synced(each.upstream, each.downstream) for each in found}
        yield
        if not wanted or group in flow.target.active:
            return
        there = dict(flow.target.groups.get(group, {}))
        given = self._given.setdefault(group, {})
        changes = to_sync(wanted, there, given)
        yield
        if group in flow.target.active:
            return
        for place, offset in changes.items():
            self._checks.moved(flow, group, place, there.get(place, -1), offset)
            flow.target.groups.setdefault(group, {})[place] = offset
        given |= {
            place: each
            for place, each in wanted.items()
            if place in changes or there.get(place) == each.downstream
        }

    def _trim(self) -> Steps:
        flow = self.flow
        for place, chunks in list(self._ledger.chunks.items()):
            name = flow.policy.remote_topic(place[0]), place[1]
            yield
            topic_id = flow.target.topics[name[0]].topic_id
            now = [each for each in chunks.values() if each.target_id == topic_id]
            gone = below(now, flow.target.log(name).start)
            yield from write(
                flow.target, None, flow.policy.index_topic(), {each.key: None for each in gone}
            )


def behind(flow: SimFlow) -> str:
    """A partition that is not mirrored to its end, "" when there is none."""
    ledger = Ledger(flow.policy)
    read_now(flow, ledger)
    there = flow.target.shapes()
    for name, shape in flow.wanted().items():
        for partition in range(shape.partitions):
            place = shape.name, partition
            if not flow.source.log(place).records():
                continue
            end, position = flow.source.log(place).stable_end, ledger.positions.get(place, -1)
            is_old = name not in there or _is_of_another(
                ledger, Origin(*place, shape.topic_id, there[name].topic_id)
            )
            if is_old or position + 1 < end:
                return f"{flow.name}: {place} is mirrored to {position} of {end}"
    return ""


def _is_of_another(ledger: Ledger, origin: Origin) -> bool:
    newest = ledger.newest(origin[:2], source_id=origin.source_id, target_id=origin.target_id)
    return any(is_other_topic(newest, origin))
