"""A cluster: its nodes, its status in counts, and what to look at next.

Rule kept: every sentence says what helps. Not here: how it is asked for (`client/overview.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.client.admin import describe_cluster, describe_log_dirs
from anabranch.client.overview import controller_of
from anabranch.client.partitions import Illness
from anabranch.client.views.times import time_text
from anabranch.core.controller.partitions.record_holders import awaited
from anabranch.core.sentences import named, number_of

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster
    from anabranch.client.overview import BrokerCounts, Overview


NEWEST = 10
"""Decisions that the status shows."""


async def cluster_view(cluster: Cluster) -> dict[str, Any]:
    """A cluster with its brokers and the sizes of their folders. Raises as the requests do."""
    found = await describe_cluster(cluster)
    return {
        "cluster_id": found.cluster_id,
        "controller_id": (await controller_of(cluster)).controller_id,
        "brokers": [await _broker(cluster, each) for each in found.brokers],
    }


async def _broker(cluster: Cluster, broker: Any) -> dict[str, Any]:
    folders = []
    if not broker.is_fenced:
        folders = await describe_log_dirs(cluster, broker.broker_id)
    sizes = [
        partition.partition_size
        for folder in folders
        for topic in folder.topics
        for partition in topic.partitions
    ]
    return {
        "id": broker.broker_id,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "fenced": broker.is_fenced,
        "log_dirs": [folder.log_dir for folder in folders],
        "offline_log_dirs": [folder.log_dir for folder in folders if folder.error_code],
        "partitions": len(sizes),
        "size_bytes": sum(sizes),
    }


def status_view(found: Overview) -> dict[str, Any]:
    """The status as one flat object: counts, names, and the newest decisions."""
    return {
        "cluster_id": found.cluster_id,
        "controller_id": found.controlling.controller_id,
        "controller_epoch": found.controlling.epoch,
        "metadata_offset": found.controlling.metadata_offset,
        "brokers": len(found.brokers),
        "fenced_brokers": sum(each.is_fenced for each in found.brokers),
        "topics": found.topics,
        "partitions": found.partitions,
        "unavailable": found.ill[Illness.UNAVAILABLE],
        "unavailable_wait_for": sorted({each for row in found.leaderless.values() for each in row}),
        "under_min_isr": found.ill[Illness.UNDER_MIN_ISR],
        "at_min_isr": found.ill[Illness.AT_MIN_ISR],
        "under_replicated": found.ill[Illness.UNDER_REPLICATED],
        "missing_replicas": found.missing,
        "moving": found.moving,
        "moves_held_up": len(found.blocked_moves),
        "rack_violations": found.ill[Illness.RACK_VIOLATION],
        "not_led_by_preferred": found.not_preferred,
        "full_folders": [
            {"broker": broker_id, "folder": path}
            for broker_id, paths in sorted(found.full.items())
            for path in paths
        ],
        "reasons": [
            {"at": time_text(each.at_ms), "code": each.code, "reason": each.sentence}
            for each in found.controlling.reasons.newest(NEWEST)
        ],
    }


def broker_view(each: BrokerCounts, found: Overview) -> dict[str, Any]:
    """One broker with what it leads and has."""
    return {
        "id": each.broker_id,
        "host": each.host,
        "port": each.port,
        "rack": each.rack,
        "fenced": each.is_fenced,
        "cordoned": each.is_cordoned,
        "full_log_dirs": list(found.full.get(each.broker_id, ())),
        "active_controller": each.broker_id == found.controlling.controller_id,
        "leaders": each.leaders,
        "preferred_leaders": each.preferred,
        "replicas": each.replicas,
        "replicas_behind": each.behind,
        "observers": each.observers,
        "under_replicated": each.under_replicated,
        "reason": why_away(each, found),
    }


def why_away(each: BrokerCounts, found: Overview) -> str | None:
    """What the controller said of a broker that is fenced."""
    told = found.controlling.reasons.of_broker(each.broker_id) if each.is_fenced else None
    return None if told is None else f"{time_text(told.at_ms)}  {told.sentence}"


def remedies(told: dict[str, Any], found: Overview) -> list[str]:
    """What to look at next, the worst first; nothing for a healthy cluster."""
    said = []
    if told["unavailable"]:
        said.append(_leaderless(told, found))
    elif told["under_min_isr"]:
        said.append(
            "acks=all is refused for some partitions: `anabranch topics describe "
            "--under-min-isr-partitions` names them."
        )
    elif told["under_replicated"]:
        said.append("`anabranch topics describe --under-replicated-partitions` lists those behind.")
    said += [
        f"Broker {each['broker']} has no space in {each['folder']}: other brokers lead its "
        "partitions; free space there, or shorten retention."
        for each in told["full_folders"]
    ]
    if told["missing_replicas"]:
        said.append(
            "Some partitions have missing replicas, which the next broker that joins gets: list "
            "them with `anabranch topics describe --missing-replicas`."
        )
    if found.blocked_moves:
        said.append(_blocked_moves(found))
    if told["rack_violations"]:
        said.append(
            "`anabranch topics describe --rack-violations` lists partitions in fewer racks than "
            "possible; `anabranch plan racks` proposes moves."
        )
    if told["fenced_brokers"]:
        said.append("A fenced broker is down or starting: see `anabranch cluster brokers`.")
    if told["not_led_by_preferred"] and not told["under_replicated"]:
        said.append(
            "`anabranch partitions elect-leaders --all-topic-partitions` returns leaders to "
            "preferred replicas."
        )
    return said


def _leaderless(told: dict[str, Any], found: Overview) -> str:
    """Whom partitions without a leader wait for, and what names and explains them."""
    first = next(iter(found.leaderless))
    down = told["unavailable_wait_for"]
    waits = f"; waiting for {awaited(down)}" if down else ""
    return (
        f"{number_of(len(found.leaderless), 'partition')}, {first} first, without a "
        f"leader{waits}: `anabranch "
        f"topics describe --unavailable-partitions` lists them, `anabranch explain {first}` "
        "explains one."
    )


def _blocked_moves(found: Overview) -> str:
    """Whom moves wait for in vain, and what helps."""
    places = list(found.blocked_moves)
    down = sorted({each for row in found.blocked_moves.values() for each in row})
    return (
        f"{number_of(len(places), 'partition')}, {places[0]} first, cannot move on without "
        f"{named(down, 'broker')}: start what is down; where that is not possible, "
        f"`anabranch explain {places[0]}` says how a move is taken back."
    )
