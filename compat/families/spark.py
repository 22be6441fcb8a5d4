"""Spark's JVM Kafka connector: `clients/spark_job.py` runs once for each peer, a row a scenario.

The first row's seconds are those of all.
"""

from __future__ import annotations

import json
import os
from typing import Any

from confluent_kafka import Producer

from compat.clients import CACHE, HERE, fetch_maven_jars, fetch_spark
from compat.families.topics import create
from compat.peer import Peer
from compat.row import Failed, row

WANTED = ("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2")
"""The jars that Spark does not bring itself."""
FIRST_MS = 1_700_000_000_000
SECONDS = 550.0

seen: dict[str, dict[str, Any]] = {}
"""What the job saw of each peer, by its address: Spark takes longer to start than to work."""


def job(peer: Peer) -> dict[str, Any]:
    """What every scenario saw of this peer."""
    if peer.bootstrap not in seen:
        prepare_topics(peer)
        jars = [
            str(jar)
            for jar in sorted(fetch_maven_jars("spark-kafka").glob("*.jar"))
            if jar.name.startswith(WANTED)
        ]
        folder = peer.scratch / "spark"
        folder.mkdir()
        python = CACHE / "spark" / "venv" / "bin" / "python"
        command = (python, HERE / "spark_job.py", peer.bootstrap, ",".join(jars), folder)
        environment = {**os.environ, "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
        ran = peer.command(*command, env=environment, seconds=SECONDS, raw=True, cwd=folder)
        seen[peer.bootstrap] = json.loads(ran.out.splitlines()[-1])
    return seen[peer.bootstrap]


def prepare_topics(peer: Peer) -> None:
    """Topics, and records whose times are known: Spark's sink cannot choose them."""
    for topic in ("spark-batch", "spark-stream"):
        create(peer, topic, 3)
    create(peer, "spark-copy")
    create(peer, "spark-times", retention_ms=-1)
    producer = Producer({"bootstrap.servers": peer.bootstrap})
    for number in range(100):
        at = FIRST_MS + number * 1_000
        producer.produce("spark-times", f"value-{number}", partition=0, timestamp=at)
    producer.flush()


def scenario(peer: Peer, name: str) -> object:
    """What one of them saw; its failure is the row's."""
    result = job(peer)[name]
    if "failed" in result:
        raise Failed(result["failed"])
    return result["saw"]


@row("spark-batch", prepare=fetch_spark)
def writes_and_reads(peer: Peer) -> object:
    """Spark writes a batch and reads it: keys, nulls, headers, offsets."""
    return scenario(peer, "writes_and_reads")


@row("spark-offsets", prepare=fetch_spark)
def reads_between_offsets(peer: Peer) -> object:
    """Spark reads between offsets of each partition."""
    return scenario(peer, "reads_between_offsets")


@row("spark-times", prepare=fetch_spark)
def reads_between_times(peer: Peer) -> object:
    """Spark reads between two times."""
    return scenario(peer, "reads_between_times")


@row("spark-pattern", prepare=fetch_spark)
def reads_a_pattern(peer: Peer) -> object:
    """Spark reads the topics of a pattern, and chosen partitions."""
    return scenario(peer, "reads_a_pattern")


@row("spark-split", prepare=fetch_spark)
def splits_partitions(peer: Peer) -> object:
    """Spark reads one partition in several tasks."""
    return scenario(peer, "splits_partitions")


@row("spark-stream", prepare=fetch_spark)
def streams(peer: Peer) -> object:
    """A Spark stream copies a topic in micro-batches and continues from its checkpoint."""
    return scenario(peer, "streams")


@row("spark-counts", prepare=fetch_spark)
def counts(peer: Peer) -> object:
    """A stateful Spark stream counts records by their times."""
    return scenario(peer, "counts_times")


@row("spark-refused", prepare=fetch_spark)
def is_refused(peer: Peer) -> object:
    """Spark ends with an error where offsets or topics are not there."""
    return scenario(peer, "is_refused")
