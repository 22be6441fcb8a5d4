"""Draws the plots of the performance page from the page's own tables: median and spread of ratios.

What: every table of the page with the columns row, Anabranch, Kafka, ratio and target is read;
PLOTS says which of its lines are drawn, and under which name. Why from the page: a plot can then
never show other figures than the table below it. Rule kept: a line that the page lacks is left out.
The plots are SVG in the reader's choice of light or dark, and load nothing.
"""

from __future__ import annotations

import math
import re
from html import escape
from pathlib import Path
from typing import NamedTuple

RATIO = re.compile(r"^([\d.]+)(?: \[([\d.]+)–([\d.]+)\])?$")
WIDTH, LEFT, RIGHT = 760, 300, 560
"""Of the drawing; its names end at LEFT, and the figures begin behind RIGHT."""
STEP, TOP, BOTTOM = 26, 58, 40
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1c2733; }
.small { font-size: 12px; fill: #475663; }
.title { font-weight: 600; font-size: 14px; }
.grid { stroke: #d4dde3; } .equal { stroke: #8fa1af; stroke-width: 1.6; }
.spread { stroke: #5fb3a6; stroke-width: 5; stroke-linecap: round; }
.dot { fill: #00786a; } .worse .spread { stroke: #e2a27c; } .worse .dot { fill: #b3541e; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf2; } .small { fill: #aebcc6; } .grid { stroke: #39434d; }
.equal { stroke: #8fa1af; } .spread { stroke: #2d8c7e; } .dot { fill: #5fe0cd; }
.worse .spread { stroke: #9a5a35; } .worse .dot { fill: #f0a070; }
}
"""


class Measured(NamedTuple):
    """One line of a table: both medians as they stand there, and the ratio with its spread."""

    ours: str
    kafka: str
    ratio: float
    lowest: float
    highest: float


class Wanted(NamedTuple):
    """A line to draw: its name, how its row begins, and which of "its" metrics is meant."""

    name: str
    row: str
    metric: str = ""
    unit: str = ""


class Plot(NamedTuple):
    """One picture."""

    file: str
    title: str
    more_is_better: bool
    lines: tuple[Wanted, ...]


ROWS = (
    ("1 broker: 1 KB in 1 MB batches", "produce 1 KB, 1 MB"),
    ("1 broker: 1 KB in 16 KB batches", "produce 1 KB, 16 KB"),
    ("1 broker: 100 B in 2 KB batches", "produce 100 B, 2 KB"),
    ("1 broker: consume 1 KB", "consume 1 KB"),
    ("3 brokers: 1 KB in 1 MB batches", "acks=all, 3 replicas, 1 KB in 1 MB"),
    ("3 brokers: 1 KB in 16 KB batches", "acks=all, 3 replicas, 1 KB in 16 KB"),
    ("3 brokers: 12 partitions", "acks=all, 3 replicas, 1 KB in the client's own batches, 12"),
    ("3 brokers: 100 partitions", "acks=all, 3 replicas, 1 KB in the client's own batches, 100"),
    ("3 brokers: 100 B in 2 KB batches", "acks=all, 3 replicas, 100 B"),
)
ONE_AT_A_TIME = "one record of 100 B at a time, acks="
PLOTS = (
    Plot(
        "performance-throughput",
        "Throughput, Anabranch to Kafka: farther right is better",
        True,
        (
            *(Wanted(name, row, unit="MB/s") for name, row in ROWS),
            Wanted("64 producers, 64 consumers", "64 producers", unit="records/s"),
            Wanted("offset commits, 100 groups", "offset commits", unit="/s"),
        ),
    ),
    Plot(
        "performance-cpu",
        "CPU for a gigabyte, Anabranch to Kafka: farther left is better",
        False,
        tuple(Wanted(name, row, "CPU s/GB", "s/GB") for name, row in ROWS),
    ),
    Plot(
        "performance-waiting",
        "Time that a client waits, Anabranch to Kafka: farther left is better",
        False,
        (
            Wanted("1 broker: one record, median", f"{ONE_AT_A_TIME}1", unit="ms"),
            Wanted("1 broker: one record, p99", f"{ONE_AT_A_TIME}1", "p99 ms", "ms"),
            Wanted("3 brokers: one record, median", f"{ONE_AT_A_TIME}all", unit="ms"),
            Wanted("3 brokers: one record, p99", f"{ONE_AT_A_TIME}all", "p99 ms", "ms"),
            Wanted("1 broker: cold start", "new folder: exec", unit="s"),
            Wanted("1 broker: restart after SIGKILL", "SIGKILL with 5,500", unit="s"),
            Wanted("3 brokers: leader killed", "SIGKILL of the leader: longest", unit="s"),
            Wanted("3 brokers: leader frozen", "SIGSTOP of the leader: until", unit="s"),
        ),
    ),
)


def lines_of_page(page: str) -> list[tuple[str, str, Measured]]:
    """Row, "its" metric or nothing, and figures: of each line of a table that has a ratio."""
    found, row = [], ""
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|") or len(cells) != 5:
            continue
        metric = cells[0].removeprefix("its ") if cells[0].startswith("its ") else ""
        row = row if metric else cells[0]
        ratio = RATIO.match(cells[3])
        if ratio:
            median = float(ratio[1])
            ends = float(ratio[2] or median), float(ratio[3] or median)
            found.append((row, metric, Measured(cells[1], cells[2], median, *ends)))
    return found


def chosen(page: str, plot: Plot) -> list[tuple[Wanted, Measured]]:
    """The lines of a plot that the page has."""
    found = lines_of_page(page)
    picked = []
    for wanted in plot.lines:
        hits = [
            measured
            for row, metric, measured in found
            if row.startswith(wanted.row) and metric == wanted.metric
        ]
        picked += [(wanted, hits[0])] if hits else []
    return picked


def draw(page: str, plot: Plot) -> str:
    """One plot as SVG: a dot for the median, a bar from the lowest to the highest round."""
    lines = chosen(page, plot)
    ends = [end for _, each in lines for end in (each.lowest, each.highest) if end > 0]
    low = math.floor(min(math.log2(end) for end in (*ends, 0.5)))
    high = math.ceil(max(math.log2(end) for end in (*ends, 2)))
    height = TOP + STEP * len(lines) + BOTTOM

    def at(ratio: float) -> float:
        share = (math.log2(max(ratio, 2.0**low)) - low) / (high - low)
        return LEFT + 14 + share * (RIGHT - LEFT - 14)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img"><title>{escape(plot.title)}</title>',
        f"<style>{STYLE}</style>",
        f'<text class="title" x="8" y="20">{escape(plot.title)}</text>',
        f'<text class="small" x="{RIGHT + 14}" y="44">Anabranch, Kafka</text>',
    ]
    step = 1 if high - low <= 7 else 2
    for power in range(-(-low // step) * step, high + 1, step):
        x, kind = at(2.0**power), "equal" if power == 0 else "grid"
        parts.append(
            f'<line class="{kind}" x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" '
            f'y2="{height - BOTTOM + 4}"/>'
        )
        name = f"{2**power}×" if power >= 0 else f"1/{2**-power}"
        parts.append(
            f'<text class="small" x="{x:.1f}" y="{height - BOTTOM + 20}" '
            f'text-anchor="middle">{name}</text>'
        )
    for number, (wanted, each) in enumerate(lines):
        y = TOP + STEP * number + STEP / 2
        is_worse = each.ratio < 1 if plot.more_is_better else each.ratio > 1
        figures = f"{each.ours}, {each.kafka} {wanted.unit}".rstrip()
        parts.append(
            f'<g class="{"worse" if is_worse else "better"}">'
            f'<text x="{LEFT}" y="{y + 4.5:g}" text-anchor="end">{escape(wanted.name)}</text>'
            f'<line class="spread" x1="{at(each.lowest):.1f}" y1="{y:g}" '
            f'x2="{at(each.highest):.1f}" y2="{y:g}"/>'
            f'<circle class="dot" cx="{at(each.ratio):.1f}" cy="{y:g}" r="5"/>'
            f'<text class="small" x="{RIGHT + 14}" y="{y + 4.5:g}">{escape(figures)}</text></g>'
        )
    return "\n".join((*parts, "</svg>\n"))


def stale(page: Path) -> dict[Path, str]:
    """The plots that are not those of the page: file and what it should be."""
    text, folder = page.read_text(), page.parents[1] / "pictures"
    drawn = {folder / f"{plot.file}.svg": draw(text, plot) for plot in PLOTS}
    return {
        path: svg for path, svg in drawn.items() if not path.exists() or path.read_text() != svg
    }


def update_plots(page: Path) -> list[str]:
    """Draw what has changed; the names of the files."""
    old = stale(page)
    for path, svg in old.items():
        path.write_text(svg)
    return [path.name for path in old]
