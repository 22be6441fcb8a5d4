"""Combined manifests in a world of their own: brokers, a store, a coordinator, and all that fails.

What: a run of some minutes in which brokers commit objects and store manifests, retention and
garbage collection remove what is old, topics are deleted, and brokers combine manifests by turns or
at the same time. Calls get lost, are done late or without an answer; processes die between any two
steps and write on as if they lived; a listing leaves out manifests; the newest checkpoint is cut or
overwritten; objects of records are gone. From time to time, and at the end, the coordinator is
"lost": what a restore makes of the store must be what it would make of all manifests that ever
were, no row may name an object that is gone, and no partition begins earlier. Why a world of its
own: a
schedule of the cluster lasts for seconds, and this is a matter of hours. Rule kept: nothing is
decided here that the brokers decide (`core/diskless/combination.py`); the data path is not part of
it, so that objects are stored and committed at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from anabranch.core.diskless.checkpoints import (
    Combined,
    checkpoint_number,
    checkpoints_prefix,
    decode_part,
    decode_root,
    parts_prefix,
)
from anabranch.core.diskless.combination import (
    AskLastId,
    AskStates,
    Clocks,
    CombiningPace,
    ListPage,
    Maker,
    PutWhole,
    ReadClocks,
    ReadWhole,
)
from anabranch.core.diskless.combination_rounds import (
    CombiningEnded,
    CombiningRounds,
    Step,
    rounds,
)
from anabranch.core.diskless.findings import Finding, Kind
from anabranch.core.diskless.garbage_rounds import AskTurn, DeleteObjects, FindUnknown, Turn
from anabranch.core.diskless.keys import object_prefix
from anabranch.core.diskless.layout import DamagedObject
from anabranch.core.diskless.manifests import (
    Manifest,
    ManifestLog,
    decode_manifest,
    manifests_prefix,
)
from anabranch.core.diskless.objects import ObjectTaken
from anabranch.core.diskless.pause import Pause
from anabranch.core.diskless.restoration import Rebuilt, rebuild
from anabranch.core.diskless.rows import Batch, Change, Commit, CommitState, LogKey, NewLogs, Run
from anabranch.core.errors import StorageFault
from anabranch.core.types import TopicId
from anabranch.sim.chains import Chain, Told
from anabranch.sim.checks.violation import Violation
from anabranch.sim.coordinator import SimCoordinator
from anabranch.sim.objects import SimObjects, Stored
from anabranch.sim.processes import Process, State
from anabranch.sim.remote import RemoteFaults
from anabranch.sim.world import World

CLUSTER = "combined"
PACE = CombiningPace(
    round_ms=15_000, retry_ms=300, tail_ms=20_000, fewest=3, most_ms=60_000, part_ms=90_000
)
BROKERS, TOPICS, PARTITIONS = 3, 4, 2
LENGTH_US, CALM_US = 420_000_000, 150_000_000
CHECK_US = 10_000_000
NOTED_AFTER = 4
"""Checks until what moved is in a manifest."""
MOST_MANIFESTS = 60
"""In the store when all is calm: those of the tail and of three rounds, with room."""
SOME_BATCHES = 4
SILENT_US = 120_000_000
"""For so long nobody writes to a partition whose records were all deleted."""
BATCH_SIZE, OBJECT_SIZE = 100, 900


class Broker(Process):
    """One broker: its notes, and its rounds, in one life after another."""

    def __init__(self, run: CombiningRun, number: int) -> None:
        super().__init__(f"broker-{number}")
        self.run, self.number, self.epoch = run, number, 0
        self.notes = ManifestLog(CLUSTER, number, 0, run.names.get)
        self.is_over = True

    def start(self) -> None:
        """A new life, with a new epoch."""
        self.state, self.is_over, self.life = State.RUNNING, False, self.life + 1
        self.epoch = self.run.next_epoch()
        self.run.coordinator.tables.register(self.number, self.epoch)
        self.notes = ManifestLog(CLUSTER, self.number, self.epoch, self.run.names.get)
        kept, maker = CombiningRounds(PACE), Maker(CLUSTER, self.number, self.epoch)
        life = _Life(self, self.life, self.notes)
        life.store()
        Chain(rounds(kept, maker, 1_000), life.perform).go_on()

    def crash(self, *, lingers: bool) -> None:
        """The process is gone; one that lingers still stores what it noted, and combines."""
        self.state = State.CRASHED
        self.is_over = True
        if not lingers:
            self.life += 1


class _Life:
    """What one life of a broker does; it goes on while its process has this life."""

    def __init__(self, broker: Broker, life: int, notes: ManifestLog) -> None:
        self.broker, self.life, self.notes = broker, life, notes
        self.run, self.world = broker.run, broker.run.world
        self._listed = False

    def _told(self, told: Callable[[Any], None]) -> Callable[[Any], None]:
        """An answer reaches the life that asked, or nobody."""
        return lambda found: told(found) if self.broker.life == self.life else None

    def store(self) -> None:
        """Put what is due, again and again."""
        if self.broker.life != self.life:
            return
        frozen = self.notes.tick(self.world.steady_ms)
        if frozen is None:
            self.world.after(500_000, self.store)
            return

        def answered(result: Any) -> None:
            if not isinstance(result, StorageFault) or isinstance(result, ObjectTaken):
                self.notes.stored(frozen)
            self.world.after(500_000, self.store)

        put = self.run.objects.put
        put(self.broker.name, frozen.key, [frozen.content], self._told(answered))

    def perform(self, step: Step, told: Told) -> None:
        """One step of the rounds."""
        hear, objects, name = self._told(told), self.run.objects, self.broker.name
        coordinator = self.run.coordinator
        match step:
            case Pause(pause_ms):
                self.world.after(pause_ms * 1000, hear, self.world.now_ms)
            case AskTurn():
                hear(Turn(self.world.steady_ms, self.run.turn(self.broker), BROKERS))
            case ReadClocks():
                hear(Clocks(self.world.now_ms, self.world.steady_ms))
            case CombiningEnded(fault, _):
                self.run.ends.append(fault)
                hear(None)
            case ListPage(_, is_first) if not is_first:
                hear(None)
            case ListPage(prefix, _):
                objects.list(name, prefix, lambda found: hear(self.run.listed(prefix, found)))
            case ReadWhole(key, size):
                one = lambda found: hear(found if isinstance(found, StorageFault) else found[0])  # noqa: E731
                objects.read(name, key, [(0, size)], one)
            case PutWhole(key, content):
                objects.put(name, key, [content], hear)
            case DeleteObjects(keys):
                objects.delete(name, keys, hear)
            case FindUnknown(keys):
                coordinator.ask(name, "unknown", (keys,), hear)
            case AskLastId():
                coordinator.ask(name, "last_id", (), hear)
            case AskStates(states_of):
                coordinator.ask(name, "states", (states_of,), hear)


class CombiningRun:
    """One run. `faults` says whether anything fails."""

    def __init__(self, seed: int, *, faults: bool = True) -> None:
        self.world = World(seed)
        self.chance = self.world.random("combining")
        self.objects = SimObjects(self.world)
        self.coordinator = SimCoordinator(self.world, CLUSTER)
        self.names: dict[TopicId, str] = {}
        self.archive: dict[str, Manifest] = {}
        """All manifests that ever were in the store."""
        self.ends: list[StorageFault | None] = []
        """Of rounds: their faults."""
        self.damaged = self.lost = self._were_present = 0
        self.checks = 0
        self._faults, self._epoch, self._topics = faults, 0, 0
        self._sequences: dict[tuple[LogKey, int], int] = {}
        self._silent: dict[LogKey, int] = {}
        self._calm = False
        self._starts: deque[dict[LogKey, int]] = deque(maxlen=NOTED_AFTER)
        """What the coordinator said at the last checks, while nothing fails."""
        self.objects.on_put.append(self._put)
        self.coordinator.tables.take_control(1)
        for _ in range(TOPICS):
            self._make_topic()
        self.brokers = [Broker(self, number) for number in range(BROKERS)]
        self.coordinator.tables.listen(self._hear)
        for broker in self.brokers:
            broker.start()

    def run(self) -> None:
        """All of it; raises Violation."""
        self._later(100_000, 900_000, self._commit)
        self._later(1_000_000, 6_000_000, self._shorten)
        self._later(500_000, 3_000_000, self._collect)
        self._later(20_000_000, 90_000_000, self._replace_topic)
        if self._faults:
            self._later(5_000_000, 40_000_000, self._crash)
            self._later(5_000_000, 30_000_000, self._fail)
            self._later(10_000_000, 60_000_000, self._damage)
            self._later(20_000_000, 90_000_000, self._lose)
        for at_us in range(CHECK_US, LENGTH_US, CHECK_US):
            self.world.run(at_us)
            self.check()
        self._calm = True
        self.objects.faults, self.coordinator.faults = RemoteFaults(), RemoteFaults()
        for broker in self.brokers:
            if broker.is_over:
                broker.start()
        for at_us in range(LENGTH_US, LENGTH_US + CALM_US, CHECK_US):
            self.world.run(at_us)
            self.check()
        self._check_bounds()

    def _later(self, low_us: int, high_us: int, act: Callable[[], None]) -> None:
        def again() -> None:
            act()
            self.world.after(self.chance.randint(low_us, high_us), again)

        self.world.after(self.chance.randint(low_us, high_us), again)

    # What brokers are told.

    def next_epoch(self) -> int:
        """Epochs rise."""
        self._epoch += 1
        return self._epoch

    def turn(self, broker: Broker) -> int:
        """Whose turn it is: under faults, brokers may think that it is theirs at the same time."""
        return 0 if self._faults and not self._calm else broker.number

    def listed(self, prefix: str, found: Any) -> Any:
        """A listing, of which manifests may be missing for a while."""
        omits = self._faults and not self._calm and self.chance.random() < 0.3
        if omits and prefix == manifests_prefix(CLUSTER) and isinstance(found, list):
            return [each for each in found if self.chance.random() < 0.9]
        return found

    # What happens.

    def _make_topic(self) -> None:
        self._topics += 1
        topic_id = TopicId(self._topics.to_bytes(16, "big"))
        self.names[topic_id] = f"topic-{self._topics}"
        new = NewLogs(topic_id, self.names[topic_id], 0, PARTITIONS)
        self.coordinator.tables.create_logs(1, [new])

    def _keys(self) -> list[LogKey]:
        return [LogKey(topic, each) for topic in self.names for each in range(PARTITIONS)]

    def _living(self) -> list[Broker]:
        return [each for each in self.brokers if not each.is_over]

    def _commit(self) -> None:
        living, now_us = self._living(), self.world.now_us
        spoken = [key for key in self._keys() if self._silent.get(key, 0) <= now_us]
        if not living or not spoken:
            return
        broker, tables = self.chance.choice(living), self.coordinator.tables
        [prepared] = tables.prepare(broker.number, broker.epoch, 1, 60_000)
        keys = sorted(self.chance.choices(spoken, k=self.chance.randint(1, SOME_BATCHES)))
        batches = [self._batch(key, 30 + BATCH_SIZE * at) for at, key in enumerate(keys)]
        commit = Commit(*prepared[:2], OBJECT_SIZE, broker.number, broker.epoch, tuple(batches))
        self.objects.objects[commit.object_key] = Stored(b"", self.world.now_ms)
        answer = tables.commit(commit)
        if answer.state is not CommitState.COMMITTED:
            raise AssertionError(f"{commit.object_key}: {answer.why}")
        broker.notes.committed(commit, answer, self.world.steady_ms)

    def _batch(self, key: LogKey, at: int) -> Batch:
        count, producer = self.chance.randint(1, 4), self.chance.choice([-1, 50, 51])
        stamp = self.world.now_ms
        if producer < 0:
            return Batch(key, at, BATCH_SIZE, count, stamp)
        sequence = self._sequences.get((key, producer), 0)
        self._sequences[key, producer] = sequence + count
        return Batch(key, at, BATCH_SIZE, count, stamp, 0, producer, 4, sequence)

    def _shorten(self) -> None:
        key, tables = self.chance.choice(self._keys()), self.coordinator.tables
        silent = self.chance.random() < 0.2
        [before] = tables.states([key])
        living = self._living()
        if before is None or not living:
            return
        high = before.high_watermark
        offset = high if silent else self.chance.randint(0, high)
        if silent:
            self._silent[key] = self.world.now_us + SILENT_US
        tables.delete_before([(key, offset)])

    def _hear(self, changes: list[Change]) -> None:
        """The watches of those that live."""
        for broker in self._living():
            broker.notes.heard(changes, self.world.steady_ms)

    def _collect(self) -> None:
        tables = self.coordinator.tables
        while tables.mark_expired(100):
            pass
        for object_id, key in tables.to_delete(2_000, 100):
            self.objects.objects.pop(key, None)
            tables.deleted([object_id])

    def _replace_topic(self) -> None:
        gone = self.chance.choice(sorted(self.names))
        del self.names[gone]
        self.coordinator.tables.delete_topics(1, [gone])
        self._make_topic()

    def _present(self) -> dict[str, int]:
        prefix = object_prefix(CLUSTER)
        return {key: OBJECT_SIZE for key in self.objects.objects if key.startswith(prefix)}

    def _put(self, key: str) -> None:
        if key.startswith(checkpoints_prefix(CLUSTER)):
            self._were_present = len(self._present())
        if key.startswith(manifests_prefix(CLUSTER)) and key not in self.archive:
            self.archive[key] = decode_manifest(self.objects.objects[key].data, key)

    # Faults.

    def _crash(self) -> None:
        living = self._living()
        if self._calm or not living:
            return
        broker = self.chance.choice(living)
        lingers = self.chance.random() < 0.4
        broker.crash(lingers=lingers)
        if lingers:  # a second process of this id: the former one goes on as another object
            self.brokers[broker.number] = broker = Broker(self, broker.number)
        self.world.after(self.chance.randint(0, 9_000_000), self._restart, broker)

    def _restart(self, broker: Broker) -> None:
        if broker.is_over:
            broker.start()

    def _fail(self) -> None:
        if self._calm:
            return
        remote = self.chance.choice([self.objects, self.objects, self.coordinator])
        faults = remote.faults = RemoteFaults()
        match self.chance.randrange(4):
            case 0:
                faults.away = True
            case 1:
                faults.slow_us = 2_000_000
            case _:
                faults.lost, faults.unanswered, faults.late = (
                    self.chance.random() * 0.2 for _ in range(3)
                )
                faults.late_us = 45_000_000
        self.world.after(self.chance.randint(2_000_000, 25_000_000), self._heal, remote)

    def _heal(self, remote: SimObjects | SimCoordinator) -> None:
        remote.faults = RemoteFaults()

    def _lose(self) -> None:
        """An object is gone, whatever rows name it."""
        present = sorted(self._present())
        if present and not self._calm:
            self.objects.objects.pop(self.chance.choice(present))
            self.lost += 1

    def _damage(self) -> None:
        """The newest checkpoint is cut or overwritten, root or part, if the one before is whole."""
        roots = self._roots()
        sound = [key for key in roots if self._read(key) is not None]
        if self._calm or len(sound) < 2 or sound[0] != roots[0]:
            return
        root = decode_root(self.objects.objects[sound[0]].data, sound[0])
        key = self.chance.choice([sound[0], *(name.key for name in root.parts)])
        held = self.objects.objects[key]
        at = self.chance.randrange(len(held.data))
        flipped = held.data[:at] + bytes([held.data[at] ^ 1]) + held.data[at + 1 :]
        data = self.chance.choice([held.data[:at], flipped])
        self.objects.objects[key] = held._replace(data=data)
        self.damaged += 1

    # What a restore would find.

    def _roots(self) -> list[str]:
        prefix = checkpoints_prefix(CLUSTER)
        keys = [key for key in self.objects.objects if key.startswith(prefix)]
        return sorted((key for key in keys if checkpoint_number(key) >= 0), reverse=True)

    def _read(self, key: str) -> Combined | None:
        held = self.objects.objects
        try:
            root = decode_root(held[key].data, key)
            parts = [decode_part(held[each.key].data, each, each.key) for each in root.parts]
        except (DamagedObject, KeyError):
            return None
        return Combined(root, parts)

    def checkpoint(self) -> Combined | None:
        """The newest sound one."""
        found = (self._read(key) for key in self._roots())
        return next((each for each in found if each is not None), None)

    def manifests(self) -> list[Manifest]:
        """Those that are in the store."""
        return [self.archive[key] for key in sorted(self.archive) if key in self.objects.objects]

    def check(self) -> None:
        """What is restored now is what all manifests together say."""
        self.checks += 1
        present = self._present()
        wanted = rebuild([self.archive[key] for key in sorted(self.archive)], present)
        found = rebuild(self.manifests(), present, self.checkpoint())
        self._compare(wanted, found, present)
        if self._calm:
            self._check_starts(found)

    def _check_starts(self, found: Rebuilt) -> None:
        """Whoever moved a start, and died: others have noted it."""
        states = dict(zip(self._keys(), self.coordinator.tables.states(self._keys()), strict=True))
        restored = {log.key: log.state.start_offset for log in found.contents.logs}
        if len(self._starts) == NOTED_AFTER:
            for key, start_offset in self._starts[0].items():
                if key in states and restored.get(key, 0) < start_offset:
                    details = {"key": key, "was": start_offset, "restored": restored.get(key)}
                    raise Violation("starts", "A restore goes back before a start.", details)
        self._starts.append({key: state.start_offset for key, state in states.items() if state})

    def _compare(self, wanted: Rebuilt, found: Rebuilt, present: dict[str, int]) -> None:
        def same(what: str, one: Any, other: Any) -> None:
            if one != other:
                details = {"at": self.world.now_us, "all manifests": one, "restored": other}
                raise Violation("restored", f"A restore differs in {what}.", details)

        logs = [self._alive(each.contents.logs, lambda log: log.key) for each in (wanted, found)]
        truth = self.coordinator.tables.states([log.key for log in logs[0]])
        ends = [{log.key: log.state.high_watermark for log in each} for each in logs]
        same("ends", *ends)
        starts = [{log.key: log.state.start_offset for log in each} for each in logs]
        runs = [self._alive(each.contents.runs, lambda run: run.key) for each in (wanted, found)]
        absent = {run.object_key for run in found.contents.runs} - present.keys()
        same("objects that are gone, and have rows", set(), absent)
        same("runs that no manifest has", set(runs[1]) - set(runs[0]), set())
        for log, state in zip(logs[0], truth, strict=True):
            assert state is not None
            live = [_of(each, log.key, state.start_offset) for each in runs]
            same(f"runs of {log.key}, which is {state}", *live)
            first = min((run.base_offset for run in live[1]), default=log.state.high_watermark)
            before, start_offset = log.state.start_offset, starts[1][log.key]
            if not before <= start_offset <= max(before, state.start_offset, first):
                same(f"the start of {log.key}, which is {state}", before, start_offset)
        accounts = (each.contents.producers for each in (wanted, found))
        same("producers", *(self._alive(each, lambda one: one[0].key) for each in accounts))
        same("known objects", wanted.known & present.keys(), found.known & present.keys())
        same("ids", wanted.contents.last_object_id, found.contents.last_object_id)
        said = [_missing(each.findings) for each in (wanted, found)]
        same("missing manifests", said[1] - said[0], set())

    def _alive(self, rows: list[Any], key_of: Callable[[Any], LogKey]) -> list[Any]:
        """Rows of topics that were not deleted: the controller deletes the others anew."""
        return [each for each in rows if key_of(each).topic_id in self.names]

    def _check_bounds(self) -> None:
        held = self.objects.objects
        count = sum(key.startswith(manifests_prefix(CLUSTER)) for key in held)
        if count > MOST_MANIFESTS:
            raise Violation("bounded", "Manifests are left.", {"count": count})
        if len(self._roots()) > 3:
            raise Violation("bounded", "Checkpoints are left.", {"roots": self._roots()})
        combined = self.checkpoint()
        if combined is None:
            raise Violation("bounded", "Nothing was combined.", {})
        noted = {one.object_key for part in combined.parts for one in part.objects}
        present = self._were_present
        if len(noted) > 2 * present + 60:
            raise Violation(
                "bounded", "Notes of objects are left.", {"noted": len(noted), "objects": present}
            )
        parts = sum(key.startswith(parts_prefix(CLUSTER)) for key in held)
        if parts > 60:
            raise Violation("bounded", "Parts are left.", {"parts": parts})


def _of(runs: list[Run], key: LogKey, start_offset: int) -> list[Run]:
    """Runs of a partition that are not wholly below its start."""
    return [run for run in runs if run.key == key and run.end_offset > start_offset]


def _missing(findings: list[Finding]) -> set[tuple[str, str]]:
    return {each[1:] for each in findings if each.kind is Kind.MANIFEST_MISSING}
