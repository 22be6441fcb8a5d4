"""How far a classic topic is on its way to being diskless: what command line and pages show.

What: phase, and for each partition what is copied, as leaders tell it with ListOffsets and the
metadata has it; the size of its local log, and what it waits for. Not here: what begins a phase
(the controller).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.client.admin import ConfigOperation, ResourceKind, alter_configs
from anabranch.client.move_costs import described_logs
from anabranch.client.views.topics import topics_view
from anabranch.core.diskless.migration import phase_in
from anabranch.core.diskless.topics import DISKLESS
from anabranch.core.types import TopicPartition
from anabranch.core.wire.own_fields import WaitsFor, untagged

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster
    from anabranch.core.wire.messages.describe_log_dirs import DescribeLogDirsPartition

CLASSIC, IS_DISKLESS = "classic", "diskless"


async def migration_view(cluster: Cluster, topic: str) -> dict[str, Any]:
    """Phase and partitions of a topic. Raises ApiError where there is none."""
    [described], _ = await topics_view(cluster, topic, [])
    phase = phase_in(described["configs"])
    leaders = {each["leader"] for each in described["partitions"] if each["leader"] >= 0}
    logs = {} if described["is_diskless"] else await described_logs(cluster, leaders)
    return {
        "topic": topic,
        "phase": IS_DISKLESS if described["is_diskless"]
        else CLASSIC if phase is None else phase.step.value,
        "migration": None if phase is None else phase.migration,
        "partitions": [_partition(topic, each, logs) for each in described["partitions"]],
    }  # fmt: skip


def _partition(
    topic: str,
    told: dict[str, Any],
    logs: dict[tuple[int, TopicPartition], DescribeLogDirsPartition],
) -> dict[str, Any]:
    offsets = told.get("remote_log")
    place = TopicPartition(topic, told["partition"])
    left = None
    if offsets is not None:
        left = offsets["high_watermark"] - max(
            offsets["last_remote_offset"] + 1, offsets["log_start_offset"]
        )
    log = logs.get((told["leader"], place))
    waits = "it has no leader" if told["leader"] < 0 else ""
    if log is not None:
        waits = untagged(WaitsFor, log.unknown_tagged_fields).sentence
    return {
        "partition": told["partition"],
        "leader": told["leader"],
        "in_sync": set(told["isr"]) == set(told["replicas"]),
        "records_to_copy": left,
        "local_bytes": None if log is None else log.partition_size,
        "waits_for": waits,
    }


async def check_migration(cluster: Cluster, topic: str) -> None:
    """Raises ApiError with the reason where the topic cannot become diskless now."""
    await _set(cluster, topic, "true", validate_only=True)


async def begin_migration(cluster: Cluster, topic: str) -> None:
    """Have the topic become diskless. Raises ApiError."""
    await _set(cluster, topic, "true")


async def cancel_migration(cluster: Cluster, topic: str) -> None:
    """Have it stay classic. Raises ApiError where it is diskless already."""
    await _set(cluster, topic, "false")


async def _set(cluster: Cluster, topic: str, value: str, *, validate_only: bool = False) -> None:
    changes = [(ConfigOperation.SET, DISKLESS, value)]
    await alter_configs(cluster, ResourceKind.TOPIC, topic, changes, validate_only=validate_only)
