"""Files of moves: those of Kafka's tool are read, and every mistake is named by its place (R16)."""

from __future__ import annotations

from time import process_time

import pytest

from anabranch.core.placement.json_places import InputFault
from anabranch.core.placement.reassignment_file import read_moves, read_topics, write_moves
from anabranch.core.types import TopicPartition

KAFKAS = (
    '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2,3],'
    '"log_dirs":["any","any","any"]},{"topic":"t","partition":1,"replicas":[2,3]}]}'
)


def test_what_kafkas_tool_proposes_is_read_and_written_again() -> None:
    moves = read_moves(KAFKAS)
    assert moves == {TopicPartition("t", 0): (1, 2, 3), TopicPartition("t", 1): (2, 3)}
    assert read_moves(write_moves(moves)) == moves


def test_a_row_of_many_brokers_is_read_in_one_pass() -> None:
    begin = process_time()
    assert read_moves(entry(replicas=str([*range(20_000)]))) == {
        TopicPartition("t", 0): tuple(range(20_000))
    }
    assert process_time() - begin < 1, "each broker is compared with all before it"


def test_topics_to_move() -> None:
    assert read_topics('{"topics": [{"topic": "b"}, {"topic": "a"}, {"topic": "b"}]}') == ["b", "a"]


def entry(topic: str = '"t"', partition: str = "0", replicas: str = "[1]", more: str = "") -> str:
    body = f'{{"topic": {topic}, "partition": {partition}, "replicas": {replicas}{more}}}'
    return '{"version": 1, "partitions": [\n' + body + "\n]}"


WRONG = [
    ("", "line 1, column 1: "),
    ("[]", "line 1, column 1: "),
    ("{}", "partitions: it is missing"),
    ('{"partitions": {}}', "line 1, column 16: an array is expected"),
    ('{"partitions": []}', "partitions: it is empty"),
    ('{"version": 2, "partitions": [1]}', "version: 2 is not known here; 1 is"),
    ('{"partitions": [\n\n7]}', "line 3: "),
    ('{"partitions": [1}', "line 1, column"),
    ('{"partitions" [1]}', "line 1, column 15: a colon"),
    ("{1: 2}", "line 1, column 2: a name in quotes"),
    (entry() + " x", "nothing may follow the object"),
    (entry(topic="7"), "line 2, topic: a name is expected, not 7"),
    (entry(topic='""'), "line 2, topic: a name is expected"),
    (entry(topic='"t\\ud800"'), 'line 2, topic: a name is expected, not "t\\ud800"'),
    (entry(replicas=f"[{'9' * 5000}]"), "line 1, column 30: a number in what begins here is too"),
    (entry(partition='"0"'), "line 2, partition: a whole number"),
    (entry(partition="-1"), "line 2, partition: a whole number from 0"),
    (entry(replicas="[]"), "line 2, replicas: t-0 needs at least one broker"),
    (entry(replicas="[1, -2]"), "line 2, replicas[1]: -2 is no broker id"),
    (entry(replicas="[1, 2, 1]"), "line 2, replicas[2]: broker 1 is named twice for t-0"),
    (entry(replicas='["1"]'), "line 2, replicas[0]: a broker id is expected"),
    (entry(more=', "log_dirs": ["any", "any"]'), "line 2, log_dirs: one folder a replica"),
    (entry(more=', "log_dirs": ["/disk"]'), 'line 2, log_dirs: only "any" is served'),
    (entry(more=', "observers": [3]'), 'line 2, "observers": no such field; known are topic, '),
    ('{"partitions": [7],\n"throttle": 5}', 'line 2, "throttle": no such field; known are version'),
    (
        '{"partitions": [\n{"topic": "t", "partition": 0, "replicas": [1]},\n'
        '{"topic": "t", "partition": 0, "replicas": [2]}]}',
        "line 3, partition: t-0 is named a second time",
    ),
]


@pytest.mark.parametrize(("text", "said"), WRONG, ids=[said[:40] for _, said in WRONG])
def test_what_is_wrong_is_said_with_its_place(text: str, said: str) -> None:
    with pytest.raises(InputFault) as fault:
        read_moves(text)
    assert said in str(fault.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"topics": [{"topic": "t", "partition": 0}]}', 'line 1, "partition": no such field'),
        ('{"topic": "t", "topics": [{"topic": "t"}]}', 'line 1, "topic": no such field'),
    ],
)
def test_fields_without_effect_among_topics_are_refused(text: str, said: str) -> None:
    with pytest.raises(InputFault, match=said):
        read_topics(text)
