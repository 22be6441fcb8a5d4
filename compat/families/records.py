"""What a topic holds, read at once and without a group, for rows whose client only writes."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

from compat.peer import Peer

SECONDS = 10.0


def held(peer: Peer, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """Partition, key and value of a topic's committed records, in the order of each partition."""
    settings = {
        "bootstrap.servers": peer.bootstrap,
        "group.id": "nobody",
        "isolation.level": "read_committed",
    }
    consumer = Consumer({**settings, "enable.partition.eof": True, "enable.auto.commit": False})
    try:
        found = consumer.list_topics(topic, timeout=SECONDS).topics[topic]
        wanted = [TopicPartition(topic, number, 0) for number in sorted(found.partitions)]
        consumer.assign(wanted)
        return _to_the_end(consumer, len(wanted))
    finally:
        consumer.close()


def _to_the_end(
    consumer: Consumer, partitions: int
) -> list[tuple[int, bytes | None, bytes | None]]:
    records = []
    ended: set[int] = set()
    while len(ended) < partitions:
        message = consumer.poll(SECONDS)
        if message is None:
            raise TimeoutError(f"no end of {partitions} partitions within {SECONDS:.0f} s")
        if message.error():
            ended.add(message.partition())
        else:
            records.append((message.partition(), message.key(), message.value()))
    return sorted(records, key=lambda record: record[0])


def latest(peer: Peer, topic: str) -> dict[str, bytes | None]:
    """The last value of each key."""
    return {(key or b"").decode(): value for _, key, value in held(peer, topic)}
