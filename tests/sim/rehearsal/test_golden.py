"""The transcripts in tests/golden are what happens, to the byte (R1-R6, R17).

After a change that is meant to change them: look at the difference, understand it, and rewrite with
`REWRITE_GOLDEN=1 .venv/bin/python -m pytest tests/sim/rehearsal/test_golden.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from anabranch.cli.main import main
from anabranch.sim.rehearsal.library import text_of
from anabranch.sim.rehearsal.rehearsal_file import read
from anabranch.sim.rehearsal.transcript import transcribe

FOLDER = Path(__file__).resolve().parents[2] / "golden"
PAGE = FOLDER.parents[1] / "docs" / "concepts" / "failures.md"
SCENARIOS = sorted(FOLDER.glob("*.yaml"))
SHIPPED = (
    "coordinator-down", "drain-diskless", "object-store-down", "rack-blinks", "rack-goes-for-good",
)  # fmt: skip
"""Included rehearsals that have a transcript."""
REPORTED = "two-data-centres"
REWRITE = bool(os.environ.get("REWRITE_GOLDEN"))


def test_every_transcript_has_its_scenario_and_is_in_the_docs():
    names = sorted([*(path.stem for path in SCENARIOS), *SHIPPED])
    told = [path.stem for path in FOLDER.glob("*.txt") if not path.stem.endswith(".report")]
    assert sorted(told) == names
    page = PAGE.read_text()
    assert [name for name in names if f"tests/golden/{name}.txt" not in page] == []


def compare(told: str, golden: Path) -> None:
    """The text is the file's; with REWRITE_GOLDEN it becomes that first, unless it tells of harm."""
    assert "Broken:" not in told
    assert "An invariant was violated" not in told
    assert "no rule allows it" not in told
    if REWRITE:
        golden.write_text(told)
    assert told == golden.read_text()


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_what_happens_is_what_the_transcript_says(path):
    told = transcribe(read(path.read_text(), path.name))
    compare(told, path.with_suffix(".txt"))


@pytest.mark.parametrize("name", SHIPPED)
def test_an_included_rehearsal_of_diskless_topics_has_its_transcript(name):
    told = transcribe(read(text_of(name) or "", f"{name}.yaml"))
    compare(told, FOLDER / f"{name}.txt")


def test_the_report_in_the_docs_is_what_is_printed():
    said = CliRunner().invoke(main, ["rehearse", REPORTED])
    golden = FOLDER / f"{REPORTED}.report.txt"
    compare(said.stdout, golden)
    page = (PAGE.parents[1] / "operate" / "rehearse.md").read_text()
    assert f"tests/golden/{golden.name}" in page
