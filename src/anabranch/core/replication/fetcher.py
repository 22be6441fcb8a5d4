"""What one broker copies from one leader over one connection: a fetch session from its own side.

What: the partitions of the session, what has to be said in the next request, and what an answer
means for the session (KIP-227). Rules kept: one request is under way at a time; a request names
only partitions that have something new to say; after no answer, or an error of the session, a new
session names all; of more than one request may name, the rest follows at once. With
flush.messages=1 a fetch says "I have this" only of what is flushed, so the next one waits for the
sync, as Kafka's fetcher thread does.
Not here: what an answer does to a log (`follower`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from anabranch.core.errors import ErrorCode
from anabranch.core.replication.effects import SendFetch
from anabranch.core.replication.session_epochs import INITIAL_EPOCH, NO_SESSION, next_epoch
from anabranch.core.wire.messages.fetch import (
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from anabranch.core.wire.primitives import MOST_REQUEST_ELEMENTS

if TYPE_CHECKING:
    from anabranch.core.replication.follower import FollowedPartition
    from anabranch.core.replication.host import Host
    from anabranch.core.settings.broker import BrokerConfig
    from anabranch.core.types import TopicId
    from anabranch.core.wire.messages.fetch import FetchResponse

READY_MS = -1
ROUND_BYTES = 1 << 20
"""What a near leader is asked for at once: more is copied no faster there, and what is in sync
waits meanwhile for what catches up."""
NEAR_MS = 4
"""A leader that needs so much time for an answer at best is near; one that needs ten times as much
is asked for ten times as much, so that distance costs no throughput."""
MOST_NAMED = MOST_REQUEST_ELEMENTS // 4
"""Partitions that a request names or forgets: each counts as one element, its topic perhaps as
another, its high watermark as a third. A leader refuses a request that has more, and would refuse
it again for ever."""
_SESSION_ENDED = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)

Key = tuple["TopicId", int]


class Fetcher:
    """The partitions copied from `leader_id` by fetcher `index`. Times are of the steady clock."""

    __slots__ = (
        "_changed",
        "_forgotten",
        "_quickest_ms",
        "_sent_ms",
        "active",
        "in_flight",
        "index",
        "leader_id",
        "retry_ms",
        "session_epoch",
        "session_id",
        "unsynced",
    )

    def __init__(self, leader_id: int, index: int) -> None:
        self.leader_id = leader_id
        self.index = index
        self.active: dict[Key, FollowedPartition] = {}
        self.in_flight: SendFetch | None = None
        self.retry_ms = READY_MS
        self.session_id = NO_SESSION
        self.session_epoch = INITIAL_EPOCH
        self.unsynced: dict[Key, FollowedPartition] = {}
        self._changed: dict[Key, FollowedPartition] = {}
        self._forgotten: dict[Key, None] = {}
        self._sent_ms = self._quickest_ms = 0

    def add(self, following: FollowedPartition) -> None:
        """Ask for this partition from now on, or with something new to say."""
        self.active[following.key] = self._changed[following.key] = following
        self._forgotten.pop(following.key, None)

    def remove(self, following: FollowedPartition) -> None:
        """Ask for this partition no more."""
        key = following.key
        if self.active.get(key) is following:
            del self.active[key]
            self._changed.pop(key, None)
            self._forgotten[key] = None
        if self.unsynced.get(key) is following:
            del self.unsynced[key]

    def release_synced(self) -> None:
        """Let go of what was flushed meanwhile."""
        self.unsynced = {
            key: following
            for key, following in self.unsynced.items()
            if following.replica.log.flushed_offset < following.replica.log.end_offset
        }

    @property
    def is_ready(self) -> bool:
        """Whether the next request may go out now."""
        return bool(
            self.active
            and self.in_flight is None
            and self.retry_ms == READY_MS
            and not self.unsynced
        )

    def request(self, broker: Host) -> SendFetch:
        """The next request; it is under way from now on."""
        config = broker.config
        is_full = self.session_epoch == INITIAL_EPOCH
        told, forgotten = self._told(is_full=is_full)
        topics: dict[TopicId, FetchTopic] = {}
        for (topic_id, _), following in told.items():
            topic = topics.get(topic_id)
            if topic is None:
                name = following.replica.topic_partition.topic
                topic = topics[topic_id] = FetchTopic(topic=name, topic_id=topic_id, partitions=[])
            topic.partitions.append(following.asked(config.replica_fetch_max_bytes))
        request = FetchRequest(
            replica_id=broker.broker_id,  # before version 15
            replica_state=ReplicaState(
                replica_id=broker.broker_id, replica_epoch=broker.broker_epoch
            ),
            max_wait_ms=0 if self._changed else longest_wait_ms(config),
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=min(config.replica_fetch_response_max_bytes, self.round_bytes),
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=list(topics.values()),
            forgotten_topics_data=_grouped(forgotten),
        )
        self._sent_ms = broker.steady_ms
        self.in_flight = SendFetch(self.leader_id, self.index, request)
        return self.in_flight

    def _told(self, *, is_full: bool) -> tuple[dict[Key, FollowedPartition], dict[Key, None]]:
        """What the next request names, and forgets; what has no room in it comes with the next."""
        told = self.active if is_full else self._changed
        forgotten: dict[Key, None] = {} if is_full else self._forgotten
        self._changed, self._forgotten = {}, {}
        if len(told) + len(forgotten) <= MOST_NAMED:
            return told, forgotten
        first = dict(islice(told.items(), MOST_NAMED))
        first_forgotten = dict.fromkeys(islice(forgotten, MOST_NAMED - len(first)))
        self._changed = {key: each for key, each in told.items() if key not in first}
        self._forgotten = {key: None for key in forgotten if key not in first_forgotten}
        if is_full:  # where the leader keeps no session, the others have their turn next
            self.active = {**self._changed, **first}
        return first, first_forgotten

    @property
    def round_bytes(self) -> int:
        """How much to ask for at once, if the configuration allows as much."""
        return ROUND_BYTES * max(1, self._quickest_ms // NEAR_MS)

    def answered(self, response: FetchResponse, now_ms: int) -> ErrorCode:
        """Step the session; NONE when the partitions' answers may be taken."""
        self.in_flight = None
        needed_ms = now_ms - self._sent_ms
        is_first = self.session_epoch == INITIAL_EPOCH
        self._quickest_ms = needed_ms if is_first else min(self._quickest_ms, needed_ms)
        code = ErrorCode(response.error_code)
        if code != ErrorCode.NONE:
            self.begin_anew()
            return code
        if response.session_id == NO_SESSION:
            self.session_id, self.session_epoch = NO_SESSION, INITIAL_EPOCH
        else:
            self.session_id = response.session_id
            self.session_epoch = next_epoch(self.session_epoch)
        return code

    def begin_anew(self) -> None:
        """Close the session with the next request, which names every partition."""
        self.in_flight = None
        self.session_epoch = INITIAL_EPOCH

    def answers(self, response: FetchResponse) -> Iterator[tuple[FollowedPartition, PartitionData]]:
        """The partitions that are still followed, each with its answer."""
        for topic in response.responses:
            for answer in topic.partitions:
                following = self.active.get((topic.topic_id, answer.partition_index))
                if following is not None:
                    yield following, answer


def longest_wait_ms(config: BrokerConfig) -> int:
    """How long a leader may wait for records: `replica.fetch.wait.max.ms`, but no longer than that
    its answer is there in time, since `replica.socket.timeout.ms` may be the same."""
    return min(config.replica_fetch_wait_max_ms, config.replica_socket_timeout_ms * 3 // 4)


def is_session_end(code: ErrorCode) -> bool:
    """Whether the leader has only forgotten the session: a new one may begin at once."""
    return code in _SESSION_ENDED


def _grouped(keys: Iterable[Key]) -> list[ForgottenTopic]:
    topics: dict[TopicId, ForgottenTopic] = {}
    for topic_id, index in keys:
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ForgottenTopic(topic_id=topic_id, partitions=[])
        topic.partitions.append(index)
    return list(topics.values())
