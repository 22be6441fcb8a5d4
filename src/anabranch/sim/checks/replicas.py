"""L1, L4, L5 and L6 of one replica that changed: its marks, its epochs, its start, and its cuts.

What: `judge` reads what is new in a copy's log and looks at everything that the change may break.
Rule kept: nothing of the node's own conclusions is believed that can be seen in bytes; of a log
that nobody can read, only its marks and epochs count. Not here: what its high watermark says
(`committed.py`), which copies there are (`logs.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.sim.checks.committed import CommitChecks
from anabranch.sim.checks.copies import NOT_SEEN, Copy
from anabranch.sim.checks.ended import check_ended
from anabranch.sim.checks.entries import Entry
from anabranch.sim.checks.known import LogKnowledge
from anabranch.sim.checks.truth import NEVER
from anabranch.sim.checks.violation import Violation

if TYPE_CHECKING:
    from anabranch.core.log.log import Log
    from anabranch.core.replication.replica import Replica

LAST_STANDING = "the last in-sync replica lost it in a power cut, and there is no ELR"


class ReplicaChecks:
    """See the module."""

    def __init__(self, known: LogKnowledge, commits: CommitChecks) -> None:
        self._known = known
        self._commits = commits

    def judge(self, copy: Copy, replica: Replica) -> None:
        """A copy changed: read what is new, and look at everything that this may break."""
        log = replica.log
        before = copy.high
        if copy.compacted is not None and not copy.was_in_sync:
            partition = self._known.model.partitions.get(copy.truth.key)
            copy.was_in_sync = partition is not None and copy.node.node_id in partition.isr
        start = copy.start
        was_cut = copy.cut_to != NOT_SEEN or log.end_offset < copy.end
        is_reset = copy.truth.reset_epoch != NEVER
        if _is_begun_anew(copy) and (is_reset or self._may_begin_anew(copy)):
            copy.start = NOT_SEEN  # under a leader that may have less, or deletes later
        if was_cut or copy.is_exchanged:
            copy.cut_to, copy.is_exchanged = NOT_SEEN, False
            gone = [] if copy.is_given_up else copy.reload(is_whole=not was_cut)
            copy.end = log.end_offset
            self.check_cut(copy, replica, [entry for entry in gone if entry.end > start])
        elif log.end_offset != copy.end:
            if not copy.is_given_up:
                copy.grow()
            copy.end = log.end_offset
            if not (replica.is_leader or copy.is_given_up):
                self._mark_large(copy.largest, log)
        self._check_marks(copy, replica)
        epoch_before = copy.epoch
        self._check_epochs(copy, replica)
        led_epoch = copy.epoch if copy.leads else self._led_since(copy, epoch_before)
        if log.start_offset != copy.start:
            self._start_moved(copy, replica)
        high = copy.high = replica.high_watermark
        if high > before:
            self._commits.told(copy, replica, before, led_epoch)
        elif high < before and not was_cut:
            raise Violation(
                "L5", "A high watermark went back without its log.",
                {**copy.told(), "high": high, "before": before},
            )  # fmt: skip

    def _may_begin_anew(self, copy: Copy) -> bool:
        """Whether a copy had no record, and its broker may not be elected cleanly."""
        partition = self._known.model.partitions.get(copy.truth.key)
        may_lead = () if partition is None else (*partition.isr, *partition.elr)
        return copy.start == copy.end and copy.node.node_id not in may_lead

    def _mark_large(self, size: int, log: Log) -> None:
        """A batch that was copied, and that no leader would take now."""
        if size > log.config.segment_bytes:
            self._known.marks.hit("copied-above-segment-bytes")
        if size > log.config.max_message_bytes:
            self._known.marks.hit("copied-above-message-bytes")

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
            self._check_reason(copy, replica)
        copy.truth.dropped_to = max(copy.truth.dropped_to, start)
        copy.start = start
        if copy.leads and copy.epoch == copy.truth.led_epoch:
            copy.truth.start_moved(start)
        elif copy.leads:
            copy.truth.expired(start)

    def _check_reason(self, copy: Copy, replica: Replica) -> None:
        """L6: why a log may begin later than it did."""
        truth, place, start = copy.truth, replica.topic_partition, replica.log.start_offset
        seat, model = self._known.seats[copy.node.node_id], self._known.model
        expires = seat.expires(place.topic, model) or seat.ends_remote(place.topic, model)
        truth.expires = truth.expires or expires
        asked = place in self._known.deletes_asked
        if not expires and not asked and start > truth.dropped_to:
            raise Violation(
                "L6", "A log start moved, and nothing expires and no client asked for it.",
                {**copy.told(), "start": start, "before": copy.start},
            )  # fmt: skip
        self._known.marks.hit("records-expired" if expires else "records-deleted")

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
            if self._known.model.leaders.get((key, each)) == node.node_id:
                if self._known.model.lives.get((key, each)) == node.broker.broker_epoch:
                    return each
        return NOT_SEEN

    def _is_of_former_life(self, copy: Copy) -> bool:
        """Whether a process only reads in old metadata that it led before it was restarted."""
        term = (copy.truth.key, copy.epoch)
        is_elected = self._known.model.leaders.get(term) == copy.node.node_id
        return is_elected and self._known.model.lives.get(term) != copy.node.broker.broker_epoch

    def _begins_to_lead(self, copy: Copy, replica: Replica) -> None:
        """L4: a leader has everything, or its election said that it may not."""
        truth, epoch, node_id = copy.truth, copy.epoch, copy.node.node_id
        check_ended(copy)
        elected = self._known.model.leaders.get((truth.key, epoch))
        if elected != node_id:
            raise Violation(
                "M2", "A broker leads in an epoch for which another one was elected.",
                {**copy.told(), "elected": elected},
            )  # fmt: skip
        if epoch <= truth.led_epoch or copy.is_given_up:
            return
        start = truth.needed_from(replica.log.local_start_offset)
        missing = truth.missing_in(copy.entries, start, truth.high)
        while missing in truth.deleted and missing.end <= replica.log.local_start_offset:
            # A leader that had lost its log start had brought it back.
            missing = truth.missing_in(copy.entries, missing.end, truth.high)
        ends_early = truth.expires and replica.log.end_offset < truth.high
        rule = truth.rule_of(epoch)
        if rule:
            truth.part(rule, copy.entries)
        if missing is not None or ends_early:  # what is missing may have expired by now
            if not rule and not self._known.model.elr_enabled:
                lost_by = (
                    [*truth.dropped.values(), truth.shortened]
                    if missing is None
                    else [truth.dropped.get(missing)]
                )
                rule = LAST_STANDING if any(node_id in (each or ()) for each in lost_by) else ""
            if not rule:
                raise Violation(
                    "L4", "A leader does not have all that is committed.",
                    {**copy.told(), "missing": tuple(missing or ()), "committed": truth.high,
                     "end": replica.log.end_offset, "led_before": truth.led_by},
                )  # fmt: skip
            log = replica.log
            truth.cut(rule, epoch, copy.entries, log.local_start_offset, log.end_offset)
            truth.reset_epoch = max(truth.reset_epoch, epoch)
            self._known.marks.hit("lost-by-rule")
        if replica.high_watermark < truth.high:
            self._known.marks.hit("high-watermark-behind")
        high = replica.high_watermark
        if high > truth.high and (truth.losses or high <= truth.told_unseen):
            # A branch that an unclean election had cut off may lead again, and shows all it knew.
            truth.commit(copy.within(truth.high, high), high)
        truth.led_epoch, truth.led_by = epoch, node_id
        truth.start_moved(replica.log.start_offset)

    def check_cut(self, copy: Copy, replica: Replica, gone: list[Entry]) -> None:
        """L6: what a log was cut by is not committed."""
        truth, log = copy.truth, replica.log
        cut = [entry for entry in gone if entry.end > log.local_start_offset]
        if cut:
            self._known.marks.hit("truncation")
        elif gone and log.local_start_offset > 0:
            self._known.marks.hit("restart-at-leader-start")
        is_empty = log.end_offset == log.local_start_offset
        if copy.compacted is not None and truth.reset_epoch != NEVER and is_empty:
            return  # holes cannot be compared with a leader who has less: it copies all of it anew
        if cut and self._is_copied_again(copy, log, cut):
            if truth.holds(cut[-1]):
                self._known.marks.hit("transaction-copied-again")
            return
        for entry in cut:
            if entry.base >= truth.start and truth.holds(entry) and not copy.is_rotten:
                raise Violation(
                    "L6", "A committed batch was cut off.",
                    {**copy.told(), "batch": tuple(entry), "committed": truth.high,
                     "end": log.end_offset},
                )  # fmt: skip

    def _is_copied_again(self, copy: Copy, log: Log, cut: list[Entry]) -> bool:
        """Whether a log lacks committed batches and was cut to where a transaction begins, or to
        its start, where one begins before that: the leader's compaction may have taken the marker.
        Its own may have taken the first batches, also such as the leader's log begins behind."""
        compacted, truth = copy.compacted, copy.truth
        if compacted is None or truth.high <= cut[-1].end:
            return False
        first = [*truth.between(log.end_offset, cut[0].base), cut[0]]
        if any(map(compacted.is_of_transaction, first)):
            return True
        before_truth = min(truth.start, cut[0].base)
        if compacted.has_transaction_between(log.end_offset, before_truth):
            return True
        start = log.local_start_offset
        return log.end_offset == start and compacted.is_open_across(start, cut[-1].end)


def _is_begun_anew(copy: Copy) -> bool:
    """Whether all that a log had was dropped: one with a remote part announces where it begins then
    for its readers, others 0."""
    return NOT_SEEN < copy.cut_to < max(copy.start, 1)
