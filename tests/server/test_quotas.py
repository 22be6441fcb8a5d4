"""Quotas on a running node: set with the command line, and they hold at once."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from tests.server.node_kit import ThreadNode, settings_of
from tests.server.three_kit import followed

from anabranch.cli.main import main
from anabranch.server.config import load_config


@pytest.fixture
def node(tmp_path):
    running = ThreadNode.__new__(ThreadNode)
    running._take(load_config(None, settings_of(tmp_path)))
    yield running.start()
    running.stop()


def quotas(node, words, code=0):
    """`anabranch quotas WORDS`: its JSON, once the broker knows what was decided."""
    done = CliRunner().invoke(
        main, ["quotas", *words.split(), "--bootstrap-server", node.bootstrap, "--json"]
    )
    assert done.exit_code == code, done.output
    followed([node.node])
    return json.loads(done.stdout) if code == 0 else done.output


def test_quotas_are_set_listed_and_removed(node):
    assert quotas(node, "list") == []
    quotas(node, "set --user alice --client-id c producer_byte_rate=1024 request_percentage=0.5")
    quotas(node, "set --user-default consumer_byte_rate=9")
    quotas(node, "set --ip 127.0.0.9 connection_creation_rate=3")
    values = {"producer_byte_rate": 1024.0, "request_percentage": 0.5}
    both = {"entity": {"client-id": "c", "user": "alice"}, "values": values}
    assert quotas(node, "list --user alice") == [both]
    assert len(quotas(node, "list")) == 3
    (default,) = quotas(node, "list --user-default")
    assert default == {"entity": {"user": None}, "values": {"consumer_byte_rate": 9.0}}
    removed = quotas(node, "remove --user alice --client-id c request_percentage nothing")
    assert removed["removed"] == ["request_percentage", "nothing"]
    del values["request_percentage"]
    assert quotas(node, "list --user alice") == [both]


def test_what_cannot_be_set_is_said(node):
    assert "Name whom" in quotas(node, "set producer_byte_rate=5", code=2)
    assert "is no number" in quotas(node, "set --user a producer_byte_rate=fast", code=2)
    assert "not both" in quotas(node, "list --user a --user-default", code=2)
    refused = quotas(node, "set --user a producer_byte_rate=0", code=1)
    assert "Quota producer_byte_rate must be greater than 0" in refused
