"""What the nodes said in their logs: truncations to count, and faults of their own to complain of.

What: reads what was added to each log since the last look. Why the logs: a line that was written
outlives a SIGKILL, a metric does not. Rule kept: a trace of Python in a log is a bug of ours,
whatever the fault that led to it. Not here: warnings and errors that failures are supposed to
cause; those are counted and shown, not judged.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

TRUNCATION = "dropped records that the leader does not have"
LINE = re.compile(r"\S+ (?P<level>[A-Z]+) (?P<part>[\w.]+): (?P<rest>.*)")
FIELDS = re.compile(r" [\w.]+=.*")
OUR_OWN = (
    "Traceback (most recent call last)",
    "never retrieved",
    " WARNING own_faults: ",
    "the controller failed",
    "the node must stop",
    "its log is damaged",
    "its log is missing",
    "a log folder is offline",
    "cannot be loaded",
)
NO_ROOM = re.compile(r"the copy of the metadata log cannot be written.*No space left")
"""Why a node ends that a full disk should end: others lead then what it led."""


class NodeLogs:
    """Counts of the lines of some files, from where they ended when this was made."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._places = {path: path.stat().st_size if path.exists() else 0 for path in paths}
        self._rests = dict.fromkeys(paths, "")
        self.truncations = 0
        self.sentences: Counter[str] = Counter()
        """Warnings and errors without what is particular, by how often they were said."""
        self.bugs: list[str] = []

    def look(self) -> None:
        """Read what was added."""
        for path, place in self._places.items():
            if not path.exists():
                continue
            with path.open("rb") as file:
                file.seek(place)
                added = file.read()
            self._places[path] = place + len(added)
            *lines, self._rests[path] = (
                self._rests[path] + added.decode("utf-8", "replace")
            ).split("\n")
            for line in lines:
                self._read(path, line)

    def _read(self, path: Path, line: str) -> None:
        if TRUNCATION in line:
            self.truncations += 1
        if any(each in line for each in OUR_OWN) and not NO_ROOM.search(line):
            self.bugs.append(f"{path.name}: {line.strip()}")
        match = LINE.match(line)
        if match and match["level"] in ("WARNING", "ERROR"):
            self.sentences[
                f"{match['level']} {match['part']}: {FIELDS.sub('', match['rest'])}"
            ] += 1
