"""Fetch: clients and followers read record batches from this broker's partitions.

KIP: KIP-74 (max bytes, first batch always), KIP-227 (sessions), KIP-320 (leader epochs), KIP-392
    (fetch from followers), KIP-516 (topic ids), KIP-595 (diverging epoch), KIP-951 (current
    leader).
Versions: 4-18.
Behaviour: waits until `min_bytes` are there, a partition has an error, or `max_wait_ms` is over.
    Consumers read up to the high watermark, or the last stable offset with the ranges of aborted
    transactions; followers up to the log's end, if they may do CLUSTER_ACTION. What a follower asks
    from is what it has, once its history is known to be the leader's. The first batch is given
    whole however large it is. Partitions that a session fetched records from go last.
    A follower or observer serves consumers (version 11 on) up to the high watermark that it knows;
    OFFSET_NOT_AVAILABLE sends them to the leader for an offset that is beyond it, but here, or
    known to be committed there. The leader names a closer replica when it may.
Skipped: fetching from tiered storage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from anabranch.core.access.authorize import Operation, cluster_allowed, topic_allowed
from anabranch.core.api.closest_replica import rack_of, sent_nearer
from anabranch.core.api.context import Broker
from anabranch.core.api.fetch_history import aborted_within, divergence, is_idle, out_of_log
from anabranch.core.api.fetch_metadata import fetch_metadata
from anabranch.core.api.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    Wanted,
)
from anabranch.core.api.handler import Cold, Handler, Outcome, Request, Wait
from anabranch.core.api.leader_hints import leader_hint
from anabranch.core.errors import ApiError, ErrorCode, StorageFault
from anabranch.core.log.files import ColdRead
from anabranch.core.replication.partitions import exists
from anabranch.core.replication.replica import READ_COMMITTED, Replica
from anabranch.core.types import ZERO_TOPIC_ID, TopicId
from anabranch.core.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

_TOPIC_IDS_SINCE = 13
_REPLICA_STATE_SINCE = 15
_LEADER_HINT_SINCE = 16
_ANY_REPLICA_SINCE = 11
_STORAGE_ERROR_SINCE = 6
_HINTED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class Reading(NamedTuple):
    """One request's way of reading, the same for all its partitions."""

    request: Request
    replica_id: int
    broker_epoch: int
    """Of the follower that asks, -1 when it did not say."""
    isolation_level: int
    max_bytes: int
    min_bytes: int
    uses_topic_ids: bool
    leader_only: bool
    rack: str
    """Of a consumer that may be sent to a closer replica, else ""."""

    @property
    def is_follower(self) -> bool:
        """Whether another broker asks."""
        return self.replica_id >= 0


class Round(NamedTuple):
    """What one pass over the partitions found."""

    answers: list[tuple[Wanted, PartitionData]]
    size_bytes: int
    at_once: bool
    """An error or a diverging epoch: do not wait for more."""
    readable: bool
    """Whether anything could be read at all; if not there is nothing to wait for."""


def run(broker: Broker, request: Request, now_ms: int) -> Outcome:
    """Step the session, then read, and wait when there is too little."""
    body: FetchRequest = request.body
    reading = _reading(broker, request)
    session: FetchSession | None = None
    try:
        wanted = list(_name_topics(broker, body, reading))
        if body.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if body.session_id != NO_SESSION:
                broker.fetch_sessions.close(body.session_id)
            partitions = [Wanted(*entry) for entry in wanted]
        else:
            session = broker.fetch_sessions.resume(
                body.session_id,
                body.session_epoch,
                uses_topic_ids=reading.uses_topic_ids,
                now_ms=now_ms,
            )
            session.change(wanted, body.forgotten_topics_data)
            partitions = list(session.partitions.values())
            if not partitions:
                broker.fetch_sessions.close(session.session_id)
                session = None
    except ApiError as error:
        return FetchResponse(error_code=error.code)
    return _Fetch(broker, reading, session, partitions, now_ms).start(now_ms)


def _reading(broker: Broker, request: Request) -> Reading:
    body: FetchRequest = request.body
    version = request.version
    replica_id, broker_epoch = body.replica_id, -1
    if version >= _REPLICA_STATE_SINCE:
        replica_id, broker_epoch = body.replica_state.replica_id, body.replica_state.replica_epoch
    max_bytes = min(body.max_bytes, broker.config.fetch_max_bytes)
    if replica_id >= 0:
        max_bytes = body.max_bytes
    return Reading(
        request=request,
        replica_id=replica_id,
        broker_epoch=broker_epoch,
        isolation_level=body.isolation_level,
        max_bytes=max_bytes,
        min_bytes=min(body.min_bytes, max_bytes),
        uses_topic_ids=version >= _TOPIC_IDS_SINCE,
        leader_only=replica_id >= 0 or version < _ANY_REPLICA_SINCE,
        rack=rack_of(broker, request) if body.rack_id and replica_id < 0 else "",
    )


def _name_topics(
    broker: Broker, body: FetchRequest, reading: Reading
) -> Iterator[tuple[str, TopicId, FetchPartition]]:
    """Every partition with its topic's name ("" when the id is not known) and id."""
    for topic in body.topics:
        name = topic.topic
        if reading.uses_topic_ids:
            found = broker.image.topic_by_id(topic.topic_id)
            name = "" if found is None else found.name
        for partition in topic.partitions:
            yield name, topic.topic_id, partition


class _Fetch:
    """One fetch request from its first reading to its answer."""

    __slots__ = (
        "broker",
        "deadline_ms",
        "is_noted",
        "may_skip",
        "parked",
        "partitions",
        "reading",
        "session",
        "size",
    )

    def __init__(
        self,
        broker: Broker,
        reading: Reading,
        session: FetchSession | None,
        partitions: list[Wanted],
        now_ms: int,
    ) -> None:
        self.broker = broker
        self.reading = reading
        self.session = session
        self.partitions = partitions
        self.deadline_ms = now_ms + max(0, reading.request.body.max_wait_ms)
        self.is_noted = False
        self.may_skip = session is not None and reading.is_follower and broker.authorizer.allows_all
        self.parked: list[tuple[Replica, int, int, int]] = []
        self.size = 0

    def start(self, now_ms: int) -> Outcome:
        """Read: an answer, or a Wait, or the range that has to be warmed first."""
        try:
            found = self.read()
        except ColdRead as cold:
            return Cold(cold, self.start)
        self.is_noted = True  # a later pass says nothing new about a follower
        if self.is_enough(found) or not found.readable or now_ms >= self.deadline_ms:
            return self.answer(found, now_ms)
        self.park(found)
        keys = tuple(entry[0].topic_partition for entry in self.parked)
        return Wait(keys, self.deadline_ms, self.poll, max(0, self.reading.max_bytes))

    def is_enough(self, found: Round) -> bool:
        """Whether to answer without waiting."""
        return found.at_once or found.size_bytes >= self.reading.min_bytes

    def park(self, found: Round) -> None:
        """Note how much was there, so that a poll can tell cheaply that too little came."""
        self.size = found.size_bytes
        self.parked = []
        named: Iterable[Wanted] = self.partitions
        if not self.may_skip:
            named = [wanted for wanted, answer in found.answers if not answer.error_code]
        for wanted in named:
            replica = self.broker.partitions.get(wanted.topic, wanted.index)
            if replica is not None:
                end = self.visible_end(replica)
                appended_bytes = replica.appended_bytes
                if end < replica.log.end_offset:  # how much is hidden yet, only a read can tell
                    appended_bytes -= self.reading.min_bytes
                self.parked.append((replica, replica.leader_epoch, appended_bytes, end))

    def visible_end(self, replica: Replica) -> int:
        """Where this reader has to stop in a partition."""
        return replica.read_limit(
            self.reading.isolation_level, is_follower=self.reading.is_follower
        )

    def poll(self, now_ms: int, expired: bool) -> Outcome | None:
        """Read again when there may be enough now, a partition changed hands, or time is up."""
        at_once = expired or self.has_moved()
        if not at_once and not self.may_be_enough():
            return None
        try:
            found = self.read()
        except ColdRead as cold:
            return Cold(cold, self.start)
        if at_once or self.is_enough(found):
            return self.answer(found, now_ms)
        return None

    def has_moved(self) -> bool:
        """Whether a partition got another leader epoch, or is not hosted any more."""
        partitions = self.broker.partitions
        for replica, leader_epoch, _, _ in self.parked:
            topic, index = replica.topic_partition
            if replica.leader_epoch != leader_epoch or partitions.get(topic, index) is not replica:
                return True
        return False

    def may_be_enough(self) -> bool:
        """Without reading: whether enough was appended and this reader may see some of it."""
        appended, visible = self.size, False
        for replica, _, appended_bytes, end in self.parked:
            appended += replica.appended_bytes - appended_bytes
            visible = visible or self.visible_end(replica) > end
        return visible and appended >= self.reading.min_bytes

    def read(self) -> Round:
        """One pass over all partitions within the request's limit of bytes."""
        left, size_bytes, at_least_one = self.reading.max_bytes, 0, True
        at_once = readable = False
        answers = []
        allowed: dict[str, bool] = {}
        for wanted in self.partitions:
            if self.may_skip and self.has_no_news(wanted):
                readable = True
                continue
            refusal = self.refusal(wanted, allowed)
            if refusal is not None:
                answer = refused(wanted.index, refusal)
                answer.aborted_transactions = []
                answers.append((wanted, answer))
                continue
            readable = True
            answer = self.read_partition(wanted, min(wanted.max_bytes, left), at_least_one)
            answers.append((wanted, answer))
            if answer.records:
                length = len(answer.records)
                at_least_one = False
                size_bytes += length
                left = max(0, left - length)
            elif answer.error_code or answer.preferred_read_replica >= 0:
                at_once = True
            else:
                at_once = at_once or answer.diverging_epoch.epoch >= 0
        return Round(answers, size_bytes, at_once, readable)

    def has_no_news(self, wanted: Wanted) -> bool:
        """Whether a follower has all of a partition and was told its marks: it is not named then.

        What a follower asks for is mostly idle, so that this is most of what its fetches cost.
        """
        replica = self.broker.partitions.get(wanted.topic, wanted.index)
        try:
            if replica is None or not is_idle(replica, wanted):
                return False
            if not self.is_noted:
                self.note_follower(replica, wanted)
        except ApiError:
            return False
        return wanted.told_high_watermark == replica.high_watermark

    def refusal(self, wanted: Wanted, allowed: dict[str, bool]) -> ErrorCode | None:
        """What forbids reading a partition before it is looked at, in Kafka's order."""
        broker, topic = self.broker, wanted.topic
        request = self.reading.request
        if not broker.authorizer.allows_all and self.reading.is_follower:
            if not cluster_allowed(broker.authorizer, request, Operation.CLUSTER_ACTION):
                return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if not topic and self.reading.uses_topic_ids:
            found = broker.image.topic_by_id(wanted.topic_id)
            if found is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
            topic = wanted.topic = found.name
        if not broker.authorizer.allows_all and not self.reading.is_follower:
            if topic not in allowed:
                allowed[topic] = topic_allowed(broker.authorizer, request, Operation.READ, topic)
            if not allowed[topic]:
                return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if broker.partitions.get(topic, wanted.index) is None and not exists(
            broker.image, topic, wanted.index
        ):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return None

    def read_partition(self, wanted: Wanted, max_bytes: int, at_least_one: bool) -> PartitionData:
        """Records of one partition, or its error."""
        broker = self.broker
        replica = broker.partitions.get(wanted.topic, wanted.index)
        try:
            if replica is None:
                replica = broker.partitions.find(broker.image, wanted.topic, wanted.index)
            if wanted.topic_id not in (ZERO_TOPIC_ID, replica.topic_id):
                raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID)
            replica.check_epoch(wanted.leader_epoch)
            if self.reading.leader_only and not replica.is_leader:
                replica.check_leader()
            if self.reading.rack and replica.is_leader:
                nearer = sent_nearer(
                    broker, self.reading.request, replica, wanted, self.reading.rack
                )
                if nearer is not None:
                    return nearer
            return self.read_log(replica, wanted, max_bytes, at_least_one)
        except ApiError as error:
            answer = refused(wanted.index, error.code, self.reading.request.version)
            if replica is not None and self.reading.is_follower:
                answer.log_start_offset = replica.log.start_offset
            return answer
        except StorageFault as fault:
            if replica is not None:
                broker.faults.append((replica, fault))
            code = ErrorCode.KAFKA_STORAGE_ERROR
            return refused(wanted.index, code, self.reading.request.version)

    def read_log(
        self, replica: Replica, wanted: Wanted, max_bytes: int, at_least_one: bool
    ) -> PartitionData:
        """What the log has for this reader from the wanted offset on."""
        log, offset = replica.log, wanted.fetch_offset
        diverging = None
        if wanted.last_fetched_epoch >= 0:
            diverging = divergence(replica, wanted)
        if diverging is None:
            if not log.start_offset <= offset <= log.end_offset:
                raise ApiError(out_of_log(replica, offset))
            if self.reading.is_follower and not self.is_noted:
                self.note_follower(replica, wanted)
            elif offset > replica.high_watermark and not replica.is_leader:
                raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)  # the leader may have it committed
        answer = PartitionData(
            partition_index=wanted.index,
            high_watermark=replica.high_watermark,
            last_stable_offset=replica.last_stable_offset,
            log_start_offset=log.start_offset,
            aborted_transactions=None,
            records=b"",
        )
        if diverging is not None:
            answer.diverging_epoch = diverging
            return answer
        committed_only = (
            self.reading.isolation_level == READ_COMMITTED and not self.reading.is_follower
        )
        if committed_only:
            answer.aborted_transactions = []
        limit = self.visible_end(replica)
        if offset < limit and (max_bytes > 0 or at_least_one):
            records = log.read(offset, max_bytes=max_bytes, upto=limit, at_least_one=at_least_one)
            answer.records = records
            if committed_only and records:
                answer.aborted_transactions = aborted_within(replica, records, offset, limit)
        return answer

    def note_follower(self, replica: Replica, wanted: Wanted) -> None:
        """A follower's fetch offset tells what it has, since its history is ours."""
        self.broker.replication.follower_fetched(
            replica,
            self.reading.replica_id,
            wanted.fetch_offset,
            broker_epoch=self.reading.broker_epoch,
            start_offset=wanted.log_start_offset,
        )

    def answer(self, found: Round, now_ms: int) -> FetchResponse:
        """The response; an incremental one names only partitions that have news."""
        response = FetchResponse(responses=[])
        answers = found.answers
        body: FetchRequest = self.reading.request.body
        if self.session is not None:
            response.session_id = self.session.session_id
            answers = [entry for entry in answers if entry[0].must_tell(entry[1])]
            for wanted, answer in answers:
                key = wanted.topic_id if self.session.uses_topic_ids else wanted.topic
                if answer.records and (key, wanted.index) in self.session.partitions:
                    self.session.last_in_line(wanted)
        elif body.session_epoch == INITIAL_EPOCH and self.partitions:
            response.session_id = self.begin_session(found, now_ms)
        _group(response, answers)
        if self.reading.request.version >= _LEADER_HINT_SINCE:
            self.add_leader_hints(response, answers)
        return response

    def begin_session(self, found: Round, now_ms: int) -> int:
        """The id of a new session over these partitions, 0 when there is no slot for it."""
        session = self.broker.fetch_sessions.begin(
            [wanted for wanted, _ in found.answers],
            privileged=self.reading.is_follower,
            uses_topic_ids=self.reading.uses_topic_ids,
            now_ms=now_ms,
        )
        if session is None:
            return NO_SESSION
        for wanted, answer in found.answers:
            wanted.must_tell(answer)
        return session.session_id

    def add_leader_hints(
        self, response: FetchResponse, answers: list[tuple[Wanted, PartitionData]]
    ) -> None:
        """Say who leads where this broker does not."""
        endpoints: dict[int, NodeEndpoint] = {}
        for wanted, answer in answers:
            if answer.error_code not in _HINTED:
                continue
            hint = leader_hint(
                self.broker, self.reading.request.listener, wanted.topic, wanted.index
            )
            answer.current_leader = LeaderIdAndEpoch(
                leader_id=hint.leader_id, leader_epoch=hint.leader_epoch
            )
            if hint.host is not None:
                endpoints[hint.leader_id] = NodeEndpoint(
                    node_id=hint.leader_id, host=hint.host, port=hint.port, rack=hint.rack
                )
        response.node_endpoints = list(endpoints.values())


def refused(index: int, code: ErrorCode, version: int = _STORAGE_ERROR_SINCE) -> PartitionData:
    """A partition's answer that is only an error; old clients do not know storage errors."""
    if code == ErrorCode.KAFKA_STORAGE_ERROR and version < _STORAGE_ERROR_SINCE:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
    )


def _group(response: FetchResponse, answers: list[tuple[Wanted, PartitionData]]) -> None:
    """Put neighbours of the same topic under one heading."""
    current: FetchableTopicResponse | None = None
    for wanted, answer in answers:
        if current is None or current.topic_id != wanted.topic_id or current.topic != wanted.topic:
            current = FetchableTopicResponse(
                topic=wanted.topic, topic_id=wanted.topic_id, partitions=[]
            )
            response.responses.append(current)
        current.partitions.append(answer)


HANDLER = Handler(
    api_key=1,
    name="Fetch",
    versions=range(4, 19),
    broker=run,
    controller=fetch_metadata,
    kips=("KIP-74", "KIP-227", "KIP-320", "KIP-392", "KIP-516", "KIP-595", "KIP-951"),
    skipped=("Tiered segments are not read.",),
)
