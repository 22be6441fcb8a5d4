"""A broker's diskless half: its topics and its machines, as one machine for the shell.

    step:  handlers append and read; answered(effect, result, now_ms); changed, watch_opened, tick
    after: for effect in take_effects(): make the call, in a task; later: a step with `answered`
    timer: a step with ring() at next_tick_ms

What a call raised is handed to `answered` in place of a result when it is a StorageFault; any other
exception is a bug of the caller. Requests that wait for reads are handed to `bring`, with the
FarReads of their Cold. Whoever owns the coordinator's watch calls `changed` with what it gives,
`watch_broken` when it ends or could not be opened, which says when to open it again, and
`watch_opened` once it goes again: all that is cached is then asked for anew, since something may
have been missed. A simulation does the same with its own store and coordinator, in its own order
and time. Times are of the steady clock.

Rules kept: what is known of a partition only moves on; what a broken watch may have missed is not
used to say that there is nothing more. Not here: sockets, SQL, clocks.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from anabranch.core.diskless.admission import DEPOSED
from anabranch.core.diskless.assembly import Damaged
from anabranch.core.diskless.blocks import Blocks
from anabranch.core.diskless.buffer import DisklessTicket
from anabranch.core.diskless.coordinates import Coordinates
from anabranch.core.diskless.coordinator import Deposed, OlderCopy
from anabranch.core.diskless.effects import (
    AskOutcome,
    AskStates,
    CallClaims,
    CommitObject,
    DeleteBefore,
    Effect,
    FindByTime,
    FindRuns,
    LookAtFacts,
    PrepareObjects,
    PutObject,
    ReadObject,
    RefuseObjects,
)
from anabranch.core.diskless.lags import Lags
from anabranch.core.diskless.last_commits import name_taken
from anabranch.core.diskless.objects import ObjectMissing, ObjectTaken
from anabranch.core.diskless.partition import ABSENT_MS, REFUSING_MS, DisklessPartition
from anabranch.core.diskless.reader import DisklessReader
from anabranch.core.diskless.reads import BytesOf, FarRead
from anabranch.core.diskless.rows import (
    Change,
    Commit,
    Committed,
    Found,
    LogKey,
    LogState,
    Run,
)
from anabranch.core.diskless.topic import DisklessTopic
from anabranch.core.diskless.topics import is_diskless
from anabranch.core.diskless.writer import DisklessWriter, Identity, Upload
from anabranch.core.due import DISKLESS
from anabranch.core.errors import ErrorCode, StorageFault
from anabranch.core.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC
from anabranch.core.partition.tail import NO_TAIL
from anabranch.core.types import NEVER_MS

if TYPE_CHECKING:
    from collections.abc import Hashable

    from anabranch.core.metadata.image import MetadataDelta, MetadataImage, TopicImage
    from anabranch.core.partition.tail import Tail
    from anabranch.core.settings.broker import BrokerConfig
    from anabranch.core.step import Mailbox
    from anabranch.core.types import Buffer

ROW_PATIENCE_MS = 5_000
"""How long a batch waits for its partition's row, which the controller makes after its creation."""
ROW_MS = 200
"""How often such rows are asked for; most are heard of sooner."""
WATCH_PAUSE_MS = 300
"""Between two attempts to open the watch: one that goes for so long is opened again at once."""
MISSED_MS = 500
"""How often what a broken watch may have missed is asked for while nobody answers."""
MOST_TIMES = 10_000
"""Answers to searches by time that are kept until the request that asked reads them: ten rounds of
such requests at once."""
DAMAGED_MS = 5_000
"""How long an object that could not be read is not tried again."""
MOST_DELETED = 50
"""Partitions whose starts one call raises: commits wait no longer for it."""
MOST_COMPLAINTS = 100
MOST_TAILS = 1_000
"""Partitions whose remote segments are remembered: those that are read far behind."""
MOST_CLAIMED = 100
"""Answers to tiering jobs, of which a few ask at once."""
OFF = (
    "This broker has diskless.storage.system.enable=false, and the topic is diskless. Set it to "
    "true, with diskless.storage.url and diskless.coordinator.url, on every broker and restart."
)
STARTING = "This broker has no connection to the coordinator and the object store yet."
WAITING = "The stores of diskless topics cannot be used now: {}"


class Node(Protocol):
    """The broker around it."""

    broker_id: int
    broker_epoch: int
    config: BrokerConfig
    image: MetadataImage
    steady_ms: int
    mailbox: Mailbox
    changed: dict[Hashable, None]


class Diskless:
    """One broker's diskless topics."""

    def __init__(self, broker: Node) -> None:
        config = broker.config
        self._broker = broker
        self._mark = broker.mailbox.due.marker(DISKLESS)
        self.broker_id = broker.broker_id
        self.is_on = False
        """Whether the shell performs effects. Until then nothing is taken."""
        self.trouble = ""
        """Why nothing is taken although diskless topics are enabled; "" when something is."""
        self.why_deposed = ""
        """Why the coordinator takes nothing under this broker's epoch; "" when it does."""
        self.older: OlderCopy | None = None
        """What showed that the coordinator is an older copy."""
        self.is_watching = False
        """Whether this broker hears at once what others commit."""
        self._watching_since_ms = 0
        self.topics: dict[str, DisklessTopic] = {}
        self.by_key: dict[LogKey, DisklessPartition] = {}
        self.coordinates = Coordinates()
        self.blocks = Blocks(config.diskless_fetch_cache_max_bytes)
        self.lags = Lags(self)
        """How far behind the coordinator this broker is."""
        self.times: dict[tuple[LogKey, int | None], tuple[int, Run | None]] = {}
        self.passed: dict[tuple[LogKey, int], int] = {}
        self.complaints: deque[tuple[str, str]] = deque(maxlen=MOST_COMPLAINTS)
        """(what, why) for an operator."""
        self.note_commit: Callable[[Commit, Committed], object] = _unnoted
        """Told of each object of this broker that is committed, for manifests."""
        self.note_changes: Callable[[Sequence[Change]], object] = _unnoted
        """Told of all that moves, wherever this broker learns of it, for manifests."""
        self._effects: list[Effect] = []
        self.writing = DisklessWriter(self._effects, self._stored, self._committed, self._settled)
        self.writing.most_bytes = config.diskless_produce_buffer_max_bytes
        self.reading = DisklessReader(self._effects, self.blocks)
        self.claimed: OrderedDict[int, Any] = OrderedDict()
        """What calls of tiering jobs gave, by the number of the question, until it is told."""
        self.make_tail: Callable[[Any, int], Tail] = _no_tail
        """What reads remote segments, from what is known of them and the partition's start."""
        self._tails: OrderedDict[DisklessPartition, None] = OrderedDict()
        """Partitions whose remote segments are known, the one that was told longest ago first."""
        self._bad: dict[str, tuple[str, int]] = {}
        self._rowless: dict[DisklessPartition, list[DisklessTicket]] = {}
        self._ask_rows_ms = NEVER_MS
        self._missed: set[LogKey] = set()
        """Partitions of which the watch may have missed something, until the coordinator has said
        where they stand."""
        self._missed_since = 0
        self._ask_missed_ms = NEVER_MS
        self._deleting: dict[LogKey, int] = {}
        """Starts that the call under way raises."""
        self._to_delete: dict[LogKey, int] = {}
        """Those that the next calls raise."""

    @property
    def why_off(self) -> str:
        """Why nothing is taken; "" when something is."""
        if self.is_on or self.trouble:
            return self.trouble
        return STARTING if self.config.diskless_storage_system_enable else OFF

    @property
    def now_ms(self) -> int:
        """The steady clock at the begin of this step."""
        return self._broker.steady_ms

    @property
    def image(self) -> MetadataImage:
        """The newest metadata."""
        return self._broker.image

    @property
    def config(self) -> BrokerConfig:
        """The broker's settings."""
        return self._broker.config

    # Which partitions there are.

    def topic(self, name: str) -> DisklessTopic | None:
        """A diskless topic, None when there is none of that name."""
        found = self.topics.get(name)
        if found is None:
            image = self.image
            topic = image.topic(name)
            if topic is None or not is_diskless(image, name):
                return None
            found = self.topics[name] = DisklessTopic(self, topic)
        return found

    def get(self, name: str, index: int) -> DisklessPartition | None:
        """A partition of a diskless topic."""
        topic = self.topic(name)
        return None if topic is None else topic.get(index)

    def count(self) -> int:
        return self.reading.count()

    def follow(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        """The metadata moved (`delta` None: by how much is not known): let go of what is deleted,
        take new settings. The broker has the new image already."""
        gone = self.topics.values() if delta is None else map(self._made, delta.deleted_topics)
        for topic in list(gone):
            if topic is not None and image.topic_by_id(topic.topic_id) is None:
                self._drop(topic)
        if delta is None or any(kind == RESOURCE_BROKER for kind, _ in delta.changed_configs):
            for topic in self.topics.values():
                topic.configure(image, self.config)
            return
        for kind, name in delta.changed_configs:
            if kind == RESOURCE_TOPIC and name in self.topics:
                self.topics[name].configure(image, self.config)

    def _made(self, deleted: TopicImage) -> DisklessTopic | None:
        return self.topics.get(deleted.name)

    def _drop(self, topic: DisklessTopic) -> None:
        del self.topics[topic.name]
        for partition in topic.made.values():
            partition.is_leader = False  # for requests that wait and have it at hand
            self.by_key.pop(partition.key, None)
            self._tails.pop(partition, None)
            self.coordinates.forget(partition.key)
            self._to_delete.pop(partition.key, None)
            self._missed.discard(partition.key)
            self._mark()
            held = self._rowless.pop(partition, ())
            self.writing.drop(held, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            self._broker.changed[partition.topic_partition] = None

    # What the shell says.

    def start(self, *, interval_ms: int) -> None:
        """Effects are performed from now on."""
        self._mark()
        self.is_on, self.trouble = True, ""
        self.writing.interval_ms = interval_ms

    def wait(self, why: str) -> None:
        """Take nothing until `start`, and say why: coordinator or store cannot be used."""
        self.trouble = WAITING.format(why)

    def refuse(self, fault: OlderCopy, now_ms: int) -> None:
        """The coordinator is not asked any more as long as this process lives: what waits for it
        fails, so that clients go elsewhere and nothing stays in memory."""
        self._mark()
        if self.older is not None:
            return
        self.older = fault
        self.wait(str(fault))
        for held in self._rowless.values():
            self.writing.drop(held, ErrorCode.KAFKA_STORAGE_ERROR)
        self._rowless.clear()
        self.writing.give_up(now_ms)

    def registered(self, cluster_id: str, broker_epoch: int, now_ms: int) -> None:
        """The coordinator knows this process by its broker epoch."""
        self._mark()
        self.why_deposed = ""
        self.writing.registered(Identity(cluster_id, self.broker_id, broker_epoch), now_ms)

    def deposed(self, broker_epoch: int, why: str, now_ms: int) -> None:
        """The coordinator knows a newer epoch of this broker. What waits under this one would wait
        in vain and fails, so that clients go elsewhere; reads go on. When the controller has given
        this process another epoch meanwhile, batches wait for that one's admission."""
        self._mark()
        if broker_epoch != self._broker.broker_epoch:
            return
        self.why_deposed = why
        for held in self._rowless.values():
            self.writing.drop(held, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._rowless.clear()
        self.writing.deposed(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.writing.tick(now_ms)

    def bring(self, reads: Iterable[FarRead], done: Callable[[], None]) -> None:
        """Have asked for what a request lacks; `done` is called in the step in which it is there,
        or has failed."""
        self._mark()
        self.reading.bring(reads, done)

    def read_ahead(self, wanted: BytesOf) -> None:
        """Bring in what a reader will ask for next."""
        self._mark()
        if not any(self._bad.get(object_key) for object_key, _, _ in wanted.ranges):
            self.reading.bring([FarRead(wanted)], _nothing)

    def ring(self) -> None:
        """The time of `next_tick_ms` has come: this step's effects have what is due."""
        self._mark()

    def take_effects(self) -> Sequence[Effect]:
        """What is to be done after this step, with what is due by now."""
        if not self.is_on:
            return ()
        self.tick(self.now_ms)
        self.reading.send()
        effects = self._effects[:]
        self._effects.clear()
        return effects

    @property
    def next_tick_ms(self) -> int:
        """When `tick` has something to do."""
        due_ms = min(self.writing.next_tick_ms, self._ask_missed_ms)
        if self._rowless:
            due_ms = min(due_ms, self._ask_rows_ms)
        return due_ms

    def tick(self, now_ms: int) -> None:
        """Do what is due."""
        self.writing.tick(now_ms)
        if self._to_delete and not self._deleting:
            self._deleting = dict(islice(self._to_delete.items(), MOST_DELETED))
            for key in self._deleting:
                del self._to_delete[key]
            self._effects.append(DeleteBefore(tuple(self._deleting.items())))
        if self._ask_missed_ms <= now_ms:
            self._ask_missed_ms = NEVER_MS
            self.reading.want_states(self._missed)
        if self._rowless and self._ask_rows_ms <= now_ms:
            self._ask_rows_ms = now_ms + ROW_MS
            for partition, held in list(self._rowless.items()):
                if held[0].since_ms + ROW_PATIENCE_MS <= now_ms:
                    del self._rowless[partition]
                    self.writing.drop(held, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            self.reading.want_states([partition.key for partition in self._rowless])

    def answered(self, effect: Effect, result: Any, now_ms: int) -> None:
        """A call has ended: what it gave, or the StorageFault that it raised."""
        self._mark()
        if isinstance(result, ObjectTaken):
            self.refuse(name_taken(result), now_ms)
        if isinstance(effect, _WRITES):
            self.writing.step(effect, result, now_ms)
            if isinstance(effect, PrepareObjects) and isinstance(result, Deposed):
                self.deposed(self.writing.prepares_for, DEPOSED.format(result), now_ms)
            return
        _TABLE[type(effect)](self, effect, result, now_ms)
        if not isinstance(effect, DeleteBefore):
            self.reading.ended(effect)

    def statistics(self, now_ms: int) -> dict[str, float]:
        """For metrics; empty while this is off, and only that its stores are missing while they
        are waited for. An age of -1: there is none yet."""
        missing: dict[str, float] = {"stores_missing": int(bool(self.trouble))}
        if not self.is_on:
            return missing if self.trouble else {}
        counts = self.writing.counts
        names = (
            "puts", "puts_repeated", "put_bytes", "put_ms", "commits", "commit_ms", "batches",
        )  # fmt: skip
        found: dict[str, float] = {name: getattr(counts, name) for name in names}
        for name in ("put", "commit"):
            last_ms = getattr(counts, f"last_{name}_ms")
            found[f"last_{name}_age_ms"] = now_ms - last_ms if last_ms >= 0 else -1
        return found | {
            **missing,
            "failed": counts.failed,
            "refused": counts.refused,
            "watching": int(self.is_watching),
            "waiting_bytes": self.writing.waiting_bytes,
            "cache_bytes": self.blocks.size_bytes,
            "cache_hits": self.blocks.hits,
            "cache_misses": self.blocks.misses,
        }

    # The watch.

    def changed(self, changes: Sequence[Change]) -> None:
        """Partitions moved, by whatever broker."""
        self._mark()
        self.note_changes(changes)
        for key, state, runs in changes:
            partition = self.by_key.get(key)
            if partition is None:
                continue
            if state is None:
                self._gone(partition)
                continue
            if runs:
                self.coordinates.appended(key, runs)
            self._take(partition, state)

    def measured(self, keys: Sequence[LogKey], states: Sequence[LogState | None]) -> None:
        """Where partitions stand, asked every so often: how far behind this broker is, and the end
        of that, should a watch that seems to go tell nothing."""
        self._mark()
        self.lags.told(keys, states)
        for key, state in zip(keys, states, strict=True):
            partition = self.by_key.get(key)
            if partition is not None and state is not None:
                self._take(partition, state)

    def watch_broken(self) -> int:
        """Something may be missed from now on, or the watch could not be opened; after how many
        milliseconds it is opened again. What is known of committed records stays true, and is
        served: nothing is concluded from what is not known."""
        self._mark()
        if not self.is_watching:
            return WATCH_PAUSE_MS
        self.is_watching = False
        return max(0, self._watching_since_ms + WATCH_PAUSE_MS - self.now_ms)

    def watch_opened(self) -> None:
        """What moves is told again: ask for all that was known."""
        self._mark()
        self.is_watching, self._watching_since_ms = True, self.now_ms
        self._missed, self._missed_since = set(self.by_key), self.reading.count()
        self.coordinates.clear()
        self.reading.want_states(self.by_key)

    # What writing says.

    def append(self, ticket: DisklessTicket) -> None:
        """Take a batch; it waits until its partition has a row."""
        self._mark()
        partition = self.by_key[ticket.key]
        if partition.state is not None:
            self.writing.append(ticket, self.now_ms)
        else:
            self.writing.hold(ticket)
            if partition not in self._rowless:
                self._ask_rows_ms = min(self._ask_rows_ms, self.now_ms)
            self._rowless.setdefault(partition, []).append(ticket)
        mailbox = self._broker.mailbox
        mailbox.stored_later_bytes += ticket.size_bytes
        mailbox.is_crowded = self.writing.is_crowded(mailbox.arriving_bytes())

    def _stored(self, upload: Upload) -> None:
        """An object lies in the store: readers will soon want what is in it."""
        pieces = zip(upload.encoded.positions, kept(upload.tickets), strict=True)
        self.blocks.add(upload.prepared.object_key, pieces)

    def _committed(self, _upload: Upload, commit: Commit, answer: Committed) -> None:
        self.note_commit(commit, answer)
        if not answer.verdicts:
            return  # the watch tells where the partitions end
        for key, runs in committed_runs(commit, answer).items():
            partition = self.by_key.get(key)
            if partition is None or partition.state is None:
                continue
            self.coordinates.appended(key, runs)
            state = partition.state
            size = state.byte_size + sum(run.byte_size for run in runs)
            self._take(
                partition, state._replace(high_watermark=runs[-1].end_offset, byte_size=size)
            )

    def _settled(self, ticket: DisklessTicket) -> None:
        self._broker.changed[ticket.place] = None

    # What partitions say.

    def delete_before(self, key: LogKey, offset: int) -> None:
        """Raise a partition's start, in time."""
        self._mark()
        if max(self._deleting.get(key, -1), self._to_delete.get(key, -1)) < offset:
            self._to_delete[key] = offset

    def damaged(self, damage: Damaged) -> None:
        """What was read is not what was written: read it anew in a while."""
        self._mark()
        self.blocks.forget(damage.object_key)
        self._complain(damage.object_key, str(damage), DAMAGED_MS)

    def trouble_of(self, key: LogKey, object_key: str) -> str:
        """Why an object is not read now; "" when it is."""
        if not self._bad:
            return ""
        why, until_ms = self._bad.get(object_key, ("", 0))
        if not why:
            return ""
        if until_ms <= self.now_ms:
            del self._bad[object_key]
            return ""
        self.coordinates.forget(key)  # its records may lie elsewhere, or be deleted
        self._mark()
        self.reading.want_states((key,))
        return why

    def _complain(self, object_key: str, why: str, pause_ms: int) -> None:
        if object_key not in self._bad:
            self.complaints.append((object_key, why))
            while len(self._bad) >= MOST_COMPLAINTS:
                del self._bad[next(iter(self._bad))]
        self._bad[object_key] = (why, self.now_ms + pause_ms)

    # What calls gave.

    def _states(self, effect: AskStates, result: Any, now_ms: int) -> None:
        if isinstance(result, StorageFault):
            self._refuse(effect.keys, result, now_ms)
            if not self._missed.isdisjoint(effect.keys):
                self._ask_missed_ms = now_ms + MISSED_MS
            return
        if effect.number > self._missed_since:
            self._missed.difference_update(effect.keys)
        for key, state in zip(effect.keys, result, strict=True):
            partition = self.by_key.get(key)
            if partition is None:
                continue
            partition.known = max(partition.known, effect.number)
            if state is None:
                self._gone(partition)
            else:
                self._take(partition, state)

    def _found(self, effect: FindRuns, result: Any, now_ms: int) -> None:
        if isinstance(result, StorageFault):
            self._refuse([each.key for each in effect.wanted], result, now_ms)
            return
        found: Found
        for wanted, found in zip(effect.wanted, result, strict=True):
            partition = self.by_key.get(found.key)
            if partition is None:
                continue
            if found.state is None:
                self._gone(partition)
                continue
            self._take(partition, found.state)
            if wanted.offset < found.state.tiered_end:
                continue  # a remote segment has it now
            self.coordinates.found(found.key, found.runs, wanted.offset)
            end_offset = found.state.high_watermark
            if not found.runs and found.state.start_offset <= wanted.offset < end_offset:
                self.coordinates.ended(found.key, wanted.offset, end_offset)

    def _by_time(self, effect: FindByTime, result: Any, now_ms: int) -> None:
        if isinstance(result, StorageFault):
            self._refuse([effect.key], result, now_ms)
            return
        self.times.pop((effect.key, effect.timestamp), None)
        while len(self.times) >= MOST_TIMES:
            del self.times[next(iter(self.times))]
        while len(self.passed) > MOST_TIMES:
            del self.passed[next(iter(self.passed))]
        self.times[effect.key, effect.timestamp] = (effect.number, result)

    def _read(self, effect: ReadObject, result: Any, _now_ms: int) -> None:
        if isinstance(result, StorageFault):
            pause_ms = DAMAGED_MS if isinstance(result, ObjectMissing) else REFUSING_MS
            self._complain(effect.object_key, str(result), pause_ms)
            return
        positions = [position for position, _ in effect.ranges]
        pieces = zip(positions, result, strict=True)
        self.blocks.add(effect.object_key, pieces, is_far=effect.is_far)

    def _looked(self, effect: LookAtFacts, result: Any, now_ms: int) -> None:
        partition = self.by_key.get(effect.key)
        if partition is None:
            return
        if isinstance(result, StorageFault):
            self._refuse([effect.key], result, now_ms)
            return
        partition.older = tail = self.make_tail(result, partition.start_offset)
        self._tails[partition] = None
        self._tails.move_to_end(partition)
        while len(self._tails) > MOST_TAILS:
            self._tails.popitem(last=False)[0].older = NO_TAIL
        if tail.end_offset < effect.upto:
            why = (
                f"{partition.topic_partition}: the coordinator knows of remote segments up to "
                f"offset {tail.end_offset} without a gap, of {effect.upto}"
            )
            self.complaints.append((str(partition.topic_partition), why))
            partition.refuse(ErrorCode.KAFKA_STORAGE_ERROR, why, now_ms + DAMAGED_MS)

    def _claimed(self, effect: CallClaims, result: Any, _now_ms: int) -> None:
        self.claimed[effect.number] = result
        while len(self.claimed) > MOST_CLAIMED:
            self.claimed.popitem(last=False)

    def _deleted(self, effect: DeleteBefore, result: Any, _now_ms: int) -> None:
        self._deleting = {}
        if isinstance(result, StorageFault):
            return  # whoever waits for it hears that time is up
        for (key, _), state in zip(effect.wanted, result, strict=True):
            partition = self.by_key.get(key)
            if partition is None:
                continue
            if state is not None:
                self._take(partition, state)
            self._broker.changed[partition.topic_partition] = None

    def _take(self, partition: DisklessPartition, state: LogState) -> None:
        """A partition's state was told."""
        was_rowless, start_offset = partition.state is None, partition.start_offset
        if not partition.take(state):
            return
        assert partition.state is not None
        if partition.start_offset > start_offset:  # no watch may tell it, or notes were lost
            self.note_changes([Change(partition.key, partition.state)])
        self.coordinates.trim(partition.key, partition.state.first_run_offset)
        self._broker.changed[partition.topic_partition] = None
        if was_rowless:
            self.writing.admit(self._rowless.pop(partition, ()))

    def _gone(self, partition: DisklessPartition) -> None:
        """There is no row: not yet, or no more."""
        partition.state = None
        self.coordinates.forget(partition.key)
        why = f"{partition.topic_partition} is being created or deleted: try again."
        partition.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER, why, self.now_ms + ABSENT_MS)
        self._broker.changed[partition.topic_partition] = None

    def _refuse(self, keys: Iterable[LogKey], fault: StorageFault, now_ms: int) -> None:
        for key in keys:
            partition = self.by_key.get(key)
            if partition is not None:
                code = ErrorCode.KAFKA_STORAGE_ERROR
                partition.refuse(code, str(fault), now_ms + REFUSING_MS)


def kept(tickets: Sequence[DisklessTicket]) -> list[Buffer]:
    """The batches of an object, for the cache: a slice of the request that brought it keeps all of
    that in memory, and is copied where it would be a small part."""
    views = [memoryview(each.records or b"") for each in tickets]
    used: dict[int, int] = {}
    for view in views:
        used[id(view.obj)] = used.get(id(view.obj), 0) + len(view)
    return [
        view if 2 * used[id(view.obj)] >= memoryview(view.obj).nbytes else bytes(view)
        for view in views
    ]


def committed_runs(commit: Commit, answer: Committed) -> dict[LogKey, list[Run]]:
    """Where the batches that got offsets lie, by partition in the order of their offsets."""
    runs: dict[LogKey, list[Run]] = {}
    for batch, verdict in zip(commit.batches, answer.verdicts, strict=True):
        if verdict.code is not ErrorCode.NONE or verdict.is_duplicate:
            continue
        first = verdict.base_offset
        run = Run(
            batch.key,
            first,
            first + batch.record_count,
            commit.object_id,
            commit.object_key,
            batch.byte_offset,
            batch.byte_size,
            batch.max_timestamp,
            batch.timestamp_type,
        )
        runs.setdefault(batch.key, []).append(run)
    return runs


def _nothing() -> None:
    """No request waits for what is read ahead."""


_WRITES = (PrepareObjects, PutObject, CommitObject, AskOutcome, RefuseObjects)
_TABLE: dict[type, Callable[[Diskless, Any, Any, int], None]] = {
    AskStates: Diskless._states,
    FindRuns: Diskless._found,
    FindByTime: Diskless._by_time,
    ReadObject: Diskless._read,
    DeleteBefore: Diskless._deleted,
    LookAtFacts: Diskless._looked,
    CallClaims: Diskless._claimed,
}
"""What each answer does; an effect that is in neither table is a bug."""


def _no_tail(_facts: Any, _start_offset: int) -> Tail:
    """Nothing reads remote segments here."""
    return NO_TAIL


def _unnoted(*_: object) -> None:
    """Of what moves while no manifests are written."""
