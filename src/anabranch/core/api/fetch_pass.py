"""One Fetch request from its first reading of the logs to its answer.

What: a pass over the partitions within the limits of bytes (KIP-74), the error of each, the wait
for more, and the response, which in a session names only what has news (KIP-227). Rules kept: no
reader passes its limit (high watermark, last stable offset, a follower the log's end); whoever
comes with another leader epoch or history gets no records; a request notes a follower's progress
once. Source: KIP-320, KIP-392, KIP-595, KIP-951. Not here: which partitions are meant, sessions'
steps (`p01_fetch`), the sessions of followers (`fetch_followers`).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from anabranch.core.access.authorize import Operation, cluster_allowed, topic_allowed
from anabranch.core.api.closest_replica import sent_nearer
from anabranch.core.api.context import Broker
from anabranch.core.api.doubts import Doubts
from anabranch.core.api.empty_batches import is_empty, past_empty, pieces_past_empty
from anabranch.core.api.fetch_history import aborted_within, divergence
from anabranch.core.api.fetch_sessions import FetchSession, Wanted
from anabranch.core.api.leader_hints import tell_leaders
from anabranch.core.api.near_clients import count_given
from anabranch.core.errors import ApiError, ErrorCode, StorageFault
from anabranch.core.log.files import Bringer, ColdRead
from anabranch.core.outcome import MOST_READS, Cold, Outcome, Wait
from anabranch.core.partition.protocol import READ_COMMITTED, Partition
from anabranch.core.replication.follower import BEGINS_LATER
from anabranch.core.replication.partitions import exists
from anabranch.core.replication.replica import Replica, replica_of
from anabranch.core.replication.session_epochs import INITIAL_EPOCH, NO_SESSION
from anabranch.core.request import Request
from anabranch.core.types import ZERO_TOPIC_ID, Loan, Records
from anabranch.core.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from anabranch.core.wire.own_fields import BegunEpoch, LocalStart, tagged

_LEADER_HINT_SINCE = 16
_STORAGE_ERROR_SINCE = 6
MOST_TOLD_BYTES = 1 << 20
"""Of producers in an answer, and those of one partition more: other followers ask again soon."""
_HINTED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class ReadOptions(msgspec.Struct, frozen=True):
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


class Round(msgspec.Struct, frozen=True):
    """What one pass over the partitions found."""

    answers: list[tuple[Wanted, PartitionData]]
    size_bytes: int
    at_once: bool
    """An error or a diverging epoch: do not wait for more."""
    readable: bool
    """Whether anything could be read at all; if not there is nothing to wait for."""
    missing: tuple[ColdRead, ...] = ()
    """What is not in memory, of all partitions: until it is, nothing above counts."""


class Fetch:
    """One fetch request from its first reading to its answer."""

    __slots__ = (
        "began_ms",
        "broker",
        "deadline_ms",
        "doubts",
        "has_brought",
        "is_follower",
        "is_noted",
        "parked",
        "partitions",
        "reading",
        "session",
        "since",
        "size",
        "told_bytes",
    )

    def __init__(
        self,
        broker: Broker,
        reading: ReadOptions,
        session: FetchSession | None,
        partitions: list[Wanted],
        now_ms: int,
    ) -> None:
        self.broker = broker
        self.reading = reading
        self.is_follower = reading.replica_id >= 0
        self.session = session
        self.partitions = partitions
        self.began_ms = now_ms
        self.deadline_ms = now_ms + max(0, reading.request.body.max_wait_ms)
        self.since = broker.partitions.unhosted.count()
        """Answers to later questions are newer than this request."""
        self.doubts: Doubts | None = None
        self.is_noted = False
        self.has_brought = False
        """Whether bytes were brought in for this request, which may not stay for another round."""
        self.told_bytes = 0
        """Of producers, in one pass."""
        self.parked: list[tuple[Partition, int, int, int]] = []
        self.size = 0

    def start(self, now_ms: int) -> Outcome:
        """Read: an answer, or a Wait, or the ranges that have to be brought in first."""
        found = self.read()
        if found.missing:
            if not (self.may_leave_out(found, now_ms) or self.has_waited(found, now_ms)):
                return self.bring(found)
            found = self.without_missing(found)
        self.is_noted = True  # a later pass says nothing new about a follower
        if self.doubts is not None and self.doubts.waiting:
            self.deadline_ms = max(self.deadline_ms, self.doubts.until(now_ms))
            if now_ms < self.deadline_ms:
                return self.park(found)
        if self.is_enough(found) or not found.readable or now_ms >= self.deadline_ms:
            return self.answer(found, now_ms)
        if self.must_answer():  # nobody could say so while it waited for the disk
            return self.answer(found, now_ms)
        return self.park(found)

    def bring(self, found: Round) -> Cold:
        """Have brought in what is missing, and read again."""
        self.has_brought = self.has_brought or any(each.brings_bytes for each in found.missing)
        return Cold(found.missing, self.start)

    def may_leave_out(self, found: Round, now_ms: int) -> bool:
        """Whether a consumer is answered without what is still missing: what is there may be gone
        from memory when the rest has come, and again when it has been brought anew."""
        if self.is_follower or not (self.has_brought and found.size_bytes):
            return False
        return self.is_enough(found) or now_ms >= self.deadline_ms

    def has_waited(self, found: Round, now_ms: int) -> bool:
        """Whether all that is missing lies in remote segments, and was waited for long enough: it
        goes on being read, and the consumer asks again."""
        if self.is_follower or any(each.bringer is not Bringer.REMOTE for each in found.missing):
            return False
        return now_ms - self.began_ms >= self.broker.config.remote_fetch_max_wait_ms

    def without_missing(self, found: Round) -> Round:
        """What is there; the others have no records this time."""
        there = {id(wanted) for wanted, _ in found.answers}
        others = [wanted for wanted in self.named if id(wanted) not in there]
        empty = [(wanted, self.empty(wanted)) for wanted in others if not self.has_no_news(wanted)]
        return msgspec.structs.replace(found, answers=[*found.answers, *empty], missing=())

    def empty(self, wanted: Wanted) -> PartitionData:
        """The answer of a partition that is left out: nothing, and no news of its marks."""
        return PartitionData(
            partition_index=wanted.index,
            high_watermark=wanted.told_high_watermark,
            log_start_offset=wanted.told_log_start,
            aborted_transactions=None,
            records=b"",
        )

    @property
    def named(self) -> Iterable[Wanted]:
        """The partitions to look at, in the order in which they are served."""
        return self.partitions

    @property
    def may_wait(self) -> bool:
        """Whether something else than what is looked at may yet have records."""
        return False

    def is_enough(self, found: Round) -> bool:
        """Whether to answer without waiting."""
        return found.at_once or found.size_bytes >= self.reading.min_bytes

    def park(self, found: Round) -> Wait:
        """Note how much was there, so that a poll can tell cheaply that too little came."""
        self.size = found.size_bytes
        self.parked = []
        for wanted, answer in found.answers:
            if answer.error_code:
                continue
            replica = self.broker.partitions.served(wanted.topic, wanted.index)
            if replica is not None:
                end = self.visible_end(replica)
                appended_bytes = replica.appended_bytes
                if end < replica.end_offset:  # how much is hidden yet, only a read can tell
                    appended_bytes -= self.reading.min_bytes
                self.parked.append((replica, replica.leader_epoch, appended_bytes, end))
        keys = tuple(entry[0].topic_partition for entry in self.parked)
        if self.doubts is not None:
            keys = (*keys, *self.doubts.waiting)
        return Wait(keys, self.deadline_ms, self.poll, max(0, self.reading.max_bytes))

    def visible_end(self, partition: Partition) -> int:
        """Where this reader has to stop in a partition."""
        return partition.read_limit(self.reading.isolation_level, is_follower=self.is_follower)

    def poll(self, now_ms: int, expired: bool) -> Outcome | None:
        """Read again when there may be enough now, there is something to say, or time is up."""
        at_once = expired or self.must_answer()
        if not at_once and self.doubts is None and not self.may_be_enough():
            return None
        found = self.read()
        if found.missing:
            return self.bring(found)
        if self.doubts is not None and self.doubts.waiting and not expired:
            return None
        if at_once or self.is_enough(found):
            return self.answer(found, now_ms)
        return None

    def must_answer(self) -> bool:
        """Whether a partition got another leader epoch, or is not hosted any more."""
        partitions = self.broker.partitions
        for replica, leader_epoch, _, _ in self.parked:
            topic, index = replica.topic_partition
            if (
                replica.leader_epoch != leader_epoch
                or partitions.served(topic, index) is not replica
            ):
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
        at_once, readable = False, self.may_wait
        self.told_bytes = 0
        if self.doubts is not None:
            self.doubts.waiting.clear()
        answers = []
        allowed: dict[str, bool] = {}
        missing: list[ColdRead] = []
        for wanted in self.named:
            if self.has_no_news(wanted):
                readable = True
                continue
            refusal = self.refusal(wanted, allowed)
            if refusal is not None:
                answer = refused(wanted.index, refusal)
                answer.aborted_transactions = []
                answers.append((wanted, answer))
                continue
            readable = True
            try:
                answer = self.read_partition(wanted, min(wanted.max_bytes, left), at_least_one)
            except ColdRead as cold:
                missing.append(cold)
                if len(missing) == MOST_READS:
                    break
                at_least_one, left = False, max(0, left - cold.length)
                continue
            answers.append((wanted, answer))
            if answer.records:
                length = size_of(answer.records)
                at_least_one = False
                size_bytes += length
                left = max(0, left - length)
            elif answer.error_code or answer.preferred_read_replica >= 0:
                at_once = True
            else:
                at_once = at_once or answer.diverging_epoch.epoch >= 0
                at_once = at_once or (self.is_follower and self.is_behind(wanted, answer))
        return Round(answers, size_bytes, at_once, readable, tuple(missing))

    def has_no_news(self, _wanted: Wanted) -> bool:
        """Whether a partition need not be read, since its reader knows all of it."""
        return False

    def is_behind(self, wanted: Wanted, answer: PartitionData) -> bool:
        """Whether a follower has to hear of a mark: it joins the ISR only once it has dropped what
        its leader deleted. Without a session high watermarks would be told at the end of each wait,
        which a follower may not await; what is above its own end helps it nothing."""
        return wanted.told_log_start < answer.log_start_offset > wanted.log_start_offset >= 0 or (
            self.session is None
            and wanted.high_watermark < min(answer.high_watermark, wanted.fetch_offset)
        )

    def refusal(self, wanted: Wanted, allowed: dict[str, bool]) -> ErrorCode | None:
        """What forbids reading a partition before it is looked at, in Kafka's order."""
        broker, topic = self.broker, wanted.topic
        request = self.reading.request
        if not broker.authorizer.allows_all and self.is_follower:
            if not cluster_allowed(broker.authorizer, request, Operation.CLUSTER_ACTION):
                return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if not topic and self.reading.uses_topic_ids:
            found = broker.image.topic_by_id(wanted.topic_id)
            if found is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
            topic = wanted.topic = found.name
        if not broker.authorizer.allows_all and not self.is_follower:
            if topic not in allowed:
                allowed[topic] = topic_allowed(broker.authorizer, request, Operation.READ, topic)
            if not allowed[topic]:
                return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if broker.partitions.served(topic, wanted.index) is None and not exists(
            broker.image, topic, wanted.index
        ):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return None

    def read_partition(self, wanted: Wanted, max_bytes: int, at_least_one: bool) -> PartitionData:
        """Records of one partition, or its error."""
        broker = self.broker
        replica = broker.partitions.served(wanted.topic, wanted.index)
        try:
            if replica is None:
                replica = broker.partitions.find(broker.image, wanted.topic, wanted.index)
            if wanted.topic_id not in (ZERO_TOPIC_ID, replica.topic_id):
                raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID)
            replica.check_epoch(wanted.leader_epoch)
            if self.reading.leader_only and not replica.is_leader:
                replica.check_leader()
            if self.reading.rack and replica.is_leader and not replica.is_alone:
                nearer = sent_nearer(
                    broker, self.reading.request, replica_of(replica), wanted, self.reading.rack
                )
                if nearer is not None:
                    return nearer
            replica.ensure_current()
            return self.read_log(replica, wanted, max_bytes, at_least_one)
        except ApiError as error:
            answer = refused(wanted.index, error.code, self.reading.request.version)
            if replica is not None and self.is_follower:
                answer.log_start_offset = replica.start_offset
                if replica.local_start_offset > replica.start_offset:
                    return self._with_local_start(answer, replica_of(replica))
            return answer
        except StorageFault as fault:
            if replica is not None:
                replica.failed(fault, broker.mailbox)
            code = ErrorCode.KAFKA_STORAGE_ERROR
            return refused(wanted.index, code, self.reading.request.version)

    def _with_local_start(self, answer: PartitionData, replica: Replica) -> PartitionData:
        """Tell a follower where it may begin, and what it needs there."""
        log = replica.log
        told = LocalStart(offset=log.local_start_offset)
        if answer.error_code in BEGINS_LATER and self.told_bytes < MOST_TOLD_BYTES:
            try:
                beginning = log.local_beginning()
            except StorageFault as fault:
                replica.failed(fault, self.broker.mailbox)
                code = ErrorCode.KAFKA_STORAGE_ERROR
                return refused(answer.partition_index, code, self.reading.request.version)
            told.producers = beginning.producers
            told.epochs = [BegunEpoch(epoch=one, start_offset=at) for one, at in beginning.epochs]
            self.told_bytes += len(beginning.producers)
        answer.unknown_tagged_fields = tagged(told)
        return answer

    def read_log(
        self, replica: Partition, wanted: Wanted, max_bytes: int, at_least_one: bool
    ) -> PartitionData:
        """What the log has for this reader from the wanted offset on."""
        offset = wanted.fetch_offset
        diverging = None
        if wanted.last_fetched_epoch >= 0:
            if wanted.last_fetched_epoch > replica.epoch_of(replica.end_offset):
                self.check_certain(replica)
            diverging = divergence(replica, wanted)
        if diverging is None:
            if offset > replica.end_offset:
                self.check_certain(replica)
            if not replica.local_start_offset <= offset <= replica.end_offset:
                replica.ensure_current(self.since)
                replica.check_offset(offset)
                if self.is_follower:  # followers copy what their leader has on its disk
                    raise ApiError(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)
            if self.is_follower and not self.is_noted:
                self.note_follower(replica_of(replica), wanted)
            elif offset > replica.high_watermark and not replica.is_leader:
                raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)  # the leader may have it committed
        answer = PartitionData(
            partition_index=wanted.index,
            high_watermark=replica.high_watermark,
            last_stable_offset=replica.last_stable_offset,
            log_start_offset=replica.start_offset,
            aborted_transactions=None,
            records=b"",
        )
        if diverging is not None:
            answer.diverging_epoch = diverging
            return answer
        committed_only = self.reading.isolation_level == READ_COMMITTED and not self.is_follower
        if committed_only:
            answer.aborted_transactions = []
        limit = self.visible_end(replica)
        if offset < limit and (max_bytes > 0 or at_least_one) and not self.is_held_back(replica):
            read = replica.read if self.is_follower else replica.lend
            records = read(offset, max_bytes=max_bytes, upto=limit, at_least_one=at_least_one)
            if isinstance(records, Loan) and is_empty(records.head):  # it has to be looked into
                records = replica.read(
                    offset, max_bytes=max_bytes, upto=limit, at_least_one=at_least_one
                )
            if isinstance(records, tuple):  # of a diskless topic
                records = pieces_past_empty(
                    replica, records, limit, max_bytes=max_bytes, at_least_one=at_least_one
                )
            elif not self.is_follower and not isinstance(records, Loan):
                records = past_empty(
                    replica, records, limit, max_bytes=max_bytes, at_least_one=at_least_one
                )
            answer.records = records
            if committed_only and records:
                answer.aborted_transactions = aborted_within(replica, records, offset, limit)
        return answer

    def check_certain(self, replica: Partition) -> None:
        """A client comes from beyond what is known here: does this broker lead? A follower says
        which leader epoch it follows, and that it is ours.

        Raises NOT_LEADER_OR_FOLLOWER, or OFFSET_NOT_AVAILABLE: the leader may know it."""
        if self.is_follower or not replica.may_be_deposed:
            return
        if not replica.is_leader:
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
        if self.doubts is None:
            self.doubts = Doubts(self.broker.replication)
        if not self.doubts.is_certain(replica_of(replica)):
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def is_held_back(self, replica: Partition) -> bool:
        """Whether a throttle keeps a partition's records from this follower."""
        if not self.is_follower:
            return False
        return self.broker.replication.holds_back(replica_of(replica), self.reading.replica_id)

    def note_follower(self, replica: Replica, wanted: Wanted) -> None:
        """A follower's fetch offset tells what it has, since its history is ours."""
        self.broker.replication.follower_fetched(
            replica,
            self.reading.replica_id,
            wanted.fetch_offset,
            broker_epoch=self.reading.broker_epoch,
            start_offset=wanted.log_start_offset,
            heard=None if self.session is None else self.session.heard,
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
        if self.is_follower:
            self.count_throttled(answers)
        else:
            count_given(self.broker, self.reading.request, answers)
        _group(response, answers)
        if self.reading.request.version >= _LEADER_HINT_SINCE:
            hinted = [
                (wanted.topic, wanted.index, answer)
                for wanted, answer in answers
                if answer.error_code and answer.error_code in _HINTED
            ]
            if hinted:
                response.node_endpoints = tell_leaders(
                    self.broker, self.reading.request.listener, hinted,
                    LeaderIdAndEpoch, NodeEndpoint,
                )  # fmt: skip
        return response

    def count_throttled(self, answers: list[tuple[Wanted, PartitionData]]) -> None:
        """Tell the leader's throttle what goes out of partitions that are listed for it."""
        broker = self.broker
        for wanted, answer in answers:
            if not answer.records:
                continue
            replica = broker.partitions.get(wanted.topic, wanted.index)
            if replica is not None and replica.is_throttled_leader:
                broker.replication.leader_throttle.record(
                    len(answer.records), broker.steady_ms, broker.config
                )

    def begin_session(self, found: Round, now_ms: int) -> int:
        """The id of a new session over these partitions, 0 when there is no slot for it."""
        session = self.broker.fetch_sessions.begin(
            [wanted for wanted, _ in found.answers],
            privileged=self.is_follower,
            uses_topic_ids=self.reading.uses_topic_ids,
            now_ms=now_ms,
        )
        if session is None:
            return NO_SESSION
        for wanted, answer in found.answers:
            wanted.must_tell(answer)
        return session.session_id


def size_of(records: Records | Loan) -> int:
    """Bytes of batches."""
    return sum(map(len, records)) if isinstance(records, tuple) else len(records)


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
