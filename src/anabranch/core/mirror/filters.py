"""Which topics, groups and settings of topics are mirrored: lists of expressions, in and out.

What: an expression matches a whole name; an excluded name is never taken. Expressions are Java's in
MirrorMaker 2; what they are used for (`.*`, classes, groups, alternatives) means the same in
Python. Rule kept: an expression that cannot be read is a `BadPattern` that shows it.
"""

from __future__ import annotations

import re

import msgspec

from anabranch.core.mirror.policy import Policy

ALL = ".*"
TOPICS_EXCLUDED = r"mm2.*\.internal, .*\.replica, __.*"
GROUPS_EXCLUDED = "console-consumer-.*, connect-.*, __.*"
CONFIGS_EXCLUDED = (
    r"follower\.replication\.throttled\.replicas, leader\.replication\.throttled\.replicas, "
    r"message\.timestamp\.difference\.max\.ms, message\.timestamp\.type, "
    r"unclean\.leader\.election\.enable, min\.insync\.replicas"
)
"""MirrorMaker 2's defaults."""


class BadPattern(Exception):
    """An expression that cannot be read; the text shows it and says why."""


class NameFilter(msgspec.Struct, frozen=True):
    """Names that match `included` and not `excluded`; both are lists separated by commas."""

    included: str = ALL
    excluded: str = ""

    def __post_init__(self) -> None:
        for each in (self.included, self.excluded):
            compiled(each)

    def takes(self, name: str) -> bool:
        """Whether a name is taken."""
        return bool(compiled(self.included).fullmatch(name)) and not compiled(
            self.excluded
        ).fullmatch(name)


_COMPILED: dict[str, re.Pattern[str]] = {}
_NOTHING = re.compile(r"(?!)")
MOST_COMPILED = 256
"""A process has a few flows, each with six lists."""


def compiled(patterns: str) -> re.Pattern[str]:
    """A list of expressions as one. Raises BadPattern."""
    found = _COMPILED.get(patterns)
    if found is None:
        parts = [each.strip() for each in patterns.split(",") if each.strip()]
        for each in parts:
            try:
                re.compile(each)
            except re.error as fault:
                raise BadPattern(f"{each!r} is not a regular expression: {fault}") from None
        found = re.compile("|".join(f"(?:{each})" for each in parts)) if parts else _NOTHING
        if len(_COMPILED) >= MOST_COMPILED:
            _COMPILED.clear()
        _COMPILED[patterns] = found
    return found


def takes_topic(
    topic: str, names: NameFilter, policy: Policy, target: str, *, heartbeats: bool = True
) -> bool:
    """Whether a topic of the source is mirrored to `target`: chosen (or a heartbeats topic), not
    internal, and not come from there."""
    chosen = names.takes(topic) or (heartbeats and policy.is_heartbeats(topic))
    return chosen and not policy.is_internal(topic) and not policy.is_cycle(topic, target)
