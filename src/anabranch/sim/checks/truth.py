"""What is truly committed of one partition, by the checker's own account, and what was lost of it.

What: `Truth` holds the batches below the true high watermark: the highest offset that any leader
ever told to be committed, each time checked against those who must have it. It only grows, but for
losses that a recorded rule allows; those are cut off, kept and counted. `written` knows every batch
by offset and leader epoch: one leader writes an epoch, so there can be only one (log matching).

Not here: when something is committed, lost or checked (`logs.py`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

from anabranch.sim.checks.commits import Committed, commits_in
from anabranch.sim.checks.entries import Entry
from anabranch.sim.checks.model import Key

if TYPE_CHECKING:
    from anabranch.core.types import Buffer

NEVER = -1


class Loss(NamedTuple):
    """A committed batch that is gone, and the rule that allows it."""

    entry: Entry
    rule: str
    epoch: int
    """The leader epoch that began without it."""

    @property
    def records(self) -> int:
        """How many offsets."""
        return self.entry.end - self.entry.base


class Truth:
    """One partition's committed batches."""

    __slots__ = (
        "commits",
        "deleted",
        "deleted_to",
        "dropped",
        "dropped_to",
        "entries",
        "expired_to",
        "expires",
        "forks",
        "has_remote",
        "high",
        "key",
        "led_by",
        "led_epoch",
        "losses",
        "peak",
        "reset_epoch",
        "resets",
        "shortened",
        "start",
        "told_unseen",
        "written",
    )

    def __init__(self, key: Key, *, has_offsets: bool = False) -> None:
        self.key = key
        self.commits: dict[Entry, tuple[Committed, ...]] | None = {} if has_offsets else None
        """What each batch commits, of a partition of `__consumer_offsets`."""
        self.entries: list[Entry] = []
        self.expires = False
        """Whether each replica drops by itself what is too old or too much, or did at any time."""
        self.has_remote = False
        """Whether a copy may lack what its start says, since finished segments have it."""
        self.high = 0
        """The true high watermark (exclusive)."""
        self.peak = 0
        """The highest that it ever was."""
        self.start = 0
        """Where the log of whoever leads begins."""
        self.deleted: set[Entry] = set()
        """Committed batches before `start`: readers may have seen them."""
        self.deleted_to = 0
        """Records before it may have been deleted by an operator or by retention."""
        self.dropped_to = 0
        """The latest start of any copy: what is before it was dropped for a good reason."""
        self.expired_to = 0
        """Records before it may be gone at a leader that was replaced, and does not know it."""
        self.led_epoch = NEVER
        self.led_by = NEVER
        """The newest leader epoch that somebody began to lead in, and who."""
        self.reset_epoch = NEVER
        """The epoch of the last election whose leader may lack committed records."""
        self.resets: dict[int, str] = {}
        """The rules of all such elections, by epoch: who was elected may hear of it late, when
        another one is elected already."""
        self.written: dict[tuple[int, int], Entry] = {}
        self.losses: list[Loss] = []
        self.told_unseen = 0
        """How far leaders said that all is committed whose batches count for nothing here: an
        unclean election had replaced them, or nobody can read their logs."""
        self.forks: list[tuple[int, str]] = []
        """From which offset on other records may stand than before, and the rule that allows it."""
        self.dropped: dict[Entry, set[int]] = {}
        self.shortened: set[int] = set()
        """Whose log a disk made shorter, also of what had expired there."""
        """Committed batches that a power cut took from some nodes, and from which."""

    def known(self, entry: Entry) -> Entry | None:
        """The batch as it was first seen, None when it is another one for offset and epoch."""
        first = self.written.setdefault((entry.base, entry.epoch), entry)
        return first if first is entry or first == entry else None

    def note_commits(self, entry: Entry, batch: Buffer) -> None:
        """A batch was seen; what it commits is read once, from the first copy that is sound."""
        if self.commits is not None and entry not in self.commits:
            found = commits_in(batch)
            if found is not None:
                self.commits[entry] = found

    def times_committed(self, commit: Committed) -> int:
        """How often an offset stands in the committed batches."""
        commits = self.commits or {}
        return sum(commits.get(entry, ()).count(commit) for entry in self.entries)

    def commit(self, entries: list[Entry], high: int) -> None:
        """These batches are committed too, up to `high`."""
        self.entries += entries
        self.high = max(self.high, high)
        self.peak = max(self.peak, self.high)

    def told(self, high: int) -> None:
        """A leader whose batches count for nothing says that all is committed up to `high`."""
        self.peak = max(self.peak, high)
        self.told_unseen = max(self.told_unseen, high)

    def holds(self, entry: Entry) -> bool:
        """Whether that very batch is committed."""
        index = bisect_left(self.entries, (entry.base,))
        return index < len(self.entries) and self.entries[index] == entry

    def between(self, first: int, upto: int) -> list[Entry]:
        """The committed batches that begin in `[first, upto)`."""
        entries = self.entries
        return entries[bisect_left(entries, (first,)) : bisect_left(entries, (upto,))]

    def _base_of_batch_at(self, offset: int) -> int:
        at = bisect_right(self.entries, offset, key=_end)
        return min(offset, self.entries[at].base) if at < len(self.entries) else offset

    def missing_in(self, entries: list[Entry], start: int, upto: int) -> Entry | None:
        """The first committed batch of `[start, upto)` that is not among these, None for none.

        Of a batch that begins before the start nothing is asked from a log that begins later; an
        empty one has nothing of it."""
        start = max(start, self.start)
        if start < upto if not entries else entries[0].base < start:
            start = self._base_of_batch_at(start)
        for entry in self.between(start, upto):
            at = bisect_left(entries, (entry.base,))
            if at >= len(entries) or (entries[at] is not entry and entries[at] != entry):
                return entry
        return None

    def cut(self, rule: str, epoch: int, leader: list[Entry], start: int, end: int) -> None:
        """The leader of `epoch` may begin with less: what it lacks, and all after it, is lost.

        What remains is what that leader has from its own start on."""
        here = set(leader)
        older = [each for each in self.entries if each.end <= start] if self.has_remote else []
        here.update(older)
        at = next((n for n, each in enumerate(self.entries) if each not in here), None)
        if at is not None:
            end = min(end, self.entries[at].base)
            self.losses += [Loss(each, rule, epoch) for each in self.entries[at:]]
        self.high = min(self.high, end)
        self._fork(self.high, rule)
        local = [each for each in leader if each.end <= self.high and each not in older]
        self.entries = [*older, *local]
        self.start = min(self.start, start)

    def part(self, rule: str, leader: list[Entry]) -> None:
        """The leader of an unclean election may have other batches than were committed, also where
        those are deleted by now and it still has its own: from the first on, offsets may have two
        values."""
        known = self.deleted.union(self.entries)
        for entry in leader:
            if entry.base < self.high and entry not in known:
                self._fork(entry.base, rule)
                return

    def _fork(self, offset: int, rule: str) -> None:
        self.forks.append((offset, rule))
        self.deleted = {each for each in self.deleted if each.end <= offset}

    def other_than_deleted(self, entries: list[Entry], start: int) -> Entry | None:
        """The first of a log's batches, which begins at `start`, in whose place another one was
        committed before it was deleted; None for none. One that was committed before that other,
        and lost by a rule, counts as well as the other."""
        deleted, lost = sorted(self.deleted), {each.entry for each in self.losses}
        for entry in entries:
            if entry.end > start and entry.base < self.start and entry not in lost:
                at = bisect_right(deleted, entry.base, key=_end)
                if at < len(deleted) and deleted[at].base < entry.end and deleted[at] != entry:
                    return entry
        return None

    def start_moved(self, start: int) -> None:
        """A leader's log begins later."""
        if start > self.start:
            self.start = start
            self.deleted_to = max(self.deleted_to, start)
            gone = bisect_right(self.entries, start, key=_end)
            self.deleted.update(self.entries[:gone])
            del self.entries[:gone]
            self.high = max(self.high, start)
            self.peak = max(self.peak, self.high)

    def expired(self, start: int) -> None:
        """A leader that was replaced, and does not know it, dropped what is too old or too much, or
        what it was asked to delete."""
        self.expired_to = max(self.expired_to, min(start, self.high))

    def reset(self, epoch: int, rule: str) -> None:
        """Whoever is elected for an epoch may lack committed records, by a rule."""
        self.reset_epoch = epoch
        self.resets[epoch] = rule

    def rule_of(self, epoch: int) -> str:
        """What allows the leader of an epoch to lack something; "" when nothing does."""
        since = (each for each in sorted(self.resets) if self.led_epoch < each <= epoch)
        return next((self.resets[each] for each in since), "")

    def needed_from(self, start: int) -> int:
        """From where a log that begins at `start` must have what is committed: it may have deleted
        more than others where records expire, or as a leader that was replaced, or from one."""
        lacks = self.expires or self.has_remote
        return max(self.start, start if lacks else min(start, self.expired_to))

    def lost_at(self, offset: int) -> Loss | None:
        """What was lost at an offset, the last time."""
        for loss in reversed(self.losses):
            if loss.entry.base <= offset < loss.entry.end:
                return loss
        return None


def _end(entry: Entry) -> int:
    return entry.end
