"""Requests made from the notation, and changed field by field: what a client could say.

Values come from a dictionary of what the node has (its topics, groups, ids, settings), from what
earlier answers gave out (member ids, generations, session ids, epochs), and from the edges of each
type. Not here: bytes that are no message (`havoc.py`), the order of requests (`sequences.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

from anabranch.core.types import METADATA_TOPIC_ID, ZERO_TOPIC_ID
from anabranch.core.wire.schema import FieldSpec, Struct, WireType, active_fields
from fuzz import batches
from fuzz.answers import LEARNT
from fuzz.node import CLUSTER, START_MS, TOPICS, prototype

NUMBERS = (-(2**63), -(2**31), -(2**15), -5, -4, -3, -2, -1, 0, 0, 0, 1, 1, 2, 3, 4, 5, 10, 100,
           1000, 60_000, 2**15 - 1, 2**31 - 1, 2**63 - 1, START_MS, START_MS + 5)  # fmt: skip
TOPIC_NAMES = ("t", "t", "u", "v", "__consumer_offsets", "__cluster_metadata", "missing", "new",
               "a.b", "a_b", "", ".", "..", "a/b", "x" * 249, "x" * 250, "\u2028",
               "__x")  # fmt: skip
GROUPS = ("g", "g", "h", "", "missing", "\u2028g")
SETTINGS = ("retention.ms", "cleanup.policy", "compression.type", "segment.bytes",
            "min.insync.replicas", "max.message.bytes", "message.timestamp.type",
            "retention.bytes", "segment.ms",
            "log.retention.ms", "no.such", "flush.messages", "delete.retention.ms",
            "internal.segment.bytes", "message.timestamp.after.max.ms")  # fmt: skip
TEXTS = ("", "1", "-1", "0", "compact", "delete", "compact,delete", "zstd", "gzip", "snappy", "lz4",
         "producer", "uncompressed", "LogAppendTime", "9223372036854775807", "abc", "1000", "true",
         "range", "roundrobin", "consumer", "Stable", "Empty", "classic", "1,2", "PLAINTEXT",
         "127.0.0.1", "metadata.version", "org.acme.reporter", "\0", "é", "x" * 300)  # fmt: skip
SHORT = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "int64": 64}

BY_NAME: dict[str, tuple[Any, ...]] = {
    "partition": (0, 0, 0, 1, 2, -1), "partition_index": (0, 0, 0, 1, 2, -1),
    "index": (0, 0, 0, 1, -1), "partitions": (0, 0, 1, 2), "partition_indexes": (0, 1, 2, -1),
    "acks": (-1, 0, 1, 1, 2), "timeout_ms": (0, 1, 1000, 30_000), "max_wait_ms": (0, 0, 10, 500),
    "max_bytes": (0, 1, 100, 1 << 20), "partition_max_bytes": (0, 1, 100, 1 << 20),
    "min_bytes": (0, 1, 1, 1000), "replica_id": (-1, -1, -1, 1, 2, -2, -3),
    "isolation_level": (0, 0, 1, 2), "fetch_offset": (0, 0, 1, 2, 3, 5, 10, -1),
    "current_leader_epoch": (-1, -1, 0, 1, 2), "leader_epoch": (-1, 0, 1),
    "session_id": (0, 0, 1), "session_epoch": (-1, 0, 0, 1, 2, 3),
    "timestamp": (-1, -2, -3, -4, -5, 0, START_MS, START_MS + 3),
    "session_timeout_ms": (6000, 10_000, 10_000, 1_800_000, 1),
    "rebalance_timeout_ms": (-1, 0, 1000, 60_000), "generation_id": (-1, 0, 1, 1, 2, 3),
    "generation_id_or_member_epoch": (-1, -1, 0, 1, 1, 2, 3), "member_epoch": (-1, 0, 1),
    "committed_offset": (0, 1, 5, 100, -1), "offset": (0, 1, 2, 5, -1),
    "transactional_id": (None, None, None, "", "tx"), "transaction_timeout_ms": (0, 1000, 60_000),
    "num_partitions": (-1, 1, 1, 2, 3, 0), "replication_factor": (-1, 1, 1, 2, 0),
    "count": (1, 2, 3, 5, 0), "resource_type": (2, 2, 4, 8, 16, 32, 0),
    "config_operation": (0, 0, 1, 2, 3, 4), "key_type": (0, 0, 0, 1, 2),
    "broker_id": (1, 1, 2, 3, -1),
    "broker_ids": (1, 2, 3), "node_id": (1, 2, -1), "producer_id": (-1, -1, 1000, 1001, 5),
    "producer_epoch": (-1, 0, 0, 1), "replica_directory_id": (bytes([101]) * 16, bytes(16)),
    "protocol_type": ("consumer", "consumer", "", "connect"), "protocol_name": ("range", "r", None),
    "cluster_id": (CLUSTER, CLUSTER, None, "other"),
    "resource_name": ("t", "u", "v", "1", "", "2", "t"),
    "rack_id": ("", "r"), "rack": (None, "r"), "reason": (None, "leaving"),
    "member_id": ("", "", "fuzz-1"), "group_instance_id": (None, None, "i", "j"),
    "host": ("h", "127.0.0.1", ""), "compression_types": (0, 1, 2, 3, 4),
    "states_filter": ("Stable", "Empty", "stable", "Dead"), "types_filter": ("classic", "consumer"),
    "validate_only": (False, False, True),
    "metadata": (b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0", b"", b"x"),
    "assignment": (b"\0\1\0\0\0\1\0\1t\0\0\0\1\0\0\0\0\xff\xff\xff\xff", b"", b"x"),
}  # fmt: skip
GROUP_FIELDS = frozenset(("group_id", "groups", "key", "coordinator_keys", "groups_names", "group"))
TOPIC_FIELDS = frozenset(("topic", "topic_name", "name", "topics", "topic_names"))
LEARN_CHANCE = 0.4
ENVELOPES: list[Callable[[Random], bytes]] = []
"""Makes the request inside an Envelope; set by `sequences`, which knows requests."""


@cache
def topic_ids() -> tuple[bytes, ...]:
    """The ids of the topics that each node starts with, and some that are none."""
    _, image, _ = prototype()
    known = [image.topic_ids_by_name[name] for name in TOPICS]
    return (*known, *known, ZERO_TOPIC_ID, METADATA_TOPIC_ID, bytes(15) + b"\2")


@cache
def broker_epochs() -> tuple[int, ...]:
    """The epochs in which the brokers are registered, and some that are none."""
    _, image, _ = prototype()
    known = tuple(each.epoch for each in image.brokers.values())
    return (*known, *known, -1, 0)


@cache
def fields(cls: type[Struct], version: int) -> tuple[FieldSpec, ...]:
    """The fields of a version, looked up once."""
    return tuple(active_fields(cls, version))


def make(rng: Random, cls: type[Struct], version: int) -> Any:
    """A message that the version can carry; some fields keep their defaults."""
    values = {}
    for field in fields(cls, version):
        if rng.random() < 0.08:
            continue
        values[field.name] = make_field(rng, cls, field, version)
    return cls(**values)


def make_field(rng: Random, cls: type[Struct], field: FieldSpec, version: int) -> Any:
    """A value for a field, null where that is allowed and chance says so."""
    if version in field.nullable_versions and rng.random() < 0.1:
        return None
    value = make_value(rng, cls, field.name, field.type, version)
    if value is None and version not in field.nullable_versions:
        return make_plain(rng, field.type.kind)
    return value


def make_value(
    rng: Random, cls: type[Struct], name: str, wire: WireType, version: int
) -> Any:  # fmt: skip
    """A value of a wire type for a field of that name."""
    if wire.kind == "array":
        assert wire.element is not None
        count = rng.choice((0, 1, 1, 1, 2, 3))
        made = [make_value(rng, cls, name, wire.element, version) for _ in range(count)]
        return [each for each in made if each is not None]
    if wire.struct is not None:
        return make(rng, wire.struct, version)
    return make_leaf(rng, cls, name, wire.kind)


def make_leaf(rng: Random, cls: type[Struct], name: str, kind: str) -> Any:
    """A value that is no structure."""
    chance = rng.random()
    if chance < 0.12:
        return make_plain(rng, kind)
    learnt = LEARNT.get(name)
    if learnt and chance < LEARN_CHANCE:
        return fitting(rng.choice(learnt), kind)
    if kind == "records":
        return batches.make(rng)
    if kind == "uuid" and "directory" not in name:
        return rng.choice(topic_ids())
    if name.endswith("broker_epoch"):
        return rng.choice(broker_epochs())
    if name in BY_NAME:
        return fitting(rng.choice(BY_NAME[name]), kind)
    if kind == "string":
        return make_text(rng, cls.__name__, name)
    if kind == "bytes" and ENVELOPES and name == "request_data":
        return rng.choice(ENVELOPES)(rng)
    return make_plain(rng, kind)


def make_text(rng: Random, cls_name: str, name: str) -> str:
    """A text: what a field of that name in that structure usually holds."""
    if name in GROUP_FIELDS and "Topic" not in cls_name:
        return rng.choice(GROUPS)
    if "Config" in cls_name and name == "name":
        return rng.choice(SETTINGS)
    if "configuration" in name or name == "config_names":
        return rng.choice(SETTINGS)
    if name in TOPIC_FIELDS:
        return rng.choice(TOPIC_NAMES)
    return rng.choice(TEXTS)


def make_plain(rng: Random, kind: str) -> Any:
    """Any value of a primitive type."""
    if kind in SHORT:
        return fitting(rng.choice(NUMBERS), kind)
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "string":
        return rng.choice(TEXTS + TOPIC_NAMES + GROUPS)
    if kind == "uuid":
        return rng.choice((rng.randbytes(16), *topic_ids()))
    if kind == "float64":
        return rng.choice((0.0, 1.5, -1.0, float("inf")))
    if kind == "records":
        return batches.make(rng)
    if kind == "bytes":
        return rng.randbytes(rng.choice((0, 1, 4, 16, 40)))
    return []


def fitting(value: Any, kind: str) -> Any:
    """A value that the type can carry: numbers within its bits, else one of its own type."""
    if kind in SHORT and isinstance(value, int):
        bits = SHORT[kind]
        low, high = (
            (0, 2**bits - 1) if kind[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )
        return max(low, min(high, value))
    wanted: dict[str, tuple[type, ...]] = {
        "string": (str, type(None)), "bytes": (bytes, type(None)), "uuid": (bytes,),
        "bool": (bool,), "float64": (float,),
    }  # fmt: skip
    if kind in SHORT:
        return 0
    fits: bool = isinstance(value, wanted.get(kind, ()))
    if fits and (kind != "uuid" or len(value) == 16):
        return value
    return {"string": "", "bytes": b"", "uuid": ZERO_TOPIC_ID, "bool": False}.get(kind, 0.0)


def change(rng: Random, message: Any, version: int) -> None:
    """Change one field somewhere in a message, in place."""
    cls = type(message)
    known = fields(cls, version)  # type: ignore[arg-type]
    if not known:
        return
    field = rng.choice(known)
    held = getattr(message, field.name)
    if field.type.kind == "array" and held:
        _change_array(rng, message, field, list(held), version)
        return
    if field.type.struct is not None and held is not None and rng.random() < 0.9:
        if not cls.__struct_config__.frozen and not type(held).__struct_config__.frozen:
            change(rng, held, version)
            return
    if field.type.kind == "records" and held is not None and rng.random() < 0.8:
        setattr(message, field.name, batches.change(rng, bytes(held)))
        return
    setattr(message, field.name, make_field(rng, cls, field, version))


def _change_array(
    rng: Random, message: Any, field: FieldSpec, held: list[Any], version: int
) -> None:  # fmt: skip
    element = field.type.element
    assert element is not None
    at, chance = rng.randrange(len(held)), rng.random()
    if element.struct is not None and chance < 0.7:
        change(rng, held[at], version)
        return
    if chance < 0.8:
        made = make_value(rng, type(message), field.name, element, version)
        if made is not None:
            held[at : at + rng.choice((0, 1))] = [made]
    elif chance < 0.87:
        held += [held[at]] * rng.choice((1, 1, 2, 20))
    elif chance < 0.95:
        del held[at]
    else:
        held = []
    setattr(message, field.name, held)
