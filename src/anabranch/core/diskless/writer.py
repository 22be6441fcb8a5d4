"""How a broker's batches become committed: buffer, object, put, commit, verdict. One machine.

What: batches wait in the buffer; an object is cut from it, put, and committed; the verdicts give
the batches their offsets. Objects are put side by side and committed one at a time, in the order in
which they were cut, so that each partition has the order of arrival.

    cut ──▶ PUTTING ──▶ STORED ──▶ COMMITTING ──▶ done
              │ fails       (its turn)  │ no answer
              ▼                         ▼
            failed                   ASKING ──▶ done, failed, or COMMITTING again

A put that takes much longer than usual is made a second time, under the same name, and the first
success counts: one connection that hangs does not hold up the objects behind it.

When an object is cut: at once when the buffer is full; else when `interval_ms` have passed since
the last one that was not full, and with an interval of 0 when no such one is under way.

Rules kept: nothing is acknowledged before its commit is known; nothing is committed before its put
has ended; a commit without an answer is asked for by the object's key and made again only when the
coordinator says that it did not happen (PENDING: the coordinator commits an object once). What
failed for certain gets a retriable error. What waits is bounded in bytes and objects; beyond that
`is_crowded` says that producers are not to be read. Source: AutoMQ's prepared objects; decision
0058. Not here: I/O, time (an argument, of the steady clock), what an object looks like (`layout`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from anabranch.core.diskless.buffer import MOST_BATCHES, DisklessTicket, WriteBuffer
from anabranch.core.diskless.coordinator import Deposed
from anabranch.core.diskless.effects import (
    AskOutcome,
    CommitObject,
    Effect,
    EndPuts,
    PrepareObjects,
    PutObject,
    ReadOn,
    RefuseObjects,
)
from anabranch.core.diskless.gaps import Gaps
from anabranch.core.diskless.layout import Encoded, Header, Piece, encode
from anabranch.core.diskless.objects import ObjectTaken
from anabranch.core.diskless.rows import Commit, CommitState, Committed, Prepared
from anabranch.core.errors import ErrorCode, StorageFault
from anabranch.core.types import NEVER_MS

MOST_UPLOADS = 6
"""Objects that are put or wait for their commit: with the buffer itself, and what connections bring
before they are held up, this stays under eight buffers."""
CROWDED_BUFFERS, ROOMY_BUFFERS = 6, 4
"""From how many full buffers on producers are not read, and from how few on they are again: with
what has arrived of large requests the former, without it the latter."""
STOCK, STOCK_LOW = 32, 16
"""Ids that are asked for at once, so that an object does not wait for one."""
LEASE_MS = 600_000
"""How long an id may be used; what was put under it and not committed is then collected."""
LEASE_LEFT_MS = 120_000
"""An id that is nearer to its end is not used: put and commit could come too late."""
PUT_ATTEMPTS = 3
RETRY_MS, MOST_RETRY_MS = 50, 2_000
"""Pause after a call that failed, doubled each time up to the second one."""
LATE_MS, MOST_LATE_MS, LATE_FACTOR = 1_000, 10_000, 4
"""A put is late after so many times what one usually takes, within these bounds. Each further time
it waits twice as long."""
USUAL_MS, USUAL_SHARE = 500, 8
"""What a put is thought to take before the first one; each changes that by its share."""
MOST_REPEATED = MOST_UPLOADS
"""Puts that are made again and have no answer yet: a store that is slow as a whole has at most
twice its work, and then the usual time grows."""
PATIENCE_MS = 20_000
"""How long a batch waits for an id: its client gives up soon, and would find it doubled."""


class Stage(Enum):
    """What an object waits for."""

    PUTTING = "its put"
    STORED = "its turn to be committed"
    COMMITTING = "its commit's answer"
    ASKING = "what became of its commit"


class Upload:
    """One object under way."""

    __slots__ = (
        "attempts",
        "commit",
        "due_ms",
        "encoded",
        "is_full",
        "prepared",
        "puts",
        "since_ms",
        "stage",
        "tickets",
    )

    def __init__(
        self, prepared: Prepared, tickets: list[DisklessTicket], encoded: Encoded, *, is_full: bool
    ) -> None:
        self.prepared = prepared
        self.tickets = tickets
        self.encoded = encoded
        self.is_full = is_full
        self.stage = Stage.PUTTING
        self.attempts = 0
        self.puts = 0
        """How many of it are under way."""
        self.due_ms = NEVER_MS
        """When the call that failed, or is late, is made again."""
        self.since_ms = 0
        self.commit: Commit | None = None

    def retry(self, now_ms: int) -> None:
        """Make the call again after a pause."""
        self.due_ms = now_ms + min(MOST_RETRY_MS, RETRY_MS << min(self.attempts, 10))
        self.attempts += 1


class Identity(NamedTuple):
    """Who writes; the epoch is -1 until the coordinator knows it."""

    cluster_id: str
    broker_id: int
    broker_epoch: int


class WritingCounts:
    """Of objects since the start, for metrics; times are of the steady clock."""

    __slots__ = (
        "batches", "commit_ms", "commits", "failed", "last_commit_ms", "last_put_ms", "put_bytes",
        "put_ms", "puts", "puts_repeated", "refused",
    )  # fmt: skip

    def __init__(self) -> None:
        self.puts = self.put_bytes = self.put_ms = self.puts_repeated = 0
        self.commits = self.commit_ms = self.batches = 0
        self.failed = self.refused = 0
        self.last_put_ms = self.last_commit_ms = -1


class DisklessWriter:
    """One broker's writes. `on_stored` is called with each object that is put, `on_committed` with
    each that is committed (its verdicts may be forgotten by then), `on_settled` with each batch of
    which it is known what became of it."""

    def __init__(
        self,
        effects: list[Effect],
        on_stored: Callable[[Upload], None],
        on_committed: Callable[[Upload, Commit, Committed], None],
        on_settled: Callable[[DisklessTicket], None],
    ) -> None:
        self.identity = Identity("", -1, -1)
        self.interval_ms = 0
        self.most_bytes = 8 << 20
        self.counts = WritingCounts()
        self.buffer = WriteBuffer()
        self.uploads: deque[Upload] = deque()
        self.waiting_bytes = 0
        self._effects = effects
        self._on_stored = on_stored
        self._on_committed = on_committed
        self._on_settled = on_settled
        self._stock: deque[tuple[Prepared, int]] = deque()
        self._is_preparing = False
        self.prepares_for = -1
        """The broker epoch for which ids are being asked."""
        self._prepare_due_ms, self._prepare_attempts = 0, 0
        self._unfull_ms = -NEVER_MS
        self._usual_put_ms = USUAL_MS
        self._is_over = False
        """Whether nothing is committed any more."""
        self._was_crowded = False
        self._gaps = Gaps()

    # What the broker says.

    def registered(self, identity: Identity, now_ms: int) -> None:
        """The coordinator knows this process: ids of another epoch are of no use."""
        self.identity = identity
        self._stock.clear()
        self._prepare_due_ms, self._prepare_attempts = now_ms, 0
        self._go_on(now_ms)

    def append(self, ticket: DisklessTicket, now_ms: int) -> None:
        """Take a batch: it is part of the next object that has room."""
        self.buffer.add(ticket)
        self.waiting_bytes += ticket.size_bytes
        if self.buffer.size_bytes >= self.most_bytes:
            self._go_on(now_ms)

    def give_up(self, now_ms: int) -> None:
        """The coordinator is not asked any more: nothing that waits will be committed, and nobody
        will say whether a commit that is under way was made."""
        self._is_over = True
        self.identity = self.identity._replace(broker_epoch=-1)  # it needs no ids
        self._stock.clear()
        for upload in tuple(self.uploads):
            is_unknown = upload.stage in (Stage.COMMITTING, Stage.ASKING)
            code = ErrorCode.REQUEST_TIMED_OUT if is_unknown else ErrorCode.KAFKA_STORAGE_ERROR
            self._give_up(upload, code)
        self.drop(self.buffer.take_older(NEVER_MS), ErrorCode.KAFKA_STORAGE_ERROR)
        self._go_on(now_ms)

    def deposed(self, code: ErrorCode) -> None:
        """The coordinator refuses this epoch: what is not part of an object fails now, and objects
        as soon as the coordinator says what became of them. `registered` begins anew."""
        self.identity = self.identity._replace(broker_epoch=-1)  # it needs no ids
        self._stock.clear()
        self.drop(self.buffer.take_older(NEVER_MS), code)

    def hold(self, ticket: DisklessTicket) -> None:
        """Count a batch that waits elsewhere, until `admit` or `drop`."""
        self.waiting_bytes += ticket.size_bytes

    def admit(self, tickets: Sequence[DisklessTicket]) -> None:
        """Take batches that were held."""
        for ticket in tickets:
            self.buffer.add(ticket)

    def drop(self, tickets: Sequence[DisklessTicket], code: ErrorCode) -> None:
        """Batches that were held fail."""
        for ticket in tickets:
            self._fail(ticket, code)

    def is_crowded(self, arriving_bytes: int) -> bool:
        """Whether more waits than there is room for: producers are not read until ReadOn. What has
        arrived of requests that are not all there stays in memory meanwhile, and takes room, too.
        Not all of it, or clients that stop in the midst of a request would stop the others."""
        most_bytes = self.most_bytes
        arriving_bytes = min(arriving_bytes, (CROWDED_BUFFERS - ROOMY_BUFFERS) * most_bytes)
        if self.waiting_bytes + arriving_bytes < CROWDED_BUFFERS * most_bytes:
            return False
        self._was_crowded = True
        return True

    @property
    def next_tick_ms(self) -> int:
        """When `tick` has something to do."""
        due_ms = min((upload.due_ms for upload in self.uploads), default=NEVER_MS)
        if (self.buffer or self._stock) and not self._is_preparing and self._needs_ids:
            due_ms = min(due_ms, self._prepare_due_ms)
        if not self.buffer:
            return due_ms
        due_ms = min(due_ms, self.buffer.oldest_ms + PATIENCE_MS)
        if self.interval_ms and self._stock and len(self.uploads) < MOST_UPLOADS:
            due_ms = min(due_ms, self._unfull_ms + self.interval_ms)
        return due_ms

    def tick(self, now_ms: int) -> None:
        """The time is `now_ms`, or a step has ended: do what is due."""
        for upload in self.uploads:
            if upload.due_ms <= now_ms:
                upload.due_ms = NEVER_MS
                self._call(upload, now_ms)
        for ticket in self.buffer.take_older(now_ms - PATIENCE_MS):
            self._fail(ticket, ErrorCode.KAFKA_STORAGE_ERROR)
        self._go_on(now_ms)

    def step(self, effect: Effect, result: Any, now_ms: int) -> None:
        """A call has ended: what it gave, or the StorageFault that it raised."""
        if self._is_over:
            return  # nobody waits for it
        if isinstance(effect, PrepareObjects):
            self._prepared(result, now_ms)
        elif isinstance(effect, PutObject) and not self._is_put_awaited(effect.object_id):
            pass  # another put of this object has succeeded before, or none is to any more
        elif not isinstance(effect, RefuseObjects):
            object_id = (
                effect.commit.object_id
                if isinstance(effect, CommitObject)
                else (
                    effect.object_id  # type: ignore[union-attr]
                )
            )
            upload = self._upload(object_id)
            failed = isinstance(result, StorageFault)
            _TABLE[type(effect), upload.stage, failed](self, upload, result, now_ms)
        self._go_on(now_ms)

    # Ids.

    @property
    def _needs_ids(self) -> bool:
        return self.identity.broker_epoch >= 0 and len(self._stock) < STOCK_LOW

    def _prepare(self, now_ms: int) -> None:
        if self._is_preparing or not self._needs_ids or now_ms < self._prepare_due_ms:
            return
        self._is_preparing = True
        self.prepares_for = self.identity.broker_epoch
        self._effects.append(PrepareObjects(STOCK, LEASE_MS))

    def _prepared(self, result: list[Prepared] | StorageFault, now_ms: int) -> None:
        self._is_preparing = False
        if isinstance(result, StorageFault):
            pause_ms = min(MOST_RETRY_MS, RETRY_MS << min(self._prepare_attempts, 10))
            self._prepare_due_ms = now_ms + pause_ms
            self._prepare_attempts += 1
            return
        self._prepare_attempts = 0
        if self.prepares_for != self.identity.broker_epoch:
            return  # the coordinator would refuse to commit them
        for prepared in result:
            self._stock.append((prepared, now_ms + prepared.lease_ms - LEASE_LEFT_MS))

    def _take_id(self, now_ms: int) -> Prepared | None:
        while self._stock:
            prepared, until_ms = self._stock.popleft()
            if now_ms < until_ms:
                return prepared
        return None

    # Cutting.

    def _go_on(self, now_ms: int) -> None:
        """Cut what is to be cut, and commit what comes next."""
        while self.buffer and len(self.uploads) < MOST_UPLOADS:
            full = self.buffer.size_bytes >= self.most_bytes or len(self.buffer) >= MOST_BATCHES
            if not full and not self._may_cut_unfull(now_ms):
                break
            prepared = self._take_id(now_ms)
            if prepared is None:
                break
            self._cut(prepared, now_ms, is_full=full)
        if self.buffer or self._stock:  # an idle broker asks for none
            self._prepare(now_ms)
        self._commit_next(now_ms)
        if self._was_crowded and self.waiting_bytes <= ROOMY_BUFFERS * self.most_bytes:
            self._was_crowded = False
            self._effects.append(ReadOn())

    def _may_cut_unfull(self, now_ms: int) -> bool:
        if self.interval_ms:
            return now_ms >= self._unfull_ms + self.interval_ms
        return all(upload.is_full for upload in self.uploads)

    def _cut(self, prepared: Prepared, now_ms: int, *, is_full: bool) -> None:
        tickets = self.buffer.take(self.most_bytes)
        header = Header(self.identity.cluster_id, self.identity.broker_id, prepared.object_id)
        pieces = [
            Piece(each.key, each.records, each.header.record_count, each.max_timestamp)
            for each in tickets
            if each.records is not None
        ]
        upload = Upload(prepared, tickets, encode(header, pieces), is_full=is_full)
        if not is_full:
            self._unfull_ms = now_ms
        self.uploads.append(upload)
        self._call(upload, now_ms)

    # Calls, and what comes of them.

    def _call(self, upload: Upload, now_ms: int) -> None:
        """Make the call that an object's stage is about."""
        if upload.stage is Stage.PUTTING:
            self._begin_put(upload, now_ms)
            return
        upload.since_ms = now_ms
        if upload.stage is Stage.COMMITTING:
            self._effects.append(CommitObject(self._commit_of(upload)))
        else:
            self._effects.append(AskOutcome(*upload.prepared[:2]))

    def _begin_put(self, upload: Upload, now_ms: int) -> None:
        """Put an object, for the first time, after a failure, or because it is late."""
        late_ms = min(max(LATE_MS, LATE_FACTOR * self._usual_put_ms), MOST_LATE_MS)
        upload.due_ms = now_ms + (late_ms << upload.puts)
        if upload.puts:
            repeated = sum(each.puts - 1 for each in self.uploads if each.puts)
            if repeated >= MOST_REPEATED:
                return
            self.counts.puts_repeated += 1
        upload.puts += 1
        upload.since_ms = now_ms
        prepared, encoded = upload.prepared, upload.encoded
        self._effects.append(PutObject(*prepared[:2], encoded.buffers, encoded.byte_size))

    def _end_puts(self, upload: Upload) -> None:
        """What is under way beside the put that counted need not end."""
        upload.due_ms = NEVER_MS
        if upload.puts:
            upload.puts = 0
            self._effects.append(EndPuts(upload.prepared.object_id))

    def _commit_of(self, upload: Upload) -> Commit:
        if upload.commit is None:
            batches = tuple(map(DisklessTicket.batch, upload.tickets, upload.encoded.positions))
            _, broker_id, broker_epoch = self.identity
            waited_for = self._gaps.waited_for(zip(batches, upload.tickets, strict=True))
            upload.commit = Commit(
                *upload.prepared[:2], upload.encoded.byte_size, broker_id, broker_epoch, batches,
                waited_for,
            )  # fmt: skip
        return upload.commit

    def _commit_next(self, now_ms: int) -> None:
        if self.uploads and self.uploads[0].stage is Stage.STORED:
            upload = self.uploads[0]
            upload.stage, upload.attempts = Stage.COMMITTING, 0
            self._call(upload, now_ms)

    def _upload(self, object_id: int) -> Upload:
        return next(each for each in self.uploads if each.prepared.object_id == object_id)

    def _is_put_awaited(self, object_id: int) -> bool:
        return any(
            each.prepared.object_id == object_id and each.stage is Stage.PUTTING
            for each in self.uploads
        )

    def _put(self, upload: Upload, _result: Any, now_ms: int) -> None:
        upload.stage = Stage.STORED
        upload.puts -= 1
        self._end_puts(upload)
        took_ms = now_ms - upload.since_ms
        self._usual_put_ms += (took_ms - self._usual_put_ms) // USUAL_SHARE
        counts = self.counts
        counts.puts += 1
        counts.put_bytes += upload.encoded.byte_size
        counts.put_ms += took_ms
        counts.last_put_ms = now_ms
        self._on_stored(upload)

    def _put_failed(self, upload: Upload, fault: StorageFault, now_ms: int) -> None:
        upload.puts -= 1
        if isinstance(fault, ObjectTaken):  # it is another's, and stays
            self.counts.failed += 1
            self._give_up(upload, ErrorCode.KAFKA_STORAGE_ERROR)
        elif upload.puts:
            pass  # another one may succeed
        elif upload.attempts < PUT_ATTEMPTS - 1:
            upload.retry(now_ms)
        else:
            self.counts.failed += 1
            self._effects.append(RefuseObjects((upload.prepared.object_id,)))
            self._give_up(upload, ErrorCode.KAFKA_STORAGE_ERROR)

    def _commit_failed(self, upload: Upload, fault: StorageFault, now_ms: int) -> None:
        if isinstance(fault, Deposed):
            self._give_up(upload, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        upload.stage = Stage.ASKING
        upload.retry(now_ms)

    def _ask_again(self, upload: Upload, _fault: StorageFault, now_ms: int) -> None:
        upload.retry(now_ms)

    def _answered(self, upload: Upload, answer: Committed, now_ms: int) -> None:
        if answer.state is CommitState.PENDING:
            upload.stage = Stage.COMMITTING
            upload.retry(now_ms)
        elif answer.state is CommitState.REFUSED:
            self._stock.clear()  # the coordinator's clock was set forward: they are over, too
            self.counts.refused += 1
            self._give_up(upload, ErrorCode.KAFKA_STORAGE_ERROR)
        elif len(answer.verdicts) != len(upload.tickets):  # so late that they are forgotten
            self._on_committed(upload, self._commit_of(upload), answer)
            self._give_up(upload, ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            self._committed(upload, answer, now_ms)

    def _committed(self, upload: Upload, answer: Committed, now_ms: int) -> None:
        counts = self.counts
        counts.commits += 1
        counts.commit_ms += now_ms - upload.since_ms
        counts.last_commit_ms = now_ms
        counts.batches += len(answer.verdicts)
        commit = self._commit_of(upload)
        self.uploads.remove(upload)
        self._on_committed(upload, commit, answer)
        for place, (ticket, batch, verdict) in enumerate(
            zip(upload.tickets, commit.batches, answer.verdicts, strict=True)
        ):
            ticket.decided(verdict)
            if verdict.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                waited = place in commit.waited_for
                ticket.code = self._gaps.told(batch, verdict, now_ms, waited=waited)
            self._settle(ticket)

    def _give_up(self, upload: Upload, code: ErrorCode) -> None:
        self.uploads.remove(upload)
        self._end_puts(upload)
        for ticket in upload.tickets:
            self._fail(ticket, code)

    def _fail(self, ticket: DisklessTicket, code: ErrorCode) -> None:
        ticket.failed(code)
        self._settle(ticket)

    def _settle(self, ticket: DisklessTicket) -> None:
        self.waiting_bytes -= ticket.size_bytes
        self._on_settled(ticket)


_TABLE: dict[tuple[type, Stage, bool], Callable[[DisklessWriter, Upload, Any, int], None]] = {
    (PutObject, Stage.PUTTING, False): DisklessWriter._put,
    (PutObject, Stage.PUTTING, True): DisklessWriter._put_failed,
    (CommitObject, Stage.COMMITTING, False): DisklessWriter._answered,
    (CommitObject, Stage.COMMITTING, True): DisklessWriter._commit_failed,
    (AskOutcome, Stage.ASKING, False): DisklessWriter._answered,
    (AskOutcome, Stage.ASKING, True): DisklessWriter._ask_again,
}
"""(what ended, what the object waited for, whether it failed); any other pair is a bug."""
