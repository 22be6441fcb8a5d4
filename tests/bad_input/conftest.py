"""One node for all; after each test it must be as it was, and nobody else may have noticed."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "server")]

from bad_kit import Bystander, Raw, RunningNode, batch, code_of, eventually  # noqa: E402
from secured_kit import SecuredNode  # noqa: E402

NOTICED_SECONDS = 5.0
"""Over what another client waits for an answer on a machine that is busy with other tests: on a
quiet one a second at most, while the largest request is read. Without bounds it was many more."""

LEFT_BYTES = 64 << 20
"""Resident memory that may be left: pools of buffers, and what the allocator keeps."""


SETTINGS = {
    "auto.create.topics.enable": "true",
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}


@pytest.fixture(scope="session")
def shared_node(tmp_path_factory):
    node = RunningNode(tmp_path_factory.mktemp("node"), **SETTINGS)
    try:
        yield node.start().ready().prepare()
    finally:
        node.close()


@contextmanager
def unnoticed(running):
    """What holds after every bad input is asserted when it is over."""
    existing, before = running.exists(), running.resident_bytes
    running.lines.clear()
    with Bystander(running) as bystander:
        yield running
        sent = bystander.sent
        eventually(lambda: bystander.fault or bystander.sent > sent + 1, "the bystander's answer")
    assert bystander.fault is None
    assert bystander.worst_seconds < NOTICED_SECONDS
    eventually(lambda: running.exists() == existing, "nothing but what was there before")
    eventually(
        lambda: running.resident_bytes < before + LEFT_BYTES, "as much free memory as before"
    )
    eventually(lambda: running.connections == 0, "no connection left")
    assert not [line for line in running.lines if "Traceback" in line or " ERROR " in line]


@pytest.fixture
def node(shared_node):
    """The node, which must be afterwards as it was."""
    with unnoticed(shared_node):
        yield shared_node


@pytest.fixture(scope="session")
def shared_secured(tmp_path_factory):
    running = SecuredNode(tmp_path_factory.mktemp("secured"))
    try:
        yield running.start().ready().prepare().with_users()
    finally:
        running.close()


@pytest.fixture
def secured(shared_secured):
    """A node with listeners that ask who is there, which must be afterwards as it was."""
    with unnoticed(shared_secured):
        yield shared_secured


@pytest.fixture
def client(node):
    with Raw(node) as raw:
        yield raw


@pytest.fixture
def refused(node, client):
    """A batch is answered with a code, and leaves no record and no producer behind."""

    def refuse(topic, records, code, **how):
        before = node.state(topic)
        assert code_of(client, topic, records, **how) == code
        assert node.state(topic) == before
        assert code_of(client, "bystander", batch()) == 0

    return refuse
