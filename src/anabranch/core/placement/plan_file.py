"""Files of plans: moves with their reasons, to be reviewed before they are applied.

What: `{"version": 1, "cluster_id": …, "goal": …, "made_at_ms": …, "moves": [{"topic", "partition",
"from", "to", "why", "because"}]}`, one move a line, read with an error that names line and field.
Why `from`: whoever applies the file can tell that the cluster has changed since. Rules kept: a
partition is named once; lists are of different brokers, none negative, and not equal; what was
written is read as it was; a field of another name is refused, as it would have no effect.

Not here: making plans (`move_plans.py`), whether a cluster still fits one
(`core/controller/moves/plans`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from anabranch.core.placement.json_places import (
    InputFault,
    check_end,
    decode,
    fields,
    items,
    needed,
    no_other_fields,
    no_others,
    replicas,
    shown,
    whole,
    written,
)
from anabranch.core.placement.move_plans import MoveCause, PlannedMove
from anabranch.core.types import TopicPartition

VERSION = 1
MOST_MS = 1 << 62
MOST_CHARACTERS = 1000
"""Of a goal, and of the sentence of a move: a record of metadata holds both."""
MOST_TOPIC_CHARACTERS = 249
FILE = '{"version": 1, "cluster_id": …, "goal": …, "made_at_ms": …, "moves": […]}'
ENTRY = '{"topic": …, "partition": …, "from": […], "to": […], "why": …, "because": …}'
FILE_FIELDS = ("version", "cluster_id", "goal", "made_at_ms", "moves")
ENTRY_FIELDS = ("topic", "partition", "from", "to", "why", "because")


class PlanFile(NamedTuple):
    """A plan, the cluster that it was made for, and when (milliseconds of the wall clock)."""

    cluster_id: str
    goal: str
    made_at_ms: int
    moves: tuple[PlannedMove, ...]


def write_plan(plan: PlanFile) -> str:
    """The text of the file, one move a line."""
    head = {
        "version": VERSION,
        "cluster_id": plan.cluster_id,
        "goal": plan.goal,
        "made_at_ms": plan.made_at_ms,
    }
    lines = ",\n  ".join(json.dumps(told_move(each), ensure_ascii=False) for each in plan.moves)
    return f'{json.dumps(head, ensure_ascii=False)[:-1]}, "moves": [\n  {lines}\n]}}\n'


def told_move(move: PlannedMove) -> dict[str, object]:
    """A move as files and programs are told it."""
    return {
        "topic": move.place.topic,
        "partition": move.place.partition,
        "from": [*move.before],
        "to": [*move.after],
        "why": str(move.why),
        "because": move.sentence,
    }


def read_plan(text: str) -> PlanFile:
    """The plan that a file holds. Raises InputFault."""
    where = fields(text, 0, FILE)
    check_end(text, 0, "object")
    found = {name: decode(text, at)[0] for name, at in where.items() if name != "moves"}
    for name in FILE_FIELDS:
        if name not in where:
            raise InputFault(f"{name}: it is missing; {FILE} is expected")
    if found["version"] != VERSION:
        raise InputFault(f"version: {shown(found['version'])} is not known here; {VERSION} is")
    no_other_fields(text, where, FILE_FIELDS)
    made_at_ms = found["made_at_ms"]
    if type(made_at_ms) is not int or not 0 <= made_at_ms < MOST_MS:
        raise InputFault(
            f"made_at_ms: milliseconds since 1970 are expected, not {shown(made_at_ms)}"
        )
    moves = tuple(_moves(text, where["moves"]))
    if not moves:
        raise InputFault("moves: it is empty, so there is nothing to do")
    cluster_id, goal = (_short(found[name], name) for name in ("cluster_id", "goal"))
    return PlanFile(cluster_id, goal, made_at_ms, moves)


def _short(value: Any, where: str, most: int = MOST_CHARACTERS) -> str:
    """A text that a plan may have. Raises InputFault."""
    text = written(value, where)
    if len(text) > most:
        raise InputFault(f"{where}: it has {len(text):,} characters of at most {most}; shorten it")
    return text


def _moves(text: str, at: int) -> Iterator[PlannedMove]:
    seen: set[TopicPartition] = set()
    for item in items(text, at, "an array"):
        value = needed(item, ENTRY_FIELDS, ENTRY)
        no_others(item, ENTRY_FIELDS)
        _short(value["topic"], f"line {item.line}, topic", MOST_TOPIC_CHARACTERS)
        _short(value["because"], f"line {item.line}, because")
        if value["why"] not in list(MoveCause):
            raise InputFault(
                f"line {item.line}, why: one of {', '.join(MoveCause)} is expected, not "
                f"{shown(value['why'])}"
            )
        place = TopicPartition(value["topic"], whole(item, "partition"))
        if place in seen:
            raise InputFault(f"line {item.line}, partition: {place} is named a second time")
        seen.add(place)
        before, after = replicas(item, "from", place), replicas(item, "to", place)
        if before == after:
            raise InputFault(f"line {item.line}, to: {place} has these replicas already")
        yield PlannedMove(place, before, after, MoveCause(value["why"]), value["because"])
