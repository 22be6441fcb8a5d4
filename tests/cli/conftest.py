"""Nodes in the test's process for the verbs that talk to them, and a way to run a verb."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from tests.server.node_kit import ThreadNode
from tests.server.three_kit import followed

from anabranch.cli.main import main
from anabranch.testing import LocalCluster


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """One node that all tests of a module share."""
    running = ThreadNode(tmp_path_factory.mktemp("node")).start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def cluster():
    """Four nodes in three racks that all tests of a module share."""
    with LocalCluster(brokers=4, racks=["a", "b", "c", "c"]) as running:
        yield running


@pytest.fixture(scope="session")
def against():
    """Gives, for bootstrap servers, what runs `anabranch WORDS` there and returns click's result;
    before, the nodes that `serving` gives learn what was changed."""

    def verb_of(bootstrap: str, serving=list):
        def run(*words: str, input: str | None = None):  # noqa: A002 - click's own name
            followed(serving())
            environment = {"ANABRANCH_BOOTSTRAP_SERVER": bootstrap}
            return CliRunner().invoke(main, words, input=input, env=environment)

        return run

    return verb_of


@pytest.fixture
def verb(node, against):
    """Runs a verb against the one node."""
    return against(node.bootstrap, lambda: [node.node])


@pytest.fixture
def cluster_verb(cluster, against):
    """Runs a verb against the four nodes."""
    running = cluster._cluster
    return against(cluster.bootstrap_servers, lambda: [each._life.node for each in running.serving])
