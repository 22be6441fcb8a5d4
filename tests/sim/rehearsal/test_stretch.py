"""The table of what stretched clusters survive is what rehearsals show."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parents[3] / "scripts" / "stretch_table.py"))
ROWS, LOSSES = SCRIPT["ROWS"], SCRIPT["LOSSES"]
TABLE = SCRIPT["MARKED"].search(SCRIPT["PAGE"].read_text())[2].splitlines()[2:]


@pytest.mark.slow
@pytest.mark.parametrize("row", range(len(ROWS)), ids=lambda at: "-".join(map(str, ROWS[at])))
def test_a_row_of_the_page_is_what_rehearsals_show(row):
    shown = [each.strip() for each in TABLE[row].strip("|").split("|")]
    cells = [SCRIPT["cell"](SCRIPT["rehearsed"](*ROWS[row], loss)) for loss in LOSSES.values()]
    assert shown == [*map(str, ROWS[row]), *cells]


def test_the_documents_row_is_contradicted():
    """Four replicas, three in sync, two data centres: it is said to survive the loss of one."""
    row = TABLE[ROWS.index(("2", 4, 3))]
    assert "6 of 6 read-only" in row.split("|")[5]
