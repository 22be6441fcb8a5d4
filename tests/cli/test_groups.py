"""`anabranch groups` against a real node with a real consumer group (R15)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from confluent_kafka import Consumer, TopicPartition

from anabranch.client import groups
from anabranch.client.cluster import no_leader
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.testing import LocalCluster


@pytest.fixture(scope="module")
def committed(node):
    """A group `readers` that has read 3 of 5 records and left."""
    from click.testing import CliRunner

    from anabranch.cli.main import main

    def run(*words, text=None):
        environment = {"ANABRANCH_BOOTSTRAP_SERVER": node.bootstrap}
        result = CliRunner().invoke(main, words, input=text, env=environment)
        assert result.exit_code == 0, result.output

    run("topics", "create", "--topic", "lines", "--partitions", "1")
    run("produce", "--topic", "lines", text="a\nb\nc\nd\ne\n")
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition("lines", 0, 3)], asynchronous=False)
    consumer.close()
    return node


def test_a_group_is_listed_and_described(verb, committed):
    assert "readers" in verb("groups", "list").stdout
    assert json.loads(verb("groups", "list", "--json", "--state", "stable").stdout) == []
    said = verb("groups", "describe", "--group", "readers")
    assert said.stdout.splitlines()[0] == "Group readers: Empty, 0 members."
    told = json.loads(verb("groups", "describe", "--group", "readers", "--json").stdout)
    (offset,) = told["offsets"]
    assert (offset["committed"], offset["end"], offset["lag"]) == (3, 5, 2)


def test_all_groups_are_described_at_once(verb, committed, node):
    strange = "of\x1b[2Ja\nclient"
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": strange})
    consumer.commit(offsets=[TopicPartition("lines", 0, 1)], asynchronous=False)
    consumer.close()
    said = verb("groups", "describe", "--all-groups")
    assert said.exit_code == 0, said.output
    assert "Group readers: Empty, 0 members." in said.stdout.splitlines()
    assert r"Group of\x1b[2Ja\nclient: Empty, 0 members." in said.stdout.splitlines()
    told = json.loads(verb("groups", "describe", "--all-groups", "--json").stdout)
    assert {each["group"] for each in told} == {"readers", strange}
    assert verb("groups", "describe", "readers", "--all-groups").exit_code == 2
    assert verb("groups", "describe").stdout == said.stdout
    assert json.loads(verb("groups", "describe", "--json").stdout) == told
    assert verb("groups", "delete", "--group", strange).exit_code == 0


def test_groups_that_cannot_be_listed_are_told(verb, committed, monkeypatch):
    """The others are listed on standard output; the exit code is that of an incomplete list."""
    complete = groups.list_groups

    async def list_groups(cluster):
        found = await complete(cluster)
        fault = ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        place = "__consumer_offsets", 7
        return found._replace(
            missing={"broker 1": fault, "-".join(map(str, place)): no_leader(*place)}
        )

    monkeypatch.setattr(groups, "list_groups", list_groups)
    said = verb("groups", "list", "--json")
    assert said.exit_code == 1
    assert "readers" in [each["group"] for each in json.loads(said.stdout)]
    broker, partition = (each for each in said.stderr.splitlines() if "missing" in each)
    assert broker.startswith("Groups are missing: broker 1: ")
    assert broker.endswith("(COORDINATOR_LOAD_IN_PROGRESS)")
    assert partition.startswith("Groups are missing: Partition __consumer_offsets-7 has no leader.")


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_a_consumer_that_is_told_to_end_commits_what_it_printed(verb, committed, end):
    group = f"ends-{end.name}"
    reading = subprocess.Popen(
        [sys.executable, "-m", "anabranch", "consume", "--topic", "lines", "--from-beginning",
         "--group", group, "--bootstrap-server", committed.bootstrap],
        stdout=subprocess.PIPE, text=True,
        # a shell starts what is in the background with SIGINT ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        assert [reading.stdout.readline() for _ in range(5)] == ["a\n", "b\n", "c\n", "d\n", "e\n"]
        reading.send_signal(end)
        assert reading.wait(20) == 0
    finally:
        reading.kill()
        reading.stdout.close()
    told = json.loads(verb("groups", "describe", "--group", group, "--json").stdout)
    assert told["offsets"][0]["committed"] == 5
    assert told["state"] == "Empty"


@pytest.mark.parametrize(
    ("words", "to"),
    [
        (("--to-earliest",), 0),
        (("--to-latest",), 5),
        (("--to-offset", "4"), 4),
        (("--to-offset", "99"), 5),
        (("--shift-by", "-1"), 2),
        (("--to-datetime", "1990-01-01T00:00:00"), 0),
        (("--to-datetime", "2999-01-01T00:00:00+00:00"), 5),
    ],
)
def test_offsets_are_moved_only_when_asked_to(verb, committed, words, to):
    shown = verb("groups", "reset-offsets", "--group", "readers", *words, "--json")
    assert shown.exit_code == 0, shown.output
    moved = [{"topic": "lines", "partition": 0, "from": 3, "to": to}]
    told = {"group": "readers", "executed": False, "offsets": moved}
    assert json.loads(shown.stdout) == told
    told = json.loads(verb("groups", "describe", "--group", "readers", "--json").stdout)
    assert told["offsets"][0]["committed"] == 3


def test_offsets_are_moved(verb, committed):
    how = ("--group", "mover", "--topic", "lines:0", "--to-offset", "2")
    assert "add --execute" in verb("groups", "reset-offsets", *how).stdout
    done = verb("groups", "reset-offsets", *how, "--execute", "--json")
    assert json.loads(done.stdout)["executed"] is True
    told = json.loads(verb("groups", "describe", "--group", "mover", "--json").stdout)
    assert told["offsets"][0]["committed"] == 2
    assert verb("groups", "delete", "--group", "mover").stdout == "Group mover deleted.\n"


def test_a_topic_may_be_named_once_for_each_partition(verb):
    verb("topics", "create", "--topic", "wide", "--partitions", "3")
    for places, indexes in (
        (("wide:0", "wide:2"), [0, 2]),
        (("wide:0", "wide:0,1"), [0, 1]),
        (("wide", "wide:1"), [0, 1, 2]),
        (("wide:1", "wide"), [0, 1, 2]),
    ):
        named = (word for place in places for word in ("--topic", place))
        shown = verb("groups", "reset-offsets", "--group", "w", *named, "--to-earliest", "--json")
        assert [each["partition"] for each in json.loads(shown.stdout)["offsets"]] == indexes


def test_a_partition_without_a_leader_hides_no_other(against):
    with LocalCluster(brokers=3) as cluster:
        verb = against(cluster.bootstrap_servers)
        cluster.create_topic("t", partitions=2, replication_factor=1)
        how = ("reset-offsets", "--group", "g", "--execute", "--json", "--topic")
        assert verb("groups", *how, "t", "--to-earliest").exit_code == 0
        cluster.stop_broker(cluster.leader("t", 1))
        told = json.loads(verb("groups", "describe", "--group", "g", "--json").stdout)
        ends = [(each["committed"], each["end"], each["lag"]) for each in told["offsets"]]
        assert ends == [(0, 0, 0), (0, -1, None)]
        assert verb("groups", *how, "t:0", "--to-latest").exit_code == 0
        refused = verb("groups", *how, "t", "--to-latest", "--timeout", "1")
        assert refused.exit_code == 1 and "t-1 has no leader" in refused.output


def test_offsets_of_a_group_that_runs_are_left_to_its_members(verb, committed):
    consumer = Consumer({"bootstrap.servers": committed.bootstrap, "group.id": "busy"})
    try:
        consumer.subscribe(["lines"])
        while not consumer.assignment():
            consumer.poll(0.1)
        how = ("--group", "busy", "--topic", "lines", "--to-earliest", "--execute")
        refused = verb("groups", "reset-offsets", *how)
    finally:
        consumer.close()
    assert refused.exit_code == 1
    assert "Group busy has members" in refused.output and "NON_EMPTY_GROUP" in refused.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("describe", "--group", "nobody"), "GROUP_ID_NOT_FOUND"),
        (("delete", "--group", "nobody"), "GROUP_ID_NOT_FOUND"),
        (("list", "--state", "awake"), "Stable"),
        (("reset-offsets", "--group", "readers"), "Say where to"),
        (("reset-offsets", "--group", "g", "--to-earliest", "--to-latest"), "Say where to"),
        (("reset-offsets", "--group", "nobody", "--to-latest"), "--topic"),
        (("reset-offsets", "--group", "g", "--topic", "lines:x", "--to-latest"), "NAME:0,1"),
        (("reset-offsets", "--group", "g", "--to-datetime", "soon"), "2026-11-21T08:00:00"),
        (("reset-offsets", "--group", "g", "--to-datetime", "1969-12-31T23:59:59.999"), "earliest"),
        (("reset-offsets", "--group", "g", "--to-datetime", "0001-01-01"), "is before 1970"),
        (("reset-offsets", "--group", "g", "--topic", "none", "--to-latest"), "none"),
        (("reset-offsets", "--group", "g", "--topic", "lines:7", "--to-latest"), "lines-7"),
    ],
)
def test_what_cannot_be_is_one_line(verb, committed, words, said):
    result = verb("groups", *words)
    assert result.exit_code in (1, 2)
    assert said in result.output and "Traceback" not in result.output
