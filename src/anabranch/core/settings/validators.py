"""The limits that settings have, with Kafka's words for a value outside of them.

Source: Kafka 4.1's ConfigDef validators, quorum and throttle validators. A limit is a small frozen
value so that documentation can show it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from anabranch.core.placement.constraints import ConstraintsFault, read_constraints
from anabranch.core.placement.placers import PLACERS
from anabranch.core.settings.listeners import LARGEST_PORT
from anabranch.core.settings.setting import ConfigFault, Value, invalid, shown


class NumberRange(msgspec.Struct, frozen=True):
    """Numbers from `minimum` to `maximum`, both included; None means no bound on that side."""

    minimum: int | None = None
    maximum: int | float | None = None

    @property
    def text(self) -> str:
        """Kafka's notation for a range."""
        upper = "" if self.maximum is None else f",{self.maximum}"
        return f"[{self.minimum},...{upper}]"

    def check(self, name: str, value: Value) -> None:
        """Too small is told first, as Kafka does."""
        if not isinstance(value, int | float):
            raise invalid(name, shown(value), "Value must be non-null")
        if self.minimum is not None and value < self.minimum:
            raise invalid(name, shown(value), f"Value must be at least {self.minimum}")
        if self.maximum is not None and value > self.maximum:
            raise invalid(name, shown(value), f"Value must be no more than {self.maximum}")


class OneOf(msgspec.Struct, frozen=True):
    """One text out of a few; for a LIST, each element."""

    allowed: tuple[str, ...]
    ignore_case: bool = False

    @property
    def text(self) -> str:
        """The allowed texts."""
        return f"{'(any case) ' if self.ignore_case else ''}[{', '.join(self.allowed)}]"

    def check(self, name: str, value: Value) -> None:
        """The first element that is not allowed is named."""
        hint = " (case insensitive)" if self.ignore_case else ""
        for element in value if isinstance(value, tuple) else (shown(value),):
            spelled = element.upper() if self.ignore_case else element
            if spelled not in self.allowed:
                allowed = ", ".join(self.allowed)
                raise invalid(name, element, f"String must be one of{hint}: {allowed}")


class Satisfies(msgspec.Struct, frozen=True):
    """Anything else: `verdict` answers Kafka's sentence for a bad value, None for a good one."""

    text: str
    verdict: Callable[[str, Value], str | None]

    def check(self, name: str, value: Value) -> None:
        """Ask `verdict`."""
        sentence = self.verdict(name, value)
        if sentence is not None:
            raise ConfigFault(sentence, name=name)


def at_least(minimum: int) -> NumberRange:
    """Numbers from `minimum` up."""
    return NumberRange(minimum)


def between(minimum: int, maximum: int | float) -> NumberRange:
    """Numbers from `minimum` to `maximum`."""
    return NumberRange(minimum, maximum)


def one_of(*allowed: str) -> OneOf:
    """One of these texts, spelled exactly so."""
    return OneOf(allowed)


def one_of_any_case(*allowed: str) -> OneOf:
    """One of these texts, given in upper case here, in any case by the user."""
    return OneOf(allowed, ignore_case=True)


def _message(name: str, value: Value, why: str) -> str:
    return invalid(name, shown(value), why).message


def _non_empty(name: str, value: Value) -> str | None:
    return _message(name, value, "String must be non-empty") if value == "" else None


def _gzip_level(name: str, value: Value) -> str | None:
    if isinstance(value, int) and (value == -1 or 1 <= value <= 9):
        return None
    return _message(name, value, "Value must be between 1 and 9 or equal to -1")


THROTTLED_REPLICA = re.compile(r"[0-9]+:[0-9]+")
THROTTLE_FORMAT = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."


def _throttled_replicas(name: str, value: Value) -> str | None:
    if value in ((), ("*",)):
        return None
    if isinstance(value, tuple) and all(THROTTLED_REPLICA.fullmatch(each) for each in value):
        return None
    literal = f"{name} must be the literal '*' or a list of replicas in the following format: "
    return _message(name, value, literal + THROTTLE_FORMAT)


def _cordoned(name: str, value: Value) -> str | None:
    if value in ((), ("*",)):
        return None
    why = "must be empty, or '*' for the whole broker; folders cannot be cordoned one by one"
    return _message(name, value, f"{name} {why}")


def _listener_racks(name: str, value: Value) -> str | None:
    pairs = value if isinstance(value, tuple) else ()
    if all(all(map(str.strip, pair.split(":"))) and pair.count(":") == 1 for pair in pairs):
        return None
    return _message(name, value, f"{name} must be LISTENER:RACK pairs, separated by commas")


def _constraints(name: str, value: Value) -> str | None:
    try:
        read_constraints(str(value or ""))
    except ConstraintsFault as fault:
        return _message(name, value, str(fault))
    return None


HOST_AND_PORT = re.compile(r"(?:[a-zA-Z]+://)?\[?[0-9a-zA-Z\-%._:]*\]?:([0-9]{1,9})")
VOTER = re.compile(r"[0-9]+@\[?[0-9a-zA-Z\-%._:]*\]?:[0-9]+")


def _servers(name: str, value: Value) -> str | None:
    for element in value if isinstance(value, tuple) else ():
        parts = HOST_AND_PORT.fullmatch(element)
        if parts is None:
            return (
                f"Failed to parse host name from {element} for the configuration {name}. "
                'Each entry should be in the form "{host}:{port}"'
            )
        if int(parts[1]) > LARGEST_PORT:
            return f"{element} in {name}: the largest port is {LARGEST_PORT}"
    return None


def _voters(name: str, value: Value) -> str | None:
    if all(VOTER.fullmatch(each) for each in (value if isinstance(value, tuple) else ())):
        return None
    return (
        f"Invalid configuration value for {name}. "
        "Each entry should be in the form `{id}@{host}:{port}`."
    )


NON_EMPTY = Satisfies("non-empty", _non_empty)
PLACER = OneOf(tuple(PLACERS))
GZIP_LEVEL = Satisfies("[1,...,9] or -1", _gzip_level)
CONSTRAINTS = Satisfies("replicas=RACK:COUNT,…,observers=RACK:COUNT,… or JSON", _constraints)
CORDONED = Satisfies("empty or *", _cordoned)
LISTENER_RACKS = Satisfies("LISTENER:RACK,…", _listener_racks)
REPLICA_LIST = Satisfies(THROTTLE_FORMAT, _throttled_replicas)
SERVERS = Satisfies("host:port,…", _servers)
VOTERS = Satisfies("id@host:port,…", _voters)
