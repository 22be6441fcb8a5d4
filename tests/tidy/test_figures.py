"""Figures that several pages have are those of the tables of the performance page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PERFORMANCE = (ROOT / "docs" / "operate" / "performance.md").read_text()
COMPARED = ROOT / "docs" / "start" / "compared.md"
README = ROOT / "README.md"

SAME = (
    ("produce 1 KB, 1 MB batches", COMPARED, "produce 1 KB records in 1 MB batches"),
    ("produce 1 KB, 16 KB batches", COMPARED, "produce 1 KB records in 16 KB batches"),
    ("consume 1 KB from page cache", COMPARED, "consume 1 KB records"),
    ("one record of 100 B at a time, acks=1, 10,000", COMPARED, "one record at a time, median"),
    ("new folder: exec to first", COMPARED, "start to the first acknowledged record"),
    ("new folder: exec to first", README, "first acknowledged record after a cold start"),
    ("SIGKILL with 5,500 partitions", README, "the same after a SIGKILL, 5,500 partitions"),
    ("resident memory and CPU share, idle", COMPARED, "idle memory"),
    ("resident memory and CPU share, idle", README, "memory of an idle broker"),
)
"""The beginning of a row there, a page, and the beginning of its row."""


def cells(text: str, begin: str) -> list[str]:
    """The two cells after a row's name: Anabranch and Kafka."""
    row = next(line for line in text.splitlines() if line.startswith(f"| {begin}"))
    return [re.sub(r" (s|MB)$", "", each.strip(" |")) for each in row.split(" | ")[1:3]]


@pytest.mark.parametrize(("row", "page", "begin"), SAME)
def test_a_figure_is_the_same_everywhere(row, page, begin):
    measured, shown = cells(PERFORMANCE, row), cells(page.read_text(), begin)
    for exact, text in zip(measured, shown, strict=True):
        digits = len(text.partition(".")[2])
        assert float(text.replace(",", "")) == round(float(exact.replace(",", "")), digits), begin
