"""L1 to L8 and C7: what must hold of every replica's log, and of what was told to be committed.

    L1  log start <= high watermark <= end; each batch begins where the one before it ends
    L2  one batch an offset and leader epoch; copies are equal up to what each knows as committed
    L3  what is committed is with every member of the ISR that the metadata log names
    L4  who leads, or joins the ISR, has all that is committed; else the election said so
    L5  a high watermark goes back only with its log; nobody shows more than what is committed
    L6  no committed batch is cut off a log, but for a transaction's of a copy that lacks committed
        ones besides: compaction may have taken the marker from the leader's log
    L7  committed means: on min.insync.replicas, flushed where that is promised; an acknowledged
        record is committed; a process that ends takes nothing with it
    L8  a producer's sequence numbers stand once, and in order, in a log; a transaction coordinator
        that lost its log may give them again where nothing that is left can tell
    C7  a pass of compaction begins only where the node knows a cleanup.policy that says so

What: after each event, the copies of the node whose event it was are looked at, and one that
changed is judged (`replicas.py`). The true high watermark and the losses that a recorded rule
allows are those of `truth.py`. Here too: which copies a node has, and what was told besides. Rule
kept: nothing of the node is changed. Not here: reading bytes (`entries.py`, `copies.py`), what must
hold of what is committed (`committed.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.partition.protocol import ACKS_ALL
from anabranch.core.types import ZERO_TOPIC_ID, TopicId, TopicPartition
from anabranch.sim.checks.committed import CommitChecks
from anabranch.sim.checks.copies import NOT_SEEN, Copy
from anabranch.sim.checks.decided import check_decided
from anabranch.sim.checks.ended import check_ended
from anabranch.sim.checks.entries import Entry
from anabranch.sim.checks.known import A_DAY_MS, LogKnowledge
from anabranch.sim.checks.marks import Marks
from anabranch.sim.checks.metadata import Elected
from anabranch.sim.checks.model import TOMBSTONES_STAY_MS, Key, Model
from anabranch.sim.checks.replicas import ReplicaChecks
from anabranch.sim.checks.seat import Seat
from anabranch.sim.checks.violation import Violation
from anabranch.sim.processes import State

if TYPE_CHECKING:
    from anabranch.core.replication.replica import Replica
    from anabranch.sim.history import Send
    from anabranch.sim.node import SimNode


class LogChecks(LogKnowledge):
    """See the module."""

    def __init__(self, model: Model, marks: Marks) -> None:
        super().__init__(model, marks)
        self._commits = CommitChecks(self)
        self._replicas = ReplicaChecks(self, self._commits)
        self._judge = self._replicas.judge

    # What is told.

    def look(self, node: SimNode) -> None:
        """After an event of a node: judge those of its copies that changed."""
        seat = self.seats.get(node.node_id)
        if seat is None:
            seat = self.seats[node.node_id] = Seat(node)
        broker = node.broker
        if (
            broker.image is not seat.image
            or broker is not seat.broker
            or len(broker.partitions.offline) != seat.offline
        ):
            self._rehost(seat)
        for copy, replica, log in seat.watched:
            if (
                log.end_offset != copy.end
                or replica.high_watermark != copy.high
                or replica.partition_epoch != copy.partition_epoch
                or replica.leader_epoch != copy.epoch
                or log.start_offset != copy.start
                or copy.cut_to != NOT_SEEN
                or copy.is_exchanged
            ) and not log.fault:
                self._judge(copy, replica)
        seat.earlier_image = broker.image

    def truncated(self, node: SimNode, place: TopicPartition, after: int) -> None:
        """A log is about to be cut."""
        seat = self.seats.get(node.node_id)
        for copy in seat.live if seat is not None else ():
            if copy.replica is not None and copy.replica.topic_partition == place:
                copy.cut_to = after if copy.cut_to == NOT_SEEN else min(copy.cut_to, after)

    def compacted(self, node: SimNode, place: TopicPartition, upto: int) -> None:
        """Segments of a log were exchanged by a pass that has read so far: everything is read again
        at the next look."""
        seat = self.seats.get(node.node_id)
        for copy in seat.live if seat is not None else ():
            if copy.replica is not None and copy.replica.topic_partition == place:
                copy.is_exchanged = True
                check_decided(copy, upto)

    def compacts(self, node: SimNode, place: TopicPartition, upto: int | None) -> None:
        """A pass over a log begins (None), or has read so far and exchanges segments."""
        seat = self.seats.get(node.node_id)
        if seat is None:
            return
        if upto is None:
            seat.passes[place] = node.broker.image
            return
        for copy in seat.live:
            if copy.replica is not None and copy.replica.topic_partition == place:
                self._installs(seat, copy, place, upto)

    def _installs(self, seat: Seat, copy: Copy, place: TopicPartition, upto: int) -> None:
        if copy.compacted is None or not seat.compacts(place, self.model):
            raise Violation(
                "C7", "A log is compacted whose cleanup.policy does not say so.",
                {**copy.told(), "upto": upto},
            )  # fmt: skip
        copy.compacted.installed_upto = max(copy.compacted.installed_upto, upto)
        since = seat.passes.get(place)
        stay = seat.known(place.topic, TOMBSTONES_STAY_MS, self.model, since)
        copy.stays_ms = min(int(each or A_DAY_MS) for each in stay)
        if copy.truth.key in self.born_deleting:
            self.marks.hit("compacted-after-deleting")

    def node_changed(self, node: SimNode, what: str) -> None:
        """A process started or ended."""
        seat = self.seats.get(node.node_id)
        if seat is None:
            return
        if what in ("power", "wipe", "rot", "evicted", "older"):
            for key, copy in seat.copies.items():
                copy.is_sure = False
                copy.is_older = copy.is_older or what == "older"
                copy.is_rotten = copy.is_rotten or what == "rot"
                if what == "wipe" and not _has_folder(node, self.model.place(key)):
                    self._dropped(copy, copy.entries)
                    copy.entries = []
                    copy.is_rotten = copy.is_given_up = False
        if what == "wipe":
            self.marks.hit("wiped")
        if what == "pause" and any(copy.leads for copy in seat.live):
            self.marks.hit("paused-leader")
        if what in ("power", "crash", "stop", "start"):
            for copy in seat.live:
                copy.forget()
            seat.live, seat.watched = [], []
            seat.broker = seat.earlier_image = None

    def elected(self, elected: Elected) -> None:
        """The metadata log names a new leader."""
        truth = self.truth(elected.key)
        if elected.rule:
            truth.reset(elected.now.leader_epoch, elected.rule)
        before = elected.before
        seat = self.seats.get(before.leader) if before is not None else None
        copy = seat.copies.get(elected.key) if seat is not None else None
        if copy is not None and copy.leads and elected.now.leader != copy.node.node_id:
            if copy.node.state is not State.CRASHED:
                self.marks.hit("zombie-leader")

    def joined(self, key: Key, members: tuple[int, ...]) -> None:
        """The metadata log says that these are in sync now."""
        truth = self.truth(key)
        if truth.reset_epoch > truth.led_epoch:
            return
        for member in members:
            self._came_back(key, member)
            missing = self.lacks(member, key, truth.start, truth.high)
            if missing is not None:
                raise Violation(
                    "L4", "A replica joined the ISR without all that is committed.",
                    {"partition": self.model.place(key), "node": member,
                     "missing": tuple(missing), "committed": truth.high},
                )  # fmt: skip
            other = self.other_than_deleted(member, key)
            if other is not None:
                raise Violation(
                    "L4", "A replica joined the ISR with what was never committed.",
                    {"partition": self.model.place(key), "node": member, "batch": tuple(other),
                     "start": truth.start},
                )  # fmt: skip

    def left(self, key: Key, members: set[int]) -> None:
        """The metadata log says that these have no replica any more: a process that is down, or
        follows later, sets its log aside, even if the partition has come back by then."""
        for member in members:
            seat = self.seats.get(member)
            copy = seat.copies.get(key) if seat is not None else None
            if copy is not None and copy.replica is None:
                copy.has_left = True

    def configured(self, key: Key) -> None:
        """The metadata log changes settings of a partition. Records may expire from now on, also in
        the last event of a process, of which nothing else is seen."""
        truth = self.truths.get(key)
        if truth is not None:
            truth.expires = truth.expires or self.model.expires(key)

    def _came_back(self, key: Key, member: int) -> None:
        seat = self.seats.get(member)
        copy = seat.copies.get(key) if seat is not None else None
        if copy is not None:
            check_ended(copy)
        if copy is not None and copy.missed_marker:
            copy.missed_marker = False
            self.marks.hit("marker-gone-while-away")

    def acknowledged(self, send: Send) -> None:
        """A producer was told that its record is safe."""
        truth = self.truth_of(send.place, send.topic_id)
        if send.acks != ACKS_ALL or send.offset < 0:
            return
        if truth is None or not (
            send.offset < max(truth.high, truth.told_unseen)
            or truth.lost_at(send.offset) is not None
        ):
            raise Violation(
                "L7", "A record was acknowledged under acks=all and is not committed.",
                {"partition": send.place, "offset": send.offset, "record": send.id,
                 "committed": None if truth is None else truth.high},
            )  # fmt: skip

    def shown(
        self, place: TopicPartition, offset: int, client: str, topic_id: TopicId = ZERO_TOPIC_ID
    ) -> None:
        """A consumer was shown the record at an offset."""
        truth = self.truth_of(place, topic_id)
        if truth is None or offset >= truth.peak:
            raise Violation(
                "L5", "A consumer was shown a record that was never committed.",
                {"partition": place, "offset": offset, "client": client,
                 "committed": None if truth is None else truth.peak},
            )  # fmt: skip

    # Which copies there are.

    def _rehost(self, seat: Seat) -> None:
        """Another image, another life, or a partition gone offline: see what is hosted now."""
        broker = seat.node.broker
        offline = len(broker.partitions.offline)
        same_life = seat.broker is broker
        if same_life and offline > seat.offline:
            self.marks.hit("replica-offline")
        seat.broker, seat.image, seat.offline = broker, broker.image, offline
        hosted = list(broker.partitions)
        if same_life and hosted == seat.hosted:  # what is watched is as it was
            self._forget_moved(seat)
            return
        seat.hosted = hosted
        before, seat.live = seat.live, []
        opened: list[tuple[Copy, Replica]] = []
        paired: list[tuple[Copy, Replica]] = []
        for replica in hosted:
            key = self.key_of(replica)
            copy = seat.copies.get(key)
            if copy is None or (same_life and copy.replica not in (None, replica)):
                # Or: one event brought the end of a role, with its log, and a new role.
                copy = seat.copies[key] = Copy(
                    seat.node, self.truth(key), self.compacted_logs.get(key)
                )
            if copy.replica is not replica:
                copy.forget()
                copy.replica = replica
                opened.append((copy, replica))
            seat.live.append(copy)
            paired.append((copy, replica))
        seat.watched = [(copy, replica, replica.log) for copy, replica in paired]
        for copy in before:
            if copy not in seat.live:
                self._last_words(copy)
                copy.forget()
                if not seat.is_given(copy.truth.key):
                    del seat.copies[copy.truth.key]  # set aside, whatever comes after this image
        self._forget_moved(seat)
        for copy, replica in opened:
            if replica.log.fault is None:
                self._open(copy, replica)

    def _forget_moved(self, seat: Seat) -> None:
        """What a node had of a partition that moved away, also while its process was down, counts
        no more: its log is set aside, and a new one begins when the partition comes back."""
        for key, copy in list(seat.copies.items()):
            if copy.replica is None and not self.belongs_to(seat.node.node_id, key):
                del seat.copies[key]

    def _open(self, copy: Copy, replica: Replica) -> None:
        """A log was opened: what the process before knew must be there."""
        was_sure = copy.is_sure
        cut_to, copy.cut_to = copy.cut_to, NOT_SEEN
        before = copy.entries
        gone = copy.reload()
        if copy.is_given_up:
            return
        last_end, copy.last_end = copy.last_end, NOT_SEEN
        if not was_sure and replica.log.end_offset < last_end:
            copy.truth.shortened.add(copy.node.node_id)
        copy.is_sure = True
        was_older, copy.is_older = copy.is_older, False
        had_left, copy.has_left = copy.has_left, False
        if gone and (was_older or had_left):
            pass  # lost by no rule, like what was set aside: it must not lead without it
        elif gone and not was_sure:
            self.marks.hit("power-cut-lost-tail")
            end = replica.log.end_offset
            superseded = [each for each in before if each.base >= end]  # by what is lost now
            self._dropped(copy, gone + superseded)
        elif gone:
            start = max(replica.log.local_start_offset, copy.truth.start)
            for entry in gone:
                if entry.end > start and (cut_to == NOT_SEEN or entry.base < cut_to):
                    raise Violation(
                        "L7", "A process ended, its machine did not, and records are gone.",
                        {**copy.told(), "gone": tuple(entry)},
                    )  # fmt: skip
            self._replicas.check_cut(copy, replica, gone)
        check_ended(copy)
        self._judge(copy, replica)

    def _dropped(self, copy: Copy, entries: list[Entry]) -> None:
        for entry in entries:
            copy.truth.dropped.setdefault(entry, set()).add(copy.node.node_id)

    def _last_words(self, copy: Copy) -> None:
        """What a replica said in the event in which its log failed."""
        replica = copy.replica
        if replica is not None and copy.leads and replica.high_watermark > copy.high:
            is_longer = replica.log.end_offset > copy.end and copy.cut_to == NOT_SEEN
            if is_longer and not copy.is_given_up:
                copy.grow()
            seen_to = copy.entries[-1].end if copy.entries else NOT_SEEN
            if copy.is_given_up or replica.high_watermark <= seen_to:
                before, copy.high = copy.high, replica.high_watermark
                self._commits.told(copy, replica, before, copy.epoch)


def _has_folder(node: SimNode, place: TopicPartition) -> bool:
    """Whether a machine has a log of a partition: one that loses a disk keeps those of others."""
    end = f"/{place}"
    return any(path.endswith(end) for path in node.disk.names)
