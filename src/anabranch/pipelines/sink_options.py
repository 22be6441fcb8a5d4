"""The options of `df.write.format("anabranch")`, read and checked before anything is written.

What: `topic` and, with the prefix `kafka.`, Kafka's producer settings (producer_options.py). Rules
kept: an option that is unknown, not supported, or contradicts another is refused with what to do;
nothing is guessed. Not here: TLS and SASL (security_options.py), columns (sink_rows.py).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, NamedTuple

from anabranch.client.cluster import parse_addresses
from anabranch.client.lanes import MOST_IN_FLIGHT, LaneSettings
from anabranch.client.producer import ProducerSettings
from anabranch.client.security import Security
from anabranch.core.errors import ClientFault
from anabranch.core.wire.compression import Codec
from anabranch.pipelines import option_table
from anabranch.pipelines.faults import OptionError
from anabranch.pipelines.options import check_topic
from anabranch.pipelines.producer_options import (
    CODECS,
    REFUSED,
    WITH_EFFECT,
    WITHOUT_EFFECT,
    truth,
)
from anabranch.pipelines.security_options import (
    EFFECTIVE,
    is_security_option,
    security_of_options,
)
from anabranch.pipelines.sink_scope import Scope, scope_of

PREFIX = "kafka."
TOPIC = "topic"
OF_SPARK = {"checkpointlocation", "queryname"}
"""Options that Spark itself uses and also hands on."""
INCLUDE_HEADERS = "includeheaders"
"""Spark lists it for its sink and takes no notice of it: the column `headers` decides."""
EXACTLY_ONCE, JOB_ID = "exactlyonce", "jobid"
OWN = {TOPIC, INCLUDE_HEADERS, EXACTLY_ONCE, JOB_ID}
OF_TRANSACTIONS = (JOB_ID, "kafka.transactional.id", "kafka.transaction.timeout.ms")
"""Options that mean nothing without transactions."""
OF_READING = {name.lower() for name in (*option_table.EFFECTIVE, *option_table.WITHOUT_EFFECT)}
NEAR = 0.8
"""How alike names must be for one to be suggested, from 0 to 1."""
ACKS = {"all": -1, "-1": -1, "1": 1}


class SinkOptions(NamedTuple):
    """What the options say."""

    bootstrap_servers: str
    client_id: str
    security: Security
    topic: str | None
    codec: Codec
    level: int | None
    batch_bytes: int
    request_bytes: int
    ignores_keys: bool
    in_turn: bool
    """Whether rows go to the partitions in turn, one by one."""
    producer: ProducerSettings
    scope: Scope | None
    """With exactlyOnce."""


def read_options(options: Mapping[str, str], *, is_stream: bool = False) -> SinkOptions:
    """The sink's options from Spark's; names may be in any case. Raises OptionError."""
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        _check_name(name)
    values = {name: _value(name, given) for name in WITH_EFFECT}
    if PREFIX + "bootstrap.servers" not in given:
        raise OptionError(
            "Option 'kafka.bootstrap.servers' is missing: "
            "write .option('kafka.bootstrap.servers', 'host:9092')."
        )
    try:
        parse_addresses(values["bootstrap.servers"])
    except ClientFault as fault:
        raise OptionError(f"kafka.bootstrap.servers: {fault}") from None
    _check_together(values, given)
    codec = CODECS[values["compression.type"]]
    return SinkOptions(
        bootstrap_servers=values["bootstrap.servers"],
        client_id=values["client.id"],
        security=security_of_options(given),
        topic=_topic(given),
        codec=codec,
        level=_level(codec, values),
        batch_bytes=values["batch.size"],
        request_bytes=values["max.request.size"],
        ignores_keys=values["partitioner.ignore.keys"],
        in_turn=bool(values["partitioner.class"]),
        producer=_producer(values),
        scope=_scope(values, given, is_stream=is_stream),
    )


def _scope(values: Mapping[str, Any], given: Mapping[str, str], *, is_stream: bool) -> Scope | None:
    text = given.get(EXACTLY_ONCE, "false")
    try:
        is_wanted = truth(text)
    except ValueError:
        raise OptionError(f"Option 'exactlyOnce' is true or false, not {text!r}.") from None
    if not is_wanted:
        for name in OF_TRANSACTIONS:
            if name in given:
                raise OptionError(
                    f"Option {name!r} means nothing without transactions: set option "
                    "'exactlyOnce' to true, or leave it out."
                )
        return None
    if not values["enable.idempotence"]:
        raise OptionError(
            "kafka.enable.idempotence is false, and exactlyOnce needs it: leave it out."
        )
    return scope_of(given, is_stream=is_stream, timeout_ms=values["transaction.timeout.ms"])


def _check_name(name: str) -> None:
    if name in OWN or name in OF_SPARK or is_security_option(name):
        return
    if name == "path":
        raise OptionError(
            "A path was given, and rows go to topics: use save() or start() without one, and "
            "option('topic', …) or a column `topic`."
        )
    setting = name.removeprefix(PREFIX)
    if setting != name:
        if setting in WITH_EFFECT or setting in WITHOUT_EFFECT:
            return
        if setting in REFUSED:
            raise OptionError(f"Option {name!r} is refused. {REFUSED[setting]}.")
    raise OptionError(
        f"Option {name!r} is unknown to the sink. {_hint(name)}The page 'Write to topics with "
        "Spark' lists all options."
    )


def _hint(name: str) -> str:
    if name in OF_READING:
        return "It is an option of reading: drop it. "
    known = [TOPIC, *(PREFIX + each for each in (*WITH_EFFECT, *WITHOUT_EFFECT, *EFFECTIVE))]
    for each in (name, PREFIX + name):
        near = difflib.get_close_matches(each, known, 1, NEAR)
        if near:
            return f"Did you mean {near[0]!r}? "
    return ""


def _value(name: str, given: Mapping[str, str]) -> Any:
    setting = WITH_EFFECT[name]
    text = given.get(PREFIX + name, setting.default)
    if not text and not setting.default:
        return text
    try:
        return setting.read(text)
    except ValueError as problem:
        raise OptionError(f"Option {PREFIX + name!r} is {text!r}; it must be {problem}.") from None


def _check_together(values: Mapping[str, Any], given: Mapping[str, str]) -> None:
    """Refuse settings of which one contradicts another, as Kafka's producer does."""
    is_idempotent = values["enable.idempotence"]
    if is_idempotent and ACKS[values["acks"]] != -1:
        raise OptionError(
            f"kafka.acks is {values['acks']}, and an idempotent producer needs all: leave "
            "kafka.acks out, or set kafka.enable.idempotence to false and accept loss."
        )
    if is_idempotent and values["max.in.flight.requests.per.connection"] > MOST_IN_FLIGHT:
        raise OptionError(
            "kafka.max.in.flight.requests.per.connection is "
            f"{values['max.in.flight.requests.per.connection']}; with idempotence it is at most "
            f"{MOST_IN_FLIGHT}. Lower it, or leave it out."
        )
    if values["delivery.timeout.ms"] < values["request.timeout.ms"]:
        raise OptionError(
            f"kafka.delivery.timeout.ms ({values['delivery.timeout.ms']}) is shorter than "
            f"kafka.request.timeout.ms ({values['request.timeout.ms']}): raise it, or lower the "
            "other."
        )
    if values["buffer.memory"] < values["max.request.size"]:
        raise OptionError(
            f"kafka.buffer.memory ({values['buffer.memory']}) is smaller than "
            f"kafka.max.request.size ({values['max.request.size']}): raise it."
        )
    for codec in ("gzip", "lz4", "zstd"):
        name = f"{PREFIX}compression.{codec}.level"
        if name in given and values["compression.type"] != codec:
            raise OptionError(
                f"{name} is given, and kafka.compression.type is {values['compression.type']}: "
                f"set it to {codec}, or leave the level out."
            )


def _topic(given: Mapping[str, str]) -> str | None:
    topic = given.get(TOPIC)
    if topic is not None and not topic.strip():
        raise OptionError("Option 'topic' is empty: name a topic, or give rows a column `topic`.")
    if topic is not None:
        check_topic(TOPIC, topic)
    return topic


def _level(codec: Codec, values: Mapping[str, Any]) -> int | None:
    level = values.get(f"compression.{codec.name.lower()}.level", "")
    is_usual = level == "" or (codec is Codec.GZIP and level == -1)
    return None if is_usual else int(level)


def _producer(values: Mapping[str, Any]) -> ProducerSettings:
    lane = LaneSettings(
        acks=ACKS[values["acks"]],
        is_idempotent=values["enable.idempotence"],
        in_flight=values["max.in.flight.requests.per.connection"],
        request_timeout_ms=values["request.timeout.ms"],
        delivery_timeout_ms=values["delivery.timeout.ms"],
        retries=values["retries"],
        retry_backoff_ms=values["retry.backoff.ms"],
        retry_backoff_max_ms=max(values["retry.backoff.max.ms"], values["retry.backoff.ms"]),
    )
    return ProducerSettings(
        lane=lane, buffer_bytes=values["buffer.memory"], max_block_ms=values["max.block.ms"]
    )
