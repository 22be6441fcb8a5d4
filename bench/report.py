"""From samples to ratios: median and spread of what was measured side by side.

A ratio is taken within one round, Anabranch's figure over its peer's, because figures of one
machine move by a third from minute to minute and the ratio moves less.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from row import Row, Target

OURS = "anabranch"
Rounds = dict[str, list[dict[str, float]]]
"""Server name -> the figures of each round."""


@dataclass(frozen=True)
class Spread:
    """Median, smallest and largest of some figures."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, figures: list[float]) -> Spread:
        """Of at least one figure."""
        return cls(statistics.median(figures), min(figures), max(figures))

    def __str__(self) -> str:
        return f"{figure(self.median)} [{figure(self.lowest)}-{figure(self.highest)}]"


def figure(number: float) -> str:
    """Three digits that matter."""
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 10 else f"{number:.2f}" if number >= 1 else f"{number:.3f}"


@dataclass(frozen=True)
class Line:
    """One metric of one row."""

    metric: str
    spreads: dict[str, Spread]
    ratio: Spread | None
    target: Target | None

    @property
    def verdict(self) -> str:
        """Whether the median ratio meets the target."""
        if self.target is None:
            return ""
        judged = self.spreads.get(OURS) if self.target.is_own else self.ratio
        if judged is None:
            return ""
        return "met" if self.target.is_met(judged.median) else "missed"


def lines_of(row: Row, rounds: Rounds) -> list[Line]:
    """One line a metric, in the order in which the workload reports them. What only one server
    has, as the bytes of objects, has no ratio."""
    metrics = dict.fromkeys(metric for taken in rounds.values() for metric in taken[0])
    result = []
    for metric in metrics:
        by_server = {
            name: [each[metric] for each in taken]
            for name, taken in rounds.items()
            if metric in taken[0]
        }
        ratio = None
        peers = [name for name in by_server if name != OURS]
        if OURS in by_server and peers:
            pairs = zip(by_server[OURS], by_server[peers[0]], strict=True)
            ratio = Spread.of([ours / max(peer, 1e-9) for ours, peer in pairs])
        spreads = {name: Spread.of(figures) for name, figures in by_server.items()}
        result.append(Line(metric, spreads, ratio, row.targets.get(metric)))
    return result


def print_row(console: Console, row: Row, rounds: Rounds) -> None:
    """A table for people: median [lowest-highest] of each server and of the ratio."""
    table = Table(title=f"{row.name}: {row.what}", title_justify="left")
    table.add_column("metric")
    for name in rounds:
        table.add_column(name, justify="right")
    for heading in ("ratio", "target", ""):
        table.add_column(heading, justify="right")
    for line in lines_of(row, rounds):
        table.add_row(
            line.metric,
            *(str(line.spreads.get(name, "")) for name in rounds),
            f"{line.ratio}" if line.ratio else "",
            str(line.target or ""),
            line.verdict,
        )
    console.print(table)
    if row.note:
        console.print(f"  {row.note}", style="dim", highlight=False)


def write_json(path: Path, machine: dict[str, Any], results: dict[str, tuple[Row, Rounds]]) -> None:
    """Everything that was measured, each round of it."""
    document = {
        "machine": machine,
        "rows": {
            name: {
                "what": row.what,
                "note": row.note,
                "targets": {metric: str(target) for metric, target in row.targets.items()},
                "rounds": rounds,
                "verdicts": {line.metric: line.verdict for line in lines_of(row, rounds)},
            }
            for name, (row, rounds) in results.items()
        },
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n")
