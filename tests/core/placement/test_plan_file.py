"""Plan files: what is written is read, and every mistake is named by its place (B2, R16)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch.core.placement.json_places import InputFault
from anabranch.core.placement.move_plans import MoveCause, PlannedMove
from anabranch.core.placement.plan_file import PlanFile, read_plan, write_plan
from anabranch.core.types import TopicPartition

MOVES = (
    PlannedMove(
        TopicPartition("t", 0), (1, 2), (1, 4), MoveCause.BROKER_DRAINED, "broker 2 is drained"
    ),
    PlannedMove(
        TopicPartition("t", 1), (2, 1), (1, 4), MoveCause.BROKER_DRAINED, "und so wäre es gut"
    ),
)


def test_what_is_written_is_read_with_a_move_a_line() -> None:
    plan = PlanFile("abc", "drain broker 2", 1_700_000_000_000, MOVES)
    text = write_plan(plan)
    assert read_plan(text) == plan
    assert len(text.splitlines()) == 2 + len(MOVES)
    assert json.loads(text)["moves"][0] == {
        "topic": "t",
        "partition": 0,
        "from": [1, 2],
        "to": [1, 4],
        "why": "BROKER_DRAINED",
        "because": "broker 2 is drained",
    }


def file(moves: Any = None, **fields: Any) -> str:
    whole = {"version": 1, "cluster_id": "abc", "goal": "g", "made_at_ms": 1, **fields}
    lines = ",\n".join(map(json.dumps, moves if moves is not None else [move()]))
    kept = {name: value for name, value in whole.items() if value is not None}
    return f'{json.dumps(kept)[:-1]}, "moves": [\n{lines}]}}'


def move(**fields: Any) -> dict[str, Any]:
    whole = {
        "topic": "t", "partition": 0, "from": [1], "to": [2], "why": "BROKER_ADDED", "because": "b",
        **fields,
    }  # fmt: skip
    return {name: value for name, value in whole.items() if value is not None}


WRONG = [
    ("", "line 1, column 1: "),
    ("{}", "version: it is missing"),
    (file(version=2), "version: 2 is not known here; 1 is"),
    (file(cluster_id=None), "cluster_id: it is missing"),
    (file(cluster_id=7), "cluster_id: a text is expected, not 7"),
    (file(goal=""), "goal: a text is expected"),
    (file(goal="\ud800"), 'goal: a text is expected, not "\\ud800"'),
    (file(made_at_ms="now"), 'made_at_ms: milliseconds since 1970 are expected, not "now"'),
    (file(moves=[]), "moves: it is empty, so there is nothing to do"),
    (file(moves=[7]), "line 2: "),
    (file() + "x", "nothing may follow the object"),
    (file([move(to=None)]), "line 2, to: it is missing"),
    (file([move(topic="")]), "line 2, topic: a text is expected"),
    (file([move(partition=-1)]), "line 2, partition: a whole number from 0"),
    (file([move(because=1)]), "line 2, because: a text is expected, not 1"),
    (
        file([move(because="x" * 40_000)]),
        "line 2, because: it has 40,000 characters of at most 1000",
    ),
    (file(goal="x" * 1001), "goal: it has 1,001 characters of at most 1000"),
    (file([move(topic="x" * 250)]), "line 2, topic: it has 250 characters of at most 249"),
    (file(cluster_id="x" * 40_000), "cluster_id: it has 40,000 characters of at most 1000"),
    (file([move(why="WHIM")]), "line 2, why: one of BROKER_DRAINED, "),
    (file([move(to=[])]), "line 2, to: t-0 needs at least one broker"),
    (file([move(to=[3, -2])]), "line 2, to[1]: -2 is no broker id"),
    (file([move(to=[3, 3])]), "line 2, to[1]: broker 3 is named twice for t-0"),
    (file([move(to=["3"])]), "line 2, to[0]: a broker id is expected"),
    (file([move(to=[1])]), "line 2, to: t-0 has these replicas already"),
    (file([move(), move()]), "line 3, partition: t-0 is named a second time"),
    (file([move(throttle=5)]), 'line 2, "throttle": no such field; known are topic, partition, '),
    (file(throttle=5), 'line 1, "throttle": no such field; known are version, cluster_id, '),
]


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_every_mistake_names_its_place(text: str, said: str) -> None:
    with pytest.raises(InputFault) as refused:
        read_plan(text)
    assert str(refused.value).startswith(said) or said in str(refused.value)
