"""What a setting is: its name, type, default and limits, and how its text becomes a value.

Every setting that Kafka 4.1 knows is one row of a table under `tables/`, with Kafka's name, type,
default, validator, importance and dynamic scope, so that files and tools written for Kafka work
unchanged. `in_force` says whether Anabranch obeys the setting already: a ledger that a test keeps
true. The facts come from Kafka 4.1.0's own definitions; the sentences are ours.

The rule it keeps: texts that Kafka refuses are refused with Kafka's words (`ConfigDef.parseType`);
so are infinite numbers, which Kafka takes.
What it is not: it does not know which values are set (`broker.py`, `topic.py`).
"""

from __future__ import annotations

import re
from enum import Enum, IntEnum
from math import isfinite
from typing import Protocol, TypeAlias

import msgspec

from anabranch.core.errors import ClientFault, ErrorCode

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None
"""A parsed setting. LIST is a tuple; STRING, CLASS and PASSWORD are texts; None means unset."""


class Type(IntEnum):
    """The types of Kafka's settings, numbered as DescribeConfigs sends them (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Importance(Enum):
    """How likely an operator is to need the setting."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Scope(Enum):
    """Where a setting may change while the node runs (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"
    TOPIC = "topic"


class Mark(Enum):
    """What a table row may say besides name, sentence, type, default, importance and limits."""

    IN_FORCE = "in force"
    INTERNAL = "internal"
    REQUIRED = "required"
    OURS = "ours"


class Validator(Protocol):
    """A limit on values: `check` raises ConfigFault with Kafka's words for one outside of it."""

    @property
    def text(self) -> str: ...

    def check(self, name: str, value: Value) -> None: ...


class ConfigFault(ClientFault):
    """A setting that cannot be taken, in Kafka's words; `name` is the setting's, when known."""

    def __init__(self, message: str, *, name: str = "") -> None:
        super().__init__(ErrorCode.INVALID_CONFIG, message)
        self.name = name


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting. `default` is a text as Kafka shows it, None when Kafka has none.

    `synonyms` are the broker settings that give a value when this one is not set, nearest first:
    for a topic setting the broker's, for `log.retention.ms` the minutes and hours.
    """

    name: str
    sentence: str
    type: Type
    default: str | None
    importance: Importance
    scope: Scope
    validator: Validator | None = None
    in_force: bool = False
    internal: bool = False
    required: bool = False
    ours: bool = False
    synonyms: tuple[str, ...] = ()

    @property
    def attribute(self) -> str:
        """The Python name of the setting's value."""
        return attribute_of(self.name)

    @property
    def sensitive(self) -> bool:
        """Whether the value is never shown."""
        return self.type is Type.PASSWORD

    @property
    def limits(self) -> str:
        """What values are allowed, for people; empty when any value of the type is."""
        return "" if self.validator is None else self.validator.text


def attribute_of(name: str) -> str:
    """The Python name for a setting's name: `log.roll.ms` is `log_roll_ms`."""
    return name.replace(".", "_")


def row(
    name: str,
    sentence: str,
    type_: Type,
    default: str | None,
    importance: Importance,
    *marks: Scope | Mark | Validator,
) -> Setting:
    """One table row; without a scope the setting is read-only."""
    scope = Scope.READ_ONLY
    validator: Validator | None = None
    said = set()
    for mark in marks:
        if isinstance(mark, Scope):
            scope = mark
        elif isinstance(mark, Mark):
            said.add(mark)
        else:
            validator = mark
    return Setting(
        name=name,
        sentence=sentence,
        type=type_,
        default=default,
        importance=importance,
        scope=scope,
        validator=validator,
        in_force=Mark.IN_FORCE in said,
        internal=Mark.INTERNAL in said,
        required=Mark.REQUIRED in said,
        ours=Mark.OURS in said,
    )


INTEGER_BITS = {Type.SHORT: 16, Type.INT: 32, Type.LONG: 64}
INTEGER_TEXT = re.compile(r"[+-]?[0-9]{1,40}")
DOUBLE_TEXT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?", re.ASCII)
LIST_SEPARATOR = re.compile(r"\s*,\s*")


def parse(setting: Setting, text: str) -> Value:
    """The value that `text` means for `setting`, checked against its limits.

    Raises ConfigFault with Kafka's text, for example
    `Invalid value abc for configuration retention.ms: Not a number of type LONG`.
    """
    trimmed = text.strip()
    value = _PARSERS[setting.type](setting, trimmed)
    if setting.validator is not None:
        setting.validator.check(setting.name, value)
    return value


def is_true(text: str | None) -> bool:
    """Whether the text of a boolean setting means true: the letters' case and blanks around them
    count for nothing, as in `parse`. None, and what is no boolean, is not true."""
    return text is not None and text.strip().lower() == "true"


def invalid(name: str, value: str, why: str) -> ConfigFault:
    """Kafka's sentence for a value that a setting cannot have."""
    return ConfigFault(f"Invalid value {value} for configuration {name}: {why}", name=name)


def shown(value: Value) -> str:
    """A value as Kafka prints it inside a sentence: lists in brackets, unset as null."""
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    text = to_text(value)
    return "null" if text is None else text


def to_text(value: Value) -> str | None:
    """A value as Kafka writes it in files and answers; the inverse of `parse`."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return _double_text(value)
    return str(value)


def _double_text(value: float) -> str:
    """Java's spelling: an `E` without sign, and always a fraction."""
    text = repr(value)
    if "e" not in text:
        return text
    mantissa, exponent = text.split("e")
    if "." not in mantissa:
        mantissa += ".0"
    return f"{mantissa}E{int(exponent)}"


def _boolean(setting: Setting, text: str) -> Value:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise invalid(setting.name, text, "Expected value to be either true or false")
    return is_true(text)


def _integer(setting: Setting, text: str) -> Value:
    limit = 1 << (INTEGER_BITS[setting.type] - 1)
    if INTEGER_TEXT.fullmatch(text):
        value = int(text)
        if -limit <= value < limit:
            return value
    raise invalid(setting.name, text, f"Not a number of type {setting.type.name}")


def _double(setting: Setting, text: str) -> Value:
    if DOUBLE_TEXT.fullmatch(text):
        value = float(text.rstrip("dDfF"))
        if isfinite(value):
            return value
    raise invalid(setting.name, text, f"Not a number of type {setting.type.name}")


def _list(_setting: Setting, text: str) -> Value:
    return tuple(LIST_SEPARATOR.split(text)) if text else ()


def _text(_setting: Setting, text: str) -> Value:
    return text


_PARSERS = {
    Type.BOOLEAN: _boolean,
    Type.STRING: _text,
    Type.INT: _integer,
    Type.SHORT: _integer,
    Type.LONG: _integer,
    Type.DOUBLE: _double,
    Type.LIST: _list,
    Type.CLASS: _text,
    Type.PASSWORD: _text,
}
