"""Quotas at work: how long answers say that a client rests, and that its connection does rest.

One client speaks to both servers over connections of its own. Times are compared in steps of a
second, since a rate depends on the moment at which it is measured. Other quotas, and who sets them,
are in `configs.py` and `acls.py`.
"""

from __future__ import annotations

import os
import time
from typing import Any

from anabranch.core.types import TopicId
from anabranch.core.wire.messages import (
    alter_client_quotas,
    create_topics,
    fetch,
    metadata,
    produce,
)
from anabranch.core.wire.records import Record, build_batch
from compat.peer import Peer
from compat.rights_wire import ADMIN, Wire
from compat.row import Failed, row

LIMIT = 10_000.0
"""Bytes a second, over Kafka's eleven windows of a second: 100,000 are free at once."""
SIZES = (130_000, 1_000)
"""What is written one after another: the first is over the quota by 3 s by itself, since a rate
begins with its first bytes, whatever else a machine does."""
MOST_BYTES = 1 << 20
PIECE_BYTES = 30_000
CLIENT_IDS = ("slow-producer", "slow-consumer", "slow-admin")
NEAR_S = 0.3


def limited(peer: Peer, client_id: str, key: str, value: float | None) -> None:
    """Set or remove a quota of a client id, and wait until the broker has heard of it."""
    entry = alter_client_quotas.EntryData(
        [alter_client_quotas.EntityData("client-id", client_id)],
        [alter_client_quotas.OpData(key, value or 0.0, value is None)],
    )
    answer = Wire(peer.bootstrap).ask(alter_client_quotas.AlterClientQuotasRequest([entry]))
    if any(each.error_code for each in answer.entries):
        raise Failed(f"no quota: {answer.entries}")
    time.sleep(NEAR_S)


def timed(wire: Wire, body: Any, version: int | None = None) -> tuple[Any, float]:
    """An answer, and how many seconds it took."""
    begun = time.monotonic()
    return wire.ask(body, version), time.monotonic() - begun


def steps(milliseconds: int) -> int:
    """A time in steps of a second."""
    return round(milliseconds / 1_000)


def made(peer: Peer, name: str) -> TopicId:
    """A topic of one partition that can be written to."""
    admin = Wire(peer.bootstrap)
    topic = create_topics.CreatableTopic(name, 1, 1)
    admin.ask(create_topics.CreateTopicsRequest([topic], 10_000))
    wanted = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=name)])

    def found() -> TopicId | None:
        (each,) = admin.ask(wanted).topics
        is_led = not each.error_code and each.partitions[0].leader_id == 1
        return each.topic_id if is_led else None

    return peer.wait(found, f"a leader of {name}")


def written(topic_id: TopicId, name: str, size: int) -> produce.ProduceRequest:
    """One record of a size."""
    record = Record(0, time.time_ns() // 1_000_000, None, os.urandom(size), ())
    batch = bytes(build_batch([record], base_offset=0, leader_epoch=0))
    data = produce.PartitionProduceData(0, batch)
    return produce.ProduceRequest(
        None, 1, 10_000, [produce.TopicProduceData(name, topic_id, [data])]
    )


def asked(topic_id: TopicId, name: str, offset: int) -> fetch.FetchRequest:
    """Everything from an offset, without a session and without waiting."""
    partition = fetch.FetchPartition(0, fetch_offset=offset, partition_max_bytes=MOST_BYTES)
    return fetch.FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=MOST_BYTES, session_id=0, session_epoch=-1,
        topics=[fetch.FetchTopic(name, topic_id, [partition])],
    )  # fmt: skip


def of_producer(peer: Peer, topic_id: TopicId, name: str) -> object:
    """What answers to Produce say, and whether the next request waits as long as they say."""
    wire = Wire(peer.bootstrap, ADMIN, CLIENT_IDS[0])
    seen, rest_ms = [], 0
    for size in SIZES:
        answer, seconds = timed(wire, written(topic_id, name, size))
        waited = seconds + NEAR_S >= rest_ms / 1_000
        rest_ms = answer.throttle_time_ms
        code = answer.responses[0].partition_responses[0].error_code
        seen.append([code, steps(rest_ms), waited])
    return seen


def of_consumer(peer: Peer, topic_id: TopicId, name: str) -> object:
    """How much each Fetch brings, whether it is throttled, and whether the next one waits. Of the
    first two, Kafka throttles the first one and a node the second one."""
    free = Wire(peer.bootstrap, ADMIN, "free")
    for _ in range(6):
        free.ask(written(topic_id, name, PIECE_BYTES))
    wire = Wire(peer.bootstrap, ADMIN, CLIENT_IDS[1])
    seen, waited, rest_ms, offset = [], True, 0, 0
    for _ in range(3):
        answer, seconds = timed(wire, asked(topic_id, name, offset))
        waited = waited and seconds + NEAR_S >= rest_ms / 1_000
        rest_ms = answer.throttle_time_ms
        seen.append([brought(answer), rest_ms > 0])
        offset += brought(answer)
    return {"fetches": sorted(seen[:2]), "waits": waited}


def brought(answer: Any) -> int:
    """How many pieces an answer to Fetch has."""
    parts = answer.responses[0].partitions if answer.responses else []
    return round(sum(len(each.records or b"") for each in parts) / PIECE_BYTES)


def of_admin(peer: Peer) -> object:
    """What CreateTopics says while partitions are over their quota, in the versions before and
    since that was an error (KIP-599)."""
    wire = Wire(peer.bootstrap, ADMIN, CLIENT_IDS[2])
    seen = []
    for number, version in enumerate((7, 7, 5)):
        topics = [create_topics.CreatableTopic(f"many-{number}-{each}", 12, 1) for each in "ab"]
        answer = wire.ask(create_topics.CreateTopicsRequest(topics, 10_000), version)
        codes = sorted(each.error_code for each in answer.topics)
        seen.append([codes, answer.throttle_time_ms > 0])
    return seen


@row("quotas-throttle")
def throttles(peer: Peer) -> object:
    """Answers to Produce, Fetch and CreateTopics say how long a client over its quota rests, a
    throttled Fetch is empty, and the connection is muted for that time (KIP-219)."""
    keys = ("producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate")
    for client_id, key, value in zip(CLIENT_IDS, keys, (LIMIT, LIMIT, 1.0), strict=True):
        limited(peer, client_id, key, value)
    try:
        return {
            "produce": of_producer(peer, made(peer, "throttled"), "throttled"),
            "fetch": of_consumer(peer, made(peer, "throttled-reads"), "throttled-reads"),
            "create": of_admin(peer),
        }
    finally:
        for client_id, key in zip(CLIENT_IDS, keys, strict=True):
            limited(peer, client_id, key, None)
