"""K5, R10: missing replicas and rack violations, as the verbs tell of real nodes."""

from __future__ import annotations

import json
import urllib.request

import pytest
from click.testing import CliRunner
from tests.clients.members import until
from tests.server.node_kit import ThreadNode
from tests.server.test_alerts import alerts
from tests.server.three_kit import bootstrap_of, followed, running, serving, three_threads

from anabranch.cli.main import main

RACKS = {1: "a", 2: "a", 3: "b"}


@pytest.fixture
def nodes(tmp_path):
    """Three nodes with pages of metrics; the third, in a rack of its own, was never started."""
    made = three_threads(tmp_path, RACKS, pages=True, enable_under_replicated_topic_creation="true")
    with running(made, (1, 2)):
        yield made


@pytest.fixture
def verb(nodes):
    """Run `anabranch WORDS` against the first two nodes; its output."""

    def run(*words: str, code: int = 0) -> str:
        followed(serving(nodes))
        servers = {"ANABRANCH_BOOTSTRAP_SERVER": bootstrap_of(nodes, (1, 2))}
        result = CliRunner().invoke(main, words, env=servers)
        assert result.exit_code == code, result.output
        return result.output

    return run


def firing(nodes) -> set[str]:
    """The alert rules that say something."""
    followed(serving(nodes))
    pages = {}
    for node in nodes.values():
        if node.node is not None and node.node.is_ready:
            page = node.node.http_address
            pages[page] = urllib.request.urlopen(f"http://{page}/metrics").read().decode()
    return alerts(pages, pages)


def places(text: str) -> set[str]:
    return {topic["topic"] for topic in json.loads(text)}


def test_what_is_missing_and_what_shares_a_rack_is_told(nodes, verb):
    verb("topics", "create", "--topic", "u", "--replica-assignment", "1:2")
    verb("topics", "create", "--topic", "t", "--partitions", "1", "--replication-factor", "3")
    [topic] = json.loads(verb("topics", "describe", "--missing-replicas", "--json"))
    [part] = topic["partitions"]
    assert (topic["topic"], sorted(part["replicas"]), part["missing_replicas"]) == ("t", [1, 2], 1)
    assert part["offline_replicas"] == [] and "missing-replicas" in part["health"]
    assert "+1 missing" in verb("topics", "describe", "--topic", "t")
    told = verb("cluster", "status")
    assert "which the next broker that joins gets" in told and "rack violations       0" in told
    assert places(verb("topics", "describe", "--rack-violations", "--json")) == set()
    none = verb("topics", "describe", "--rack-violations")
    assert none == "No partition violates racks.\n"
    assert {"MissingReplicas", "RackViolations"} & firing(nodes) == {"MissingReplicas"}
    nodes[3].start()
    until(lambda: not places(verb("topics", "describe", "--missing-replicas", "--json")))
    assert places(verb("topics", "describe", "--rack-violations", "--json")) == {"u"}
    assert "plan racks" in verb("cluster", "status")
    assert {"MissingReplicas", "RackViolations"} & firing(nodes) == {"RackViolations"}
    verb("configs", "alter", "--entity-type", "topics", "--entity-name", "u",
         "--replica-placement", "replicas=a:2")  # fmt: skip
    assert places(verb("topics", "describe", "--rack-violations", "--json")) == set()
    until(lambda: not {"MissingReplicas", "RackViolations"} & firing(nodes))
    verb("topics", "create", "--topic", "v", "--replica-assignment", "1:2", "--config",
         "ignore.rack.assignment=true")  # fmt: skip
    told = verb("topics", "describe", "--rack-violations")
    assert told.startswith("No partition violates racks.\nLeft out: 1 partition")
    every = json.loads(verb("topics", "describe", "--json"))
    assert {each["topic"]: each["rack_sharing_accepted"] for each in every}["v"] == 1
    assert "RackViolations" not in firing(nodes)


def test_a_broker_is_cordoned_up_or_down_and_says_so(nodes, verb):
    assert "No node with id 3 found" in verb("cluster", "cordon", "--broker", "3", code=1)
    nodes[3].start()
    verb("topics", "create", "--topic", "u", "--replica-assignment", "3:1")
    nodes[3].stop()
    until(lambda: "fenced" in verb("cluster", "brokers"))
    assert "plan drain --broker 3" in verb("cluster", "cordon", "--broker", "3")
    found = {
        each["id"]: each["cordoned"] for each in json.loads(verb("cluster", "brokers", "--json"))
    }
    assert found == {1: False, 2: False, 3: True}
    nodes[3] = ThreadNode.again(nodes[3]).start()
    until(lambda: "serves, cordoned" in verb("cluster", "brokers"))
    verb("topics", "create", "--topic", "t", "--partitions", "1", "--replication-factor", "3")
    told = json.loads(verb("topics", "describe", "--json"))
    [[t, u]] = [[each["partitions"][0] for each in told]]
    assert (sorted(t["replicas"]), t["missing_replicas"]) == ([1, 2], 1)
    assert u["replicas"] == [3, 1], "what is there stays"
    assert "is cordoned" in verb("plan", "add", "--broker", "3", code=1)
    verb("cluster", "uncordon", "--broker", "3")
    until(lambda: not places(verb("topics", "describe", "--missing-replicas", "--json")))
