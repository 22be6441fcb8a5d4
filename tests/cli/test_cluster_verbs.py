"""`anabranch cluster features`, `upgrade` and `unregister` against one node."""

from __future__ import annotations

import json

from tests.server.node_kit import ThreadNode

from anabranch.core.metadata.features import BOOTSTRAP_LEVELS
from anabranch.core.wire.own_records import RECORDS_FEATURE


def test_features_are_shown_with_what_all_support(verb):
    shown = verb("cluster", "features")
    assert shown.exit_code == 0
    assert "metadata.version" in shown.output
    told = {
        each["feature"]: each for each in json.loads(verb("cluster", "features", "--json").output)
    }
    assert {name: each["level"] for name, each in told.items()} == {
        **BOOTSTRAP_LEVELS,
        RECORDS_FEATURE: 0,
    }
    assert all(each["newest_common"] >= each["level"] for each in told.values())


def test_there_is_nothing_to_raise_in_a_new_cluster(verb):
    done = verb("cluster", "upgrade")
    assert (done.exit_code, done.output) == (0, "No feature can be raised.\n")
    told = json.loads(verb("cluster", "upgrade", "--dry-run", "--json").output)
    assert told == {"dry_run": True, "raised": [], "held_back": []}


def test_what_cannot_be_raised_is_one_line(verb):
    for words, said in (
        (("--feature", "metadata.version=99"), "only supports versions 7-27"),
        (("--feature", "no.such=1"), "There is no feature no.such"),
        (("--feature", "metadata.version=1"), "an upgrade cannot lower it to 1"),
        (("--feature", "metadata.version=new"), "the level is a number"),
        (("--feature", "metadata.version"), "is not KEY=VALUE"),
    ):
        done = verb("cluster", "upgrade", *words)
        assert done.exit_code != 0
        assert said in done.output, done.output


def test_a_broker_that_serves_is_forgotten_only_by_force(tmp_path, against):
    """On a node of its own, which serves no client afterwards."""
    node = ThreadNode(tmp_path).start()
    try:
        forget(against(node.bootstrap, lambda: [node.node]))
    finally:
        node.stop()


def forget(verb):
    refused = verb("cluster", "unregister", "1")
    assert refused.exit_code == 1
    assert "broker 1 is running: stop it first" in refused.output
    assert "fenced" not in verb("cluster", "brokers").output
    forced = verb("cluster", "unregister", "1", "--force")
    assert (forced.exit_code, forced.output) == (0, "node 1 is unregistered\n")
    for words in (("upgrade",), ("features",)):
        nobody = verb("cluster", *words)
        assert nobody.exit_code == 1
        assert "No broker of the cluster serves clients: start one" in nobody.output


def test_a_broker_that_is_not_there_cannot_be_forgotten(verb):
    done = verb("cluster", "unregister", "77")
    assert done.exit_code == 1
    assert "Broker ID 77 is not currently registered" in done.output
