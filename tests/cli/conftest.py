"""A node in the test's process for the verbs that talk to one, and a way to run a verb."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from tests.server.node_kit import ThreadNode

from anabranch.cli.main import main


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """One node that all tests of a module share."""
    running = ThreadNode(tmp_path_factory.mktemp("node")).start()
    yield running
    running.stop()


@pytest.fixture
def verb(node):
    """Run `anabranch WORDS` against the node; returns click's result."""

    def run(*words: str, input: str | None = None):  # noqa: A002 - click's own name
        environment = {"ANABRANCH_BOOTSTRAP_SERVER": node.bootstrap}
        return CliRunner().invoke(main, words, input=input, env=environment)

    return run
