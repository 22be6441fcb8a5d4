"""Manual assignment files: each criterion its own error, with line and field (F6)."""

from __future__ import annotations

import json
from time import process_time

import pytest

from anabranch.core.placement.json_places import InputFault
from anabranch.core.placement.manual import read_assignment


def written(*partitions: tuple[int, list[int]]) -> str:
    lines = [json.dumps({"id": index, "replicas": replicas}) for index, replicas in partitions]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def test_the_documents_file() -> None:
    text = written((0, [0, 1, 2]), (1, [1, 2, 0]))
    assert read_assignment(text) == [(0, 1, 2), (1, 2, 0)]


WRONG = [
    ("[]", "no partitions are assigned: the array is empty"),
    (written((1, [1]), (2, [1])), "line 2, id: ids must start with 0, not with 1"),
    (written((0, []), (1, [1])), "line 2, replicas: at least one broker is needed"),
    (written((0, [1]), (2, [1])), "line 3, id: ids must follow each other without gaps: 1 was due"),
    (written((0, [1]), (2, [1]), (1, [1])), "line 3, id: ids must follow each other"),
    (written((0, [1]), (1, [1]), (1, [1])), "line 4, id: ids must follow each other"),
    (written((0, [1, 2]), (1, [1])), "line 3, replicas: every partition must have as many"),
    (written((0, [1]), (1, [])), "the first, 1; partition 1 has 0"),
    (written((0, [1, 2]), (1, [1, 1])), "line 3, replicas[1]: broker 1 is named twice"),
    (written((0, [3, 1, 2, 3])), "line 2, replicas[3]: broker 3 is named twice in partition 0"),
    (written((0, [1, 2]), (1, [1, -2])), "line 3, replicas[1]: -2 is no broker id in partition 1"),
    ("", "line 1, column 1: an array"),
    ('{"partitions": []}', "line 1, column 1: an array"),
    ('[\n {"id": 0,, "replicas": [1]}]', "line 2, column 11: this is not JSON"),
    ('[{"id": 0, "replicas": [1]} {"id": 1}]', "line 1, column 29: a comma or the end"),
    ('[{"id": 0, "replicas": [1]}] x', "line 1, column 30: nothing may follow the array"),
    ("[7]", 'line 1: {"id": …, "replicas": […]} is expected'),
    ('[{"replicas": [1]}]', "line 1, id: it is missing"),
    ('[{"id": 0}]', "line 1, replicas: it is missing"),
    ('[\n{"id": 0, "replicas": [1], "replcas": [2]}]', 'line 2, "replcas": no such field; known'),
    ('[{"id": -1, "replicas": [1]}]', "line 1, id: a whole number from 0"),
    ('[{"id": true, "replicas": [1]}]', "line 1, id: a whole number from 0"),
    ('[{"id": 0, "replicas": "1"}]', "line 1, replicas: an array of broker ids"),
    ('[{"id": 0, "replicas": [1, 2.5]}]', "line 1, replicas[1]: a broker id is expected, not 2.5"),
    ('[{"id": 0, "replicas": [99999999999]}]', "line 1, replicas[0]: a broker id is expected"),
    ("[" * 100_000, "line 1, column 2: this is not JSON (it is nested too deep)"),
]


@pytest.mark.parametrize(("text", "said"), WRONG, ids=[said[:40] for _, said in WRONG])
def test_what_is_wrong_is_said_with_its_place(text: str, said: str) -> None:
    with pytest.raises(InputFault) as fault:
        read_assignment(text)
    assert said in str(fault.value)


def test_a_row_of_many_brokers_is_read_in_one_pass() -> None:
    begin = process_time()
    assert read_assignment(written((0, [*range(20_000)]))) == [tuple(range(20_000))]
    assert process_time() - begin < 1, "each broker is compared with all before it"


def test_the_criteria_are_tried_in_their_order() -> None:
    """An entry that breaks several breaks the first of them."""
    with pytest.raises(InputFault, match="without gaps"):
        read_assignment(written((0, [1, 2]), (5, [-1, -1, -1])))
    with pytest.raises(InputFault, match="as many replicas"):
        read_assignment(written((0, [1, 2]), (1, [-1, -1, -1])))
    with pytest.raises(InputFault, match="named twice"):
        read_assignment(written((0, [1, 2]), (1, [-1, -1])))
