"""R17: scenarios 1-4 of the document, on real processes, come out as rehearsed.

Each rehearsal of `tests/golden/scenario-*` runs once in the made-up world and once on three
processes that are killed, stopped and cut off; what came of each event is printed by the same code
from both and must be the same text. `anabranch rehearse FILE --real` is the same for a user.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.sim.rehearsal.outcome import rehearsed
from anabranch.sim.rehearsal.reading import read
from anabranch.testing import ClusterError
from anabranch.testing.staging.stage import performed

FOLDER = Path(__file__).resolve().parents[1] / "golden"
SCENARIOS = sorted(FOLDER.glob("scenario-*.yaml"))
SHOWN = "scenario-3-acks-1"
"""The one whose outcome stands in the documentation."""
LONGEST_SECONDS = 300
"""Each event of a scenario may take `PATIENCE_SECONDS` on a machine that others use."""

ONE = """
cluster: {brokers: 3}
topics: {orders: {replicas: [[1, 2, 3]]}}
events:
  - {at: 1s, send: {to: orders-0, records: 2, acks: all}}
"""


def test_all_four_scenarios_are_there():
    assert {path.name[: len("scenario-N")] for path in SCENARIOS} == {
        f"scenario-{each}" for each in (1, 2, 3, 4)
    }


@pytest.mark.timeout(LONGEST_SECONDS)
@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_processes_do_what_was_rehearsed(path):
    plan = read(path.read_text(), path.name)
    foretold = rehearsed(plan)
    seen = performed(plan, foretold)
    print(seen.text())
    assert seen.text() == foretold.text()


def test_what_the_documentation_shows_is_what_is_printed():
    plan = read((FOLDER / f"{SHOWN}.yaml").read_text(), f"{SHOWN}.yaml")
    golden = FOLDER / f"{SHOWN}.outcome.report.txt"
    if os.environ.get("REWRITE_GOLDEN"):
        golden.write_text(rehearsed(plan).text())
    assert rehearsed(plan).text() == golden.read_text()
    page = (FOLDER.parents[1] / "docs" / "concepts" / "failures.md").read_text()
    assert f"tests/golden/{golden.name}" in page


def test_what_comes_out_otherwise_is_shown_and_not_what_was_foretold():
    plan = read(ONE, "one.yaml")
    more = read(ONE.replace("records: 2", "records: 3"), "one.yaml")
    seen = performed(plan, replace(rehearsed(more), plan=plan), patience_seconds=6)
    assert seen.text() == rehearsed(plan).text() != rehearsed(more).text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ONE.replace("brokers: 3", "racks: {a: [4, 2, 3]}").replace("[1,", "[4,"), "1, 2, 3"),
        (ONE.replace("]]}", "]], produce: {acks: all}}"), "`produce`"),
        (ONE + "  - {at: 2s, wipe: 1}\n", "Line 6: `wipe`"),
    ],
)
def test_what_processes_cannot_do_is_refused_before_they_start(text, said):
    plan = read(text, "one.yaml")
    with pytest.raises(ClusterError, match=said):
        performed(plan, rehearsed(plan))
