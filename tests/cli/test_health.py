"""R20, R7: what the verbs say of three real nodes, with one of them away and back again."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from tests.clients.members import until
from tests.server.node_kit import ThreadNode
from tests.server.three_kit import RACKS, bootstrap_of, followed, running, serving, three_threads

from anabranch.cli.main import main

TOPICS = {
    "enough": ("1:2:3,2:3:1", "1"),
    "barely": ("2:3:1", "2"),
    "strict": ("3:1:2", "3"),
    "alone": ("3", "1"),
}
"""Topic -> replicas, min.insync.replicas."""


@pytest.fixture
def nodes(tmp_path):
    with running(three_threads(tmp_path, RACKS)) as started:
        yield started


@pytest.fixture
def verb(nodes):
    """Run `anabranch WORDS` against the first two nodes; returns click's result."""

    def run(*words: str):
        followed(serving(nodes))
        servers = {"ANABRANCH_BOOTSTRAP_SERVER": bootstrap_of(nodes, (1, 2))}
        return CliRunner().invoke(main, words, env=servers)

    return run


def told(result):
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def ill(verb, *filters):
    """Place -> what is wrong with it, of the partitions that these filters show."""
    words = [f"--{each}-partitions" for each in filters]
    return {
        (topic["topic"], part["partition"]): part["health"]
        for topic in told(verb("topics", "describe", *words, "--json"))
        for part in topic["partitions"]
    }


def status(verb):
    return told(verb("cluster", "status", "--json"))


def make_topics(verb):
    for topic, (replicas, minimum) in TOPICS.items():
        made = verb("topics", "create", "--topic", topic, "--replica-assignment", replicas,
                    "--config", f"min.insync.replicas={minimum}")  # fmt: skip
        assert made.exit_code == 0, made.output
    until(lambda: not ill(verb, "under-replicated"))


def is_healthy(verb):
    assert ill(verb, "under-min-isr") == ill(verb, "unavailable") == {}
    assert set(ill(verb, "at-min-isr")) == {("strict", 0), ("alone", 0)}
    found = status(verb)
    assert (found["brokers"], found["fenced_brokers"], found["partitions"]) == (3, 0, 5)
    assert found["under_replicated"] == found["not_led_by_preferred"] == 0
    nothing = verb("topics", "describe", "--under-replicated-partitions", "--topic", "enough")
    assert nothing.stdout == "No partition is under-replicated.\n"


def is_ill_without_the_third(verb):
    worst = ["unavailable", "under-min-isr", "under-replicated"]
    assert ill(verb, "unavailable") == {("alone", 0): worst}
    assert set(ill(verb, "under-min-isr")) == {("strict", 0), ("alone", 0)}
    assert ("barely", 0) in ill(verb, "at-min-isr")
    assert len(ill(verb, "under-replicated")) == 5
    both = ill(verb, "at-min-isr", "unavailable")
    assert set(both) == {("barely", 0), ("alone", 0)}, "any of those that are asked for"
    [nobody] = [
        part["reasons"]
        for topic in told(verb("topics", "describe", "--unavailable-partitions", "--json"))
        for part in topic["partitions"]
    ]
    assert nobody[0] == "no replica can lead alone-0 (broker 3: it shuts down)"
    table = verb("topics", "describe", "--under-min-isr-partitions").stdout
    assert "broker 3 left the ISR of strict-0: it shuts down" in table
    assert "strict  0" in table and "none" in table


def brokers_tell_who_is_away(verb):
    found = {each["id"]: each for each in told(verb("cluster", "brokers", "--json"))}
    assert {each: found[each]["rack"] for each in found} == RACKS
    assert [each for each in found if found[each]["fenced"]] == [3]
    assert found[3]["leaders"] == 0
    assert (found[3]["replicas"], found[3]["preferred_leaders"]) == (5, 2)
    assert found[3]["replicas_behind"] == 5
    assert found[1]["under_replicated"] + found[2]["under_replicated"] == 4
    assert sum(each["active_controller"] for each in found.values()) == 1
    gone = "broker 3 goes from controlled shutdown to shutdown now"
    assert found[3]["reason"].endswith(gone) and found[1]["reason"] is None
    assert gone in verb("cluster", "brokers").stdout
    said = verb("cluster", "status").stdout
    assert "alone-0 first, without a leader; waiting for broker 3 to be back" in said
    assert "--unavailable-partitions" in said
    assert "A fenced broker is down" in said


def leaders_return(verb):
    assert status(verb)["not_led_by_preferred"] == 1
    words = ("partitions", "elect-leaders", "--type", "preferred")
    outcomes = told(verb(*words, "--topic", "strict", "--json"))
    assert outcomes == [
        {
            "topic": "strict",
            "partition": 0,
            "elected": True,
            "error": None,
            "message": None,
            "reasons": [],
        }
    ]
    until(lambda: status(verb)["not_led_by_preferred"] == 0)
    assert "not needed" in verb(*words, "--topic", "strict", "--partition", "0").stdout
    assert "No partition needs a preferred leader" in verb(*words, "--all-topic-partitions").stdout


def what_waits_for_it_is_told(verb, tmp_path):
    assert (status(verb)["moving"], status(verb)["moves_held_up"]) == (0, 0)
    verb("topics", "create", "--topic", "waits", "--replica-assignment", "1")
    move = {"topic": "waits", "partition": 0, "replicas": [1, 3]}
    file = tmp_path / "moves.json"
    file.write_text(json.dumps({"version": 1, "partitions": [move]}))
    begun = verb("partitions", "reassign", "--execute", "--file", str(file))
    assert begun.exit_code == 0, begun.output
    until(lambda: status(verb)["moving"] == 1)
    assert status(verb)["moves_held_up"] == 1
    assert (
        "1 partition, waits-0 first, cannot move on without broker 3: start what is down; where "
        "that is not possible, `anabranch explain waits-0` says how a move is taken back."
    ) in verb("cluster", "status").stdout
    assert "cancel the move with" in verb("explain", "waits-0").stdout


def test_r20_what_is_ill_is_told_and_r7_preferred_leaders_return_by_request(verb, nodes, tmp_path):
    make_topics(verb)
    is_healthy(verb)
    nodes[3].stop()
    until(lambda: status(verb)["fenced_brokers"] == 1)
    is_ill_without_the_third(verb)
    brokers_tell_who_is_away(verb)
    what_waits_for_it_is_told(verb, tmp_path)
    refused = verb("partitions", "elect-leaders", "--topic", "strict")
    assert refused.exit_code == 1
    assert "strict-0" in refused.output and "PREFERRED_LEADER_NOT_AVAILABLE" in refused.output
    assert "start the first replica" in refused.output
    assert "broker 3 left the ISR of strict-0: it shuts down" in refused.output
    refused = verb("partitions", "elect-leaders", "--topic", "strict", "--json")
    assert refused.exit_code == 1
    [one] = json.loads(refused.stdout)
    assert one["error"] == "PREFERRED_LEADER_NOT_AVAILABLE"
    nodes[3] = ThreadNode.again(nodes[3]).start()
    until(lambda: not ill(verb, "under-replicated"))
    until(lambda: status(verb)["moving"] == status(verb)["moves_held_up"] == 0)
    leaders_return(verb)


def leader_of(verb, topic):
    [described] = told(verb("topics", "describe", "--topic", topic, "--json"))
    return described["partitions"][0]["leader"]


def in_sync(verb, topic):
    [described] = told(verb("topics", "describe", "--topic", topic, "--json"))
    return described["partitions"][0]["isr"]


def test_r6_an_unclean_leader_is_elected_by_request_only(verb, nodes):
    made = verb("topics", "create", "--topic", "clicks", "--replica-assignment", "3:2")
    assert made.exit_code == 0, made.output
    until(lambda: in_sync(verb, "clicks") == [3, 2])
    nodes[2].stop()
    until(lambda: in_sync(verb, "clicks") == [3])
    nodes[3].stop()
    until(lambda: leader_of(verb, "clicks") == -1)
    nodes[2] = ThreadNode.again(nodes[2]).start()
    assert leader_of(verb, "clicks") == -1, "2 may lack records"
    words = ("partitions", "elect-leaders", "--topic", "clicks", "--partition", "0")
    refused = verb(*words)
    assert refused.exit_code == 1
    assert "PREFERRED_LEADER_NOT_AVAILABLE" in refused.output
    assert "elected" in verb(*words, "--type", "unclean").stdout
    until(lambda: leader_of(verb, "clicks") == 2)
    assert "not needed" in verb(*words, "--type", "unclean").stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "Give either --topic NAME or --all-topic-partitions"),
        (["--topic", "t", "--all-topic-partitions"], "Give either"),
        (["--all-topic-partitions", "--partition", "1"], "--partition needs --topic"),
        (["--type", "any", "--topic", "t"], "'preferred', 'unclean'"),
    ],
)
def test_an_unclear_election_is_refused_before_anybody_is_asked(words, sentence):
    result = CliRunner().invoke(main, ["partitions", "elect-leaders", *words])
    assert result.exit_code == 2
    assert sentence in result.output
