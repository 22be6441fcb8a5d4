"""The page on bad input and its tests say the same: a line a test, a test a line."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "bad-input.md"
TESTS = ROOT / "tests" / "bad_input"
CELLS = 5


def lines_of_the_page() -> list[list[str]]:
    """The cells of every line of every table, without heads and rules."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return [row for row in cells if row[0] != "input" and not set(row[0]) <= set("-")]


def test_every_line_has_its_test_and_every_test_its_line():
    named = Counter(row[-1].strip("`") for row in lines_of_the_page())
    written = Counter(
        item.name
        for path in TESTS.glob("test_*.py")
        for item in ast.parse(path.read_text()).body
        if isinstance(item, ast.FunctionDef) and item.name.startswith("test_")
    )
    assert named == written


def test_every_line_says_what_comes_what_answers_what_is_logged_and_kept():
    short = [row for row in lines_of_the_page() if len(row) != CELLS or not all(row)]
    assert not short


def test_the_limit_on_the_page_is_the_limit():
    text = (ROOT / "src/anabranch/core/wire/primitives.py").read_text()
    (shift,) = re.findall(r"^MOST_REQUEST_ELEMENTS = 1 << (\d+)$", text, re.MULTILINE)
    assert f"{1 << int(shift):,} elements" in PAGE.read_text()
