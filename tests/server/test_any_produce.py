"""Whatever Produce brings is in the log's files, byte for byte, where the answer says.

What is drawn: the version, partitions, batches and codecs, acknowledgements, producers with
sequence numbers, batches that are sent twice or refused, requests in a row, frames in pieces.
`ANABRANCH_TEST_SECONDS` makes it longer, `ANABRANCH_TEST_SEED` repeats a seed.
"""

from __future__ import annotations

import random
import struct
import time

import pytest
from any_answer_kit import LOOPS, Client, LoopNode, any_batch, read_log, seconds, seed, topic_ids_of
from confluent_kafka.admin import AdminClient, NewTopic
from server_kit import SECONDS

from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.api_versions import ApiVersionsRequest
from anabranch.core.wire.messages.init_producer_id import InitProducerIdRequest
from anabranch.core.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from anabranch.core.wire.records import Codec

TOPICS = {"one": 1, "many": 49}
VERSIONS, ZSTD_SINCE = range(3, 14), 7
MOST_BYTES = 2 << 20
"""Of a batch: larger ones are drawn, too."""
REQUEST_BYTES = 8 << 20
"""From here on a request gets no further partitions."""
OFFSET_AND_LENGTH, EPOCH, COUNT = struct.Struct(">qi"), slice(12, 16), slice(57, 61)


class Model:
    """What the logs should hold: for each partition, the batches that were taken."""

    def __init__(self, chance, topic_ids, producer):
        self.chance = chance
        self.topic_ids = topic_ids
        self.producer = producer
        self.places = [(topic, each) for topic, count in TOPICS.items() for each in range(count)]
        self.ends = dict.fromkeys(self.places, 0)
        self.sequences = dict.fromkeys(self.places, 0)
        self.held = {each: [] for each in self.places}
        self.numbered = {}
        """The last batch with a sequence number, and where it went."""

    def request(self):
        """(a request, its version, (error, base offset) of each partition or None)."""
        chance = self.chance
        acks, version = chance.choice((-1, 1, 1, 0)), chance.choice(VERSIONS)
        topics, expected, size = {}, {}, 0
        for place in chance.sample(self.places, chance.choice((1, 1, 2, 5, 20, 50))):
            batch, *expected[place] = self._any(place, version, may_fail=acks != 0)
            part = PartitionProduceData(index=place[1], records=batch)
            topics.setdefault(place[0], []).append(part)
            size += len(batch)
            if size > REQUEST_BYTES:
                break
        request = ProduceRequest(
            acks=acks,
            timeout_ms=SECONDS * 1000,
            topic_data=[
                TopicProduceData(name=name, topic_id=self.topic_ids[name], partition_data=parts)
                for name, parts in topics.items()
            ],
        )
        return request, version, expected if acks else None

    def _any(self, place, version, *, may_fail):
        """(a batch, its error, where it goes); it is noted if it is taken."""
        kind = self.chance.choice(
            ("plain", "plain", "plain", "numbered", "numbered", "again", "bad")
        )
        if kind == "again" and self._may_repeat(place, version):
            batch, base_offset = self.numbered[place]
            return batch, 0, base_offset
        batch = any_batch(self.chance, **self._numbers(place) if kind == "numbered" else {})
        code = 0
        if kind == "bad":
            batch[-1] ^= 1
            code = ErrorCode.CORRUPT_MESSAGE
        if len(batch) > MOST_BYTES:
            code = ErrorCode.MESSAGE_TOO_LARGE
        if is_zstd(batch) and version < ZSTD_SINCE:
            code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if code:
            return (batch, code, -1) if may_fail else self._any(place, version, may_fail=False)
        base_offset = self._note(place, batch)
        if kind == "numbered":
            self.sequences[place] += count_of(batch)
            self.numbered[place] = batch, base_offset
        return batch, 0, base_offset

    def _may_repeat(self, place, version):
        found = self.numbered.get(place)
        return found is not None and not (is_zstd(found[0]) and version < ZSTD_SINCE)

    def _numbers(self, place):
        producer_id, producer_epoch = self.producer
        return {
            "producer_id": producer_id,
            "producer_epoch": producer_epoch,
            "base_sequence": self.sequences[place],
        }

    def _note(self, place, batch):
        base_offset, stored = self.ends[place], bytearray(batch)
        OFFSET_AND_LENGTH.pack_into(stored, 0, base_offset, len(batch) - OFFSET_AND_LENGTH.size)
        stored[EPOCH] = bytes(4)  # the leader's, which never changes here
        self.held[place].append(bytes(stored))
        self.ends[place] += count_of(batch)
        return base_offset


def is_zstd(batch):
    """By the three lowest bits of the attributes."""
    return batch[22] & 7 == Codec.ZSTD


def count_of(batch):
    """Records, as the header says."""
    return int.from_bytes(batch[COUNT])


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.for_seconds
def test_what_any_produce_brings_is_in_the_log(loop, tmp_path):
    number = seed()
    print(f"ANABRANCH_TEST_SEED={number}")  # noqa: T201 - shown when it fails
    chance = random.Random(number)
    node = LoopNode(loop, tmp_path, message_max_bytes=MOST_BYTES, log_segment_bytes=4 << 20).start()
    try:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        topics = [NewTopic(name, count, 1) for name, count in TOPICS.items()]
        for created in admin.create_topics(topics, operation_timeout=SECONDS).values():
            created.result(SECONDS)
        client = Client(node.bootstrap)
        topic_ids = topic_ids_of(client, TOPICS)
        producer = client.ask(InitProducerIdRequest(transactional_id=None), 4)
        client.close()
        model = Model(chance, topic_ids, (producer.producer_id, producer.producer_epoch))
        until = time.monotonic() + seconds(5)
        while time.monotonic() < until:
            send_some(node, model, chance)
        for topic, partition in model.places:
            log = read_log(tmp_path / f"{topic}-{partition}")
            held = b"".join(held for held, _ in log.segments)
            assert held == b"".join(model.held[topic, partition]), (topic, partition)
            assert log.end_offset == model.ends[topic, partition]
    finally:
        node.stop()


def send_some(node, model, chance):
    """Some requests in a row, in whole frames or in pieces, on one connection."""
    client, names = Client(node.bootstrap), {each: name for name, each in model.topic_ids.items()}
    for _ in range(chance.choice((1, 3, 10))):
        waiting = []
        for _ in range(chance.choice((1, 1, 2, 5))):
            request, version, expected = model.request()
            client.send(request, version, chance.choice((1 << 30, 1 << 16, 5_000)))
            if expected is None:
                client.waiting.pop()
            else:
                waiting.append((version, expected))
        for version, expected in waiting:
            answer = client.answer()
            found = {
                (topic.name or names[topic.topic_id], part.index): [
                    part.error_code,
                    part.base_offset,
                ]
                for topic in answer.responses
                for part in topic.partition_responses
            }
            assert found == expected, f"version {version}"
    client.ask(ApiVersionsRequest(), 0)  # what was not acknowledged has been taken
    client.close()
