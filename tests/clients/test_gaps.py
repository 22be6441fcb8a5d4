"""R5: a producer of librdkafka whose batch got lost on its way: nothing twice, no new epoch."""

from __future__ import annotations

import time
from struct import Struct

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from anabranch.core.api import p00_produce
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.testing import LocalCluster

RECORDS = 200
ROUNDS = 10
PATIENCE_S = 60.0
EPOCH = Struct(">h")
EPOCH_AT = 51
AT_ONCE = {"enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 1}
LOST = {20, 60}
"""Which of the batches that come are refused, so that the broker knows only that they are missing:
another one may have refused them, or lost them with its leadership."""
HELD_S = 1.0
"""How long the broker takes over them, so that the producer sends others behind them."""


@pytest.fixture
def epochs(monkeypatch):
    """The epochs of the batches that came, in their order."""
    append, came = p00_produce._append, []

    def append_most(broker, request, topic, replica, data, *rest):
        came.append(EPOCH.unpack_from(data.records, EPOCH_AT)[0])
        if len(came) in LOST:
            time.sleep(HELD_S)
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE)
        append(broker, request, topic, replica, data, *rest)

    monkeypatch.setattr(p00_produce, "_append", append_most)
    return came


def test_what_is_behind_a_missing_batch_waits_for_it_in_the_same_epoch(epochs):
    """On a busy machine a producer may have nothing in flight behind them: then it sends more."""
    sent = 0
    with LocalCluster() as cluster:
        cluster.create_topic("t")
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, **AT_ONCE})
        for _ in range(ROUNDS):
            epochs.clear()
            for each in range(sent, sent + RECORDS):
                producer.produce("t", b"%d" % each)
            sent += RECORDS
            assert producer.flush(PATIENCE_S) == 0
            assert set(epochs) == {0}
            if len(epochs) > RECORDS + len(LOST):
                break
        address = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"}
        reader = Consumer(address)
        reader.assign([TopicPartition("t", 0, 0)])
        came = [*reader.consume(sent, PATIENCE_S), *reader.consume(1, 1)]
        reader.close()
    assert [each.value() for each in came] == [b"%d" % each for each in range(sent)]
    assert len(epochs) > RECORDS + len(LOST), "some were in flight behind them"
