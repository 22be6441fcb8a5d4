"""Brokers, a coordinator and a store in which remote logs are copied and removed, with faults.

What: three brokers with a log each, one partition, clean and unclean elections, leaders that do not
know that they were replaced, a coordinator (the SQL that nodes run, in memory) that loses answers,
a store that refuses, loses answers and stores late, clocks that run ahead, processes that end at
any step. A record is its offset and the epoch that wrote it. Each step of a round is one step of
the world, and an upload has one for each file, so that everything comes between everything.
`check` is called after each step, `settle` lets all of it come to rest.
"""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import Any

from anabranch.core.diskless.coordinator import CoordinatorAway
from anabranch.core.diskless.objects import ObjectsAway
from anabranch.core.diskless.rows import LogKey
from anabranch.core.errors import StorageFault
from anabranch.core.remote import rounds, segment_copy
from anabranch.core.remote.facts import TryEnded
from anabranch.core.remote.keys import SIDECAR, segment_folder, upload_names
from anabranch.core.remote.lineage import Lineage, agreed_spans
from anabranch.core.remote.local_log import Limits, LocalSegment
from anabranch.core.remote.restored_facts import restored_facts
from anabranch.core.remote.segments import EpochStart, RemoteSegment, SegmentId, SegmentState
from anabranch.core.remote.sidecar import Described
from anabranch.core.remote.unfinished import (
    CONFIRM_MS,
    PUT_ENDS_MS,
    Removals,
    may_go_on,
)
from anabranch.core.types import TopicId
from anabranch.stores.coordinator.remote_reads import RemoteFactReads
from anabranch.stores.coordinator.sqlite_memory import SqliteInMemory

CLUSTER = "kwC8bZ6oTn-4yqXqYkQ0Yw"
KEY = LogKey(TopicId(bytes([9]) * 16), 0)
RECORD_BYTES = 10
START_MS = 1_700_000_000_000
AHEAD_MS = 400 * 86_400_000


class Broker:
    """One replica. `epochs[offset]` is known of every record; bytes are there from
    `local_start` on, in segments that begin at `begins`."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.epochs: dict[int, int] = {}
        self.log_start = self.local_start = self.end = 0
        self.begins: list[int] = [0]
        self.leads: int | None = None
        """The epoch in which it believes that it leads."""
        self.led_from = 0
        self.ahead_ms = 0
        self.begin_life()

    def begin_life(self) -> None:
        self.reads = RemoteFactReads()
        self.running: set[SegmentId] = set()
        self.removals = Removals()
        self.round: Generator[Any, Any, Any] | None = None
        self.upload: Generator[None, None, None] | None = None
        self.sent: Any = None
        self.thrown: StorageFault | None = None

    def lineage(self) -> Lineage:
        entries: list[EpochStart] = []
        for offset in range(self.log_start, self.end):
            if not entries or entries[-1].epoch != self.epochs[offset]:
                entries.append(EpochStart(self.epochs[offset], offset))
        assert self.leads is not None
        if not entries or entries[-1].epoch != self.leads:
            entries.append(EpochStart(self.leads, self.end))
        return Lineage(tuple(entries), self.leads)

    def segments(self, written_ms: dict[tuple[int, int], int]) -> list[LocalSegment]:
        found = []
        for at, first in enumerate(self.begins):
            is_active = at + 1 == len(self.begins)
            end = self.end if is_active else self.begins[at + 1]
            times = [written_ms[offset, self.epochs[offset]] for offset in range(first, end)]
            found.append(
                LocalSegment(
                    first, end, (end - first) * RECORD_BYTES, max(times, default=0), is_active
                )
            )
        return found

    def roll(self) -> None:
        if self.end > self.begins[-1]:
            self.begins.append(self.end)

    def drop_local(self, offset: int) -> None:
        offset = min(offset, self.begins[-1])
        self.begins = [each for each in self.begins if each >= offset]
        self.local_start = self.begins[0]

    def truncate(self, offset: int) -> None:
        if offset < self.local_start:
            self.begins, self.local_start = [offset], offset
        self.log_start = min(self.log_start, offset)
        self.begins = [each for each in self.begins if each < offset] or [offset]
        self.local_start = self.begins[0]
        for each in range(offset, self.end):
            del self.epochs[each]
        self.end = offset

    def raise_start(self, offset: int) -> None:
        self.log_start = max(self.log_start, offset)
        while len(self.begins) > 1 and self.begins[1] <= self.log_start:
            self.begins.pop(0)
        self.local_start = self.begins[0]


class World:
    """All of it; `random` decides what happens next."""

    def __init__(self, random: Random, *, faults: bool = True) -> None:
        self.random = random
        self.now_ms = 0
        self.brokers = [Broker(number) for number in range(3)]
        self.isr = {0, 1, 2}
        self.away: Broker | None = None
        self.leader = self.brokers[0]
        self.leader.leads = self.epoch = 0
        self.high_watermark = 0
        self.committed: dict[int, int] = {}
        """Epochs of the records that must be there."""
        self.written_ms: dict[tuple[int, int], int] = {}
        self.objects: dict[str, Any] = {}
        self.late: list[tuple[int, str, Any]] = []
        """(when it arrives at the latest, key, content) of puts that have had no answer."""
        self.coordinator_ahead_ms = 0
        if random.random() < 0.3:  # of all clocks only some are wrong
            self.coordinator_ahead_ms = AHEAD_MS
        else:
            for each in self.brokers:
                each.ahead_ms = random.choice((0, 0, AHEAD_MS))
        self.coordinator = SqliteInMemory(
            CLUSTER, lambda: START_MS + self.now_ms + self.coordinator_ahead_ms
        )
        self.faults = 0.06 if faults else 0.0
        self.whole = Limits(
            random.choice((-1, 300_000, 900_000)), random.choice((-1, -1, 400, 1_000))
        )
        self.local = Limits(random.choice((-2, -1, 0, 60_000)), random.choice((-2, 0, 100)))
        self.copies = True
        self.recorded_start = 0
        self.shortened_in = 0
        """The epoch of the last leader whose log ended before the recorded start: what it writes
        from there on is new."""
        self.deleted_before = 0
        """Records before it were deleted by hand."""
        self.copied = self.removed = 0

    # What happens.

    def step(self) -> None:
        """One thing happens anywhere."""
        random = self.random
        kinds = (
            (self.append, 6), (self.replicate, 8), (self.roll, 2), (self.advance, 40),
            (self.pass_time, 4), (self.elect, 1), (self.learn, 2), (self.restart, 1),
            (self.change_isr, 1), (self.arrive, 2), (self.delete_records, 0.2),
            (self.drop_followers_local, 1), (self.part, 1),
        )  # fmt: skip
        (act,) = random.choices([each for each, _ in kinds], [each for _, each in kinds])
        act()
        self.raise_high_watermark()

    def append(self) -> None:
        for broker in self.brokers:
            if broker.leads is not None and (broker is self.leader or self.random.random() < 0.3):
                for _ in range(self.random.randint(1, 4)):
                    broker.epochs[broker.end] = broker.leads
                    self.written_ms[broker.end, broker.leads] = START_MS + self.now_ms
                    broker.end += 1

    def roll(self) -> None:
        self.random.choice(self.brokers).roll()

    def replicate(self) -> None:
        for broker in self.brokers:
            if broker.leads is None and broker is not self.away and self.random.random() < 0.7:
                self.follow(broker)

    def part(self) -> None:
        """A follower hears nothing for long, until another one does, or it leads."""
        self.away = self.random.choice(self.brokers)
        if self.away is not None and self.away is not self.leader:
            self.isr.discard(self.away.number)

    def follow(self, broker: Broker) -> None:
        """Truncate to what the leader has, start anew where its local log begins later, copy."""
        leader = self.leader
        broker.raise_start(min(leader.log_start, broker.end))
        shared = broker.end
        for offset in range(broker.end):
            if leader.epochs.get(offset) != broker.epochs.get(offset):
                shared = offset
                break
        if shared < broker.end:
            broker.truncate(shared)
        if broker.end < leader.local_start:
            broker.end = broker.local_start = leader.local_start
            broker.begins, broker.log_start = [leader.local_start], leader.log_start
            broker.epochs = {
                offset: epoch for offset, epoch in leader.epochs.items() if offset < broker.end
            }
        for offset in range(broker.end, leader.end):
            broker.epochs[offset] = leader.epochs[offset]
        broker.end = max(broker.end, leader.end)

    def raise_high_watermark(self) -> None:
        reached = min(self.shared_end(self.brokers[each]) for each in self.isr)
        for offset in range(self.high_watermark, reached):
            if offset >= self.leader.local_start:  # else an election has revived a hole
                self.committed[offset] = self.leader.epochs[offset]
        self.high_watermark = max(self.high_watermark, reached)

    def shared_end(self, broker: Broker) -> int:
        for offset in range(max(self.leader.log_start, broker.log_start), broker.end):
            if self.leader.epochs.get(offset) != broker.epochs.get(offset):
                return offset
        return min(broker.end, self.leader.end)

    def change_isr(self) -> None:
        broker = self.random.choice(self.brokers)
        if broker is self.leader or broker is self.away:
            return
        if broker.number in self.isr and len(self.isr) > 2:
            self.isr.discard(broker.number)
        elif self.shared_end(broker) >= self.high_watermark and broker.leads is None:
            self.isr.add(broker.number)

    def elect(self) -> None:
        """A new leader: usually one in sync, seldom one that lacks committed records."""
        candidates = [each for each in self.brokers if each is not self.leader]
        clean = [each for each in candidates if each.number in self.isr]
        is_unclean = self.random.random() < 0.25
        chosen = self.random.choice(candidates if is_unclean or not clean else clean)
        if is_unclean and self.away in candidates:
            chosen = self.away
        self.epoch += 1
        if chosen.end < max(self.recorded_start, self.deleted_before):
            self.recorded_start = min(self.recorded_start, chosen.end)
            self.deleted_before = min(self.deleted_before, chosen.end)
            self.shortened_in = self.epoch
        self.deleted_before = max(self.deleted_before, chosen.log_start)
        chosen.leads, chosen.led_from = self.epoch, chosen.end
        self.leader = chosen
        self.end_round(chosen)
        if chosen is self.away:
            self.away = None
        if chosen.number not in self.isr:
            self.isr = {chosen.number}
            self.high_watermark = min(self.high_watermark, chosen.end)
            for offset, epoch in list(self.committed.items()):
                if offset >= chosen.end or chosen.epochs.get(offset) != epoch:
                    del self.committed[offset]  # for good: also if a later election revives it

    def learn(self) -> None:
        """A leader that was replaced hears of it."""
        for broker in self.brokers:
            if broker.leads is not None and broker is not self.leader:
                self.end_round(broker)
                broker.leads = None

    def restart(self) -> None:
        broker = self.random.choice(self.brokers)
        self.end_round(broker)
        broker.begin_life()

    def end_round(self, broker: Broker) -> None:
        if broker.round is not None:
            broker.round.close()
        broker.round = broker.upload = None

    def pass_time(self) -> None:
        self.now_ms += self.random.choice((50, 1_000, 5_000, 30_000, 200_000))
        for put in [each for each in self.late if each[0] <= self.now_ms]:
            self.land(put)

    def arrive(self) -> None:
        if self.late:
            self.land(self.random.choice(self.late))

    def land(self, put: tuple[int, str, Any]) -> None:
        self.late.remove(put)
        self.objects.setdefault(put[1], put[2])

    def delete_records(self) -> None:
        if self.high_watermark > self.leader.log_start:
            to = self.random.randint(self.leader.log_start, self.high_watermark)
            self.leader.raise_start(to)
            self.deleted_before = max(self.deleted_before, to)

    def drop_followers_local(self) -> None:
        """A follower keeps no more than its leader does."""
        for broker in self.brokers:
            if (
                broker.leads is None
                and broker is not self.away
                and self.shared_end(broker) == broker.end
            ):
                broker.raise_start(min(self.leader.log_start, broker.end))
                inside = [each for each in broker.begins if each <= self.leader.local_start]
                if inside:
                    broker.drop_local(inside[-1])

    # Rounds.

    def advance(self) -> None:
        """A leader, perhaps one of an older epoch, makes a step of its round."""
        leaders = [each for each in self.brokers if each.leads is not None]
        self.advance_one(self.random.choice(leaders))

    def advance_one(self, broker: Broker) -> Any:
        """What a round gave, if it ended."""
        if broker.upload is not None:
            self.go_on(broker)
            return None
        if broker.round is None:
            assert broker.leads is not None
            leading = rounds.Leading(CLUSTER, KEY, broker.leads, broker.removals, broker.running)
            broker.round, broker.sent, broker.thrown = rounds.one_round(leading), None, None
        thrown, broker.thrown = broker.thrown, None
        try:
            if thrown is not None:
                asked = broker.round.throw(thrown)
            else:
                asked = broker.round.send(broker.sent)
        except StopIteration as end:
            broker.round = None
            return end.value
        except StorageFault:
            broker.round = None
            return None
        broker.sent = None
        try:
            broker.sent = self.perform(broker, asked)
        except StorageFault as fault:
            broker.thrown = fault
        return None

    def go_on(self, broker: Broker) -> None:
        assert broker.upload is not None
        try:
            next(broker.upload)
        except StopIteration:
            broker.upload = None
        except StorageFault as fault:
            broker.upload, broker.thrown = None, fault

    def perform(self, broker: Broker, asked: Any) -> Any:
        remote = self.coordinator.remote
        match asked:
            case rounds.ReadFacts(key, epoch):
                return self.ask(
                    lambda: broker.reads.lead(remote, key, "creek", epoch, broker.lineage().entries)
                )
            case rounds.LookAtLog():
                return self.view(broker)
            case rounds.BeginRemoval(key, epoch, start, finished, given_up):
                self.ask(lambda: remote.begin_removal(key, epoch, start, finished, given_up))
            case rounds.RaiseLogStart(_, offset):
                broker.raise_start(min(offset, broker.end))
            case rounds.DeleteObjects(keys, folder):
                self.delete((*keys, *[each for each in self.objects if each.startswith(folder)]))
            case rounds.ForgetSegments(ids):
                self.ask(lambda: remote.forget(ids))
                self.removed += len(ids)
            case rounds.DropLocal(_, offset):
                broker.drop_local(offset)
            case segment_copy.Describe(_, epoch, segment):
                return self.describe(broker, epoch, segment)
            case segment_copy.StartSegment(segment):
                self.ask(lambda: remote.start(segment))
                return self.now_ms
            case segment_copy.UploadFiles(segment, asked_ms):
                broker.upload = self.upload(broker, segment, asked_ms)
            case segment_copy.FinishSegment(segment):
                self.ask(lambda: remote.finish(segment))
                self.copied += 1
            case _:
                raise AssertionError(asked)
        return None

    def view(self, broker: Broker) -> rounds.LocalView:
        assert broker.leads is not None
        stable = min(self.high_watermark, broker.end)
        if broker is not self.leader:
            stable = min(stable, self.shared_end(broker))  # nobody told it of more
        return rounds.LocalView(
            broker.lineage(),
            tuple(broker.segments(self.written_ms)),
            broker.log_start,
            stable,
            stable,
            self.whole,
            self.local,
            self.copies,
            self.now_ms,
            START_MS + self.now_ms + broker.ahead_ms,
        )

    def describe(self, broker: Broker, epoch: int, local: LocalSegment) -> RemoteSegment | None:
        if local not in broker.segments(self.written_ms) or broker.leads != epoch:
            return None
        entries: list[EpochStart] = []
        for offset in range(local.start_offset, local.end_offset):
            if not entries or entries[-1].epoch != self.epoch_at(broker, offset):
                entries.append(EpochStart(self.epoch_at(broker, offset), offset))
        return RemoteSegment(
            SegmentId(self.random.randbytes(16)), KEY, local.start_offset, local.end_offset,
            local.newest_ms, tuple(entries), local.byte_size, broker.number, epoch,
            has_aborted=self.random.random() < 0.5,
        )  # fmt: skip

    def epoch_at(self, broker: Broker, offset: int) -> int:
        """The table of epochs begins at the log start, which may lie within the first segment."""
        return broker.epochs[max(offset, broker.log_start)]

    def upload(
        self, broker: Broker, segment: RemoteSegment, asked_ms: int
    ) -> Generator[None, None, None]:
        """Puts, one a step; the broker asks now and then whether the try stands."""
        folder = segment_folder(CLUSTER, segment.key, segment.segment_id)
        records = {offset: broker.epochs.get(offset) for offset in span(segment)}
        for name in upload_names(segment):
            yield
            if self.now_ms - asked_ms >= CONFIRM_MS:
                at_ms = self.now_ms
                try:
                    if not self.ask(lambda: self.coordinator.remote.stands(segment)):
                        raise TryEnded("it was given up")
                    asked_ms = at_ms
                except CoordinatorAway:
                    pass
            if not may_go_on(asked_ms, self.now_ms):
                raise TryEnded("nobody says that it still stands")
            self.put(folder + name, segment if name == SIDECAR else records)

    # Coordinator and store.

    def ask(self, call: Any) -> Any:
        chance = self.random.random()
        if chance < self.faults / 2:
            raise CoordinatorAway("it is away")
        answer = call()
        if chance < self.faults:
            raise CoordinatorAway("the answer was lost")
        return answer

    def put(self, key: str, content: Any) -> None:
        chance = self.random.random()
        if chance >= self.faults:
            self.objects.setdefault(key, content)
            return
        if chance < self.faults / 2:
            self.late.append((self.now_ms + PUT_ENDS_MS, key, content))
        elif chance < self.faults * 3 / 4:
            self.objects.setdefault(key, content)
        raise ObjectsAway("no answer")

    def delete(self, keys: tuple[str, ...]) -> None:
        for key in keys:
            if self.random.random() < self.faults / 4:
                raise ObjectsAway("no answer")
            self.objects.pop(key, None)

    def segments(self) -> tuple[RemoteSegment, ...]:
        known = RemoteFactReads().look(self.coordinator.remote, KEY)
        return () if known is None else known.segments

    def lose_coordinator(self) -> list[str]:
        """Another one takes its place, with what the store tells; what was found to be wrong. All
        brokers were stopped before, so that nothing is on its way to the store."""
        for broker in self.brokers:
            self.end_round(broker)
            broker.begin_life()
        while self.late:
            self.arrive()
        sizes = {
            key: len(content) * RECORD_BYTES if isinstance(content, dict) else 1
            for key, content in self.objects.items()
        }
        sidecars = {
            key: Described("creek", content._replace(state=SegmentState.COPY_SEGMENT_FINISHED))
            for key, content in self.objects.items()
            if key.endswith(SIDECAR)
        }
        restored = restored_facts(sizes, sidecars)
        clock = START_MS + self.coordinator_ahead_ms
        self.coordinator = SqliteInMemory(CLUSTER, lambda: clock + self.now_ms)
        self.coordinator.remote.load(restored.logs)
        for offset in [each for each in self.committed if each < self.recorded_start]:
            del self.committed[offset]  # they were deleted before
        self.deleted_before = max(self.deleted_before, self.recorded_start)
        self.recorded_start = 0
        return restored.findings

    # What must hold.

    def check(self) -> None:
        """After each step."""
        segments, objects = self.segments(), self.objects
        known = self.coordinator.remote.logs(LogKey(KEY.topic_id, -1), 1)
        start = known[0].log_start if known else 0
        if known and known[0].leader_epoch < self.shortened_in:
            start = self.recorded_start  # the leader has not asked yet
        assert start >= self.recorded_start, "the log start went back"
        self.check_expired(self.recorded_start, start)
        self.recorded_start = start
        begin = self.leader.log_start
        assert begin <= max(start, self.deleted_before), f"the log begins at {begin}, not {start}"
        for each in segments:
            if each.is_finished:
                folder = segment_folder(CLUSTER, KEY, each.segment_id)
                lost = [name for name in upload_names(each) if folder + name not in objects]
                assert not lost, f"{each}: {lost} are gone"
        self.check_readable(segments)

    def check_expired(self, before: int, now: int) -> None:
        """What retention took was old or too much, by the time that really is."""
        if now <= before or self.whole.most_bytes >= 0:
            return
        for offset in range(before, min(now, self.leader.end)):
            if offset < self.deleted_before:
                continue
            age = START_MS + self.now_ms - self.written_ms[offset, self.leader.epochs[offset]]
            assert 0 <= self.whole.most_ms <= age, f"offset {offset} was taken early"

    def check_readable(self, segments: tuple[RemoteSegment, ...]) -> None:
        """Each committed record lies on the leader's disk, or in a finished segment as it was."""
        leader = self.leader
        lineage = leader.lineage()
        held: dict[int, str] = {}
        for each in segments:
            if each.is_finished:
                folder = segment_folder(CLUSTER, KEY, each.segment_id)
                name = folder + upload_names(each)[0]
                for found in agreed_spans(each, lineage):
                    held.update(dict.fromkeys(range(found.first, found.end), name))
        for offset in range(
            max(self.recorded_start, leader.log_start), min(leader.local_start, leader.end)
        ):
            assert offset in held or offset not in self.committed, f"offset {offset} is lost"
            if offset in held:
                assert self.objects[held[offset]][offset] == leader.epochs[offset]

    def settle(self) -> None:
        """No more faults: rounds until all is done that can be. Then nothing is left over."""
        self.faults = 0.0
        self.learn()
        for broker in self.brokers:
            self.end_round(broker)
            broker.begin_life()
            broker.ahead_ms = 0
        while self.late:
            self.arrive()
        for _ in range(10):
            done = None
            while done is None:
                done = self.advance_one(self.leader)
                self.check()
            self.now_ms += 200_000
        states = {each.state.name for each in self.segments()}
        assert states <= {"COPY_SEGMENT_FINISHED"}, states
        wanted = set()
        for each in self.segments():
            folder = segment_folder(CLUSTER, KEY, each.segment_id)
            wanted |= {folder + name for name in upload_names(each)}
        assert set(self.objects) == wanted, set(self.objects) ^ wanted


def span(segment: RemoteSegment) -> range:
    return range(segment.start_offset, segment.end_offset)
