"""Fetch sessions: a client names its partitions once and then only what changed (KIP-227).

What: the partitions of each session, the rules by which a request begins, continues or ends one,
and eviction when all slots are taken, or as many partitions are held as may be: a client without a
session is answered all the same, and names all its partitions each time. Rules kept: a session
steps exactly once a request (its epoch); a partition with an error, records or a moved high
watermark or log start is always told; one that brought records goes to the end of the line, so that
a small response limit starves none.
A follower's session looks only at partitions that may have news: one without any is taken out of
`news` and comes back when the follower names it or something about it changes (`moved`). One whose
high watermark alone is news waits in `untold` meanwhile.
Not here: reading records.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from random import Random
from typing import TYPE_CHECKING, TypeAlias

from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.replication.progress import Heard
from anabranch.core.replication.session_epochs import INITIAL_EPOCH, next_epoch
from anabranch.core.types import UNKNOWN_BROKER_EPOCH, TopicPartition

if TYPE_CHECKING:
    from anabranch.core.types import TopicId
    from anabranch.core.wire.messages.fetch import (
        FetchPartition,
        FetchResponse,
        ForgottenTopic,
        PartitionData,
    )

NOTHING_TO_TELL = -1
EVICTION_MS = 120_000
"""A session may be evicted for another once it is this old, or was unused for so long (Kafka's)."""

MOST_OF_CLIENTS, MOST_OF_FOLLOWERS = 250_000, 4_000_000
"""Partitions in the sessions of clients, and in those of followers: 300 bytes each. Fifty consumers
of 5,000 partitions fit, and followers of a million partitions with five replicas. Kafka bounds only
the number of sessions, each of which may name as many partitions as fit into a request."""

PartitionKey: TypeAlias = "tuple[TopicId | str, int]"
"""Topic id (version 13 on) or name, and partition index."""


class Wanted:
    """A partition that a client fetches, and what the client was last told about it."""

    __slots__ = (
        "fetch_offset",
        "high_watermark",
        "index",
        "is_watched",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start_offset",
        "max_bytes",
        "told_high_watermark",
        "told_log_start",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: TopicId, request: FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = request.partition
        self.told_high_watermark = -1
        self.told_log_start = -1
        self.is_watched = False
        self.take(request)

    def take(self, request: FetchPartition) -> None:
        """Where to read next, as the client says."""
        self.fetch_offset = request.fetch_offset
        self.max_bytes = request.partition_max_bytes
        self.leader_epoch = request.current_leader_epoch
        self.log_start_offset = request.log_start_offset
        self.last_fetched_epoch = request.last_fetched_epoch
        self.high_watermark = request.high_watermark

    @property
    def place(self) -> TopicPartition:
        """The partition by name."""
        return TopicPartition(self.topic, self.index)

    def must_tell(self, answer: PartitionData) -> bool:
        """Whether an incremental response has to name this partition; remembers what is told."""
        told = bool(answer.records) or answer.error_code != 0
        told = told or answer.diverging_epoch.epoch >= 0 or answer.preferred_read_replica >= 0
        if answer.high_watermark != self.told_high_watermark:
            told, self.told_high_watermark = True, answer.high_watermark
        if answer.log_start_offset != self.told_log_start:
            told, self.told_log_start = True, answer.log_start_offset
        if answer.error_code:
            self.told_high_watermark = -1
        return told


class FetchSession:
    """The partitions of one client. `privileged` sessions are followers'.

    `news` is what a follower's session has to look at, in the order in which it is served; `untold`
    of which partitions it knows an older high watermark, and nothing else is news; `tell_ms` when
    its waiting fetch is answered at the latest, on the steady clock: a mark has moved, or the
    follower is called.
    """

    __slots__ = (
        "broker_epoch",
        "created_ms",
        "epoch",
        "heard",
        "last_used_ms",
        "news",
        "partitions",
        "privileged",
        "session_id",
        "tell_ms",
        "untold",
        "uses_topic_ids",
    )

    def __init__(
        self, session_id: int, *, privileged: bool, uses_topic_ids: bool, now_ms: int
    ) -> None:
        self.session_id = session_id
        self.privileged = privileged
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = self.last_used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.partitions: dict[PartitionKey, Wanted] = {}
        """In the order in which they are served."""
        self.news: dict[Wanted, None] = {}
        self.untold: dict[Wanted, None] = {}
        self.heard = Heard()
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        self.tell_ms = NOTHING_TO_TELL

    def hear(self, broker_epoch: int, steady_ms: int) -> None:
        """A follower has fetched: of what it does not name it has as much as before.

        One that has registered anew says so of every partition."""
        self.heard.ms = steady_ms
        if broker_epoch != self.broker_epoch:
            self.broker_epoch = broker_epoch
            self.news = dict.fromkeys(self.partitions.values())
            self.untold.clear()
        if self.tell_ms <= steady_ms and not (self.untold or self.news):  # it was called, and comes
            self.tell_ms = NOTHING_TO_TELL

    def change(self, wanted: Iterable[tuple[str, TopicId, FetchPartition]]) -> None:
        """Add or update partitions."""
        for topic, topic_id, request in wanted:
            key = (topic_id if self.uses_topic_ids else topic, request.partition)
            known = self.partitions.get(key)
            if known is None:
                known = self.partitions[key] = Wanted(topic, topic_id, request)
            else:
                known.take(request)
                if self.privileged:  # it may have dropped what it was told last, in another epoch
                    known.told_high_watermark = known.high_watermark
                    known.told_log_start = known.log_start_offset
            if self.privileged:
                self.look_at(known)

    def forget(self, forgotten: list[ForgottenTopic]) -> list[Wanted]:
        """Take partitions out; the ones that were in."""
        gone = []
        for topic in forgotten:
            name = topic.topic_id if self.uses_topic_ids else topic.topic
            for index in topic.partitions:
                wanted = self.partitions.pop((name, index), None)
                if wanted is not None:
                    self.news.pop(wanted, None)
                    self.untold.pop(wanted, None)
                    gone.append(wanted)
        return gone

    def look_at(self, wanted: Wanted) -> None:
        """There may be news of a partition."""
        self.news[wanted] = None
        self.untold.pop(wanted, None)

    def tell_marks(self) -> None:
        """It is time to tell the high watermarks that were held back."""
        self.news.update(self.untold)
        self.untold.clear()

    def last_in_line(self, wanted: Wanted) -> None:
        """Serve this partition after all others next time."""
        if self.privileged:
            self.news.pop(wanted, None)
            self.news[wanted] = None
        name = wanted.topic_id if self.uses_topic_ids else wanted.topic
        key = (name, wanted.index)
        self.partitions[key] = self.partitions.pop(key)


class FetchSessions:
    """All sessions of a broker, at most `slots` (max.incremental.fetch.session.cache.slots), with a
    bounded number of partitions in those of clients and in those of followers."""

    def __init__(
        self,
        slots: int,
        random: Random,
        most_of_clients: int = MOST_OF_CLIENTS,
        most_of_followers: int = MOST_OF_FOLLOWERS,
    ) -> None:
        self.slots = slots
        self._most = (most_of_clients, most_of_followers)
        self._held = [0, 0]
        """Partitions in sessions of clients, and of followers."""
        self._random = random
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self.watched: dict[Hashable, dict[FetchSession, Wanted]] = {}
        """For which followers' sessions a change of a partition may be news; one that is none for
        any is not there."""
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._sessions.values())

    def statistics(self) -> dict[str, int]:
        """Counts for metrics."""
        partitions = sum(self._held)
        return {"sessions": len(self), "partitions": partitions, "evictions": self.evictions}

    def close(self, session_id: int) -> None:
        """End a session; it may be unknown."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._held[session.privileged] -= len(session.partitions)
            self._unwatch(session, session.partitions.values())

    def change(
        self,
        session: FetchSession,
        wanted: Iterable[tuple[str, TopicId, FetchPartition]],
        forgotten: list[ForgottenTopic],
    ) -> list[Wanted]:
        """Add or update partitions of a session, then take out forgotten ones, which are told.

        Raises FETCH_SESSION_ID_NOT_FOUND where too many are added, and ends the session: the client
        names all its partitions next, and has no session if there is no room for one."""
        before = len(session.partitions)
        session.change(wanted)
        gone = session.forget(forgotten)
        self._unwatch(session, gone)
        added = len(session.partitions) - before
        self._held[session.privileged] += added
        if added > 0 and not self._fits(0, session.privileged):
            self.close(session.session_id)
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return gone

    def untell(self, response: FetchResponse) -> None:
        """What was to be told of partitions was not: tell it with the next answer."""
        session = self._sessions.get(response.session_id)
        if session is None:
            return
        for topic in response.responses:
            name = topic.topic_id if session.uses_topic_ids else topic.topic
            for answer in topic.partitions:
                wanted = session.partitions.get((name, answer.partition_index))
                if wanted is not None:
                    wanted.told_high_watermark = wanted.told_log_start = -1

    def no_news(self, session: FetchSession, wanted: Wanted) -> None:
        """A follower has all of a partition and knows all of it: look again when it moves."""
        del session.news[wanted]
        self.watch(session, wanted)

    def watch(self, session: FetchSession, wanted: Wanted) -> None:
        """Tell the session from now on when a partition moves; its topic is known by name.

        One that was closed while its fetch was under way is not told: nobody would end that."""
        if not wanted.is_watched and self._sessions.get(session.session_id) is session:
            wanted.is_watched = True
            self.watched.setdefault(wanted.place, {})[session] = wanted

    def moved(self, place: Hashable) -> Iterable[FetchSession]:
        """The followers' sessions for which a change of this partition may be news."""
        watchers = self.watched.get(place)
        if watchers is None:
            return ()
        for session, wanted in watchers.items():
            session.look_at(wanted)
        return watchers

    def called(self, steady_ms: int) -> list[FetchSession]:
        """The followers' sessions: once looked at, the fetch that waits in each is answered."""
        sessions = [session for session in self if session.privileged]
        for session in sessions:
            session.tell_ms = steady_ms
        return sessions

    def _unwatch(self, session: FetchSession, gone: Iterable[Wanted]) -> None:
        for wanted in gone:
            watchers = self.watched.get(wanted.place) if wanted.is_watched else None
            # a topic of the same name may have been named since, with another id
            if watchers is not None and watchers.get(session) is wanted:
                del watchers[session]
                if not watchers:
                    del self.watched[wanted.place]

    def resume(
        self, session_id: int, epoch: int, *, uses_topic_ids: bool, now_ms: int
    ) -> FetchSession:
        """The session that an incremental request continues, stepped to its next epoch.

        Raises FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or
        FETCH_SESSION_TOPIC_ID_ERROR.
        """
        session = self._sessions.get(session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = next_epoch(epoch)
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session_id)
        return session

    def begin(
        self, partitions: list[Wanted], *, privileged: bool, uses_topic_ids: bool, now_ms: int
    ) -> FetchSession | None:
        """A new session, or None when all slots are taken by others worth as much, or there is no
        room for so many partitions."""
        if not self._make_room(len(partitions), privileged, now_ms):
            return None
        session = FetchSession(
            self._new_id(), privileged=privileged, uses_topic_ids=uses_topic_ids, now_ms=now_ms
        )
        for wanted in partitions:
            name = wanted.topic_id if uses_topic_ids else wanted.topic
            session.partitions[name, wanted.index] = wanted
        if privileged:
            session.news = dict.fromkeys(partitions)
        self._sessions[session.session_id] = session
        self._held[privileged] += len(session.partitions)
        return session

    def _new_id(self) -> int:
        while True:
            session_id = self._random.randrange(1, 2**31)
            if session_id not in self._sessions:
                return session_id

    def _fits(self, size: int, privileged: bool) -> bool:
        return self._held[privileged] + size <= self._most[privileged]

    def _make_room(self, size: int, privileged: bool, now_ms: int) -> bool:
        if size > self._most[privileged]:
            return False
        if not self._fits(size, privileged):
            alike = [session for session in self if session.privileged == privileged]
            for each in self._evictable(alike, size, privileged, now_ms):
                self._evict(each)
                if self._fits(size, privileged):
                    break
            else:
                return False
        if len(self) < self.slots:
            return True
        for each in self._evictable(list(self), size, privileged, now_ms):
            self._evict(each)
            return True
        return False

    def _evictable(
        self, sessions: list[FetchSession], size: int, privileged: bool, now_ms: int
    ) -> Iterator[FetchSession]:
        """Those of these that may end for a new session: stale ones, the longest unused first, then
        the least valuable ones.

        Followers' sessions are worth more, then bigger ones. A young session makes room for a
        follower's only, and only when it is not a follower's itself.
        """
        yield from (each for each in sessions if now_ms - each.last_used_ms > EVICTION_MS)
        others = [
            session
            for session in sessions
            if now_ms - session.last_used_ms <= EVICTION_MS
            and (
                now_ms - session.created_ms > EVICTION_MS or (privileged and not session.privileged)
            )
        ]
        for each in sorted(others, key=_worth):
            if (privileged, size, 0) < _worth(each):
                return
            yield each

    def _evict(self, session: FetchSession) -> None:
        self.close(session.session_id)
        self.evictions += 1


def _worth(session: FetchSession) -> tuple[bool, int, int]:
    return session.privileged, len(session.partitions), session.session_id
