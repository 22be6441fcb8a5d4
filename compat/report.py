"""One table: row, what Kafka gave, what Anabranch gave, seconds, note; as a page, and as JSON.

Verdicts: `same`; `differs`, `fails` where Kafka passes and Anabranch does not; `owed` where
Anabranch lacks the feature; `stale` where the mark should go; `broken` where Kafka itself does not
pass, so that the row shows nothing.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

from compat.row import Row, Seen

LONGEST_NOTE = 300
PAGE_WIDTH = 100
BAD = {"differs", "fails", "stale", "broken"}
"""Verdicts that make the command fail."""

INTRODUCTION = """\
# Compatibility

This page shows which tools and clients work with Anabranch in the same way as with Apache Kafka
{kafka}. `make compat` starts both servers with the same settings and runs each row, a scenario of
one tool, with both. A row is "same" if both results are equal, apart from addresses, ids and times,
and "owed" if Anabranch lacks the feature in the note.
{summary}.

{versions}
"""


@dataclass(frozen=True)
class Line:
    """One row with what both peers gave."""

    row: Row
    kafka: Seen
    anabranch: Seen

    @property
    def verdict(self) -> str:
        """One word; the module's docstring lists them."""
        ours, owed = self.anabranch, self.row.owed
        if self.kafka.failure is not None:
            return "broken"
        good = ours.failure is None and ours.value == self.kafka.value
        if owed:
            return "stale" if good else "owed"
        if good:
            return "same"
        return "fails" if ours.failure is not None else "differs"

    @property
    def note(self) -> str:
        """What to know beside the verdict, in one line."""
        if self.verdict == "broken":
            return f"Kafka: {self.kafka.failure}"
        if self.verdict == "stale":
            return f"passes: take the mark {self.row.owed} away"
        if self.verdict == "owed":
            return f"{self.row.owed}: {self.anabranch.failure or self.difference}"
        if self.verdict != "same":
            return self.anabranch.failure or self.difference
        return "" if self.kafka.said == self.anabranch.said else f"other words: {self.words}"

    @property
    def difference(self) -> str:
        """The lines that only one of them has."""
        return differing(self.kafka.value, self.anabranch.value)

    @property
    def words(self) -> str:
        """The sentences that only one of them says."""
        return differing(self.kafka.said, self.anabranch.said)


def differing(kafka: Any, ours: Any) -> str:
    """`-` only Kafka has, `+` only Anabranch has; the first few."""
    pair = [json.dumps(each, indent=0, ensure_ascii=False).splitlines() for each in (kafka, ours)]
    changed = [
        line
        for line in difflib.unified_diff(*pair, n=0, lineterm="")
        if line[:2] not in ("--", "++", "@@") and line[1:].strip("[]{}, ")
    ]
    return "  ".join(changed)


def short(text: str, longest: int = LONGEST_NOTE) -> str:
    """One line, cut where it is too long for a table."""
    flat = " ".join(text.split())
    return flat if len(flat) <= longest else flat[: longest - 1] + "…"


def cells(line: Line) -> list[str]:
    """The five columns."""
    kafka = "passes" if line.kafka.failure is None else "fails"
    seconds = f"{line.kafka.seconds:.1f} / {line.anabranch.seconds:.1f}"
    return [line.row.name, kafka, line.verdict, seconds, short(line.note)]


HEADINGS = ("row", "Apache Kafka", "Anabranch", "seconds", "note")


def summary(lines: Sequence[Line]) -> str:
    """How many rows, and of which verdict."""
    counts = Counter(line.verdict for line in lines)
    parts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    return f"{len(lines)} rows: {parts}"


def page(lines: Sequence[Line], about: Mapping[str, Any]) -> str:
    """The table as a page of the documentation, with the sentence of each row."""
    clients = "".join(f", {name} {version}" for name, version in about.get("clients", {}).items())
    used = f"Versions: Kafka's tools {about['kafka']}{clients}."
    versions = fill(used, PAGE_WIDTH, break_on_hyphens=False)
    head = INTRODUCTION.format(kafka=about["kafka"], summary=summary(lines), versions=versions)
    rows = ["| row | what | Anabranch | seconds, Kafka / Anabranch | note |", "|" + " --- |" * 5]
    for line in lines:
        name, _, verdict, seconds, note = (each.replace("|", "\\|") for each in cells(line))
        what = line.row.what.replace("|", "\\|")
        code = f"`{note.replace('`', chr(39))}`" if note else ""
        rows.append(f"| `{name}` | {what} | {verdict} | {seconds} | {code} |")
    return "\n".join([head, *rows]) + "\n"


def document(lines: Sequence[Line], about: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that was seen."""
    return {
        "about": dict(about),
        "summary": summary(lines),
        "rows": [
            {
                "row": line.row.name,
                "what": line.row.what,
                "owed": line.row.owed,
                "verdict": line.verdict,
                "note": line.note,
                "kafka": vars(line.kafka),
                "anabranch": vars(line.anabranch),
            }
            for line in lines
        ],
    }


def write(path: Path, text: str) -> None:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def exit_code(lines: Sequence[Line]) -> int:
    """1 where Anabranch fails what Kafka passes, or a row shows nothing; else 0."""
    return int(any(line.verdict in BAD for line in lines))
