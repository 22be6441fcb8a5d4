"""Placement constraints of a topic: how many replicas and observers each rack is to have.

What: `read_constraints` reads the topic setting `confluent.placement.constraints`, in the JSON that
Confluent's users know or in a short form of ours; `place_constrained` chooses brokers by it:

    {"version": 2, "replicas": [{"count": 2, "constraints": {"rack": "east"}}],
     "observers": [{"count": 1, "constraints": {"rack": "west"}}]}
    replicas=east:2,observers=west:1

Served of the JSON: versions 1 and 2, `count`, `rack`; of `observerPromotionPolicy` the empty one:
observers are promoted by a plan, never by themselves. Rules kept: each rack gets exactly what is
asked for, or nothing is placed and the sentence names rack, wanted and there; within a rack whoever
carries least is chosen, active brokers before fenced ones; an active broker leads, the one that
leads least. Worked example: brokers 1, 2 in east, 3 in west, `replicas=east:2,observers=west:1`:
partition 0 is on 1, 2 and partition 1 on 2, 1, both observed by 3. Trade-off: the placers have no
say, and the racks that are named are all that is used.

Source: decision 0029; Confluent's documentation of multi-region clusters for the JSON. Not here:
bringing a topic that exists to its constraints (`constraint_plan.py`), records
(`core/controller/topics/placement.py`, `core/controller/partitions/observers.py`).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from anabranch.core.placement.placer import UsableBroker
from anabranch.core.sentences import number_of

SETTING = "confluent.placement.constraints"
MOST = 32_767
"""Replicas or observers of one partition: what a replication factor can say."""
VERSIONS = (1, 2)
KEYS = frozenset({"version", "replicas", "observers", "observerPromotionPolicy"})
COUNT = re.compile(r"[0-9]{1,9}")
PARTS = ("replicas", "observers")


class Constraints(NamedTuple):
    """Rack -> how many, in the order in which they were given."""

    replicas: Mapping[str, int]
    observers: Mapping[str, int]

    @property
    def replication_factor(self) -> int:
        """Replicas of a partition; observers are none."""
        return sum(self.replicas.values())


class ConstraintsFault(ValueError):
    """Constraints that cannot be read; the text says what and where."""


class LackingRack(NamedTuple):
    """A rack that lacks brokers."""

    what: str
    """replica or observer."""
    rack: str
    wanted: int
    there: tuple[int, ...]

    beside: int = 0
    """The replicas that a rack of observers has to hold, too."""

    @property
    def _wanted(self) -> str:
        beside = f" beside {number_of(self.beside, 'replica')}" if self.beside else ""
        return f"{number_of(self.wanted, self.what)}{beside}"

    @property
    def sentence(self) -> str:
        """Rack, wanted, there."""
        names = ", ".join(map(str, self.there)) or "none"
        return (
            f"The placement constraints want {self._wanted} in rack {self.rack}; "
            f"brokers there that can get one: {names}."
        )


# Reading.


@lru_cache(maxsize=256)
def read_constraints(text: str) -> Constraints | None:
    """The constraints, None for an empty text. Raises ConstraintsFault."""
    text = text.strip()
    if not text:
        return None
    found = _from_json(text) if text.startswith("{") else _from_words(text)
    if not found.replicas:
        raise ConstraintsFault("replicas: say at least one rack, as in replicas=east:2")
    for what, counts in zip(PARTS, found, strict=True):
        if sum(counts.values()) > MOST:
            raise ConstraintsFault(f"{what}: at most {MOST} altogether")
    return found


def _from_words(text: str) -> Constraints:
    parts: dict[str, dict[str, int]] = {what: {} for what in PARTS}
    what = ""
    for word in text.split(","):
        name, is_part, rest = word.strip().partition("=")
        if is_part:
            what = name.strip()
        if what not in parts:
            raise ConstraintsFault(f"{word.strip()!r}: write replicas=RACK:COUNT,observers=…")
        rack, colon, count = (rest if is_part else name).strip().rpartition(":")
        if not colon or not rack.strip() or not COUNT.fullmatch(count.strip()):
            raise ConstraintsFault(f"{word.strip()!r}: write RACK:COUNT, as in east:2")
        _add(parts[what], what, rack.strip(), int(count))
    return Constraints(parts["replicas"], parts["observers"])


def _from_json(text: str) -> Constraints:
    try:
        told = json.loads(text)
    except json.JSONDecodeError as fault:
        raise ConstraintsFault(
            f"line {fault.lineno}, column {fault.colno}: {fault.msg}; is this JSON?"
        ) from None
    except (ValueError, RecursionError):
        raise ConstraintsFault("a number is too long, or objects are nested too deeply") from None
    unknown = sorted(told.keys() - KEYS)
    if unknown:
        raise ConstraintsFault(
            f"{unknown[0]!a}: no such field; there are {', '.join(sorted(KEYS))}"
        )
    if type(told.get("version")) is not int or told["version"] not in VERSIONS:
        raise ConstraintsFault("version: write 1 or 2")
    if told.get("observerPromotionPolicy"):
        raise ConstraintsFault(
            "observerPromotionPolicy: observers are not promoted automatically; omit it, and use "
            "`anabranch plan observers`"
        )
    parts = {what: _counts(what, told.get(what)) for what in PARTS}
    return Constraints(parts["replicas"], parts["observers"])


def _counts(what: str, rows: object) -> dict[str, int]:
    counts: dict[str, int] = {}
    if rows is None:
        return counts
    if not isinstance(rows, list):
        raise ConstraintsFault(f"{what}: write a list")
    for number, row in enumerate(rows):
        place = f"{what}[{number}]"
        if not isinstance(row, dict) or set(row) != {"count", "constraints"}:
            raise ConstraintsFault(f"{place}: write an object with count and constraints")
        rack = row["constraints"]
        rack = rack.get("rack") if isinstance(rack, dict) and set(rack) == {"rack"} else None
        if not isinstance(rack, str) or not rack:
            raise ConstraintsFault(
                f'{place}.constraints: write {{"rack": "NAME"}}; nothing else is supported'
            )
        if type(row["count"]) is not int:
            raise ConstraintsFault(f"{place}.count: write a number")
        _add(counts, place, rack, row["count"])
    return counts


def _add(counts: dict[str, int], place: str, rack: str, count: int) -> None:
    if not rack.isprintable():  # nor could a refusal name it
        raise ConstraintsFault(f"{place}: {rack!a} is no name of a rack")
    if rack in counts:
        raise ConstraintsFault(f"{place}: rack {rack} is named twice")
    if not 1 <= count <= MOST:
        raise ConstraintsFault(f"{place}: rack {rack}: the count is 1 to {MOST}")
    counts[rack] = count


# Choosing brokers.


class Constrained(NamedTuple):
    """Replicas and observers, a row a partition."""

    replicas: list[tuple[int, ...]]
    observers: list[tuple[int, ...]]


def in_racks(row: Sequence[int], racks: Mapping[int, str | None]) -> dict[str | None, int]:
    """How many of a list are in each rack."""
    return dict(Counter(racks.get(broker_id) for broker_id in row))


def first_unmet(brokers: Sequence[UsableBroker], constraints: Constraints) -> LackingRack | None:
    """The first rack that has too few of these brokers."""
    for rack, wanted in constraints.replicas.items():
        there = tuple(each.broker_id for each in brokers if each.rack == rack)
        if len(there) < wanted:
            return LackingRack("replica", rack, wanted, there)
    for rack, wanted in constraints.observers.items():
        there = tuple(each.broker_id for each in brokers if each.rack == rack)
        taken = constraints.replicas.get(rack, 0)
        if len(there) < wanted + taken:
            return LackingRack("observer", rack, wanted, there, taken)
    return None


def place_constrained(
    brokers: Sequence[UsableBroker],
    constraints: Constraints,
    count: int,
    *,
    carried: Counter[int],
    led: Counter[int],
) -> Constrained:
    """Brokers for `count` partitions; every rack has enough of them (`first_unmet`).

    `carried` are replicas and observers by broker, `led` partitions by preferred leader; both are
    kept up to date.
    """
    made = Constrained([], [])
    fenced = {each.broker_id for each in brokers if each.fenced}
    for _ in range(count):
        chosen: list[int] = []
        for rack, wanted in constraints.replicas.items():
            chosen += choose(brokers, rack, wanted, chosen, carried)
        row = sorted(chosen, key=lambda each: (each in fenced, led[each], chosen.index(each)))
        observers: list[int] = []
        for rack, wanted in constraints.observers.items():
            observers += choose(brokers, rack, wanted, (*chosen, *observers), carried)
        carried.update((*row, *observers))
        led[row[0]] += 1
        made.replicas.append(tuple(row))
        made.observers.append(tuple(observers))
    return made


def choose(
    brokers: Sequence[UsableBroker],
    rack: str,
    wanted: int,
    without: Collection[int],
    carried: Mapping[int, int],
) -> list[int]:
    """At most so many brokers of a rack: active ones first, then by what they carry, then by id."""
    free = [each for each in brokers if each.rack == rack and each.broker_id not in without]
    free.sort(key=lambda each: (each.fenced, carried.get(each.broker_id, 0), each.broker_id))
    return [each.broker_id for each in free[:wanted]]
