"""R9 on real nodes: constraints change, a plan promotes the observer, and the demoted one observes."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from tests.clients.members import until
from tests.server.three_kit import (
    RACKS,
    bootstrap_of,
    followed,
    produce,
    running,
    serving,
    three_threads,
)

from anabranch.cli.main import main


@pytest.fixture
def nodes(tmp_path):
    with running(three_threads(tmp_path, RACKS)) as started:
        yield started


@pytest.fixture
def verb(nodes):
    """Run `anabranch WORDS`; its output."""

    def run(*words: str, code: int = 0) -> str:
        followed(serving(nodes))
        servers = {"ANABRANCH_BOOTSTRAP_SERVER": bootstrap_of(nodes)}
        result = CliRunner().invoke(main, words, env=servers)
        assert result.exit_code == code, result.output
        return result.output

    return run


def shapes(verb) -> set[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    """Replicas, in-sync replicas and observers, sorted, of every partition of t."""
    [topic] = json.loads(verb("topics", "describe", "--topic", "t", "--json"))
    names = ("replicas", "isr", "observers")
    return {tuple(tuple(sorted(part[name])) for name in names) for part in topic["partitions"]}


def constrain(verb, text: str) -> None:
    verb("configs", "alter", "--entity-type", "topics", "--entity-name", "t",
         "--replica-placement", text)  # fmt: skip


def test_a_plan_promotes_the_observer_and_the_demoted_replica_observes(nodes, verb, tmp_path):
    first = "replicas=a:1,b:1,observers=c:1"
    verb("topics", "create", "--topic", "t", "--partitions", "3", "--replica-placement", first)
    until(lambda: shapes(verb) == {((1, 2), (1, 2), (3,))})
    produce(nodes[1].bootstrap, [b"%d" % each for each in range(300)])
    assert "nothing has to move" in verb("plan", "observers", "--topic", "t")
    constrain(verb, "replicas=a:1,c:1,observers=b:1")
    file = tmp_path / "plan.json"
    said = verb("plan", "observers", "--topic", "t", "--out", str(file))
    assert "broker 3 is promoted from observer" in said
    assert "the replica on broker 2 is removed" in said
    verb("apply", str(file))
    until(lambda: shapes(verb) == {((1, 3), (1, 3), (2,))})
    assert "nothing has to move" in verb("plan", "observers", "--topic", "t")
    constrain(verb, "replicas=a:1,c:2")
    told = verb("plan", "observers", "--topic", "t", code=1)
    assert "1 more active broker in rack c that are not cordoned" in told
    topics = tmp_path / "topics.json"
    topics.write_text('{"version": 1, "topics": [{"topic": "t"}]}')
    words = ("--generate", "--topics-file", str(topics), "--brokers", "1,2,3")
    assert "which --generate does not support" in verb("partitions", "reassign", *words, code=1)
    drained = verb("plan", "drain", "--broker", "1", code=1)
    assert "the placement constraints of its topic require it in rack a" in drained


def test_a_topic_without_constraints_is_refused_with_a_remedy(verb):
    verb("topics", "create", "--topic", "t", "--partitions", "1", "--replication-factor", "2")
    assert "has no placement constraints: set them first" in verb(
        "plan", "observers", "--topic", "t", code=1
    )
