"""L1 to L8: what must hold of every replica's log, and of what was told to be committed.

    L1  log start <= high watermark <= end; each batch begins where the one before it ends
    L2  one batch an offset and leader epoch; copies are equal up to what each knows as committed
    L3  what is committed is with every member of the ISR that the metadata log names
    L4  who leads, or joins the ISR, has all that is committed; else the election said so
    L5  a high watermark goes back only with its log; nobody shows more than what is committed
    L6  no committed batch is cut off a log
    L7  committed means: on min.insync.replicas, flushed where that is promised; an acknowledged
        record is committed; a process that ends takes nothing with it
    L8  a producer's sequence numbers stand once, and in order, in a log

What: after each event, the copies of the node whose event it was are looked at; `_judge` decides
about one that changed. The true high watermark and the losses that a recorded rule allows are those
of `truth.py`. Rule kept: nothing of the node is changed, and nothing of its own conclusions is
believed that can be seen in bytes. Not here: reading bytes (`entries.py`, `copies.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.types import ZERO_TOPIC_ID, TopicId, TopicPartition
from anabranch.sim.checks.commits import OFFSETS_TOPIC
from anabranch.sim.checks.compacted import Compacted
from anabranch.sim.checks.copies import NOT_SEEN, Copy
from anabranch.sim.checks.entries import Entry
from anabranch.sim.checks.marks import Marks
from anabranch.sim.checks.metadata import Elected
from anabranch.sim.checks.model import Key, Model
from anabranch.sim.checks.seat import Seat
from anabranch.sim.checks.truth import NEVER, Loss, Truth
from anabranch.sim.checks.violation import Violation
from anabranch.sim.processes import State

if TYPE_CHECKING:
    from anabranch.core.replication.replica import Replica
    from anabranch.sim.history import Send
    from anabranch.sim.node import SimNode

ACKS_ALL = -1
TOMBSTONES_STAY_MS = "86400000"
"""delete.retention.ms where nothing else is said."""
LAST_STANDING = "the last in-sync replica lost it in a power cut, and there is no ELR"
ZOMBIE_WROTE = "acknowledged by a leader that an unclean election had replaced"


class LogChecks:
    """See the module."""

    def __init__(self, model: Model, marks: Marks) -> None:
        self.model = model
        self.marks = marks
        self.seats: dict[int, Seat] = {}
        self.truths: dict[Key, Truth] = {}
        self.places: dict[TopicPartition, Truth] = {}
        self.deletes_asked: set[TopicPartition] = set()
        """Partitions of which an operator has deleted records, or has tried to."""

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
        for copy in seat.live:
            replica = copy.replica
            assert replica is not None
            log = replica.log
            if (
                log.end_offset != copy.end
                or replica.high_watermark != copy.high
                or replica.partition_epoch != copy.partition_epoch
                or replica.leader_epoch != copy.epoch
                or log.start_offset != copy.start
                or copy.cut_to != NOT_SEEN
                or copy.is_exchanged
            ) and not (log.fault or copy.is_given_up):
                self._judge(copy, replica)
        seat.earlier_image = broker.image

    def truncated(self, node: SimNode, place: TopicPartition, after: int) -> None:
        """A log is about to be cut."""
        seat = self.seats.get(node.node_id)
        for copy in seat.live if seat is not None else ():
            if copy.replica is not None and copy.replica.topic_partition == place:
                copy.cut_to = after if copy.cut_to == NOT_SEEN else min(copy.cut_to, after)

    def compacted(self, node: SimNode, place: TopicPartition) -> None:
        """Segments of a log were exchanged: everything is read again at the next look."""
        seat = self.seats.get(node.node_id)
        for copy in seat.live if seat is not None else ():
            if copy.replica is not None and copy.replica.topic_partition == place:
                copy.is_exchanged = True

    def node_changed(self, node: SimNode, what: str) -> None:
        """A process started or ended."""
        seat = self.seats.get(node.node_id)
        if seat is None:
            return
        if what in ("power", "wipe", "rot", "evicted", "older"):
            for copy in seat.copies.values():
                copy.is_sure = False
                copy.is_older = copy.is_older or what == "older"
                copy.is_rotten = copy.is_rotten or what == "rot"
                if what == "wipe":
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
            seat.live = []
            seat.broker = seat.earlier_image = None

    def elected(self, elected: Elected) -> None:
        """The metadata log names a new leader."""
        truth = self._truth(elected.key)
        if elected.rule:
            truth.reset_epoch = elected.now.leader_epoch
            truth.reset_rule = elected.rule
        before = elected.before
        seat = self.seats.get(before.leader) if before is not None else None
        copy = seat.copies.get(elected.key) if seat is not None else None
        if copy is not None and copy.leads and elected.now.leader != copy.node.node_id:
            if copy.node.state is not State.CRASHED:
                self.marks.hit("zombie-leader")

    def joined(self, key: Key, members: tuple[int, ...]) -> None:
        """The metadata log says that these are in sync now."""
        truth = self._truth(key)
        if truth.reset_epoch > truth.led_epoch:
            return
        for member in members:
            missing = self._lacks(member, key, truth.start, truth.high)
            if missing is not None:
                raise Violation(
                    "L4", "A replica joined the ISR without all that is committed.",
                    {"partition": self.model.place(key), "node": member,
                     "missing": tuple(missing), "committed": truth.high},
                )  # fmt: skip

    def acknowledged(self, send: Send) -> None:
        """A producer was told that its record is safe."""
        truth = self.truth_of(send.place, send.topic_id)
        if send.acks != ACKS_ALL or send.offset < 0:
            return
        if truth is None or not (
            send.offset < max(truth.high, truth.told_by_replaced)
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

    def _truth(self, key: Key) -> Truth:
        truth = self.truths.get(key)
        if truth is None:
            place = self.model.place(key)
            truth = Truth(key, has_offsets=place.topic == OFFSETS_TOPIC)
            if "compact" in self.model.setting(key, "cleanup.policy", "delete"):
                truth.compacted = Compacted(truth, lambda: self._tombstones_stay_ms(key))
            truth.expires = self.model.expires(key)
            self.truths[key] = self.places[place] = truth
        return truth

    def key_of(self, replica: Replica) -> Key:
        """The partition that a replica is of."""
        return replica.topic_id, replica.topic_partition.partition

    def truth_of(self, place: TopicPartition, topic_id: TopicId = ZERO_TOPIC_ID) -> Truth | None:
        """The partition of that name that clients meant; the newest when they did not know."""
        if topic_id == ZERO_TOPIC_ID:
            return self.places.get(place)
        return self.truths.get((topic_id, place.partition))

    def _tombstones_stay_ms(self, key: Key) -> int:
        return int(self.model.setting(key, "delete.retention.ms", TOMBSTONES_STAY_MS))

    def _rehost(self, seat: Seat) -> None:
        """Another image, another life, or a partition gone offline: see what is hosted now."""
        broker = seat.node.broker
        offline = len(broker.partitions.offline)
        same_life = seat.broker is broker
        if same_life and offline > seat.offline:
            self.marks.hit("replica-offline")
        seat.broker, seat.image, seat.offline = broker, broker.image, offline
        before, seat.live = seat.live, []
        opened: list[tuple[Copy, Replica]] = []
        for replica in broker.partitions:
            key = self.key_of(replica)
            copy = seat.copies.get(key)
            if copy is None or (same_life and copy.replica not in (None, replica)):
                # Or: one event brought the end of a role, with its log, and a new role.
                copy = seat.copies[key] = Copy(seat.node, self._truth(key))
            if copy.replica is not replica:
                copy.forget()
                copy.replica = replica
                opened.append((copy, replica))
            seat.live.append(copy)
        for copy in before:
            if copy not in seat.live:
                self._last_words(copy)
                copy.forget()
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
        gone = copy.reload()
        if copy.is_given_up:
            return
        copy.is_sure = True
        was_older, copy.is_older = copy.is_older, False
        if gone and was_older:
            pass  # what an older copy lacks is lost by no rule: it must not lead without it
        elif gone and not was_sure:
            self.marks.hit("power-cut-lost-tail")
            self._dropped(copy, gone)
        elif gone:
            start = max(replica.log.start_offset, copy.truth.start)
            for entry in gone:
                if entry.end > start and (cut_to == NOT_SEEN or entry.base < cut_to):
                    raise Violation(
                        "L7", "A process ended, its machine did not, and records are gone.",
                        {**copy.told(), "gone": tuple(entry)},
                    )  # fmt: skip
            self._check_cut(copy, replica, gone)
        self._judge(copy, replica)

    def belongs_to(self, node_id: int, key: Key) -> bool:
        """Whether the metadata give a node a partition."""
        partition = self.model.partitions.get(key)
        return partition is not None and node_id in (*partition.replicas, *partition.observers)

    def _dropped(self, copy: Copy, entries: list[Entry]) -> None:
        for entry in entries:
            copy.truth.dropped.setdefault(entry, set()).add(copy.node.node_id)

    def _last_words(self, copy: Copy) -> None:
        """What a replica said in the event in which its log failed."""
        replica = copy.replica
        if replica is not None and copy.leads and replica.high_watermark > copy.high:
            if replica.log.end_offset > copy.end and copy.cut_to == NOT_SEEN:
                copy.grow()
            if copy.entries and replica.high_watermark <= copy.entries[-1].end:
                before, copy.high = copy.high, replica.high_watermark
                self._told_committed(copy, replica, before, copy.epoch)

    # One copy.

    def _judge(self, copy: Copy, replica: Replica) -> None:
        """A copy changed: read what is new, and look at everything that this may break."""
        log = replica.log
        before = copy.high
        was_cut = copy.cut_to != NOT_SEEN or log.end_offset < copy.end
        if copy.cut_to == 0 and copy.truth.reset_epoch != NEVER:
            copy.start = NOT_SEEN  # begins anew under a leader that may have less
        if was_cut or copy.is_exchanged:
            copy.cut_to, copy.is_exchanged = NOT_SEEN, False
            gone = copy.reload()
            copy.end = log.end_offset
            self._check_cut(copy, replica, gone)
        elif log.end_offset != copy.end:
            copy.grow()
            copy.end = log.end_offset
        self._check_marks(copy, replica)
        epoch_before = copy.epoch
        self._check_epochs(copy, replica)
        led_epoch = copy.epoch if copy.leads else self._led_since(copy, epoch_before)
        if log.start_offset != copy.start:
            self._start_moved(copy, replica)
        high = copy.high = replica.high_watermark
        if high > before:
            self._told_committed(copy, replica, before, led_epoch)
        elif high < before and not was_cut:
            raise Violation(
                "L5", "A high watermark went back without its log.",
                {**copy.told(), "high": high, "before": before},
            )  # fmt: skip

    def _check_marks(self, copy: Copy, replica: Replica) -> None:
        log = replica.log
        if not log.start_offset <= replica.high_watermark <= log.end_offset:
            raise Violation(
                "L1", "Log start, high watermark and end are not in this order.",
                {**copy.told(), "start": log.start_offset, "high": replica.high_watermark,
                 "end": log.end_offset},
            )  # fmt: skip

    def _start_moved(self, copy: Copy, replica: Replica) -> None:
        start = replica.log.start_offset
        if copy.start != NOT_SEEN:
            if start < copy.start:
                raise Violation(
                    "L1", "A log start went back.",
                    {**copy.told(), "start": start, "before": copy.start},
                )  # fmt: skip
            if not copy.truth.expires and replica.topic_partition not in self.deletes_asked:
                raise Violation(
                    "L6", "A log start moved, and nothing expires and nobody asked for it.",
                    {**copy.told(), "start": start, "before": copy.start},
                )  # fmt: skip
            self.marks.hit("records-expired" if copy.truth.expires else "records-deleted")
        copy.start = start
        if copy.leads and copy.epoch == copy.truth.led_epoch:
            copy.truth.start_moved(start)
        elif copy.leads:
            copy.truth.expired(start)

    def _check_epochs(self, copy: Copy, replica: Replica) -> None:
        epoch, partition_epoch = replica.leader_epoch, replica.partition_epoch
        if epoch < copy.epoch or (epoch == copy.epoch and partition_epoch < copy.partition_epoch):
            raise Violation(
                "M1", "A replica's leader or partition epoch went back.",
                {**copy.told(), "now": (epoch, partition_epoch),
                 "before": (copy.epoch, copy.partition_epoch)},
            )  # fmt: skip
        is_new = epoch != copy.epoch or replica.is_leader != copy.leads
        copy.epoch, copy.partition_epoch = epoch, partition_epoch
        copy.leads = replica.is_leader and not self._is_of_former_life(copy)
        if copy.leads and is_new:
            self._begins_to_lead(copy, replica)

    def _led_since(self, copy: Copy, epoch: int) -> int:
        """The last epoch in which it led until this event: one event may bring several."""
        key, node = copy.truth.key, copy.node
        for each in range(copy.epoch - 1, max(epoch, 0) - 1, -1):
            if self.model.leaders.get((key, each)) == node.node_id:
                if self.model.lives.get((key, each)) == node.broker.broker_epoch:
                    return each
        return NOT_SEEN

    def _is_of_former_life(self, copy: Copy) -> bool:
        """Whether a process only reads in old metadata that it led before it was restarted."""
        term = (copy.truth.key, copy.epoch)
        is_elected = self.model.leaders.get(term) == copy.node.node_id
        return is_elected and self.model.lives.get(term) != copy.node.broker.broker_epoch

    def _begins_to_lead(self, copy: Copy, replica: Replica) -> None:
        """L4: a leader has everything, or its election said that it may not."""
        truth, epoch, node_id = copy.truth, copy.epoch, copy.node.node_id
        elected = self.model.leaders.get((truth.key, epoch))
        if elected != node_id:
            raise Violation(
                "M2", "A broker leads in an epoch for which another one was elected.",
                {**copy.told(), "elected": elected},
            )  # fmt: skip
        if epoch <= truth.led_epoch:
            return
        start = max(truth.start, replica.log.start_offset if truth.expires else 0)
        missing = truth.missing_in(copy.entries, start, truth.high)
        ends_early = truth.expires and replica.log.end_offset < truth.high
        if missing is not None or ends_early:  # what is missing may have expired by now
            rule = truth.reset_rule if truth.led_epoch < truth.reset_epoch <= epoch else ""
            if not rule and not self.model.elr_enabled:
                lost_by = (
                    truth.dropped.values() if missing is None else [truth.dropped.get(missing)]
                )
                rule = LAST_STANDING if any(node_id in (each or ()) for each in lost_by) else ""
            if not rule:
                raise Violation(
                    "L4", "A leader does not have all that is committed.",
                    {**copy.told(), "missing": tuple(missing or ()), "committed": truth.high,
                     "end": replica.log.end_offset, "led_before": truth.led_by},
                )  # fmt: skip
            log = replica.log
            truth.cut(rule, epoch, copy.entries, log.start_offset, log.end_offset)
            truth.reset_epoch = max(truth.reset_epoch, epoch)
            self.marks.hit("lost-by-rule")
        if replica.high_watermark < truth.high:
            self.marks.hit("high-watermark-behind")
        if truth.losses and replica.high_watermark > truth.high:
            # A branch that an unclean election had cut off may lead again, and shows all it knew.
            truth.commit(copy.within(truth.high, replica.high_watermark), replica.high_watermark)
        truth.led_epoch, truth.led_by = epoch, node_id
        truth.start_moved(replica.log.start_offset)

    def _check_cut(self, copy: Copy, replica: Replica, gone: list[Entry]) -> None:
        """L6: what a log was cut by is not committed."""
        truth, log = copy.truth, replica.log
        cut = [entry for entry in gone if entry.end > log.start_offset]
        if cut:
            self.marks.hit("truncation")
        elif gone and log.start_offset > 0:
            self.marks.hit("restart-at-leader-start")
        is_empty = log.end_offset == log.start_offset
        if truth.compacted is not None and truth.reset_epoch != NEVER and is_empty:
            return  # holes cannot be compared with a leader who has less: it copies all of it anew
        for entry in cut:
            if entry.base >= truth.start and truth.holds(entry) and not copy.is_rotten:
                raise Violation(
                    "L6", "A committed batch was cut off.",
                    {**copy.told(), "batch": tuple(entry), "committed": truth.high,
                     "end": log.end_offset},
                )  # fmt: skip

    # What is told to be committed.

    def _told_committed(self, copy: Copy, replica: Replica, before: int, led_epoch: int) -> None:
        """A replica's high watermark rose: what is below it must be committed.

        `led_epoch` is the epoch in which it leads, or led until this event."""
        truth, high = copy.truth, copy.high
        epoch = copy.epoch if led_epoch == NOT_SEEN else led_epoch
        is_stale = max(epoch, 0) < truth.reset_epoch or truth.led_epoch < truth.reset_epoch
        if NOT_SEEN != led_epoch < truth.reset_epoch <= truth.led_epoch:
            self._fork(copy, high)
        if high > truth.high:
            if led_epoch != NOT_SEEN:
                self._commit(copy, replica, high, led_epoch)
            elif not is_stale and not (truth.losses or truth.forks):
                raise Violation(
                    "L5", "A follower's high watermark is above what any leader committed.",
                    {**copy.told(), "high": high, "committed": truth.high},
                )  # fmt: skip
        if is_stale or (before == NOT_SEEN and (truth.losses or truth.forks)):
            return
        missing = truth.missing_in(copy.entries, max(before, replica.log.start_offset), high)
        if missing is not None:
            raise Violation(
                "L2", "A replica shows something else as committed than what is.",
                {**copy.told(), "committed": tuple(missing), "high": high},
            )  # fmt: skip

    def _fork(self, copy: Copy, high: int) -> None:
        """What a leader shows that an unclean election has replaced may have two values."""
        truth = copy.truth
        leader = self.seats[truth.led_by].copies.get(truth.key)
        here = set(leader.entries if leader is not None else ())
        for entry in copy.entries:
            if entry.end <= high and entry.base >= truth.start and entry not in here:
                truth.forks.append((entry.base, ZOMBIE_WROTE))
                return

    def _commit(self, copy: Copy, replica: Replica, high: int, led_epoch: int) -> None:
        """A leader says that more is committed than anybody said before."""
        truth = copy.truth
        fresh = copy.within(truth.high, high)
        if led_epoch < truth.led_epoch and not self._still_true(copy, fresh, high, led_epoch):
            return
        if led_epoch >= truth.reset_epoch:
            self._check_holders(copy, replica, fresh, high)
        truth.commit(fresh, high)

    def _still_true(self, copy: Copy, fresh: list[Entry], high: int, led_epoch: int) -> bool:
        """Whether what a replaced leader commits is with the present one; False when it is lost by
        a rule."""
        truth = copy.truth
        leader = self.seats[truth.led_by].copies.get(truth.key)
        if leader is None:
            return True  # the partition moved away from it meanwhile
        here = set(leader.entries)
        lost = truth.dropped  # by a disk: it was there when the old leader counted it
        missing = [
            entry
            for entry in fresh
            if entry not in here and truth.led_by not in lost.get(entry, ())
        ]
        if not leader.is_sure or not missing:
            return True
        if truth.reset_epoch <= led_epoch:
            raise Violation(
                "L4", "A replaced leader committed what the present one does not have.",
                {**copy.told(), "missing": tuple(missing[0]), "leader": leader.node.name},
            )  # fmt: skip
        truth.losses += [Loss(entry, ZOMBIE_WROTE, truth.led_epoch) for entry in missing]
        truth.peak = max(truth.peak, high)
        truth.told_by_replaced = max(truth.told_by_replaced, high)
        self.marks.hit("lost-by-rule")
        return False

    def _check_holders(self, copy: Copy, replica: Replica, fresh: list[Entry], high: int) -> None:
        """L3 and L7: who must have what is committed now."""
        truth, own = copy.truth, copy.node.node_id
        partition = self.model.partitions.get(truth.key)
        if partition is None:
            return
        told = {**copy.told(), "high": high, "isr": partition.isr}
        holders = 0
        for member in partition.replicas:
            missing = None if member == own else self._missing(member, truth.key, fresh)
            if missing is None:
                holders += 1
            elif member in partition.isr:
                raise Violation(
                    "L3", "A record was told to be committed that an in-sync replica lacks.",
                    {**told, "without": member, "missing": tuple(missing)},
                )  # fmt: skip
        topic = self.model.topics.get(truth.key[0], "")
        factor = len(partition.replicas) - len(partition.adding)  # what it had counts until then
        if holders < self.seats[own].required(topic, factor, self.model):
            raise Violation(
                "L7", "A record was told to be committed on fewer than min.insync.replicas.",
                {**told, "holders": holders},
            )  # fmt: skip
        if self.model.setting(truth.key, "flush.messages", "") == "1":
            unsynced = copy.first_unsynced(fresh)
            if unsynced is not None:
                raise Violation(
                    "L7", "A record was told to be committed before it was flushed.",
                    {**told, "unsynced": tuple(unsynced)},
                )  # fmt: skip

    def _missing(self, node_id: int, key: Key, entries: list[Entry]) -> Entry | None:
        """The first of these that a replica lacks for certain."""
        copy = self._certain(node_id, key)
        if copy is None:
            return None
        have = copy.entries
        for entry in entries:
            if entry not in have[-len(entries) - 64 :] and entry not in have:
                return entry
        return None

    def _lacks(self, node_id: int, key: Key, start: int, upto: int) -> Entry | None:
        """The first committed batch of a range that a replica lacks for certain."""
        copy = self._certain(node_id, key)
        return None if copy is None else copy.lacks(start, upto)

    def _certain(self, node_id: int, key: Key) -> Copy | None:
        """A replica's copy, if it is known what it has and the metadata mean its present life."""
        seat = self.seats.get(node_id)
        copy = seat.copies.get(key) if seat is not None else None
        registered = self.model.brokers.get(node_id)
        if copy is None or not copy.is_sure or registered is None:
            return None
        return copy if copy.node.broker.broker_epoch == registered.epoch else None
