"""Fixtures for pytest: `anabranch_cluster` and `anabranch_session_cluster`.

Loaded by pytest wherever Anabranch is installed, so importing it costs next to nothing; the server
is imported by the first fixture that starts one. Override the fixture `anabranch_config` to give
the clusters settings, for a module or a whole test suite. A failing test's report has what the
cluster logged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from anabranch.testing.local_cluster import LocalCluster

FIXTURES = ("anabranch_cluster", "anabranch_session_cluster")
LINES_SHOWN = 50
"""Of the cluster's log, in the report of a failing test."""


@pytest.fixture(scope="session")
def anabranch_config() -> dict[str, object]:
    """Settings of the clusters by Kafka's names; override it where tests need others."""
    return {}


@pytest.fixture
def anabranch_cluster(anabranch_config: dict[str, object]) -> Iterator[LocalCluster]:
    """A new cluster for one test."""
    from anabranch.testing.local_cluster import LocalCluster

    with LocalCluster(config=anabranch_config) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def anabranch_session_cluster(anabranch_config: dict[str, object]) -> Iterator[LocalCluster]:
    """One cluster for all tests of a run (of each worker, with pytest-xdist)."""
    from anabranch.testing.local_cluster import LocalCluster

    with LocalCluster(config=anabranch_config) as cluster:
        yield cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Any:
    """Add the end of the cluster's log to the report of a test that failed."""
    report = yield
    if report.failed:
        arguments = getattr(item, "funcargs", {})
        for name in FIXTURES:
            if name in arguments:
                lines = arguments[name].log.splitlines()[-LINES_SHOWN:]
                report.sections.append((f"Log of {name}", "\n".join(lines)))
    return report
