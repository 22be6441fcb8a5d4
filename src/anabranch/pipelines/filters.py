"""What filters of a query leave of the ranges that are read.

Spark hands a filter over only when the source promises to apply it in full; what is only used to
read less is given back, and applied again by Spark. Partition, topic and offset decide exactly.
A lower bound of the timestamp only skips what lies before the first record that meets it: records
behind it may be older. An upper bound says nothing, as times need not rise; nor does a bound before
1970, which brokers cannot be asked for: records without a time have -1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from anabranch.pipelines.offset_ranges import Place

NEVER_NULL = {"topic", "partition", "offset", "timestamp", "timestampType"}
FARTHEST = 1 << 63

EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass
class TakenFilters:
    """The filters that were taken."""

    tests: list[tuple[str, str, Any]] = field(default_factory=list)
    """(column, comparison, value) on topic or partition; kept plain, as tasks get them."""
    start: int = 0
    until: int = FARTHEST
    timestamp_ms: int | None = None

    def take(self, each: Filter) -> bool:
        """Whether the filter is applied in full here; a part of it may be used anyway."""
        attribute: tuple[str, ...] = getattr(each, "attribute", ())
        if len(attribute) != 1:
            return False
        column = attribute[0]
        if isinstance(each, IsNotNull):
            return column in NEVER_NULL
        value: Any = getattr(each, "value", None)
        if column in ("topic", "partition"):
            return self._take_place(column, each, value)
        if column == "offset" and _is_int(value):
            return self._take_offset(each, value)
        if column == "timestamp" and isinstance(value, datetime):
            self._use_time(each, value)
        return False

    def admits(self, place: Place) -> bool:
        """Whether records of a partition can pass."""
        return all(
            COMPARISONS[comparison](getattr(place, column), value)
            for column, comparison, value in self.tests
        )

    def narrow(self, start: int, until: int) -> tuple[int, int]:
        """What is left of a range."""
        return max(start, self.start), min(until, self.until)

    def _take_place(self, column: str, each: Filter, value: Any) -> bool:
        kind = str if column == "topic" else int
        values = value if isinstance(each, In) else (value,)
        if type(each).__name__ not in COMPARISONS or not all(type(one) is kind for one in values):
            return False
        self.tests.append((column, type(each).__name__, value))
        return True

    def _take_offset(self, each: Filter, value: int) -> bool:
        if isinstance(each, EqualTo):
            start, until = value, value + 1
        elif isinstance(each, GreaterThan | GreaterThanOrEqual):
            start, until = value + isinstance(each, GreaterThan), FARTHEST
        elif isinstance(each, LessThan | LessThanOrEqual):
            start, until = 0, value + isinstance(each, LessThanOrEqual)
        else:
            return False
        self.start, self.until = max(self.start, start), min(self.until, until)
        return True

    def _use_time(self, each: Filter, value: datetime) -> None:
        if not isinstance(each, EqualTo | GreaterThan | GreaterThanOrEqual):
            return
        moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        timestamp_ms = (moment - EPOCH) // timedelta(milliseconds=1)
        if timestamp_ms >= 0:
            self.timestamp_ms = max(self.timestamp_ms or 0, timestamp_ms)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": lambda one, other: bool(one == other),
    "In": lambda one, others: one in others,
    "GreaterThan": lambda one, other: bool(one > other),
    "GreaterThanOrEqual": lambda one, other: bool(one >= other),
    "LessThan": lambda one, other: bool(one < other),
    "LessThanOrEqual": lambda one, other: bool(one <= other),
}
