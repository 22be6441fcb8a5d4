"""L2, L3, L5 and L7 of what a replica tells to be committed: with whom it must be by then.

What: `told` is called when a replica's high watermark rose. A leader's word moves the true high
watermark, if those who must have the new batches have them; a follower's word must be what a leader
said before. Where nobody can read the log of a leader, its word counts without its batches: those
are taken from the first other replica that tells the same. After an unclean election two branches
may exist: what may differ then is noted as a fork or a loss, by its rule. Not here: what else may
change in a log (`replicas.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.sim.checks.copies import NOT_SEEN, Copy
from anabranch.sim.checks.entries import Entry
from anabranch.sim.checks.known import LogKnowledge
from anabranch.sim.checks.truth import Loss
from anabranch.sim.checks.violation import Violation

if TYPE_CHECKING:
    from anabranch.core.replication.replica import Replica

ZOMBIE_WROTE = "acknowledged by a leader that an unclean election had replaced"


class CommitChecks:
    """See the module."""

    def __init__(self, known: LogKnowledge) -> None:
        self._known = known

    def told(self, copy: Copy, replica: Replica, before: int, led_epoch: int) -> None:
        """A replica's high watermark rose: what is below it must be committed.

        `led_epoch` is the epoch in which it leads, or led until this event."""
        truth, high = copy.truth, copy.high
        if copy.is_given_up:
            if led_epoch != NOT_SEEN:
                self._check_ends(copy, high, led_epoch)
                truth.told(high)
            return
        epoch = copy.epoch if led_epoch == NOT_SEEN else led_epoch
        is_stale = max(epoch, 0) < truth.reset_epoch or truth.led_epoch < truth.reset_epoch
        if NOT_SEEN != led_epoch < truth.reset_epoch <= truth.led_epoch:
            self._fork(copy, high)
        if high > truth.high:
            if led_epoch != NOT_SEEN:
                self._commit(copy, replica, high, led_epoch)
            elif not is_stale and not (truth.losses or truth.forks):
                if high > truth.told_unseen:
                    raise Violation(
                        "L5", "A follower's high watermark is above what any leader committed.",
                        {**copy.told(), "high": high, "committed": truth.high},
                    )  # fmt: skip
                truth.commit(copy.within(truth.high, high), high)
        if is_stale or (before == NOT_SEEN and (truth.losses or truth.forks)):
            return
        missing = truth.missing_in(copy.entries, max(before, replica.log.local_start_offset), high)
        if missing is not None:
            raise Violation(
                "L2", "A replica shows something else as committed than what is.",
                {**copy.told(), "committed": tuple(missing), "high": high},
            )  # fmt: skip

    def _fork(self, copy: Copy, high: int) -> None:
        """What a leader shows that an unclean election has replaced may have two values."""
        truth = copy.truth
        leader = self._known.seats[truth.led_by].copies.get(truth.key)
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
        a rule: by an unclean election, also while the log that replaced it is not open."""
        truth = copy.truth
        leader = self._known.seats[truth.led_by].copies.get(truth.key)
        if leader is None:
            return True  # the partition moved away from it meanwhile
        here = set(leader.entries)
        dropped = truth.dropped  # by a disk: it was there when the old leader counted it
        lost = {each.entry for each in truth.losses if each.epoch > led_epoch}
        missing = [
            entry
            for entry in fresh
            if entry not in here and (entry in lost or truth.led_by not in dropped.get(entry, ()))
        ]
        if not missing:
            return True
        if truth.reset_epoch <= led_epoch:
            if not leader.is_sure:
                return True
            raise Violation(
                "L4", "A replaced leader committed what the present one does not have.",
                {**copy.told(), "missing": tuple(missing[0]), "leader": leader.node.name},
            )  # fmt: skip
        truth.losses += [Loss(entry, ZOMBIE_WROTE, truth.led_epoch) for entry in missing]
        truth.told(high)
        self._known.marks.hit("lost-by-rule")
        return False

    def _check_ends(self, copy: Copy, high: int, led_epoch: int) -> None:
        """L3 of a leader whose log nobody can read: the logs of those in sync are long enough."""
        truth, own = copy.truth, copy.node.node_id
        partition = self._known.model.partitions.get(truth.key)
        if partition is None or partition.leader != own or led_epoch < truth.reset_epoch:
            return
        for member in partition.isr:
            other = None if member == own else self._known.certain(member, truth.key)
            if other is None:
                continue
            dropped = (entry.end for entry, nodes in truth.dropped.items() if member in nodes)
            if max(other.end, *dropped, 0) < high:
                raise Violation(
                    "L3", "A record was told to be committed that an in-sync replica lacks.",
                    {**copy.told(), "high": high, "isr": partition.isr, "without": member},
                )  # fmt: skip

    def _check_holders(self, copy: Copy, replica: Replica, fresh: list[Entry], high: int) -> None:
        """L3 and L7: who must have what is committed now."""
        truth, own = copy.truth, copy.node.node_id
        partition = self._known.model.partitions.get(truth.key)
        if partition is None:
            return
        told = {**copy.told(), "high": high, "isr": partition.isr}
        holders = 0
        for member in partition.replicas:
            missing = None if member == own else self._known.missing(member, truth.key, fresh)
            if missing is None or member in truth.dropped.get(missing, ()):
                holders += 1  # or its disk lost it after it was counted
            elif member in partition.isr:
                raise Violation(
                    "L3", "A record was told to be committed that an in-sync replica lacks.",
                    {**told, "without": member, "missing": tuple(missing)},
                )  # fmt: skip
        topic = self._known.model.topics.get(truth.key[0], "")
        factor = len(partition.replicas) - len(partition.adding)  # what it had counts until then
        if holders < self._known.seats[own].required(topic, factor, self._known.model):
            raise Violation(
                "L7", "A record was told to be committed on fewer than min.insync.replicas.",
                {**told, "holders": holders},
            )  # fmt: skip
        if self._known.model.setting(truth.key, "flush.messages", "") == "1":
            unsynced = copy.first_unsynced(fresh)
            if unsynced is not None:
                raise Violation(
                    "L7", "A record was told to be committed before it was flushed.",
                    {**told, "unsynced": tuple(unsynced)},
                )  # fmt: skip
