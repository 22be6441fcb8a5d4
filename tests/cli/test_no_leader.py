"""A partition that nobody leads bars nobody from the others of its topic."""

from __future__ import annotations

import json

import pytest

from anabranch.testing import LocalCluster


@pytest.fixture(scope="module")
def verb(against):
    """Runs a verb against two nodes, the second of which ended and led `t-1` alone."""
    with LocalCluster(brokers=2) as cluster:
        run = against(cluster.bootstrap_servers)
        made = run("topics", "create", "--topic", "t", "--replica-assignment", "1,2")
        assert made.exit_code == 0, made.output
        cluster.stop_broker(2)
        yield run


def test_records_are_written_to_and_read_from_another_partition(verb):
    sent = verb("produce", "--topic", "t", "--partition", "0", "--timeout", "5", input="x\n")
    assert sent.exit_code == 0, sent.output
    words = ("--topic", "t", "--partition", "0", "--from-beginning", "--max-messages", "1")
    read = verb("consume", *words, "--timeout", "5")
    assert (read.exit_code, read.stdout) == (0, "x\n")


def test_what_has_no_leader_is_waited_for_and_named(verb):
    words = ("--topic", "t", "--partition", "1", "--timeout", "1")
    for done in (verb("produce", *words, input="x\n"), verb("consume", *words)):
        assert done.exit_code == 1
        assert "Partition t-1 has no leader" in done.output


def test_the_broker_that_must_be_back_is_named(verb):
    explained = verb("explain", "t-1").output
    assert "No leader: it waits for broker 2 to be back: no other broker has its records\n" in (
        explained
    )
    assert "No leader" not in verb("explain", "t-0").output
    said = verb("cluster", "status").output
    assert "1 partition, t-1 first, without a leader; waiting for broker 2 to be back" in said
    told = json.loads(verb("explain", "t-1", "--json").output)
    assert told["waits_for"] == [2]
    assert [each["state"] for each in told["here"]] == ["eligible"]
    assert json.loads(verb("cluster", "status", "--json").output)["unavailable_wait_for"] == [2]
