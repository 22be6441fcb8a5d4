"""What fuzzing learns from answers: their error codes, and the names and ids they give out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from anabranch.core.wire.schema import Struct, WireType, fields_of

LEARNT: dict[str, list[Any]] = {}
"""Field name -> values that answers had, the newest last."""
MOST_LEARNT = 64
ONE_IN = 16
"""How many answers are looked at for names: the others cost nothing."""
NAMES = frozenset((
    "member_id", "generation_id", "session_id", "topic_id", "producer_id", "producer_epoch",
    "broker_epoch", "group_id", "name", "node_id", "base_offset", "leader_epoch", "leader",
    "client_instance_id", "subscription_id", "offset", "end_offset", "snapshot_id", "epoch",
    "incarnation_id", "cluster_id", "next_cursor", "coordinator_key", "members", "assignment",
    "metadata", "protocol_name", "protocol_type", "protocol_data", "committed_offset", "timestamp",
    "producer_id_start", "log_end_offset", "config_value", "value", "topic_name", "broker_id",
))  # fmt: skip
ALIASES = {"generation_id": "generation_id_or_member_epoch", "group_id": "group"}

Walker = Callable[[Any, set[int]], None]


def codes_of(message: Any) -> set[int]:
    """The error codes anywhere in a message."""
    found: set[int] = set()
    _walker(type(message))(message, found)  # type: ignore[arg-type]
    return found


@cache
def _walker(cls: type[Struct]) -> Walker:
    codes: list[str] = []
    inner: list[tuple[str, Walker, bool]] = []
    for field in fields_of(cls):
        wire: WireType = field.type
        many = wire.kind == "array"
        if many and wire.element is not None:
            wire = wire.element
        if field.name.endswith("error_code"):
            codes.append(field.name)
        elif wire.struct is not None and _has_codes(wire.struct):
            inner.append((field.name, _walker(wire.struct), many))

    def walk(message: Any, found: set[int]) -> None:
        for name in codes:
            found.add(int(getattr(message, name)))
        for name, step, many in inner:
            held = getattr(message, name)
            for each in (held if many else (held,)) or ():
                if each is not None:
                    step(each, found)

    return walk


@cache
def _has_codes(cls: type[Struct]) -> bool:
    for field in fields_of(cls):
        wire = field.type.element if field.type.element is not None else field.type
        if field.name.endswith("error_code") or (wire.struct and _has_codes(wire.struct)):
            return True
    return False


def harvest(message: Any, number: int) -> None:
    """Learn from some of the answers."""
    if number % ONE_IN == 0:
        for name, value in _leaves(message, 0):
            _learn(name, value)
            if name in ALIASES:
                _learn(ALIASES[name], value)


def _learn(name: str, value: Any) -> None:
    known = LEARNT.setdefault(name, [])
    if value not in known:
        known.append(value)
        del known[:-MOST_LEARNT]


def _leaves(message: Any, depth: int) -> Iterator[tuple[str, Any]]:
    for field in fields_of(type(message)):  # type: ignore[arg-type]
        value = getattr(message, field.name)
        if field.type.kind == "array" and field.type.element is not None:
            if field.type.element.struct is not None and depth < 4:
                for each in (value or ())[:4]:
                    yield from _leaves(each, depth + 1)
        elif field.type.struct is not None:
            if value is not None:
                yield from _leaves(value, depth + 1)
        elif field.name in NAMES and value is not None:
            if not isinstance(value, bytes | memoryview) or len(value) <= 64:
                yield field.name, bytes(value) if isinstance(value, memoryview) else value
