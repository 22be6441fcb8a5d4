"""Draws the pictures of the documentation: docs/pictures/NAME.txt becomes NAME.svg.

    scripts/pictures.py            draw every picture again
    scripts/pictures.py --check    say which drawings are not those of their sources

A source has one figure a line; words with spaces stand in quotes, and `|` begins a new line.
Sizes are in units of the drawing, which is scaled to the width of the page:

    size WIDTH HEIGHT
    title "what the picture shows, for those who hear the page"
    box NAME X Y WIDTH HEIGHT KIND "text"       KIND is a class of STYLE: plain, client, server, …
    arrow FROM TO "text" [SHIFT] [dashed]       between boxes; SHIFT moves the line sideways
    cells X Y COUNT COMMITTED "text"            the records of a log, and how many are committed
    mark X Y1 Y2 "text"                         an upright line with its name above it
    note X Y "text" [middle]

Rule kept: colours follow the reader's choice of light or dark, and nothing is loaded from anywhere.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"
LINE = 17
"""From one line of text to the next."""
CELL = 34
"""The width of a record."""

STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1c2733; }
.small { font-size: 12px; fill: #475663; }
rect, .cell { stroke: #8fa1af; stroke-width: 1; fill: #f4f7f9; }
.client { fill: #fdf3e1; stroke: #c99a45; }
.server { fill: #e3f3f1; stroke: #2f8d80; }
.store { fill: #ebe9f7; stroke: #7468b8; }
.strong { fill: #00786a; stroke: #00786a; }
.strong-text { fill: #ffffff; font-weight: 600; }
.area { fill: none; stroke-dasharray: 5 4; }
.gone { fill: #fbe6e4; stroke: #c2554b; stroke-dasharray: 4 3; }
.committed { fill: #9fd6cd; stroke: #2f8d80; }
.line { stroke: #475663; stroke-width: 1.4; fill: none; }
.dashed { stroke-dasharray: 5 4; }
.head { fill: #475663; }
.mark { stroke: #b3541e; stroke-width: 1.6; }
.halo { paint-order: stroke; stroke: #ffffff; stroke-width: 4px; stroke-linejoin: round; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf2; } .small { fill: #aebcc6; }
rect, .cell { stroke: #6b7d8a; fill: #2a323c; }
.client { fill: #43371f; stroke: #c99a45; } .server { fill: #17403b; stroke: #43a898; }
.store { fill: #34305a; stroke: #9a8fe0; } .gone { fill: #4a2724; stroke: #d9766c; }
.strong { fill: #0d9c8a; stroke: #0d9c8a; } .strong-text { fill: #ffffff; }
.area { fill: none; } .committed { fill: #1f6f64; stroke: #43a898; }
.line { stroke: #aebcc6; } .head { fill: #aebcc6; } .mark { stroke: #f0a070; }
.halo { stroke: #1e2129; }
}
"""


class Box(NamedTuple):
    """A rectangle that arrows may begin and end at."""

    x: float
    y: float
    width: float
    height: float

    @property
    def centre(self) -> tuple[float, float]:
        """Its middle."""
        return self.x + self.width / 2, self.y + self.height / 2


class Drawing:
    """One picture: figures are added line by line; arrows lie over boxes, and texts over arrows."""

    def __init__(self) -> None:
        self.size = (760.0, 300.0)
        self.title = ""
        self.boxes: dict[str, Box] = {}
        self.below: list[str] = []
        self.above: list[str] = []

    def box(self, name: str, x: str, y: str, width: str, height: str, kind: str, text: str) -> None:
        """A rectangle with its text in the middle; that of an area stands at its upper edge."""
        box = self.boxes[name] = Box(float(x), float(y), float(width), float(height))
        self.below.append(
            f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'
        )
        middle_x, middle_y = box.centre
        if kind == "area":
            self.write(box.x + 10, box.y + 18, text, "small")
        else:
            style = "strong-text" if kind == "strong" else ""
            self.write(middle_x, middle_y, text, style, anchor="middle", centred=True)

    def arrow(self, start: str, end: str, text: str = "", shift: str = "0", *more: str) -> None:
        """From the edge of one box to that of another."""
        dashed = "dashed" in (shift, *more)
        aside = 0.0 if shift == "dashed" else float(shift)
        one, other = self.boxes[start], self.boxes[end]
        x1, y1, x2, y2 = span(one, other, aside)
        style = "line dashed" if dashed else "line"
        self.below.append(
            f'<line class="{style}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" '
            'marker-end="url(#head)"/>'
        )
        lines = text.count("|") + 1
        middle = (y1 + y2) / 2 - (6 if abs(y2 - y1) < LINE * lines else 0)
        centred = abs(y2 - y1) >= LINE * lines
        top = middle if centred else middle - LINE * (lines - 1)
        self.write((x1 + x2) / 2, top, text, "small halo", anchor="middle", centred=centred)

    def cells(self, x: str, y: str, count: str, committed: str, text: str) -> None:
        """A log: a row of records with their offsets."""
        for index in range(int(count)):
            kind = "cell committed" if index < int(committed) else "cell"
            left = float(x) + index * CELL
            self.below.append(
                f'<rect class="{kind}" x="{left:g}" y="{y}" width="{CELL}" height="28"/>'
            )
            self.write(left + CELL / 2, float(y) + 14, str(index), "", "middle", centred=True)
        self.write(float(x) - 10, float(y) + 14, text, "small", "end", centred=True)

    def mark(self, x: str, y1: str, y2: str, text: str) -> None:
        """An upright line."""
        self.above.append(f'<line class="mark" x1="{x}" y1="{y1}" x2="{x}" y2="{y2}"/>')
        self.write(float(x), float(y1) - 8, text, "small", anchor="middle")

    def note(self, x: str, y: str, text: str, anchor: str = "start") -> None:
        """A text of its own."""
        self.write(float(x), float(y), text, "small", anchor)

    def write(
        self, x: float, y: float, text: str, style: str, anchor: str = "start",
        *, centred: bool = False,
    ) -> None:  # fmt: skip
        """Lines of text from a point on, or with their middle there."""
        lines = text.split("|") if text else []
        top = y - LINE * (len(lines) - 1) / 2 + 4.5 if centred else y
        for number, line in enumerate(lines):
            self.above.append(
                f'<text class="{style}" x="{x:g}" y="{top + number * LINE:g}" '
                f'text-anchor="{anchor}">{escape(line)}</text>'
            )

    def svg(self) -> str:
        """The whole picture."""
        width, height = self.size
        head = (
            '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto"><path class="head" d="M0 0 8 4 0 8z"/></marker>'
        )
        return "\n".join(
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
                f'width="{width:g}" height="{height:g}" role="img">',
                f"<title>{escape(self.title)}</title>",
                f"<style>{STYLE}</style><defs>{head}</defs>",
                *self.below,
                *self.above,
                "</svg>\n",
            )
        )


def span(one: Box, other: Box, aside: float) -> tuple[float, float, float, float]:
    """Where a line between two boxes begins and ends: straight where they face one another."""
    (cx1, cy1), (cx2, cy2) = one.centre, other.centre
    left, right = max(one.x, other.x), min(one.x + one.width, other.x + other.width)
    top, bottom = max(one.y, other.y), min(one.y + one.height, other.y + other.height)
    if right - left > 8:
        x = (left + right) / 2 + aside
        down = cy2 > cy1
        return (x, one.y + one.height if down else one.y, x,
                other.y if down else other.y + other.height)  # fmt: skip
    if bottom - top > 8:
        y = (top + bottom) / 2 + aside
        on = cx2 > cx1
        return (one.x + one.width if on else one.x, y,
                other.x if on else other.x + other.width, y)  # fmt: skip
    return (*edge(one, cx2, cy2, aside), *edge(other, cx1, cy1, aside))


def edge(box: Box, x: float, y: float, aside: float) -> tuple[float, float]:
    """Where the line from a box's middle to a point leaves it."""
    cx, cy = box.centre
    dx, dy = x - cx, y - cy
    across = box.width / 2 / abs(dx) if dx else float("inf")
    along = box.height / 2 / abs(dy) if dy else float("inf")
    share = min(across, along)
    return cx + dx * share + (aside if along < across else 0), cy + dy * share + (
        aside if across <= along else 0
    )


def draw(source: str) -> str:
    """The drawing of a source. Raises ValueError that names the line it cannot read."""
    drawing = Drawing()
    figures: dict[str, Callable[..., None]] = {
        name: getattr(drawing, name) for name in ("box", "arrow", "cells", "mark", "note")
    }
    for number, line in enumerate(source.splitlines(), 1):
        words = shlex.split(line, comments=True)
        try:
            if not words:
                continue
            if words[0] == "size":
                drawing.size = float(words[1]), float(words[2])
            elif words[0] == "title":
                drawing.title = words[1]
            else:
                figures[words[0]](*words[1:])
        except (KeyError, IndexError, TypeError, ValueError) as fault:
            raise ValueError(f"line {number}: {line!r} cannot be read: {fault}") from fault
    return drawing.svg()


def stale(folder: Path = FOLDER) -> list[str]:
    """The drawings that are missing or are not those of their sources."""
    return [
        source.stem
        for source in sorted(folder.glob("*.txt"))
        if not (drawn := source.with_suffix(".svg")).exists()
        or drawn.read_text() != draw(source.read_text())
    ]


def main() -> int:
    """Draw, or check."""
    old = stale()
    if "--check" in sys.argv[1:]:
        for name in old:
            print(f"docs/pictures/{name}.svg is not drawn from {name}.txt: scripts/pictures.py")
        return 1 if old else 0
    for name in old:
        source = FOLDER / f"{name}.txt"
        source.with_suffix(".svg").write_text(draw(source.read_text()))
        print(f"drew docs/pictures/{name}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
