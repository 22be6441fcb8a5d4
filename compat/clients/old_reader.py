"""Reads a partition to its end with kafka-python, and prints how many records there were, and a
digest of their offsets and values: `old_reader.py BOOTSTRAP TOPIC RECORDS`."""

from __future__ import annotations

import hashlib
import sys

from kafka import KafkaConsumer, TopicPartition

SILENCE_MS = 30_000
"""As long without a record: no more will come."""


def main() -> None:
    """Read, count, print."""
    bootstrap, topic, most = sys.argv[1:]
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, consumer_timeout_ms=SILENCE_MS
    )
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    count, digest = 0, hashlib.sha256()
    for record in consumer:
        digest.update(b"%d %s\n" % (record.offset, record.value))
        count += 1
        if count == int(most):
            break
    consumer.close()
    sys.stdout.write(f"{count} {digest.hexdigest()}\n")


main()
