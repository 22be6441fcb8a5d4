"""Which loss a stretched cluster survives, rehearsed: the table of docs/operate/rehearse.md.

`.venv/bin/python scripts/stretch_table.py` prints it; `--write` puts it into the page, and a test
compares it. Each cell is a rehearsal of six partitions that are written to with acks=all.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from anabranch.sim.rehearsal.answers import Answers, Condition
from anabranch.sim.rehearsal.rehearsal_file import read
from anabranch.sim.rehearsal.stage import run

PAGE = Path(__file__).parents[1] / "docs" / "operate" / "rehearse.md"
MARKED = re.compile(r"(<!-- stretch -->\n)(.*?)(<!-- end -->)", re.S)
CLUSTERS = {
    "2": "{east: [1, 2, 3], west: [4, 5, 6]}",
    "2.5": "{east: [1, 2], west: [3, 4], small: [5]}",
    "3": "{east: [1, 2], west: [3, 4], north: [5, 6]}",
}
ROWS = (("2", 4, 3), ("2", 4, 2), ("2.5", 3, 2), ("2.5", 5, 3), ("3", 3, 2), ("3", 5, 3))
"""Data centres, replicas, min.insync.replicas."""
LOSSES = {
    "one broker": "kill: 1",
    "a data centre": "power_loss: east",
    "a broker in each of two": "kill: [2, 4]",
}
PARTITIONS = 6
FILE = """\
name: A loss
about: A cell of the table.
length: 80s
cluster: {{racks: {racks}, between_racks: 5ms}}
topics:
  orders:
    partitions: 6
    replication: {replicas}
    settings: {{min.insync.replicas: {minimum}}}
    produce: {{acks: all, rate: 10/s}}
events:
  - {{at: 20s, {loss}}}
claims:
  - {{says: nothing is lost, measure: records_lost, is: 0}}
"""


def rehearsed(centres: str, replicas: int, minimum: int, loss: str) -> Answers:
    """What a loss does to a cluster that does not come back."""
    text = FILE.format(racks=CLUSTERS[centres], replicas=replicas, minimum=minimum, loss=loss)
    return run(read(text, "stretch"))


def cell(answers: Answers) -> str:
    """What is left a minute after the loss."""
    if answers.records_lost or answers.violation:
        return f"{answers.records_lost} records lost {answers.violation}".strip()
    for condition, word in ((Condition.OFFLINE, "offline"), (Condition.READ_ONLY, "read-only")):
        if count := len(answers.at_end(condition)):
            return f"**{count} of {PARTITIONS} {word}**"
    return "writes go on"


def table() -> str:
    """The table, in Markdown."""
    head = ["data centres", "replicas", "`min.insync.replicas`", *LOSSES]
    lines = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    for row in ROWS:
        cells = [cell(rehearsed(*row, loss)) for loss in LOSSES.values()]
        lines.append(f"| {' | '.join([*map(str, row), *cells])} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.name}")
    if not parser.parse_args().write:
        print(table(), end="")
        return
    PAGE.write_text(MARKED.sub(lambda found: found[1] + table() + found[3], PAGE.read_text()))


if __name__ == "__main__":
    main()
