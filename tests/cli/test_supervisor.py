"""When the supervisor of `anabranch up` gives up, on a node that obeys a script."""

from __future__ import annotations

from types import SimpleNamespace

import click
import pytest

from anabranch.cli import supervisor
from anabranch.cli.supervisor import MOST_FAILURES, SETTLED_SECONDS, Supervisor


class Interrupted(Exception):
    """The script is over."""


class Node:
    """Starts as `starts` says, one entry a start; it always lives."""

    node_id = 1
    is_alive = True

    def __init__(self) -> None:
        self.starts: list[bool] = []

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def wait_ready(self) -> None:
        if self.starts and not self.starts.pop(0):
            raise click.ClickException("it does not start")

    def failure(self, why: str) -> click.ClickException:
        return click.ClickException(why)


class Clock:
    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def restarts(monkeypatch):
    """Restarts a node after each of these seconds, each time with these starts; the events."""
    clock = Clock()
    monkeypatch.setattr(supervisor, "time", clock)

    def run(*steps: tuple[float, list[bool]]) -> list[str]:
        node, left, events = Node(), list(steps), []

        def take() -> list[int]:
            if not left:
                raise Interrupted
            seconds, starts = left.pop(0)
            node.starts = starts.copy()
            clock.now_s += seconds
            return [1]

        cluster = SimpleNamespace(nodes=[node], node=lambda _node_id: node)
        told = lambda event, _node, _code: events.append(event)  # noqa: E731
        with pytest.raises(Interrupted):
            Supervisor(cluster, SimpleNamespace(take=take), told).run()
        return events

    return run


def test_failures_are_forgotten_once_a_node_has_served(restarts):
    failing = [False] * (MOST_FAILURES - 1) + [True]
    events = restarts((0, failing), (SETTLED_SECONDS, [False, True]), (SETTLED_SECONDS, failing))
    assert events.count("failed") == 2 * MOST_FAILURES - 1
    assert events[-1] == "ready"


def test_a_node_that_did_not_serve_for_long_has_failed_in_a_row(restarts):
    failing = [False] * (MOST_FAILURES - 1) + [True]
    with pytest.raises(click.ClickException, match="failed to start 3 times in a row"):
        restarts((0, failing), (SETTLED_SECONDS / 2, [False, True]))
