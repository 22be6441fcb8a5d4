"""Records of the future block retention by time, as in Kafka: an operator is told, once."""

from __future__ import annotations

import pytest
from tests.core.broker.hosting_kit import WALL_MS, Stage

from anabranch.core.broker.hosting.effects import Report
from anabranch.core.log.upkeep import FUTURE_MS
from anabranch.core.types import TopicPartition
from anabranch.core.wire.records import Record, build_batch

PLACE = TopicPartition("t", 0)
FAR = {"message.timestamp.after.max.ms": "9223372036854775807", "retention.ms": "1000"}


def told(timestamp: int, settings: dict[str, str]) -> list[Report]:
    """What two checks report of two segments whose oldest has a record of this time."""
    stage = Stage()
    stage.settings["t"] = settings
    stage.publish()
    stage.publish(stage.create("t"))
    replica = stage.partitions.get(*PLACE)
    for time in (timestamp, 0):
        replica.append(build_batch([Record(0, time, b"k", b"v")]), required_acks=1, now_ms=WALL_MS)
        replica.log.roll(WALL_MS)
    stage.broker.unsynced.add(PLACE)
    stage.sync()
    replica.advance()
    for _ in range(2):
        stage.hosting.clean_one(replica, WALL_MS)
        stage.run()
    return [each for each in stage.done if isinstance(each, Report)]


def test_a_timestamp_far_ahead_is_told_once_with_its_segment() -> None:
    (report,) = told(WALL_MS + 30 * 3_600_000, FAR)
    assert (report.level, report.place) == ("warning", PLACE)
    assert report.path.endswith("t-0/00000000000000000000.log")
    assert f"{WALL_MS + 30 * 3_600_000}, is 30 h ahead" in str(report.why)


@pytest.mark.parametrize(
    ("timestamp", "settings"),
    [
        (WALL_MS, FAR),
        (WALL_MS + FUTURE_MS, FAR),  # a clock that differs
        (1 << 62, FAR | {"retention.ms": "-1"}),
        (1 << 62, FAR | {"cleanup.policy": "compact"}),
    ],
)
def test_nothing_is_told_where_retention_by_time_waits_for_nothing(
    timestamp: int, settings: dict[str, str]
) -> None:
    assert told(timestamp, settings) == []
