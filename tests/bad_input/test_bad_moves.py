"""Replica lists, moves and plans that cannot be: nothing is created, nothing moves (R16, B2)."""

from __future__ import annotations

import json

import pytest
from bad_kit import Raw
from click.testing import CliRunner

from anabranch.cli.main import main
from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from anabranch.core.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from anabranch.core.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

NOBODY = 77
TOPIC = "plain"


@pytest.fixture(autouse=True)
def still(node):
    """Whatever is asked, nothing is on its way afterwards."""
    yield
    with Raw(node) as client:
        answer = client.ask(ListPartitionReassignmentsRequest(topics=None), 0)
    assert (answer.error_code, answer.topics) == (0, [])


def moved(client, *lists, topic=TOPIC, index=0, **fields):
    """The answers about one partition that is named as often as there are lists."""
    partitions = [
        ReassignablePartition(partition_index=index, replicas=replicas) for replicas in lists
    ]
    topics = [ReassignableTopic(name=topic, partitions=partitions)]
    request = AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=5000, **fields)
    answer = client.ask(request, 1)
    assert answer.error_code == 0
    return [(each.error_code, each.error_message) for each in answer.responses[0].partitions]


LISTS = {
    "to nobody": ([], "empty replica list"),
    "to a stranger": ([1, NOBODY], f"includes broker {NOBODY}, but no such broker is registered"),
    "to a missing replica": ([1, -1], "includes broker -1, but no such broker is registered"),
    "to one broker twice": ([1, 1], "includes the broker 1 more than once"),
    "to a broker without end": ([(1 << 31) - 1], "no such broker is registered"),
}


@pytest.mark.parametrize(("replicas", "said"), LISTS.values(), ids=LISTS)
def test_a_move_that_cannot_be(client, replicas, said):
    ((code, sentence),) = moved(client, replicas)
    assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert said in sentence


@pytest.mark.parametrize(("topic", "index"), [("nobodys", 0), (TOPIC, 9), (TOPIC, -1), ("", 0)])
def test_a_move_of_an_unknown_partition(client, topic, index):
    for replicas in ([1], None):
        ((code, sentence),) = moved(client, replicas, topic=topic, index=index)
        assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert sentence


def test_a_move_that_is_taken_back_and_is_none(client):
    ((code, sentence),) = moved(client, None)
    assert code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert sentence


def test_a_partition_that_is_moved_twice_in_a_request(client):
    codes = [code for code, _ in moved(client, [1], [NOBODY])]
    assert codes == [0, ErrorCode.INVALID_REQUEST]


def test_moves_of_strangers_are_not_listed(client):
    asked = [
        ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, -1, 1 << 30])
        for name in ("nobodys", TOPIC, "")
    ]
    answer = client.ask(ListPartitionReassignmentsRequest(topics=asked), 0)
    assert (answer.error_code, answer.topics) == (0, [])


@pytest.mark.parametrize("factor", [2, 32_767])
def test_more_replicas_than_there_will_be_brokers(client, factor):
    topic = CreatableTopic(name="wide-one", num_partitions=1, replication_factor=factor)
    (answer,) = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7).topics
    assert answer.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert f"replication factor of {factor} cannot be reached because only 1 broker(s)" in (
        answer.error_message
    )


def test_a_placer_that_nobody_knows(client):
    config = CreatableTopicConfig(name="replica.placer.class.name", value="org.example.Clever")
    topic = CreatableTopic(name="placed", num_partitions=1, replication_factor=1, configs=[config])
    (answer,) = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7).topics
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert "replica.placer.class.name" in answer.error_message


def entry(**fields):
    return {"topic": TOPIC, "partition": 0, "replicas": [1], **fields}


FILES = {
    "nothing": ("", "line 1, column 1: "),
    "no JSON": ('{"partitions": [}', "line 1, column"),
    "no partitions": ('{"version": 1}', "partitions: it is missing"),
    "another version": ('{"version": 9, "partitions": [1]}', "version: 9 is not known here"),
    "a key that is missing": (
        json.dumps({"partitions": [{"topic": TOPIC}]}), "line 1, partition: it is missing",
    ),
    "a key without effect": (
        json.dumps({"partitions": [entry(observers=[1])]}), 'line 1, "observers": no such field',
    ),
    "a broker twice": (
        json.dumps({"partitions": [entry(replicas=[1, 1])]}), "broker 1 is named twice",
    ),
    "a partition twice": (json.dumps({"partitions": [entry(), entry()]}), "a second time"),
    "a folder": (json.dumps({"partitions": [entry(log_dirs=["/d"])]}), 'only "any" is served'),
    "bytes": (b"\xff\xfe{}", "it is not text in UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "said"), FILES.values(), ids=FILES)
def test_a_file_of_moves_with_a_mistake(node, tmp_path, content, said):
    path = tmp_path / "moves.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    words = ["partitions", "reassign", "--execute", "--file", str(path)]
    result = CliRunner().invoke(main, [*words, "--bootstrap-server", node.bootstrap])
    assert result.exit_code == 1
    (line,) = [each for each in result.output.splitlines() if each.startswith("Error: ")]
    assert str(path) in line
    assert said in line
    assert "Traceback" not in result.output


def plan_of(tmp_path, **fields):
    """A plan file that moves the topic's partition."""
    move = {
        "topic": TOPIC, "partition": 0, "from": [1], "to": [NOBODY], "why": "BROKER_DRAINED",
        "because": "broker 1 is drained", **fields,
    }  # fmt: skip
    whole = {"version": 1, "cluster_id": "elsewhere", "goal": "drain", "made_at_ms": 1}
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({**whole, "moves": [move]}))
    return str(path)


def test_a_plan_for_another_cluster(node, tmp_path):
    words = ["apply", plan_of(tmp_path), "--bootstrap-server", node.bootstrap]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 1
    assert "INCONSISTENT_CLUSTER_ID" in result.output
    assert "Traceback" not in result.output


def test_a_plan_file_with_a_mistake(node, tmp_path):
    path = plan_of(tmp_path, to=[NOBODY, NOBODY])
    result = CliRunner().invoke(main, ["apply", path, "--bootstrap-server", node.bootstrap])
    assert result.exit_code == 1
    assert f"line 1, to[1]: broker {NOBODY} is named twice for {TOPIC}-0" in result.output


STRANGER = "Broker ID 77 is not currently registered; known: 1."
STRANGERS = {
    "drain": (["plan", "drain", "--broker", NOBODY], "Not registered: broker 77; known: 1."),
    "add": (["plan", "add", "--broker", NOBODY], "Not registered: broker 77; known: 1."),
    "factor": (
        ["plan", "factor", "--topic", "nobodys", "--replication-factor", 1],
        "There is no topic 'nobodys': `anabranch topics list` shows what there is.",
    ),
    "observers": (["plan", "observers", "--topic", "nobodys"], "There is no topic 'nobodys'."),
    "cordon": (["cluster", "cordon", "--broker", NOBODY], "No node with id 77 found; known: 1."),
    "uncordon": (
        ["cluster", "uncordon", "--broker", NOBODY],
        "No node with id 77 found; known: 1.",
    ),
    "unregister": (["cluster", "unregister", NOBODY], STRANGER),
    "election": (["partitions", "elect-leaders", "--topic", "nobodys"], "There is no topic 'nobodys'."),
    "explain": (["explain", "nobodys-0"], "There is no partition nobodys-0."),
    "rack": (
        ["configs", "alter", "--entity-type", "topics", "--entity-name", TOPIC,
         "--replica-placement", "replicas=nowhere:1"],
        "confluent.placement.constraints: no broker is in rack nowhere; known: none, ",
    ),
}  # fmt: skip
"""Commands that name a broker, topic or rack that is not there, and how their one line begins."""


@pytest.mark.parametrize(("words", "said"), STRANGERS.values(), ids=STRANGERS)
def test_a_command_that_names_a_stranger(node, words, said):
    command = [*map(str, words), "--bootstrap-server", node.bootstrap]
    result = CliRunner().invoke(main, command)
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"Error: {said}")


def test_a_proposal_for_a_stranger(node, tmp_path):
    path = tmp_path / "topics.json"
    path.write_text(json.dumps({"version": 1, "topics": [{"topic": TOPIC}]}))
    words = ["partitions", "reassign", "--generate", "--topics-file", str(path), "--brokers"]
    result = CliRunner().invoke(main, [*words, "1,77", "--bootstrap-server", node.bootstrap])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Broker 77 is not registered; known: 1." in result.stderr
