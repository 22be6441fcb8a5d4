"""A node as a process of its own, shared by a folder's client tests; nodes that a test starts."""

from __future__ import annotations

import re

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.adapters import CLIENTS, SECONDS
from tests.server.node_kit import ProcessNode


@pytest.fixture(scope="session")
def node(tmp_path_factory):
    """`anabranch serve` on a free loopback port; `node.folder` is its log folder."""
    folder = tmp_path_factory.mktemp("node")
    running = ProcessNode(folder, **{"message.max.bytes": "1048588"})
    running.folder = folder
    running.start()
    try:
        yield running.ready()
    finally:
        running.close()


@pytest.fixture
def start(tmp_path):
    """Start a node process in the test's folder; every one of them is killed at the end."""
    started = []

    def begin(folder=None, port=None, **settings):
        running = ProcessNode(folder or tmp_path / "node", port, **settings).start()
        running.folder = folder or tmp_path / "node"
        started.append(running)
        return running

    yield begin
    for running in started:
        running.close()


@pytest.fixture(scope="session")
def admin(node):
    return AdminClient({"bootstrap.servers": node.bootstrap})


@pytest.fixture
def new_topic(admin, request):
    """Create a topic named after the test; returns the name."""
    base = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)[:200]
    made = []

    def create(partitions=1, **configs):
        name = f"{base}-{len(made)}"
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(SECONDS)
        made.append(name)
        return name

    return create


@pytest.fixture(params=CLIENTS, ids=lambda each: each.name)
def client(request, node):
    """Each client in turn, connected to the shared node."""
    return request.param(node.bootstrap)
