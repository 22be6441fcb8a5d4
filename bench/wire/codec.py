"""Messages a second of our codec beside kio and kafka-python, on one core, for the same bytes.

    python bench/wire/codec.py [--seconds 0.3]

Prints a line a message: size, then encodes and decodes a second of each library, the median of
several alternating rounds. All three must write the same bytes, or the line is refused.
"""

from __future__ import annotations

import argparse
import importlib
import io
import statistics
import time
from collections.abc import Callable
from typing import Any

from kafka.protocol.consumer import fetch as kafka_fetch
from kafka.protocol.metadata import metadata as kafka_metadata
from kafka.protocol.producer import produce as kafka_produce
from kio.serial import entity_reader, entity_writer

from anabranch.core.wire.codec import decoder, encode_bytes, encoder
from anabranch.core.wire.messages import fetch, metadata, produce
from anabranch.core.wire.schema import Message

ROUNDS = 5
RECORDS = bytes(200)
KAFKA_PYTHON = {
    module_class.__name__: module_class
    for module in (kafka_produce, kafka_fetch, kafka_metadata)
    for module_class in vars(module).values()
    if isinstance(module_class, type)
}


def produce_request(partitions: int) -> Message:
    """One topic, 200 bytes of records a partition."""
    data = [produce.PartitionProduceData(index=i, records=RECORDS) for i in range(partitions)]
    topic = produce.TopicProduceData(name="topic-1", partition_data=data)
    return produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def produce_response(partitions: int) -> Message:
    """No errors, as nearly always."""
    data = [
        produce.PartitionProduceResponse(index=i, base_offset=1 << 33, log_start_offset=0)
        for i in range(partitions)
    ]
    topic = produce.TopicProduceResponse(name="topic-1", partition_responses=data)
    return produce.ProduceResponse(responses=[topic])


def fetch_request(partitions: int) -> Message:
    """A full fetch of one topic."""
    data = [
        fetch.FetchPartition(
            partition=i, current_leader_epoch=5, fetch_offset=1 << 33, partition_max_bytes=1 << 20
        )
        for i in range(partitions)
    ]
    topic = fetch.FetchTopic(topic="topic-1", partitions=data)
    return fetch.FetchRequest(max_wait_ms=500, min_bytes=1, topics=[topic])


def fetch_response(partitions: int) -> Message:
    """200 bytes of records a partition."""
    data = [
        fetch.PartitionData(
            partition_index=i, high_watermark=1 << 33, last_stable_offset=1 << 33, records=RECORDS
        )
        for i in range(partitions)
    ]
    topic = fetch.FetchableTopicResponse(topic="topic-1", partitions=data)
    return fetch.FetchResponse(session_id=7, responses=[topic])


def metadata_request(topics: int) -> Message:
    """Topics by name."""
    names = [metadata.MetadataRequestTopic(name=f"topic-{i}") for i in range(topics)]
    return metadata.MetadataRequest(topics=names)


def metadata_response(topics: int) -> Message:
    """Ten partitions a topic, three replicas each, three brokers."""
    partitions = [
        metadata.MetadataResponsePartition(
            partition_index=i,
            leader_id=1,
            leader_epoch=3,
            replica_nodes=[1, 2, 3],
            isr_nodes=[1, 2, 3],
        )
        for i in range(10)
    ]
    listed = [
        metadata.MetadataResponseTopic(
            name=f"topic-{i}", topic_id=bytes([7]) * 16, partitions=partitions
        )
        for i in range(topics)
    ]
    brokers = [metadata.MetadataResponseBroker(i, f"broker-{i}", 9092) for i in (1, 2, 3)]
    return metadata.MetadataResponse(
        brokers=brokers, cluster_id="cluster", controller_id=1, topics=listed
    )


CASES: list[tuple[str, Message, int]] = [
    ("ProduceRequest, 1 partition", produce_request(1), 9),
    ("ProduceRequest, 50 partitions", produce_request(50), 9),
    ("ProduceResponse, 1 partition", produce_response(1), 9),
    ("ProduceResponse, 50 partitions", produce_response(50), 9),
    ("FetchRequest, 1 partition", fetch_request(1), 12),
    ("FetchRequest, 50 partitions", fetch_request(50), 12),
    ("FetchResponse, 1 partition", fetch_response(1), 12),
    ("FetchResponse, 50 partitions", fetch_response(50), 12),
    ("MetadataRequest, 10 topics", metadata_request(10), 12),
    ("MetadataResponse, 100 x 10", metadata_response(100), 12),
]


def rate(run: Callable[[], Any], seconds: float) -> float:
    """Calls a second."""
    run()
    calls, step, started = 0, 1, time.perf_counter()
    while (spent := time.perf_counter() - started) < seconds:
        for _ in range(step):
            run()
        calls += step
        step = min(1000, step * 2)
    return calls / spent


def kio_runs(message: Message, version: int, data: bytes) -> tuple[Callable, Callable]:
    """kio's encoder and decoder of the same message."""
    name = type(message).__name__
    family, side = (name[:-7], "request") if name.endswith("Request") else (name[:-8], "response")
    cls = getattr(importlib.import_module(f"kio.schema.{family.lower()}.v{version}.{side}"), name)
    read, write = entity_reader(cls), entity_writer(cls)
    entity, _ = read(data, 0)

    def write_it() -> bytes:
        buffer = io.BytesIO()
        write(buffer, entity)
        return buffer.getvalue()

    return write_it, lambda: read(data, 0)


def kafka_python_runs(message: Message, version: int, data: bytes) -> tuple[Callable, Callable]:
    """kafka-python's encoder and decoder of the same message."""
    cls = KAFKA_PYTHON[type(message).__name__]
    decoded = cls.decode(data, version=version)
    decoded._header = None
    return lambda: decoded.encode(version=version), lambda: cls.decode(data, version=version)


def our_runs(message: Message, version: int, data: bytes) -> tuple[Callable, Callable]:
    """Our encoder (to a list of buffers, as the node sends them) and decoder."""
    write, read = encoder(type(message), version), decoder(type(message), version)
    view = memoryview(data)
    return lambda: write(message, []), lambda: read(view, 0)


def main() -> None:
    """Measure every case and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.1, help="of each round of each cell")
    seconds = parser.parse_args().seconds
    print(f"{'message':32}{'bytes':>7} | encode/s: ours, kio, kafka-python | decode/s: the same")
    for label, message, version in CASES:
        data = encode_bytes(message, version)
        runs = [make(message, version, data) for make in (our_runs, kio_runs, kafka_python_runs)]
        for write, _ in runs[1:]:
            assert write() == data, f"{label}: the libraries write different bytes"
        cells = []
        for side in (0, 1):
            rounds = [[rate(run[side], seconds) for run in runs] for _ in range(ROUNDS)]
            cells.append([statistics.median(column) for column in zip(*rounds)])
        texts = [" ".join(f"{cell:>11,.0f}" for cell in row) for row in cells]
        print(f"{label:32}{len(data):>7} | " + " | ".join(texts), flush=True)


if __name__ == "__main__":
    main()
