"""What a consumer sees of one partition, asked once: how far it may read.

Source: a consumer reads below the high watermark, which is exclusive. Not here: groups, positions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.core.errors import ErrorCode
from anabranch.core.types import TopicId
from anabranch.core.wire.batch import walk
from anabranch.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.sim.cluster import Cluster

LOOK_BYTES = 1 << 20
LOOK_US = 2_000_000


def look(
    cluster: Cluster,
    name: str,
    broker: int,
    topic: tuple[str, TopicId],
    partition: int,
    told: Callable[[str], None],
) -> None:
    """Fetch a partition from its begin; `told` hears in words what came."""
    part = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=LOOK_BYTES)
    wanted = FetchTopic(topic=topic[0], topic_id=topic[1], partitions=[part])
    message = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=LOOK_BYTES, topics=[wanted])
    cluster.call(name, broker, message, lambda got: told(in_words(got)), timeout_us=LOOK_US)


def in_words(response: Any) -> str:
    """How far a Fetch of a partition from its begin came; None is no answer."""
    if response is None:
        return "no answer"
    if response.error_code or not response.responses:
        return ErrorCode(response.error_code).name
    part = response.responses[0].partitions[0]
    if part.error_code:
        return ErrorCode(part.error_code).name
    last = -1
    for _, header in walk(part.records or b""):
        last = header.last_offset
    seen = f"sees 0-{last}" if last >= 0 else "sees nothing"
    return f"{seen}; the high watermark is {part.high_watermark}"
