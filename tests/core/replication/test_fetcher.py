"""A fetcher's requests, however much it copies: each is one that a node reads, and all are named."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.core.replication.fetcher import Fetcher
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.types import TopicId, TopicPartition
from anabranch.core.wire.codec import decode, encode_bytes
from anabranch.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse
from anabranch.core.wire.primitives import MOST_REQUEST_ELEMENTS

HOST: Any = SimpleNamespace(
    config=BrokerConfig({"node.id": "2"}, {}, {}), broker_id=2, broker_epoch=5, steady_ms=0
)
Key = tuple[bytes, int]


def following(number: int, partitions: int) -> Any:
    """One partition of many topics that have so many each."""
    topic, index = divmod(number, partitions)
    topic_id = TopicId(topic.to_bytes(16))
    return SimpleNamespace(
        key=(topic_id, index),
        replica=SimpleNamespace(topic_partition=TopicPartition(f"t{topic}", index)),
        asked=lambda max_bytes: FetchPartition(
            partition=index, partition_max_bytes=max_bytes, high_watermark=3
        ),
    )


def sent(fetcher: Fetcher) -> FetchRequest:
    """The next request as the leader reads it."""
    effect = fetcher.request(HOST)
    frame = bytearray(encode_bytes(effect.request, effect.version))
    return decode(FetchRequest, frame, effect.version)


def named(request: FetchRequest) -> set[Key]:
    return {(each.topic_id, one.partition) for each in request.topics for one in each.partitions}


def answer(fetcher: Fetcher, session_id: int) -> None:
    fetcher.answered(FetchResponse(session_id=session_id, responses=[]), 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("partitions", "session_id"), [(1, 7), (1 << 20, 0)], ids=["session", "no session"]
)
def test_more_partitions_than_a_request_may_name_are_all_asked_for(
    partitions: int, session_id: int
) -> None:
    fetcher, count = Fetcher(1, 0), MOST_REQUEST_ELEMENTS + 100
    everything = [following(number, partitions) for number in range(count)]
    for each in everything:
        fetcher.add(each)
    asked: set[Key] = set()
    for turn in range(9):
        request = sent(fetcher)
        assert named(request).isdisjoint(asked) or not session_id
        asked |= named(request)
        assert (request.session_id == 0) == (turn == 0 or not session_id)
        answer(fetcher, session_id)
        if len(asked) == count:
            break
        assert request.max_wait_ms == 0, "the rest follows at once"
    assert asked == {each.key for each in everything}
    fetcher.begin_anew()
    assert named(sent(fetcher)), "after a break, anew"


def test_more_partitions_than_a_request_may_forget_are_all_forgotten() -> None:
    fetcher, count = Fetcher(1, 0), MOST_REQUEST_ELEMENTS + 100
    everything = [following(number, 1) for number in range(count)]
    kept = following(count, 1)
    for each in (*everything, kept):
        fetcher.add(each)
    for _ in range(8):
        sent(fetcher)
        answer(fetcher, 7)
    for each in everything:
        fetcher.remove(each)
    forgotten: set[Key] = set()
    for _ in range(8):
        request = sent(fetcher)
        answer(fetcher, 7)
        data = request.forgotten_topics_data
        forgotten |= {(each.topic_id, index) for each in data for index in each.partitions}
    assert forgotten == {each.key for each in everything}
