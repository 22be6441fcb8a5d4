"""Whether offsets that expire are there for their time, and gone ones do not come back.

What: each answer of "what is committed" is compared with the commits of its group before. Within
its retention the latest acknowledged offset is told, or a later one; never an older one. After
"nothing is committed" no older offset is told again. An offset of a deleted topic is not told once
every broker knows the next topic of that name. Rules kept: a commit that nobody confirmed may take
effect at any time; a clock that was wrong meanwhile excuses that an offset is gone. Not here: that
commits are in the log (`check_commits.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from anabranch.sim.checks.violation import Violation
from chaos.history import parse_place

Line = Mapping[str, Any]
NOTHING = -1
SENTENCES = {
    "offset-expired": "An acknowledged offset was gone before its retention was over.",
    "offset-stale": "Another offset is told than was committed last.",
    "offset-risen": "An offset that was gone is told again.",
}


def judge(lines: Iterable[Line], events: Sequence[Line]) -> Iterator[Violation]:
    """Everything that was promised to keepers and not kept."""
    by_key: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in lines:
        by_key[line["group"], line["at"]].append(line)
    for (_, at), told in sorted(by_key.items()):
        topic = parse_place(at).topic
        ours = [each for each in events if each["op"] == "clock" or each.get("topic") == topic]
        yield from _Offsets(ours).judge(sorted(told, key=lambda line: line["t"]))


class _Offsets:
    """One group's offset of one partition."""

    def __init__(self, events: Sequence[Line]) -> None:
        self._clocks = [each for each in events if each["op"] == "clock"]
        self._deletions = [each for each in events if each["op"] == "deletion"]
        self._reborn = [each for each in events if each["op"] == "reborn"]
        self._unknown: list[Line] = []
        self._latest: Line | None = None
        self._gone = NOTHING
        """The latest offset of which was told that it is gone."""

    def judge(self, lines: Iterable[Line]) -> Iterator[Violation]:
        for line in lines:
            if line["op"] == "recalled":
                name = self._recalled(line)
                if name:
                    yield _found(name, line, self._latest)
            elif line["ok"]:
                self._latest = line
            else:
                self._unknown.append(line)

    def _recalled(self, line: Line) -> str:
        """What is wrong with an answer, "" for nothing."""
        offset, latest = line["offset"], self._latest
        known = NOTHING if latest is None else latest["offset"]
        if offset == NOTHING:
            if latest is None or known <= self._gone:
                return ""
            self._gone = known
            return "" if self._may_be_gone(latest, line) else "offset-expired"
        if any(each["offset"] == offset for each in self._unknown):
            return ""
        if offset != known:
            return "offset-stale"
        is_gone = offset <= self._gone or self._is_of_a_former_topic(latest, line)
        return "offset-risen" if is_gone else ""

    def _may_be_gone(self, commit: Line, line: Line) -> bool:
        """Whether there may be nothing: the time is over, the topic went, another commit that
        nobody confirmed expired, or a clock was wrong."""
        return (
            _is_over(commit, line["t"])
            or any(_is_over(each, line["t"]) for each in self._unknown)
            or any(each["t"] < line["t"] and each["t"] > self._last_birth(commit["asked"])
                   for each in self._deletions)
            or any(each["began"] < line["t"] and each["t"] > commit["asked"]
                   for each in self._clocks)
        )  # fmt: skip

    def _last_birth(self, before: int) -> int:
        """Since when all brokers knew the topic that was there at a time."""
        return max((each["t"] for each in self._reborn if each["t"] <= before), default=0)

    def _is_of_a_former_topic(self, commit: Line | None, line: Line) -> bool:
        born = [each for each in self._reborn if each["t"] < line["asked"]]
        return commit is not None and bool(born) and commit["t"] < born[-1]["created"]


def _is_over(commit: Line, now_us: int) -> bool:
    ms = commit["retention_ms"]
    return ms >= 0 and now_us - commit["asked"] >= ms * 1000


def _found(name: str, line: Line, latest: Line | None) -> Violation:
    return Violation(name, SENTENCES[name], {
        "group": line["group"], "partition": line["at"], "told": line["offset"], "at": line["t"],
        "committed": None if latest is None else latest["offset"],
        "age_ms": None if latest is None else (line["t"] - latest["asked"]) // 1000,
        "retention_ms": None if latest is None else latest["retention_ms"],
    })  # fmt: skip
