"""What keeps the nodes of `anabranch up --brokers` running.

What: a node that ended is started again; a node that somebody asks for is restarted. Rule kept: a
node that fails again and again ends the whole, with its own last words: no endless loop.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from anabranch.cli.local_brokers import LocalBroker, LocalBrokers
    from anabranch.cli.supervision import Requests

Tell = Callable[[str, "LocalBroker", int | None], None]
"""Told of an event, its node, and the exit code of a node that ended."""

LOOK_SECONDS = 0.2
PAUSE_SECONDS = 1.0
"""Before a node that ended is started again."""
MOST_FAILURES = 3
"""Starts of a node that may fail in a row."""
SETTLED_SECONDS = 10.0
"""A node that ends by itself sooner than this after it began to serve has failed to start."""


class Supervisor:
    """Starts a node again that ended, and restarts nodes on request, until interrupted."""

    def __init__(self, cluster: LocalBrokers, requests: Requests, tell: Tell) -> None:
        self._cluster = cluster
        self._requests = requests
        self._tell = tell
        self._failures: Counter[int] = Counter()
        self._ready_at: dict[int, float] = {}

    def run(self) -> None:
        """Look at every node and request, again and again. Raises ClickException with the last
        words of a node that failed to start MOST_FAILURES times in a row."""
        for node in self._cluster.nodes:
            self._ready_at[node.node_id] = time.monotonic()
        while True:
            for node_id in self._requests.take():
                if 0 < node_id <= len(self._cluster.nodes):
                    self._restart(self._cluster.node(node_id))
            for node in self._cluster.nodes:
                if not node.is_alive:
                    self._ended(node)
            time.sleep(LOOK_SECONDS)

    def _restart(self, node: LocalBroker) -> None:
        self._tell("restarts", node, None)
        if self._has_settled(node):
            self._failures[node.node_id] = 0
        node.stop()
        self._start(node)

    def _ended(self, node: LocalBroker) -> None:
        assert node.process is not None
        code = node.process.returncode
        self._tell("ended", node, code)
        if code > 0 and not self._has_settled(node):
            self._failed(node)
        else:
            self._failures[node.node_id] = 0
        time.sleep(PAUSE_SECONDS)
        self._start(node)

    def _has_settled(self, node: LocalBroker) -> bool:
        return time.monotonic() - self._ready_at[node.node_id] >= SETTLED_SECONDS

    def _start(self, node: LocalBroker) -> None:
        while not self._serves(node):
            node.stop()
            self._tell("failed", node, None)
            self._failed(node)
            time.sleep(PAUSE_SECONDS)
        self._ready_at[node.node_id] = time.monotonic()
        self._tell("ready", node, None)

    def _serves(self, node: LocalBroker) -> bool:
        node.start()
        try:
            node.wait_ready()
        except click.ClickException:
            return False
        return True

    def _failed(self, node: LocalBroker) -> None:
        self._failures[node.node_id] += 1
        if self._failures[node.node_id] >= MOST_FAILURES:
            raise node.failure(f"failed to start {MOST_FAILURES} times in a row")
