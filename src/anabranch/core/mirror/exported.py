"""Every metric that a running mirror exports, a sentence each, and what becomes a sample of it.

What: `METRICS` lists them; the functions make samples of figures. Names and labels are those that
the JMX exporter makes of MirrorMaker 2's beans, `topic` being the target's name of the topic;
`anabranch_mirror_` begins what MirrorMaker 2 does not have. Rules kept: what is not in `METRICS` is
not exported; least, most and average have a sample only where there is something to tell.
Source: KIP-382, KIP-911.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from anabranch.core.metric import COUNTER, GAUGE, Exported
from anabranch.core.mirror.figures import Movement, Spread

Sample: TypeAlias = tuple[str, tuple[str, ...], float]
"""Name, labels, value."""

FLOW = ("source", "target")
PARTITION = (*FLOW, "topic", "partition")
GROUP = (*FLOW, "group", "topic", "partition")
SOURCE_CONNECTOR = "kafka_connect_mirror_mirrorsourceconnector_"
CHECKPOINT_CONNECTOR = "kafka_connect_mirror_mirrorcheckpointconnector_"
PREFIX = "anabranch_mirror_"


def _spread(name: str, sentence: str, labels: tuple[str, ...]) -> tuple[Exported, ...]:
    return (
        Exported(name, GAUGE, f"{sentence}, in milliseconds: the last one.", labels),
        Exported(f"{name}_min", GAUGE, f"{sentence}, in milliseconds: the least.", labels),
        Exported(f"{name}_max", GAUGE, f"{sentence}, in milliseconds: the most.", labels),
        Exported(f"{name}_avg", GAUGE, f"{sentence}, in milliseconds: the average.", labels),
    )


METRICS: tuple[Exported, ...] = (
    Exported(
        f"{SOURCE_CONNECTOR}record_count",
        GAUGE,
        "Records that were mirrored since the mirror began.",
        PARTITION,
    ),
    Exported(
        f"{SOURCE_CONNECTOR}record_rate",
        GAUGE,
        "Records that were mirrored in the newest wave, a second.",
        PARTITION,
    ),
    Exported(
        f"{SOURCE_CONNECTOR}byte_count",
        GAUGE,
        "Bytes of batches that were mirrored since the mirror began.",
        PARTITION,
    ),
    Exported(
        f"{SOURCE_CONNECTOR}byte_rate",
        GAUGE,
        "Bytes of batches that were mirrored in the newest wave, a second.",
        PARTITION,
    ),
    *_spread(
        f"{SOURCE_CONNECTOR}record_age_ms",
        "Age of the newest wave's records when they were fetched",
        PARTITION,
    ),
    *_spread(
        f"{SOURCE_CONNECTOR}replication_latency_ms",
        "Age of the newest wave's records when the target had acknowledged or committed them",
        PARTITION,
    ),
    *_spread(
        f"{CHECKPOINT_CONNECTOR}checkpoint_latency_ms",
        "Time from reading a group's offset to its checkpoint in the last minutes",
        GROUP,
    ),
    Exported(
        f"{PREFIX}lag_records", GAUGE, "Offsets at the source that are not mirrored.", PARTITION
    ),
    Exported(
        f"{PREFIX}lag_bytes",
        GAUGE,
        "Share of the source's log that is not mirrored, by offsets, in bytes.",
        PARTITION,
    ),
    Exported(
        f"{PREFIX}lag_seconds",
        GAUGE,
        "Age of the first record that is not mirrored, 0 without one; absent where records have "
        "no time.",
        PARTITION,
    ),
    Exported(f"{PREFIX}flow_lag_records", GAUGE, "The sum over all partitions of a flow.", FLOW),
    Exported(f"{PREFIX}flow_lag_bytes", GAUGE, "The sum over all partitions of a flow.", FLOW),
    Exported(f"{PREFIX}flow_lag_seconds", GAUGE, "The most of all partitions of a flow.", FLOW),
    Exported(
        f"{PREFIX}unknown_partitions",
        GAUGE,
        "Partitions whose lag cannot be told, because the source does not tell their offsets.",
        FLOW,
    ),
    Exported(
        f"{PREFIX}stopped_partitions",
        GAUGE,
        "Partitions that stood still in the newest wave; the mirror's output has the reasons.",
        FLOW,
    ),
    Exported(
        f"{PREFIX}lived_timestamp_seconds",
        GAUGE,
        "When a wave last ended in which the flow could be mirrored, or had nothing to mirror; "
        "before the first one, when the mirror began.",
        FLOW,
    ),
    Exported(
        f"{PREFIX}duty_failing",
        GAUGE,
        "1 while a duty beside the waves fails: topics, index, checkpoints and others.",
        (*FLOW, "duty"),
    ),
    Exported(
        f"{PREFIX}duty_timestamp_seconds",
        GAUGE,
        "When a duty beside the waves last succeeded.",
        (*FLOW, "duty"),
    ),
    Exported(f"{PREFIX}waves_total", COUNTER, "Waves of tasks that have ended."),
    Exported(f"{PREFIX}failed_waves_total", COUNTER, "Waves that failed as a whole."),
    Exported(
        f"{PREFIX}left_out_series",
        GAUGE,
        "Partitions, or places of groups, that have no series of their own because there are too "
        "many.",
        ("of",),
    ),
)

MOVED, CHECKPOINTS, LAGS = "moved", "checkpoints", "lags"
"""What `left_out_series` counts."""


def movement_samples(labels: tuple[str, ...], moved: Movement) -> Iterator[Sample]:
    """One partition's, as of MirrorMaker 2's MirrorSourceConnector."""
    yield f"{SOURCE_CONNECTOR}record_count", labels, moved.records
    yield f"{SOURCE_CONNECTOR}record_rate", labels, moved.record_rate
    yield f"{SOURCE_CONNECTOR}byte_count", labels, moved.size_bytes
    yield f"{SOURCE_CONNECTOR}byte_rate", labels, moved.byte_rate
    yield from spread_samples(f"{SOURCE_CONNECTOR}record_age_ms", labels, moved.wave.age)
    latency = moved.wave.latency
    yield from spread_samples(f"{SOURCE_CONNECTOR}replication_latency_ms", labels, latency)


def checkpoint_samples(labels: tuple[str, ...], latency: Spread) -> Iterator[Sample]:
    """One place of a group, as of MirrorMaker 2's MirrorCheckpointConnector."""
    yield from spread_samples(f"{CHECKPOINT_CONNECTOR}checkpoint_latency_ms", labels, latency)


def spread_samples(name: str, labels: tuple[str, ...], spread: Spread) -> Iterator[Sample]:
    """The last one always, the others where there is something to tell."""
    yield name, labels, spread.last
    if spread.count:
        yield f"{name}_min", labels, spread.least
        yield f"{name}_max", labels, spread.most
        yield f"{name}_avg", labels, spread.average
