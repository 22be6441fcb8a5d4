"""Fixtures for pytest: `anabranch_cluster` and `anabranch_session_cluster`.

Loaded by pytest wherever Anabranch is installed, so importing it costs next to nothing; the server
is imported by the first fixture that starts one. Settings of the brokers come from the ini option
`anabranch_config` (`name=value` lines), or from a fixture of that name, for a module or a whole
test suite; how many brokers there are, and whether they are processes, from `anabranch_brokers` and
`anabranch_processes`, or from the fixture `anabranch_options`, which may give every argument of
`LocalCluster`. `@pytest.mark.anabranch(brokers=3, config={…})` says it for one test. A failing
test's report has what its clusters logged.
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
    """The ini options."""
    parser.addini("anabranch_brokers", "Brokers of each of Anabranch's test clusters.", default="1")
    parser.addini(
        "anabranch_processes",
        "Whether Anabranch's brokers are processes, not threads.",
        type="bool",
        default=False,
    )
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


@pytest.fixture(scope="session")
def anabranch_options(pytestconfig: pytest.Config) -> dict[str, Any]:
    """Arguments of `LocalCluster` for the clusters; override it where tests need others."""
    brokers = pytestconfig.getini("anabranch_brokers")
    if not brokers.isdigit():
        raise pytest.UsageError(f"anabranch_brokers: {brokers!r} is not a number of brokers")
    return {"brokers": int(brokers), "processes": pytestconfig.getini("anabranch_processes")}


@pytest.fixture
def anabranch_cluster(
    request: pytest.FixtureRequest,
    anabranch_options: dict[str, Any],
    anabranch_config: dict[str, object],
) -> Iterator[LocalCluster]:
    """A new cluster for one test; `@pytest.mark.anabranch(…)` has arguments for this one."""
    marks = [mark.kwargs for mark in request.node.iter_markers("anabranch")]
    with _cluster(anabranch_config, [anabranch_options, *reversed(marks)]) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def anabranch_session_cluster(
    anabranch_options: dict[str, Any], anabranch_config: dict[str, object]
) -> Iterator[LocalCluster]:
    """One cluster for all tests of a run (of each worker, with pytest-xdist)."""
    with _cluster(anabranch_config, [anabranch_options]) as cluster:
        yield cluster


def _cluster(config: dict[str, object], options: list[dict[str, Any]]) -> LocalCluster:
    """A cluster by all that is said of it, the nearest last; settings add up."""
    from anabranch.testing.local_cluster import LocalCluster

    arguments: dict[str, Any] = {}
    for each in options:
        config = {**config, **each.get("config", {})}
        arguments |= each
    return LocalCluster(**{**arguments, "config": config})


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known, for `--strict-markers`."""
    config.addinivalue_line(
        "markers", "anabranch(**options): arguments of LocalCluster for this test's cluster"
    )


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
