"""The page about placement has its command's table, and decisions name tests that there are."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def command():
    """scripts/placement_table.py."""
    path = ROOT / "scripts" / "placement_table.py"
    spec = importlib.util.spec_from_file_location("placement_table", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_table_of_the_page_is_what_the_command_prints(command):
    printed = command.table()
    assert f"<!-- placers -->\n{printed}<!-- end of placers -->" in command.PAGE.read_text()
    assert printed == command.table(), "the same seed gives the same table"


@pytest.mark.parametrize("number", ["0025", "0026"])
def test_each_corner_case_of_missing_replicas_names_a_test_that_there_is(number):
    (decision,) = (ROOT / "docs" / "decisions").glob(f"{number}-*.md")
    text = decision.read_text()
    tests = "".join(each.read_text() for each in (ROOT / "tests/core/controller").glob("*.py"))
    named = re.findall(r"`(test_\w+)`", text)
    cases = re.findall(r"^\d+\. ", text, re.MULTILINE)
    assert len(cases) == 9
    assert len(named) >= len(cases) - 1
    assert not [name for name in named if f"def {name}(" not in tests]
