"""Fetch: clients and followers read record batches from this broker's partitions.

KIP: KIP-74 (max bytes, first batch always), KIP-227 (sessions), KIP-320 (leader epochs), KIP-392
    (fetch from followers), KIP-516 (topic ids), KIP-595 (diverging epoch), KIP-951 (current
    leader), KIP-1166 (a follower says which high watermark it knows).
Versions: 4-18.
Behaviour: waits until `min_bytes` are there, a partition has an error, or `max_wait_ms` is over.
    Consumers read up to the high watermark, or the last stable offset with the ranges of aborted
    transactions; followers up to the log's end, if they may do CLUSTER_ACTION. A follower's fetch
    offset shows which records it has, once its log is known to agree with the leader's. The first
    batch is returned whole, whatever its size. Partitions that a session fetched records from go
    last. Segments in remote storage are read for consumers as local ones are, all that a request
    names; a follower is told OFFSET_MOVED_TO_TIERED_STORAGE. A follower or observer serves
    consumers (version 11 on) up to the high watermark that it knows; OFFSET_NOT_AVAILABLE sends
    them to the leader for an offset that is beyond it. The leader names a closer replica when it
    may. An offset beyond the leader's log is out of range only after the controller has confirmed
    that it leads (`doubts`).
Skipped: nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.api.closest_replica import rack_of
from anabranch.core.api.context import Broker
from anabranch.core.api.fetch_followers import FollowerFetch, may_pass_over
from anabranch.core.api.fetch_metadata import fetch_metadata
from anabranch.core.api.fetch_pass import Fetch, ReadOptions
from anabranch.core.api.fetch_sessions import FetchSession, Wanted
from anabranch.core.api.handler import Handler
from anabranch.core.broker.gate import Charge, Need
from anabranch.core.errors import ApiError
from anabranch.core.outcome import Outcome
from anabranch.core.replication.session_epochs import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION
from anabranch.core.request import Request
from anabranch.core.types import TopicId
from anabranch.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse

_TOPIC_IDS_SINCE = 13
_REPLICA_STATE_SINCE = 15
_ANY_REPLICA_SINCE = 11


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
            for gone in broker.fetch_sessions.change(session, wanted, body.forgotten_topics_data):
                broker.replication.follower_let_go(gone.place, reading.replica_id)
            if session.partitions and may_pass_over(broker, reading, session):
                return FollowerFetch(broker, reading, session, now_ms).start(now_ms)
            partitions = list(session.partitions.values())
            if not partitions:
                broker.fetch_sessions.close(session.session_id)
                session = None
    except ApiError as error:
        return FetchResponse(error_code=error.code)
    return Fetch(broker, reading, session, partitions, now_ms).start(now_ms)


def emptied(broker: Broker, request: Request, response: FetchResponse) -> FetchResponse:
    """An answer without what it brings, which is fetched again (KIP-219). A session that would have
    begun with it has not: its client would miss partitions in the answer."""
    if response.error_code:
        return response
    if request.body.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        broker.fetch_sessions.close(response.session_id)
        return FetchResponse()
    broker.fetch_sessions.untell(response)
    return FetchResponse(session_id=response.session_id)


def _reading(broker: Broker, request: Request) -> ReadOptions:
    body: FetchRequest = request.body
    version = request.version
    replica_id, broker_epoch = body.replica_id, -1
    if version >= _REPLICA_STATE_SINCE:
        replica_id, broker_epoch = body.replica_state.replica_id, body.replica_state.replica_epoch
    max_bytes = min(body.max_bytes, broker.config.fetch_max_bytes)
    if replica_id >= 0:
        max_bytes = body.max_bytes
    elif broker.quotas is not None:
        most = broker.quotas.most_bytes(request.principal, request.client_id)
        max_bytes = int(min(max_bytes, most))
    return ReadOptions(
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
    broker: Broker, body: FetchRequest, reading: ReadOptions
) -> Iterator[tuple[str, TopicId, FetchPartition]]:
    """Every partition with its topic's name ("" when the id is not known) and id."""
    for topic in body.topics:
        name = topic.topic
        if reading.uses_topic_ids:
            found = broker.image.topic_by_id(topic.topic_id)
            name = "" if found is None else found.name
        for partition in topic.partitions:
            yield name, topic.topic_id, partition


def _is_of_broker(body: FetchRequest) -> bool:
    """Whether a follower asks, of this broker's partitions or of the metadata."""
    return body.replica_id >= 0 or body.replica_state.replica_id >= 0


HANDLER = Handler(
    api_key=1,
    name="Fetch",
    versions=range(4, 19),
    broker=run,
    controller=fetch_metadata,
    needs=(
        Need(Operation.READ, ResourceType.TOPIC),
        Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),
    ),
    charge=Charge.FETCH,
    emptied=emptied,
    of_broker=_is_of_broker,
    kips=("KIP-74", "KIP-227", "KIP-320", "KIP-392", "KIP-516", "KIP-595", "KIP-951", "KIP-1166"),
)
