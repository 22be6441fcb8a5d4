"""What the pages about the fixture call by name is there: methods, arguments and fixtures."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from anabranch.testing import LocalCluster, pytest_plugin

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "operate" / "testing.md",
    ROOT / "docs" / "start" / "test-tutorial.md",
    *sorted((ROOT / "docs" / "start" / "clients").glob("*billing.py")),
]
TEXT = "\n".join(page.read_text() for page in PAGES)
CALLED = re.compile(r"(?<![-\w])cluster\.(\w+)")
IN_A_TABLE = re.compile(r"`(\w+)(?:\(([^`]*)\))?`")
FIXTURE = re.compile(r"`(anabranch_\w+)`")
VALUES = {"a", "b"}
FEWEST = 9
"""Names that each of these finds at least: fewer, and its pattern finds them no more."""


def members() -> set[str]:
    """What a cluster has."""
    return {each for each in dir(LocalCluster) if not each.startswith("_")}


def rows(heading: str) -> list[str]:
    """The first cells of the tables that have this heading."""
    found = re.findall(rf"^\| {heading} \|.*\n\|[-| ]+\|\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    return [line.split("|")[1] for table in found for line in table.splitlines()]


def test_what_is_called_on_a_cluster_is_there():
    called = set(CALLED.findall(TEXT))
    assert len(called) >= FEWEST
    assert called <= members()


def test_the_calls_of_the_tables_are_there_with_their_arguments():
    calls = [each for cell in rows("call") for each in IN_A_TABLE.findall(cell)]
    assert len(calls) >= 2 * FEWEST
    for name, arguments in calls:
        assert name in members(), name
        if arguments:
            given = set(re.findall(r"(?:^|, )(\w+)", arguments)) - {""}
            known = set(inspect.signature(getattr(LocalCluster, name)).parameters)
            assert given <= known | VALUES, f"{name}: {given - known}"


def test_the_arguments_of_the_table_are_those_of_the_class():
    told = set(re.findall(r"`(\w+)=", "".join(rows("argument of `LocalCluster`"))))
    known = set(inspect.signature(LocalCluster).parameters)
    assert told <= known
    assert known - told <= {"start_timeout_seconds"}


def test_the_fixtures_are_there():
    fixtures = set(FIXTURE.findall(TEXT))
    assert len(fixtures) >= 4
    assert [each for each in sorted(fixtures) if not hasattr(pytest_plugin, each)
            and each not in ("anabranch_brokers", "anabranch_processes")] == []  # fmt: skip
