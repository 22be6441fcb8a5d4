"""How a node follows the metadata log of the active controller: the machine of its decisions.

What: one question is under way at a time; what comes is appended to the node's copy, replayed, and
published as image and delta; a node that is too far behind loads a snapshot in pieces; and the copy
gets snapshots of its own. The states of a node:

    NEW         nothing was asked yet
    COMPARING   its last batch was asked for again, to compare it with what the controller serves
    FETCHING    what comes next was asked for
    LOADING     a piece of a snapshot was asked for
    WAITING     the controller was of no use; another one is asked after a pause
    FULL        something that has to be written waits for room on the disk
    STOPPED     the node must not go on

Rules kept: nothing is taken over a connection on which the last batch was not compared. A store
that went back, or was swapped, shows by that comparison, by a diverging epoch, or by a snapshot
that is older than the copy; the node then stops with one line instead of unlearning what it knew.
A broker acts on no metadata before it shows the registration of this very process: an older copy
may say that it leads what others lead since. It then hears which topics went in the meantime.
Source: KIP-595, KIP-630; decisions 0004, 0021. Not here: sending, and writing in threads.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from anabranch.core.errors import Bug, ErrorCode, ProtocolError, StorageFault, TooOld
from anabranch.core.log.files import DiskFull
from anabranch.core.metadata.difference import difference
from anabranch.core.metadata.following.copy import MetadataCopy
from anabranch.core.metadata.following.effects import (
    Act,
    Begin,
    Complain,
    ControllerMet,
    Effect,
    Event,
    Fetch,
    Fetched,
    FetchSnapshot,
    Leave,
    MakeRoom,
    PieceFetched,
    Publish,
    Registered,
    RoomMade,
    SnapshotFailed,
    SnapshotWritten,
    Stop,
    Unanswered,
    WriteSnapshot,
)
from anabranch.core.metadata.following.own_snapshots import OwnSnapshots
from anabranch.core.metadata.following.pieces import Pieces
from anabranch.core.metadata.following.requests import PIECE_BYTES, Asker, log_of, piece_in
from anabranch.core.metadata.image import MetadataDelta, MetadataImage
from anabranch.core.metadata.replay import everything
from anabranch.core.metadata.store_check import CopyEnd, snapshot_fault, store_fault
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.types import NEVER_MS
from anabranch.core.wire.batch import read_header
from anabranch.core.wire.messages.fetch import PartitionData

RETRY_MS = 50
"""Pause before another controller is asked: a new one is active within a few of these."""
NO_CONNECTION = -1
SERVED = "that the active controller serves"


class State(Enum):
    """See the module."""

    NEW = "new"
    COMPARING = "comparing"
    FETCHING = "fetching"
    LOADING = "loading"
    WAITING = "waiting"
    FULL = "full"
    STOPPED = "stopped"


class Following:
    """One node's following, from the start of its process on.

    The shell calls `step` with each event and `tick` when `next_tick_ms` has come, and performs
    what `take_effects` gives, in order. `now_ms` is of a clock that is never set, `wall_ms` of the
    wall clock. A step that raises anything leaves a node that must stop.
    """

    def __init__(
        self,
        copy: MetadataCopy,
        cluster_id: str,
        node_id: int,
        config: BrokerConfig,
        now_ms: int,
        *,
        is_broker: bool = True,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        self.copy = copy
        self.state = State.NEW
        self.next_tick_ms = NEVER_MS
        self._asker = Asker(cluster_id, node_id, piece_bytes)
        self._node_id = node_id
        self._is_broker = is_broker
        self._broker_epoch = -1
        self._acts = False
        self._deleted: set[str] = set()
        """Names of topics that were deleted before the broker acts: as many as go while it
        registers."""
        self._snapshots = OwnSnapshots(copy, config, now_ms)
        self._effects: list[Effect] = []
        self._compared = NO_CONNECTION
        """The connection on which the copy was compared last."""
        self._asked_end = CopyEnd(copy.folder)
        """Where the copy ended when it was asked to be compared."""
        self._pieces = Pieces(0, 0, bytearray())
        self._unwritten: tuple[Callable[[], None], DiskFull] | None = None
        """What waits for room on the disk, and what the disk said."""
        self._complaint = ""
        self._now_ms = now_ms
        self._wall_ms = 0

    # What the shell calls.

    def step(self, event: Event, now_ms: int, wall_ms: int) -> None:
        """Take an event. Raises Bug for one that this state does not know."""
        self._now_ms, self._wall_ms = now_ms, wall_ms
        handle = TABLE.get((self.state, type(event)))
        if handle is None:
            raise Bug(f"a follower of the metadata that is {self.state.value} got {event}")
        self._guarded(lambda: handle(self, event))

    def tick(self, now_ms: int) -> None:
        """Do what is due: ask again after a pause."""
        self._now_ms = now_ms
        if self.state is State.WAITING and now_ms >= self.next_tick_ms:
            self.next_tick_ms = NEVER_MS
            self._guarded(self._compare)

    def _guarded(self, act: Callable[[], None]) -> None:
        """Do something; a copy that cannot be used, or understood, stops the node."""
        try:
            act()
        except TooOld as fault:
            self._stop(str(fault))
        except StorageFault as fault:
            self._stop(f"the copy of the metadata log cannot be written: {fault}")
        except ProtocolError as fault:
            self._try_another(str(fault))

    def take_effects(self) -> list[Effect]:
        """What is to be done now, in order."""
        effects, self._effects = self._effects, []
        return effects

    @property
    def is_waiting(self) -> bool:
        """Whether nothing is under way, and `tick` goes on when `next_tick_ms` has come."""
        return self.state is State.WAITING

    @property
    def acts(self) -> bool:
        """Whether the broker acts on the metadata: it shows this process's registration."""
        return self._acts

    # Asking.

    def _begin(self, _event: Begin) -> None:
        if self.copy.image.offset >= 0:
            self._publish(everything(self.copy.image))
        self._compare()

    def _compare(self) -> None:
        """Ask from the last batch on, if the copy ends with one: over a new connection."""
        self.state = State.COMPARING
        self._asked_end = end = self.copy.end
        if end.last_batch:
            self._ask(end.last_base_offset, -1)
        else:
            self._ask_next()

    def _fetch(self) -> None:
        self.state = State.FETCHING
        self._ask_next()

    def _ask_next(self) -> None:
        image = self.copy.image
        self._ask(image.next_offset, image.epoch if image.offset >= 0 else -1)

    def _ask(self, offset: int, last_epoch: int) -> None:
        start_offset = self.copy.log.start_offset
        self._effects.append(Fetch(self._asker.log_from(offset, last_epoch, start_offset)))

    def _try_another(self, why: str) -> None:
        """The answer, or that there was none, was of no use."""
        if why and why != self._complaint:
            self._effects.append(Complain("the metadata cannot be fetched", why))
        self._complaint = why or self._complaint
        self._effects.append(Leave())
        self.state = State.WAITING
        self.next_tick_ms = self._now_ms + RETRY_MS

    def _unanswered(self, event: Unanswered) -> None:
        self._try_another(event.why)

    # Answers about the log.

    def _fetched(self, event: Fetched) -> None:
        """Over a connection on which the copy was compared; another one begins with that."""
        if event.connection != self._compared:
            self._compare()
            return
        answer = self._usable(event)
        if answer is not None:
            self._take(answer)

    def _compared_with(self, event: Fetched) -> None:
        answer = self._usable(event)
        if answer is None:
            return
        end = self._asked_end
        if end.last_batch and answer.snapshot_id.end_offset < 0:
            fault = store_fault(end, answer.high_watermark, _first_batch(answer), SERVED)
            if fault is not None:
                self._stop(fault)
                return
        self._compared, self._complaint = event.connection, ""
        self._effects.append(ControllerMet())
        self._take(answer)

    def _usable(self, event: Fetched) -> PartitionData | None:
        """The answer, None when it is an error, which is dealt with."""
        if self._is_refused(event.response.error_code):
            return None
        answer = log_of(event.response)
        if answer.error_code:  # not active, or not in the epoch that it thinks it has
            self._try_another("")
            return None
        return answer

    def _is_refused(self, code: int) -> bool:
        if code == ErrorCode.INCONSISTENT_CLUSTER_ID:
            cluster_id = self._asker.cluster_id
            self._stop(f"the controller belongs to another cluster than {cluster_id}")
        elif code:
            self._try_another(_sentence(code))
        return bool(code)

    def _take(self, answer: PartitionData) -> None:
        offered = answer.snapshot_id
        if answer.diverging_epoch.epoch >= 0:
            self._diverged(answer.diverging_epoch.end_offset)
        elif offered.end_offset >= 0:
            end, high = self.copy.end, answer.high_watermark
            fault = snapshot_fault(end, high, offered.end_offset, offered.epoch, SERVED)
            if fault is not None:
                self._stop(fault)
                return
            self._pieces = Pieces(offered.end_offset, offered.epoch, bytearray())
            self._fetch_piece()
        elif answer.records:
            self._write(lambda: self._append(answer.records))
        else:
            self._write_snapshot(self._snapshots.due_by_time(self._now_ms))
            self._fetch()

    def _diverged(self, end_offset: int) -> None:
        """The copy holds committed records only: the store lost them, or has others."""
        end = self.copy.end
        fault = store_fault(end, min(end_offset, end.end_offset - 1), None, SERVED)
        self._stop(fault or "the served metadata log diverges from this node's copy")

    def _append(self, records: Any) -> None:
        delta = self.copy.append(records, self._wall_ms)
        if delta is not None:
            self._publish(delta)
        self._write_snapshot_if_due()
        self._fetch()

    # A snapshot in place of what the controller has no longer.

    def _fetch_piece(self) -> None:
        self.state = State.LOADING
        pieces = self._pieces
        request = self._asker.piece_of(pieces.end_offset, pieces.epoch, len(pieces.received))
        self._effects.append(FetchSnapshot(request))

    def _piece_fetched(self, event: PieceFetched) -> None:
        if self._is_refused(event.response.error_code):
            return
        answer = piece_in(event.response)
        if event.connection != self._compared or answer.error_code == ErrorCode.SNAPSHOT_NOT_FOUND:
            self._compare()  # another controller, or a newer snapshot
            return
        if answer.error_code:
            self._try_another(_sentence(answer.error_code))
            return
        grown = self._pieces.with_piece(answer.position, answer.size, answer.unaligned_records)
        if grown is None:
            self._try_another("a piece of a snapshot of the metadata does not fit the others")
            return
        self._pieces = grown
        if grown.is_whole:
            self._write(self._load)
        else:
            self._fetch_piece()

    def _load(self) -> None:
        pieces, before = self._pieces, self.copy.image
        self.copy.load(bytes(pieces.received), pieces.end_offset, pieces.epoch)
        self._pieces = Pieces(0, 0, bytearray())
        self._publish(difference(before, self.copy.image))
        self._fetch()

    # Writing.

    def _write(self, write: Callable[[], None]) -> None:
        """What must be written finds what is kept for it on a disk that is full."""
        try:
            write()
        except DiskFull as fault:
            self.state, self._unwritten = State.FULL, (write, fault)
            self._effects.append(MakeRoom(fault))

    def _room_made(self, event: RoomMade) -> None:
        assert self._unwritten is not None
        (write, fault), self._unwritten = self._unwritten, None
        if not event.is_made:
            raise fault
        write()

    # Images.

    def _publish(self, delta: MetadataDelta) -> None:
        image = self.copy.image
        self._effects.append(Publish(image, delta))
        if self._acts:
            self._effects.append(Act(image, delta, published=delta))
        elif self._is_broker:
            for topic in (*delta.deleted_topics, *delta.passing_topics):
                self._deleted.add(topic.name)
                self.copy.deleted_ids.add(topic.topic_id)
            self._begin_to_act(image)

    def _begin_to_act(self, image: MetadataImage) -> None:
        own = image.brokers.get(self._node_id) if self._is_broker else None
        if own is not None and own.epoch == self._broker_epoch:
            self._acts = True
            deleted, ids = frozenset(self._deleted), frozenset(self.copy.deleted_ids)
            self._deleted.clear()
            self.copy.deleted_ids.clear()
            self._effects.append(Act(image, everything(image), None, deleted, ids))

    def _registered(self, event: Registered) -> None:
        self._broker_epoch = event.broker_epoch
        if not self._acts:
            self._begin_to_act(self.copy.image)

    # Snapshots of the copy, and the end.

    def _write_snapshot_if_due(self) -> None:
        self._write_snapshot(self._snapshots.due(self._now_ms))

    def _write_snapshot(self, image: MetadataImage | None) -> None:
        if image is not None:
            self._effects.append(WriteSnapshot(image))

    def _snapshot_written(self, _event: SnapshotWritten) -> None:
        self._snapshots.ended()
        try:
            self.copy.trim(self._wall_ms)
        except StorageFault as fault:  # what is not removed now is with the next snapshot
            self._effects.append(Complain("the copy of the metadata was not trimmed", str(fault)))
        self._write_snapshot_if_due()

    def _snapshot_failed(self, event: SnapshotFailed) -> None:
        self._snapshots.ended()
        self._effects.append(Complain("no snapshot of the metadata could be written", event.why))
        self._write_snapshot_if_due()

    def _stop(self, sentence: str) -> None:
        self.state = State.STOPPED
        self.next_tick_ms = NEVER_MS
        self._effects.append(Stop(sentence))

    def _ignore(self, _event: Event) -> None:
        """It comes too late to matter."""


def _first_batch(answer: PartitionData) -> bytes | None:
    if not answer.records:
        return None
    records = memoryview(answer.records)
    return bytes(records[: read_header(records).size_bytes])


def _sentence(code: int) -> str:
    return f"the controller answered {ErrorCode(code).name}"


Handle = Callable[[Following, Any], None]

TABLE: dict[tuple[State, type], Handle] = {
    (State.NEW, Begin): Following._begin,
    (State.COMPARING, Fetched): Following._compared_with,
    (State.COMPARING, Unanswered): Following._unanswered,
    (State.FETCHING, Fetched): Following._fetched,
    (State.FETCHING, Unanswered): Following._unanswered,
    (State.LOADING, PieceFetched): Following._piece_fetched,
    (State.LOADING, Unanswered): Following._unanswered,
    (State.FULL, RoomMade): Following._room_made,
    **{(state, Registered): Following._registered for state in set(State) - {State.STOPPED}},
    (State.STOPPED, Registered): Following._ignore,
    **{
        (state, ended): handle
        for state in set(State) - {State.NEW, State.STOPPED}
        for ended, handle in (
            (SnapshotWritten, Following._snapshot_written),
            (SnapshotFailed, Following._snapshot_failed),
        )
    },
    (State.STOPPED, SnapshotWritten): Following._ignore,  # it was under way
    (State.STOPPED, SnapshotFailed): Following._ignore,
}
"""What each event does in each state; any other pair is a mistake of ours."""
