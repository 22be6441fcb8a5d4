"""Draws the board of docs/operate/grafana-board.json from what a Prometheus answers, as an SVG.

    scripts/board_picture.py http://127.0.0.1:9090 MINUTES docs/pictures/board.svg

Why: Grafana is not among the tools that this project installs. The queries, titles, units and
places are the board's own, and the lines are Prometheus's answers; colours and fonts are not
Grafana's.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.parse
import urllib.request
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

BOARD = Path(__file__).resolve().parents[1] / "docs" / "operate" / "grafana-board.json"
COLUMN, LINE, GAP = 50, 24, 8
"""Of the board's grid, in pixels."""
STEPS = 60
MOST_NAMES = 5
COLOURS = ("#00786a", "#b3541e", "#4a5fc1", "#a03a6b", "#6f7d1d", "#2b8cbe", "#8a6d3b", "#777777",
           "#c0392b", "#16a085")  # fmt: skip
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1c2733; }
.title { font-weight: 600; } .row { font-weight: 600; font-size: 15px; }
.small { font-size: 10px; fill: #475663; } .stat { font-size: 34px; fill: #00786a; }
.panel { fill: #ffffff; stroke: #d4dde3; } .grid { stroke: #e4eaee; }
.line { fill: none; stroke-width: 1.5; } .ground { fill: #f4f7f8; }
"""
SCALES = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""))
UNITS = {"Bps": "B/s", "s": "s", "ms": "ms", "reqps": "/s", "ops": "/s"}


class Line(NamedTuple):
    """One series: its name, and (time, value) of each step that has one."""

    name: str
    points: list[tuple[float, float]]


def asked(server: str, expression: str, begin: float, end: float, step: float) -> list[Any]:
    """The series of a query over a range."""
    query = urllib.parse.urlencode(
        {"query": expression, "start": begin, "end": end, "step": f"{step:.3f}"}
    )
    with urllib.request.urlopen(f"{server}/api/v1/query_range?{query}", timeout=30) as answer:
        found: list[Any] = json.load(answer)["data"]["result"]
    return found


def lines_of(server: str, panel: Any, begin: float, end: float) -> list[Line]:
    """What the queries of a panel give, the highest first."""
    step = (end - begin) / STEPS
    found = []
    for target in panel["targets"]:
        expression = target["expr"].replace("$__rate_interval", f"{max(4 * step, 20):.0f}s")
        for series in asked(server, expression, begin, end, step):
            name = target["legendFormat"].replace("__auto", "")
            for label, value in series["metric"].items():
                name = name.replace("{{" + label + "}}", value)
            points = [(at, float(value)) for at, value in series["values"]]
            found.append(Line(name, [each for each in points if each[1] == each[1]]))
    return sorted(found, key=lambda line: -max((value for _, value in line.points), default=0.0))


def shown(value: float, unit: str) -> str:
    """A number as a person reads it."""
    if unit == "percentunit":
        return f"{100 * value:.0f} %"
    scale, letter = next((each for each in SCALES if abs(value) >= each[0]), (1, ""))
    text = f"{value / scale:.3g}{letter}"
    return f"{text} {UNITS[unit]}" if unit in UNITS else text


def text(kind: str, x: float, y: float, words: str, anchor: str = "start") -> str:
    """Words in the drawing."""
    place = f'x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {place}>{escape(words)}</text>'


def plot(lines: list[Line], unit: str, width: int, height: int, span: tuple[float, float]) -> str:
    """The curves of a panel, with a scale and the names of the first ones."""
    left, right, top = 58, width - 10, 28
    names = lines[:MOST_NAMES]
    bottom = height - 18 - 13 * len(names) - (13 if len(lines) > len(names) else 0)
    highest = max((value for line in lines for _, value in line.points), default=0.0) or 1.0
    parts = []
    for share in (0, 0.5, 1):
        y = bottom - share * (bottom - top)
        parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.0f}" y2="{y:.0f}"/>')
        parts.append(text("small", left - 4, y + 3, shown(share * highest, unit), "end"))
    for number, line in enumerate(lines):
        places = " ".join(
            f"{left + (at - span[0]) / (span[1] - span[0]) * (right - left):.1f},"
            f"{bottom - value / highest * (bottom - top):.1f}"
            for at, value in line.points
        )
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<polyline class="line" stroke="{colour}" points="{places}"/>')
    for number, line in enumerate(names):
        y = bottom + 17 + 13 * number
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<rect x="{left - 48}" y="{y - 5}" width="9" height="3" fill="{colour}"/>')
        parts.append(text("small", left - 34, y, line.name))
    if len(lines) > len(names):
        y = bottom + 17 + 13 * len(names)
        more = len(lines) - len(names)
        parts.append(text("small", left - 34, y, f"and {more} more"))
    return "".join(parts)


def drawn(server: str, minutes: float) -> str:
    """The whole board."""
    board = json.loads(BOARD.read_text())
    end = time.time()
    span = end - 60 * minutes, end
    width = 24 * COLUMN
    height = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in board["panels"]) * LINE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
        f"<title>{escape(board['title'])}</title><style>{STYLE}</style>"
        f'<rect class="ground" width="{width}" height="{height}"/>'
    ]
    for panel in board["panels"]:
        place = panel["gridPos"]
        w, h = place["w"] * COLUMN - GAP, place["h"] * LINE - GAP
        parts.append(
            f'<g transform="translate({place["x"] * COLUMN + GAP // 2},{place["y"] * LINE})">'
        )
        if panel["type"] == "row":
            parts.append(text("row", 2, 17, panel["title"]) + "</g>")
            continue
        unit = panel["fieldConfig"]["defaults"]["unit"]
        lines = lines_of(server, panel, *span)
        parts.append(f'<rect class="panel" width="{w}" height="{h}" rx="3"/>')
        parts.append(text("title", 10, 17, panel["title"]))
        if not any(line.points for line in lines):
            parts.append(text("small", w / 2, h / 2, "No data", "middle"))
        elif panel["type"] == "stat":
            value = shown(lines[0].points[-1][1], unit)
            parts.append(text("stat", w / 2, h - 22, value, "middle"))
        else:
            parts.append(plot(lines, unit, w, h, span))
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    Path(sys.argv[3]).write_text(drawn(sys.argv[1], float(sys.argv[2])))
