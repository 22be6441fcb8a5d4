"""Settings of the whole suite, and its eye on the nodes that tests run in this process."""

from __future__ import annotations

import logging
import os

import pytest
from hypothesis import settings

from anabranch.server.logs import WATCHERS, TextLines

settings.register_profile("suite", deadline=None)  # a busy machine is no fault of what is tested
settings.register_profile("long", deadline=None, max_examples=1_000)  # `make test-rest`
settings.register_profile("ci", deadline=None, derandomize=True)  # what lands is not left to luck
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

OWN_FAULTS: list[str] = []
"""What nodes of this process have logged of faults of their own, since it was last looked at."""


def _note(event: logging.LogRecord) -> None:
    if event.name == "anabranch.own_faults":
        OWN_FAULTS.append(TextLines().format(event))


WATCHERS.append(_note)


@pytest.fixture(autouse=True)
def no_own_faults(request: pytest.FixtureRequest):
    """A test fails when a node had a fault of its own, except where it plants one
    (`@pytest.mark.own_faults`)."""
    yield
    found = list(OWN_FAULTS)
    OWN_FAULTS.clear()
    if found and request.node.get_closest_marker("own_faults") is None:
        pytest.fail("a node had a fault of its own:\n" + "\n".join(found), pytrace=False)


@pytest.fixture(scope="session")
def postgres():
    """One PostgreSQL for all tests of the process; each takes a new database."""
    from tests.stores.postgres_kit import PostgresServer

    server = PostgresServer().start()
    yield server
    server.remove()
