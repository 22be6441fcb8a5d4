"""Topics: their settings, partitions and what is wrong with them; what a request created.

Not here: how partitions are asked for (`client/partitions.py`), and why one is ill
(`client/overview.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.client.admin import ResourceKind, describe_configs
from anabranch.client.fetch import list_offsets
from anabranch.client.overview import why_ill
from anabranch.client.partitions import describe_topics
from anabranch.core.api.diskless_view import as_json
from anabranch.core.settings.setting import is_true
from anabranch.core.types import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, topic_id_text

if TYPE_CHECKING:
    from anabranch.client.admin import NewTopic
    from anabranch.client.cluster import Cluster
    from anabranch.client.partitions import Topic


REMOTE_SETTING = "remote.storage.enable"
REMOTE_OFFSETS = {
    "log_start_offset": EARLIEST,
    "local_start_offset": EARLIEST_LOCAL,
    "last_remote_offset": LATEST_TIERED,
    "high_watermark": LATEST,
}
"""Of a partition; -1 where nothing is remote yet. Segments are local and remote until the local
limits have dropped them."""
TOPIC_SOURCE = 1
"""DescribeConfigs: the setting was given for the topic itself."""


async def topics_view(
    cluster: Cluster, topic: str | None, wanted: Sequence[str] = ()
) -> tuple[list[dict[str, Any]], int]:
    """Topics, or the one of that name, with their partitions; with `wanted` only partitions that
    are ill in one of these ways. And how many partitions may share racks. Raises ApiError for a
    topic that is not there."""
    if topic is not None:
        await cluster.topic(topic)
    found = await describe_topics(cluster, None if topic is None else [topic])
    why = await why_ill(found, cluster)
    told = [(each, _partitions(each, wanted, why)) for each in found]
    described = [
        await _described(cluster, each, partitions)
        for each, partitions in told
        if partitions or not wanted
    ]
    return described, sum(each.shared_racks for each in found)


def _partitions(
    topic: Topic, wanted: Sequence[str], why: dict[str, list[str]]
) -> list[dict[str, Any]]:
    """The partitions to show, each with everything that is wrong with it, and why."""
    told = []
    for each in topic.partitions:
        health = sorted(illness.value for illness in each.illnesses(topic.minimum))
        if wanted and not set(wanted) & set(health):
            continue
        told.append(
            {
                "partition": each.partition,
                "leader": each.leader,
                "leader_epoch": each.leader_epoch,
                "replicas": each.placed,
                "missing_replicas": each.missing,
                "isr": each.isr,
                "elr": each.eligible,
                "last_known_elr": each.last_known_eligible,
                "observers": each.observers,
                "adding": () if each.move is None else each.move.adding,
                "removing": () if each.move is None else each.move.removing,
                "offline_replicas": [broker_id for broker_id in each.offline if broker_id >= 0],
                "health": health,
                "reasons": why.get(f"{topic.name}-{each.partition}", []),
            }
        )
    if topic.diskless is not None:
        placed = {each["partition"]: each for each in as_json(topic.diskless)["partitions"]}
        for part in told:
            part["placement"] = placed.get(part["partition"])
    return told


async def _described(
    cluster: Cluster, topic: Topic, partitions: list[dict[str, Any]]
) -> dict[str, Any]:
    configs = await describe_configs(cluster, ResourceKind.TOPIC, topic.name)
    is_remote = any(each.name == REMOTE_SETTING and is_true(each.value) for each in configs)
    if is_remote:
        offsets = await _remote_offsets(cluster, topic.name)
        for part in partitions:
            part["remote_log"] = offsets.get(part["partition"])
    return {
        "topic": topic.name,
        "topic_id": topic_id_text(topic.topic_id),
        "internal": topic.is_internal,
        "min_insync_replicas": topic.minimum,
        "rack_sharing_accepted": topic.shared_racks,
        "has_remote_log": is_remote,
        "is_diskless": topic.diskless is not None,
        "effective_rf": None if topic.diskless is None else topic.diskless.effective_rf,
        "configs": {
            each.name: each.value for each in configs if each.config_source == TOPIC_SOURCE
        },
        "partitions": partitions,
    }


async def _remote_offsets(cluster: Cluster, topic: str) -> dict[int, dict[str, int]]:
    """What of each partition is remote and what is local, of those whose leaders can tell."""
    found: dict[int, dict[str, int]] = {}
    for name, timestamp in REMOTE_OFFSETS.items():
        told = await list_offsets(cluster, topic, timestamp, ready_only=True)
        for partition, offset in told.items():
            found.setdefault(partition, {})[name] = offset
    return {at: each for at, each in found.items() if each.keys() == REMOTE_OFFSETS.keys()}


def created_view(
    topic: str, created: NewTopic | None, racks: Mapping[int, str], *, only_checked: bool = False
) -> dict[str, Any]:
    """What a request created, or would; None for a topic that was there before."""
    if created is None:
        absent = ("partitions", "replication_factor", "replica_map", "sharing_racks")
        return {"topic": topic, "created": False, **dict.fromkeys(absent)}
    return {
        "topic": topic,
        "created": not only_checked,
        "partitions": created.num_partitions,
        "replication_factor": created.replication_factor,
        "replica_map": created.replicas or None,
        "sharing_racks": [
            index for index, row in enumerate(created.replicas) if shares_rack(row, racks)
        ],
    }


def shares_rack(row: Sequence[int], racks: Mapping[int, str]) -> bool:
    """Whether two replicas of a partition are in one rack."""
    known = [rack for each in row if (rack := racks.get(each))]
    return len(set(known)) < len(known)
