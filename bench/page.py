"""Puts measured figures into the documentation: `scripts/bench --page`.

A page marks the tables that are written from figures:

    <!-- rows: fan-out group-100 -->
    …
    <!-- end of rows -->

What stands between is replaced when the figures have all of these rows, so that a table never mixes
two runs; otherwise it is left alone.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from plots import update_plots
from report import OURS, Line, Rounds, Spread, figure, lines_of
from row import Row

MARKED = re.compile(r"(<!-- rows: ([^>]+?) -->\n)(.*?)(<!-- end of rows -->)", re.DOTALL)
HEAD = "| row | Anabranch | Kafka | ratio | target |\n| --- | --- | --- | --- | --- |\n"


def read_rounds(path: Path) -> dict[str, Rounds]:
    """Row name -> what was measured, from a file that `report.write_json` wrote."""
    rows = json.loads(path.read_text())["rows"]
    return {name: row["rounds"] for name, row in rows.items()}


def table_of(rows: list[Row], measured: dict[str, Rounds]) -> str:
    """One line a metric; the first of a row says what the row is."""
    lines = []
    for row in rows:
        rounds = measured[row.name]
        count = len(next(iter(rounds.values())))
        what = f"{row.what} ({count} round{'s' * (count != 1)}): "
        for line in lines_of(row, rounds):
            lines.append(_line(what, line))
            what = "its "
    return HEAD + "".join(lines)


def _line(what: str, line: Line) -> str:
    ours = line.spreads.get(OURS)
    peer = next((spread for name, spread in line.spreads.items() if name != OURS), None)
    target = f"{line.target}, {line.verdict}" if line.target else ""
    cells = (f"{what}{line.metric}", _median(ours), _median(peer), _spread(line.ratio), target)
    return "| " + " | ".join(cells) + " |\n"


def _median(spread: Spread | None) -> str:
    return "" if spread is None else figure(spread.median)


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return ""
    return f"{figure(spread.median)} [{figure(spread.lowest)}–{figure(spread.highest)}]"


def page_with(text: str, rows: list[Row], measured: dict[str, Rounds]) -> tuple[str, list[str]]:
    """The page with its marked tables written anew, and the rows that were written."""
    by_name = {row.name: row for row in rows}
    written: list[str] = []

    def replace(found: re.Match[str]) -> str:
        names = found[2].split()
        if not all(name in measured for name in names):
            return found[0]
        written.extend(names)
        return found[1] + table_of([by_name[name] for name in names], measured) + found[4]

    return MARKED.sub(replace, text), written


def update_page(path: Path, figures: Path, rows: list[Row]) -> list[str]:
    """Write the page's tables from a file of figures, and draw its plots anew; the rows that were
    written."""
    text, written = page_with(path.read_text(), rows, read_rounds(figures))
    path.write_text(text)
    update_plots(path)
    return written
