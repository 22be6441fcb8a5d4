"""Fixtures for pytest: `anabranch_cluster` and `anabranch_session_cluster`.

Loaded by pytest wherever Anabranch is installed, so importing it costs next to nothing; the server
is imported by the first fixture that starts one. Settings of the clusters come from the ini option
`anabranch_config` (`name=value` lines), or from a fixture of that name, for a module or a whole
test suite. A failing test's report has what its clusters logged.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from anabranch.testing.local_cluster import LocalCluster

LINES_SHOWN = 50
"""Of a cluster's log, in the report of a failing test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The ini option `anabranch_config`."""
    parser.addini(
        "anabranch_config",
        "Settings of Anabranch's test clusters, a line `name=value` for each.",
        type="linelist",
        default=[],
    )


@pytest.fixture(scope="session")
def anabranch_config(pytestconfig: pytest.Config) -> dict[str, object]:
    """Settings of the clusters by Kafka's names; override it where tests need others."""
    config: dict[str, object] = {}
    for line in pytestconfig.getini("anabranch_config"):
        name, equals, text = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"anabranch_config: {line!r} is not a line `name=value`")
        config[name.strip()] = text.strip()
    return config


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


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Iterator[None]:
    """Add the end of each cluster's log to the report of a test that failed."""
    outcome: Any = yield  # the older form of a wrapper: every pytest has it
    module = sys.modules.get("anabranch.testing.local_cluster")
    report = outcome.get_result()
    if report.failed and module is not None:
        for name, given in getattr(item, "funcargs", {}).items():
            if isinstance(given, module.LocalCluster):
                lines = given.log.splitlines()[-LINES_SHOWN:]
                report.sections.append((f"Log of {name}", "\n".join(lines)))
