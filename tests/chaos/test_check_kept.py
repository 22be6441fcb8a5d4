"""Offsets that expire are there for their time, and what is gone stays away."""

from __future__ import annotations

from typing import Any

from chaos import check_kept

RETENTION_MS = 1_000
AT = "t-0"


class Told:
    """One group's lines, a hundred milliseconds apart unless it waits."""

    def __init__(self) -> None:
        self.t = 0
        self.lines: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []

    def wait(self, ms: int) -> Told:
        self.t += ms * 1000
        return self

    def commit(self, offset: int, *, ok: bool = True, ms: int = RETENTION_MS) -> Told:
        return self._line("kept", offset=offset, ok=ok, retention_ms=ms)

    def recall(self, offset: int) -> Told:
        return self._line("recalled", offset=offset)

    def _line(self, op: str, **fields: Any) -> Told:
        asked = self.t
        self.wait(100)
        line = {"op": op, "t": self.t, "asked": asked, "group": "g", "at": AT, **fields}
        self.lines.append(line)
        return self

    def event(self, op: str, **fields: Any) -> Told:
        self.wait(1)
        self.events.append({"op": op, "t": self.t, "topic": "t", **fields})
        return self

    @property
    def found(self) -> list[str]:
        return [each.id for each in check_kept.judge(self.lines, self.events)]


def test_an_offset_is_there_for_its_time_and_then_gone():
    told = Told().commit(1).recall(1).wait(900).recall(-1).wait(500).recall(-1).commit(2).recall(2)
    assert told.found == []


def test_an_offset_that_is_still_there_later_is_no_fault():
    assert Told().commit(1).wait(5000).recall(1).found == []


def test_an_offset_is_gone_early():
    assert Told().commit(1).recall(-1).found == ["offset-expired"]


def test_a_commit_that_was_under_way_while_the_last_one_expired_is_lost():
    """The fault that chaos is for: the round that removes offset 1 removes 2 with it."""
    told = Told().commit(1).wait(1000).commit(2).recall(-1).recall(-1)
    assert told.found == ["offset-expired"], "once: what follows is the same loss"


def test_an_older_offset_is_told():
    assert Told().commit(1).commit(2).recall(1).found == ["offset-stale"]


def test_an_offset_that_nobody_committed_is_told():
    assert Told().recall(5).found == ["offset-stale"]


def test_an_expired_offset_comes_back():
    assert Told().commit(1).wait(1000).recall(-1).recall(1).found == ["offset-risen"]


def test_a_commit_that_nobody_confirmed_may_be_there_or_not():
    told = Told().commit(1).commit(2, ok=False)
    assert told.recall(2).recall(1).wait(1000).recall(-1).recall(2).found == []


def test_an_offset_that_is_kept_for_good_does_not_expire():
    assert Told().commit(1, ms=-1).wait(60_000).recall(-1).found == ["offset-expired"]


def test_a_clock_that_was_wrong_explains_it():
    told = Told().commit(1)
    assert told.event("clock", began=told.t, seconds=300).recall(-1).found == []


def again(told: Told) -> Told:
    """The topic is deleted and made again, and all know."""
    told.event("deletion")
    asked = told.t
    return told.wait(50).event("reborn", asked=asked, created=told.t).wait(1)


def test_an_offset_goes_with_its_topic():
    assert again(Told().commit(1, ms=-1)).recall(-1).found == []


def test_an_offset_of_a_deleted_topic_is_told_of_the_next():
    assert again(Told().commit(1, ms=-1)).recall(1).found == ["offset-risen"]


def test_an_offset_of_the_next_topic_is_not_lost():
    told = again(Told().commit(1, ms=-1)).wait(10).commit(2, ms=-1)
    assert told.recall(2).recall(-1).found == ["offset-expired"]
