"""B2, R16: plans are made, reviewed and carried out on four real nodes in three racks."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from anabranch.cli.main import main
from anabranch.testing import LocalCluster


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(brokers=4, racks=["a", "b", "c", "c"]) as running:
        yield running


@pytest.fixture
def verb(cluster):
    def run(*words: str):
        servers = {"ANABRANCH_BOOTSTRAP_SERVER": cluster.bootstrap_servers}
        return CliRunner().invoke(main, words, env=servers)

    return run


@pytest.fixture
def topic(cluster, verb):
    """Make a topic with these replica lists; it is gone afterwards."""
    made = []

    def create(name: str, assignment: str) -> None:
        made.append(name)
        result = verb("topics", "create", "--topic", name, "--replica-assignment", assignment)
        assert result.exit_code == 0, result.output

    yield create
    for name in made:
        cluster.delete_topic(name)


def test_a_plan_is_printed_with_reasons_and_moves_nothing(cluster, verb, topic, tmp_path):
    topic("walk", "1:2:3,2:3:1")
    path = tmp_path / "plan.json"
    result = verb("plan", "drain", "--broker", "3", "--out", str(path))
    assert result.exit_code == 0, result.output
    assert "drain broker(s) 3: 2 partition(s) move, 2 replica(s) copied." in result.output
    assert (
        "walk-0: 1, 2, 3 -> 1, 2, 4  (broker 3 is drained; broker 4 gets the replica: rack c has "
        "none of it, and there it carries least)"
    ) in result.output
    assert f"Nothing has moved. Review {path}, then: anabranch apply {path}" in result.output
    file = json.loads(path.read_text())
    assert (file["cluster_id"], len(file["moves"])) == (cluster.cluster_id, 2)
    again = verb("plan", "drain", "--broker", "3", "--json")
    assert json.loads(again.stdout)["moves"] == file["moves"]
    assert verb("partitions", "reassign", "--list").stdout == "No replica is moving.\n"


def test_what_cannot_be_says_what_it_would_take(cluster, verb, topic, tmp_path):
    topic("full", "1:2:3:4")
    path = tmp_path / "plan.json"
    result = verb("plan", "drain", "--broker", "3", "--out", str(path))
    assert result.exit_code == 0, result.output
    assert "drain broker(s) 3: nothing can move." in result.output
    assert (
        "Cannot be: the replica of full-0 on broker 3: no broker is left that has no replica of "
        "it: it has 4. It would take: one more active broker that is not cordoned, or a lower "
        "replication factor."
    ) in result.output
    assert not path.exists()
    lower = verb("plan", "factor", "--topic", "full", "--replication-factor", "3", "--json")
    (move,) = json.loads(lower.stdout)["moves"]
    assert (len(move["to"]), move["why"]) == (3, "FACTOR_CHANGED")


def test_racks_and_unknown_brokers(verb, topic):
    topic("close", "3:4,1:2")
    found = json.loads(verb("plan", "racks", "--json").stdout)
    assert [(each["topic"], each["partition"]) for each in found["moves"]] == [("close", 0)]
    unknown = verb("plan", "add", "--broker", "9")
    assert "Cannot be: broker(s) 9: not registered." in unknown.output
