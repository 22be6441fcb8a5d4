"""The arithmetic of the benchmark: ratios within a round, targets read the right way round."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

LAST = "s to a record in the last"
BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture
def bench(module):
    return module("report"), Rows()


class Rows:
    """What rows are made of, and the rows there are."""

    def __init__(self):
        row = importlib.import_module("row")
        self.Row, self.Target, self.more, self.less = row.Row, row.Target, row.more, row.less
        self.ROWS = importlib.import_module("rows").ROWS


def row_of(rows, targets):
    return rows.Row("some", "a row", lambda _server: None, targets)


ROUNDS = {
    "anabranch": [{"MB/s": 300.0}, {"MB/s": 100.0}, {"MB/s": 500.0}],
    "kafka": [{"MB/s": 100.0}, {"MB/s": 50.0}, {"MB/s": 100.0}],
}


def test_the_ratio_is_of_one_round_not_of_the_medians(bench):
    report, rows = bench
    (line,) = report.lines_of(row_of(rows, {"MB/s": rows.more(2)}), ROUNDS)
    assert (line.ratio.median, line.ratio.lowest, line.ratio.highest) == (3.0, 2.0, 5.0)
    assert line.spreads["kafka"].median == 100.0
    assert line.verdict == "met"


@pytest.mark.parametrize(
    ("kind", "limit", "verdict"),
    [("more", 3.1, "missed"), ("more", 3.0, "met"), ("less", 3.0, "met"), ("less", 2.9, "missed")],
)
def test_a_target_is_met_at_its_limit(bench, kind, limit, verdict):
    report, rows = bench
    (line,) = report.lines_of(row_of(rows, {"MB/s": getattr(rows, kind)(limit)}), ROUNDS)
    assert line.verdict == verdict


def test_one_server_alone_has_no_ratio(bench):
    report, rows = bench
    (line,) = report.lines_of(row_of(rows, {"MB/s": rows.more(2)}), {"kafka": ROUNDS["kafka"]})
    assert line.ratio is None
    assert line.verdict == ""


def test_the_json_keeps_every_round(bench, tmp_path):
    report, rows = bench
    row = row_of(rows, {"MB/s": rows.more(2)})
    report.write_json(tmp_path / "figures.json", {"processors": 2}, {"some": (row, ROUNDS)})
    written = json.loads((tmp_path / "figures.json").read_text())
    assert written["rows"]["some"]["rounds"] == ROUNDS
    assert written["rows"]["some"]["verdicts"] == {"MB/s": "met"}


def test_every_target_names_a_metric_of_its_workload(bench):
    _, rows = bench
    names = [row.name for row in rows.ROWS]
    assert len(names) == len(set(names))
    known = {"MB/s", "CPU s/GB", "peak MB", "p50 ms", "p99 ms", "seconds", "MB", LAST}
    crowd = {"records/s", "commits/s", "first assignment s", "after a crash s"}
    crowd |= {"rate kept", "p99 over quiet"}
    three = {"p99.9 ms", "gap s", "fresh producer s", "catch-up MB/s", "growth of the worst"}
    placement = {"moves over the least", "with over without"}
    spark = {"rows/s", "worker MB", "trigger p50 ms", "lost", "twice", "of reading"}
    diskless = {"written over produced", "of the raw rate", "slowest over fastest", "longest ms"}
    diskless |= {"growth"}
    transactions = {"transactions/s", "commit p50 ms", "commit p99 ms", "failover s"}
    hours = {"last quarter over the one before", "MiB over idle"}
    mirror = {"read again", "skipped"}
    remote = {"of a local read", "reads, cold", "reads, index cached"}
    tiering = {"of the plain loop", "p50 over quiet"}
    named = {metric for row in rows.ROWS for metric in row.targets}
    known |= crowd | three | placement | spark | diskless | transactions | hours | mirror | remote
    known |= tiering | {"handshakes/s", "p99 ms of others"}
    assert named <= known


@pytest.mark.parametrize(("limit", "verdict"), [(300.0, "met"), (299.0, "missed")])
def test_a_target_of_ones_own_needs_no_peer(bench, limit, verdict):
    report, rows = bench
    target = rows.Target(limit, is_own=True)
    (line,) = report.lines_of(row_of(rows, {"MB/s": target}), {"anabranch": ROUNDS["anabranch"]})
    assert line.verdict == verdict


PAGE = "before\n<!-- rows: some -->\nold\n<!-- end of rows -->\nafter <!-- rows: other -->\n"


def test_a_page_gets_the_figures_between_its_marks(bench):
    _, rows = bench
    page = importlib.import_module("page")
    some = row_of(rows, {"MB/s": rows.more(2)})
    text, written = page.page_with(PAGE, [some], {"some": ROUNDS})
    assert written == ["some"]
    line = "| a row (3 rounds): MB/s | 300 | 100 | 3.00 [2.00–5.00] | ≥ 2.00×, met |\n"
    assert line in text
    assert text.startswith("before\n<!-- rows: some -->\n| row |")
    assert text.endswith(line + "<!-- end of rows -->\nafter <!-- rows: other -->\n")
    assert "old" not in text


def test_a_table_is_left_alone_when_the_figures_lack_a_row(bench):
    _, rows = bench
    page = importlib.import_module("page")
    marked = PAGE.replace("rows: some", "rows: some another")
    assert page.page_with(marked, [row_of(rows, {})], {"some": ROUNDS}) == (marked, [])


def test_every_marked_table_of_the_page_names_rows_that_exist(bench):
    _, rows = bench
    page = importlib.import_module("page")
    known = {row.name for row in rows.ROWS}
    text = (BENCH.parent / "docs" / "operate" / "performance.md").read_text()
    marked = [found[2].split() for found in page.MARKED.finditer(text)]
    assert marked
    assert all(name in known for names in marked for name in names)


def test_what_one_server_alone_reports_is_a_line_without_a_ratio(bench):
    report, rows = bench
    rounds = {"kafka": ROUNDS["kafka"], "anabranch": [{"MB/s": 1.0, "written": 1.01}] * 3}
    row = row_of(rows, {"written": rows.Target(1.1, is_own=True)})
    speed, written = report.lines_of(row, rounds)
    assert set(speed.spreads) == {"kafka", "anabranch"}
    assert (set(written.spreads), written.ratio, written.verdict) == ({"anabranch"}, None, "met")
    report.print_row(importlib.import_module("rich.console").Console(quiet=True), row, rounds)
