"""What the options of the source say, checked before anything is read.

Rule kept: every refusal names the option, what is wrong with it, and what to write instead. Names
are Spark's (option_table.py). Not here: TLS and SASL (security_options.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from anabranch.client.cluster import parse_addresses
from anabranch.client.ranges import PART_BYTES, PATIENCE_SECONDS, WAIT_MS, ReadOptions
from anabranch.client.security import PLAINTEXT, Security
from anabranch.core.errors import ApiError
from anabranch.core.metadata.topic_names import is_legal
from anabranch.core.partition.protocol import READ_COMMITTED
from anabranch.pipelines.faults import OptionError
from anabranch.pipelines.option_table import EFFECTIVE, ONLY_IN_BATCHES, REFUSED, WITHOUT_EFFECT
from anabranch.pipelines.security_options import is_security_option, security_of_options

LATEST = -1
EARLIEST = -2
SPECIAL = {"earliest": EARLIEST, "latest": LATEST}
RECORDS, BATCHES = "records", "batches"
PARTITION_BYTES = 256 << 20
"""Of the log that one task reads: a second of work, so that starting a task counts for little, and
little to do again when it fails."""
MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000
UNITS_MS = {
    "": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000
}  # fmt: skip
"""Units of durations as Spark reads them; a bare number is milliseconds."""

SHOWN_NAME = 60
"""Characters of a wrong name that a message repeats."""
LARGEST = 2**63 - 1
"""Of an offset, and of a timestamp."""
MOST_PARTITIONS = 100_000
"""Tasks that a query may ask for: Spark plans each of them before the first begins."""
LARGEST_IN_REQUEST = 2**31 - 1
"""Of a time, and of a size."""
FETCH_BYTES = 50 << 20
"""Of a whole fetch, as Kafka's consumer has it: of one partition, `PART_BYTES` is less."""

PerPartition = dict[str, dict[int, int]]
"""Topic -> partition -> offset, or timestamp in ms."""


@dataclass(frozen=True)
class Bound:
    """Where reading begins or ends: exactly one of the fields says it."""

    special: int | None = None
    offsets: PerPartition | None = None
    timestamps: PerPartition | None = None
    timestamp: int | None = None


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """The options of one DataFrame."""

    bootstrap_servers: str
    client_id: str
    security: Security = PLAINTEXT
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: dict[str, list[int]] | None = None
    starting: Bound | None = None
    ending: Bound | None = None
    latest_without_timestamp: bool = False
    fail_on_data_loss: bool = True
    fail_on_corruption: bool = True
    min_partitions: int = 0
    max_records: int = 0
    partition_bytes: int = PARTITION_BYTES
    include_headers: bool = False
    shape: str = RECORDS
    retries: int = 3
    retry_interval_ms: int = 1000
    max_offsets: int = 0
    min_offsets: int = 0
    max_trigger_delay_ms: int = MAX_TRIGGER_DELAY_MS
    deadline_seconds: float = 30.0
    reading: ReadOptions = field(default_factory=ReadOptions)

    @property
    def selection(self) -> str:
        """The topics as the job names them, for messages."""
        if self.pattern is not None:
            return f"topics like {self.pattern!r}"
        return "topics " + ", ".join(self.assigned or self.topics)


def source_options(given: Mapping[str, str]) -> SourceOptions:
    """The options of a job; raises OptionError."""
    options = {name.lower(): text for name, text in given.items()}
    check_names(options)
    take = _Taker(options)
    servers = take.text("kafka.bootstrap.servers")
    if servers is None:
        raise OptionError(
            "Option 'kafka.bootstrap.servers' is missing: "
            "write .option('kafka.bootstrap.servers', 'host:9092')."
        )
    try:
        parse_addresses(servers)
    except ApiError as problem:
        raise OptionError(f"Option 'kafka.bootstrap.servers': {problem}") from None
    shape = take.one_of("shape", RECORDS, BATCHES)
    include_headers = take.boolean("includeHeaders", False)
    if shape == BATCHES and include_headers:
        raise OptionError(
            "Options 'shape' and 'includeHeaders' conflict: with shape=batches no record is "
            "decoded, so drop 'includeHeaders'."
        )
    fewest, most = take.count("minOffsetsPerTrigger"), take.count("maxOffsetsPerTrigger")
    if most and fewest > most:
        raise OptionError(
            f"Options conflict: 'minOffsetsPerTrigger' ({fewest}) must not be greater than "
            f"'maxOffsetsPerTrigger' ({most})."
        )
    strategy = take.one_of("startingOffsetsByTimestampStrategy", "error", "latest")
    return SourceOptions(
        bootstrap_servers=servers,
        client_id=take.text("kafka.client.id") or "anabranch-spark",
        security=security_of_options(options),
        **_selection(take),
        starting=_bound(take, "starting"),
        ending=_bound(take, "ending"),
        latest_without_timestamp=strategy == "latest",
        fail_on_data_loss=take.boolean("failOnDataLoss", True),
        fail_on_corruption=take.boolean("failOnCorruption", True),
        min_partitions=take.count("minPartitions", most=MOST_PARTITIONS),
        max_records=take.count("maxRecordsPerPartition"),
        partition_bytes=take.count("maxBytesPerPartition") or PARTITION_BYTES,
        include_headers=include_headers,
        shape=shape,
        retries=take.count("fetchOffset.numRetries", 3, least=0),
        retry_interval_ms=take.count("fetchOffset.retryIntervalMs", 1000, least=0),
        max_offsets=most,
        min_offsets=fewest,
        max_trigger_delay_ms=take.duration_ms("maxTriggerDelay", MAX_TRIGGER_DELAY_MS),
        deadline_seconds=take.count("kafka.default.api.timeout.ms", 30_000) / 1000,
        reading=_reading(take),
    )


def check_names(options: Mapping[str, str]) -> None:
    """Refuse what is unknown or not supported; names are in lower case, values are not repeated."""
    known = {name.lower(): name for name in (*EFFECTIVE, *WITHOUT_EFFECT)}
    refused = {name.lower(): why for name, why in REFUSED.items()}
    for name in options:
        if is_security_option(name):
            continue
        if name == "path":
            raise OptionError(
                "A path was given, and rows come from topics: use load() without one, and "
                "option('subscribe', …)."
            )
        if name in refused:
            raise OptionError(f"Option {name!r} has no place here: {refused[name]}.")
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f" Did you mean {known[near[0]]!r}?" if near else ""
            raise OptionError(
                f"Option {name!r} is unknown to the source.{hint} The page 'Read topics with "
                "Spark' lists all options."
            )


def check_topic(option: str, topic: str) -> None:
    """Refuse what no topic can be called."""
    if not is_legal(topic):
        shown = topic if len(topic) <= SHOWN_NAME else f"{topic[:SHOWN_NAME]}…"
        raise OptionError(
            f"Option {option!r} names {shown!r}, which no topic can be called: a name has 1 to "
            "249 ASCII letters, digits, '.', '_' and '-'."
        )


def check_streaming(options: SourceOptions) -> None:
    """Refuse what makes no sense for a stream."""
    if options.ending is not None:
        names = ", ".join(map(repr, ONLY_IN_BATCHES))
        raise OptionError(
            f"Options {names} are for spark.read: a stream has no end. Drop them, or stop the "
            "query with trigger(availableNow=True)."
        )


def check_batch(options: SourceOptions) -> None:
    """Refuse bounds between which a batch could have nothing by their very words."""
    for bound, name, wrong in (
        (options.starting, "startingOffsets", LATEST), (options.ending, "endingOffsets", EARLIEST)
    ):  # fmt: skip
        if bound is None:
            continue
        listed = [each for part in (bound.offsets or {}).values() for each in part.values()]
        if wrong in (bound.special, *listed):
            word = "latest" if wrong == LATEST else "earliest"
            raise OptionError(
                f"Option {name!r} may not be {word} ({wrong}) with spark.read: nothing would be "
                "read. Use readStream for what is yet to come."
            )


class _Taker:
    """Options by name, with their types."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def text(self, name: str) -> str | None:
        """The text of an option, None without it."""
        text = self._options.get(name.lower())
        if text is not None and not text.strip():
            raise OptionError(f"Option {name!r} is empty.")
        return text

    def boolean(self, name: str, usual: bool) -> bool:
        """true or false."""
        text = self.text(name)
        if text is None:
            return usual
        if text.lower() not in ("true", "false"):
            raise OptionError(f"Option {name!r} is true or false, not {text!r}.")
        return text.lower() == "true"

    def count(
        self, name: str, usual: int = 0, *, least: int = 1, most: int = LARGEST
    ) -> int:  # fmt: skip
        """A whole number."""
        text = self.text(name)
        if text is None:
            return usual
        if not re.fullmatch(r"\d{1,19}", text.strip()) or not least <= int(text) <= most:
            limits = f"from {least} " + ("up" if most == LARGEST else f"to {most}")
            raise OptionError(f"Option {name!r} is a whole number {limits}, not {text!r}.")
        return int(text)

    def one_of(self, name: str, *words: str) -> str:
        """One of some words; the first is the usual one."""
        text = (self.text(name) or words[0]).lower()
        if text not in words:
            raise OptionError(f"Option {name!r} is {' or '.join(words)}, not {text!r}.")
        return text

    def duration_ms(self, name: str, usual: int) -> int:
        """A duration like `30s`."""
        text = self.text(name)
        if text is None:
            return usual
        found = re.fullmatch(r"(\d{1,12})\s*([a-z]*)", text.strip().lower())
        if found is None or found[2] not in UNITS_MS:
            raise OptionError(f"Option {name!r} is a duration like '30s' or '15m', not {text!r}.")
        return int(found[1]) * UNITS_MS[found[2]]

    def json(self, name: str, example: str) -> Any:
        """A JSON object."""
        text = self.text(name)
        if text is None:
            return None
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or not found:
            raise OptionError(f"Option {name!r} is JSON like {example}, not {text!r}.")
        return found

    def per_partition(self, name: str, example: str, least: int) -> PerPartition | None:
        """A number for each partition."""
        found = self.json(name, example)
        if found is None:
            return None
        try:
            numbers = {
                str(topic): {int(each): _whole(number) for each, number in parts.items()}
                for topic, parts in found.items()
            }
        except (AttributeError, TypeError, ValueError):
            numbers = {}
        if not numbers or any(
            partition < 0 or not least <= number <= LARGEST
            for parts in numbers.values()
            for partition, number in parts.items()
        ):
            raise OptionError(f"Option {name!r} is JSON like {example}, not {self.text(name)!r}.")
        return numbers


def _selection(take: _Taker) -> dict[str, Any]:
    names = ("subscribe", "subscribePattern", "assign")
    given = [name for name in names if take.text(name) is not None]
    if len(given) != 1:
        count = "None" if not given else f"{len(given)} ({', '.join(given)})"
        raise OptionError(
            f"Exactly one of the options 'subscribe', 'subscribePattern' and 'assign' says what to "
            f"read. {count} of them was given."
        )
    if given[0] == "subscribe":
        text = take.text("subscribe") or ""
        topics = tuple(dict.fromkeys(filter(None, (each.strip() for each in text.split(",")))))
        if not topics:
            raise OptionError("Option 'subscribe' names no topic: write 'orders,payments'.")
        for topic in topics:
            check_topic("subscribe", topic)
        return {"topics": topics}
    if given[0] == "subscribePattern":
        pattern = take.text("subscribePattern") or ""
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as problem:
            raise OptionError(
                f"Option 'subscribePattern' is no regular expression: {problem}."
            ) from None
        return {"pattern": pattern}
    example = '{"orders":[0,1]}'
    found = take.json("assign", example)
    for topic, parts in found.items():
        check_topic("assign", topic)
        if not isinstance(parts, list) or not parts or not all(map(_is_partition, parts)):
            raise OptionError(f"Option 'assign' is JSON like {example}.")
    return {"assigned": {topic: sorted(set(parts)) for topic, parts in found.items()}}


def _whole(number: object) -> int:
    """A number of JSON, also one in quotes. Raises ValueError: nothing is rounded."""
    if isinstance(number, bool | float):
        raise ValueError(number)
    return int(str(number))


def _is_partition(each: object) -> bool:
    return isinstance(each, int) and not isinstance(each, bool) and each >= 0


def _bound(take: _Taker, side: str) -> Bound | None:
    """A bound by Spark's precedence: the one timestamp, timestamps by partition, offsets."""
    if take.text(f"{side}Timestamp") is not None:
        return Bound(timestamp=take.count(f"{side}Timestamp", least=0))
    by_time = take.per_partition(f"{side}OffsetsByTimestamp", '{"orders":{"0":1700000000000}}', 0)
    if by_time is not None:
        return Bound(timestamps=by_time)
    name = f"{side}Offsets"
    text = take.text(name)
    if text is None:
        return None
    if text.strip().lower() in SPECIAL:
        return Bound(special=SPECIAL[text.strip().lower()])
    example = "earliest, latest or " + '{"orders":{"0":23,"1":-2}}'
    return Bound(offsets=take.per_partition(name, example, EARLIEST))


def _reading(take: _Taker) -> ReadOptions:
    isolation = take.one_of("kafka.isolation.level", "read_uncommitted", "read_committed")
    part_bytes = min(
        take.count("kafka.max.partition.fetch.bytes", PART_BYTES, most=LARGEST_IN_REQUEST),
        take.count("kafka.fetch.max.bytes", FETCH_BYTES, most=LARGEST_IN_REQUEST),
    )
    patience_ms = take.count("kafkaConsumer.pollTimeoutMs", int(PATIENCE_SECONDS * 1000))
    return ReadOptions(
        isolation_level=READ_COMMITTED if isolation == "read_committed" else 0,
        part_bytes=part_bytes,
        wait_ms=take.count("kafka.fetch.max.wait.ms", WAIT_MS, least=0, most=LARGEST_IN_REQUEST),
        patience_seconds=patience_ms / 1000,
    )
