"""A follower's Fetch within its session: only partitions that may have news are looked at.

What: what most of a broker's fetches are. A broker with 100,000 partitions copies most of them in
vain most of the time, so a pass costs what moved since the last one, whatever is in the session:
the session's `news` names it, and one key wakes the parked request. Rules kept: a partition leaves
the news only when the follower has all of it, knows its marks or has one coming, and nothing could
follow from hearing of it again (it is in sync, or never will be); records are answered at once,
marks that moved alone (high watermark, log start) within `MARKS_MS`, or `UNREAD_MARKS_MS`, to a
follower that says what it knows (version 18, KIP-1166), else with the next answer. High watermarks
that are held back do not go with records of other partitions: nobody waits for them, but producers
do for those.
Source: KIP-227, KIP-1166. Not here: what an answer holds (`fetch_pass`).
"""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.core.access.authorize import Operation, cluster_allowed
from anabranch.core.api.closest_replica import sends_away
from anabranch.core.api.context import Broker
from anabranch.core.api.fetch_history import is_idle
from anabranch.core.api.fetch_pass import Fetch, ReadOptions, Round
from anabranch.core.api.fetch_sessions import NOTHING_TO_TELL, FetchSession, Wanted
from anabranch.core.errors import ApiError
from anabranch.core.log.files import ColdRead
from anabranch.core.outcome import Outcome, Wait
from anabranch.core.replication.replica import Replica
from anabranch.core.wire.messages.fetch import FetchResponse

MARKS_MS = 5
"""How late a follower may learn that a mark moved when no records come: long enough that the next
batch of a busy partition brings the mark along, and no fetch is spent on it alone."""
UNREAD_MARKS_MS = 50
"""The same of a high watermark where no consumer reads from the follower, so that nobody waits."""
_SAYS_ITS_MARKS_SINCE = 18


def may_pass_over(broker: Broker, reading: ReadOptions, session: FetchSession) -> bool:
    """Whether this is a follower's session whose idle partitions need no look."""
    if not (reading.is_follower and session.privileged):
        return False
    return broker.authorizer.allows_all or cluster_allowed(
        broker.authorizer, reading.request, Operation.CLUSTER_ACTION
    )


class FollowerFetch(Fetch):
    """One fetch of a follower from its first reading to its answer."""

    __slots__ = ("_held", "_is_over", "_says_marks")

    def __init__(
        self, broker: Broker, reading: ReadOptions, session: FetchSession, now_ms: int
    ) -> None:
        super().__init__(broker, reading, session, [], now_ms)
        self._held = session
        self._is_over = False
        self._says_marks = reading.request.version >= _SAYS_ITS_MARKS_SINCE
        session.hear(reading.broker_epoch, broker.steady_ms)

    @property
    def named(self) -> Iterable[Wanted]:
        """What may have news."""
        if self._held.untold and self.tells_marks:
            self._held.tell_marks()
        return list(self._held.news)

    @property
    def may_wait(self) -> bool:
        """Whether there is something else that may yet have records."""
        return len(self._held.news) < len(self._held.partitions)

    def park(self, _found: Round) -> Wait:
        """Wait for news of any partition, also of those of which some could wait. Producers wait
        until each follower in sync has what came."""
        for wanted in self._held.news:
            replica = self.broker.partitions.get(wanted.topic, wanted.index)
            if replica is not None:
                self.broker.fetch_sessions.watch(self._held, wanted)
                if self.marks_moved(wanted, replica):
                    self.remind(wanted, replica)
        most_bytes = max(0, self.reading.max_bytes)
        return Wait((self._held,), self.deadline_ms, self.poll, most_bytes, is_urgent=True)

    def poll(self, now_ms: int, expired: bool) -> Outcome | None:
        self._is_over = expired
        return super().poll(now_ms, expired)

    def may_be_enough(self) -> bool:
        """Without reading: whether a partition has records, or another state than was asked for."""
        get = self.broker.partitions.get
        for wanted in self._held.news:
            replica = get(wanted.topic, wanted.index)
            if (
                replica is None
                or (replica.log.end_offset > wanted.fetch_offset and not self.is_held_back(replica))
                or replica.leader_epoch != wanted.leader_epoch
                or not replica.is_leader
                or replica.log.fault is not None
            ):
                return True
            if self.marks_moved(wanted, replica):
                self.remind(wanted, replica)
        return False

    def marks_moved(self, wanted: Wanted, replica: Replica | None = None) -> bool:
        """Whether the follower knows older marks of a partition than there are."""
        if not self._says_marks:
            return False
        replica = replica or self.broker.partitions.get(wanted.topic, wanted.index)
        return replica is not None and (
            wanted.told_high_watermark < replica.high_watermark
            or 0 <= wanted.told_log_start < replica.log.start_offset
        )

    def remind(self, wanted: Wanted, replica: Replica) -> None:
        """Have marks told soon, if they are not told with records before."""
        session, broker = self._held, self.broker
        is_read = sends_away(broker) or self.reading.replica_id in replica.observers
        has_time = wanted.told_log_start >= replica.log.start_offset and not is_read
        due_ms = broker.steady_ms + (UNREAD_MARKS_MS if has_time else MARKS_MS)
        if session.tell_ms == NOTHING_TO_TELL or due_ms < session.tell_ms:
            session.tell_ms = due_ms
            broker.replication.remind(session, due_ms)

    def must_answer(self) -> bool:
        """Whether marks have moved and were held back for long enough."""
        return NOTHING_TO_TELL != self._held.tell_ms <= self.broker.steady_ms

    @property
    def tells_marks(self) -> bool:
        """Whether nothing is held back: some of it was for long enough, or the answer has to go."""
        return self._is_over or self.must_answer() or self.broker.wall_ms >= self.deadline_ms

    def has_no_news(self, wanted: Wanted) -> bool:
        """Whether a follower has all of a partition and was told its marks, or is told its high
        watermark later: it is not named."""
        broker = self.broker
        replica = broker.partitions.get(wanted.topic, wanted.index)
        try:
            if replica is None or not is_idle(replica, wanted):
                return False
            if not self.is_noted:
                self.note_follower(replica, wanted)
        except (ApiError, ColdRead):  # the reading says so
            return False
        is_told = wanted.told_high_watermark == replica.high_watermark
        is_quiet = replica.is_quiet(self.reading.replica_id)
        if not is_told and not (is_quiet and self.may_tell_later(wanted, replica)):
            return False
        if is_quiet:
            broker.fetch_sessions.no_news(self._held, wanted)
            if not is_told:
                self._held.untold[wanted] = None
                self.remind(wanted, replica)
        return True

    def may_tell_later(self, wanted: Wanted, replica: Replica) -> bool:
        """Whether a high watermark has time that the follower knows an older one of."""
        return (
            self._says_marks
            and wanted.told_high_watermark < replica.high_watermark
            and not self.tells_marks
        )

    def answer(self, found: Round, now_ms: int) -> FetchResponse:
        """The response; what it tells is held back no more."""
        if not self._held.untold:
            self._held.tell_ms = NOTHING_TO_TELL
        return super().answer(found, now_ms)
