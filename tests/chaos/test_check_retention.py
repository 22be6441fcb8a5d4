"""Records are not gone before the retention of their topic is over."""

from __future__ import annotations

import pytest
from tests.chaos.test_check import AT, Story
from tests.chaos.test_replicas import Disks

from anabranch.core.log import checkpoints
from chaos import check, check_retention

MS = 100
"""Longer than the whole story lasts."""


@pytest.fixture
def story(tmp_path, monkeypatch) -> Story:
    monkeypatch.setattr(check, "AGED", {"t": MS})
    return Story(tmp_path)


def test_nothing_is_deleted(story):
    assert story.found() == set()


def test_a_log_that_begins_behind_young_records(story):
    story.line("k", "start", at=AT, start=10)
    assert story.found() == {"expired"}


def test_a_log_that_begins_behind_old_ones(story):
    story.t += MS * 1000
    story.line("k", "start", at=AT, start=40)
    assert story.found() == set()


def test_an_audit_that_finds_young_records_gone(story):
    story.of("a", "poll").update(position=10, runs=[[10, "p.1", 10, 30]])
    story.of("a", "ends")["start"] = 10
    assert story.found() == {"expired"}


def test_a_clock_that_was_ahead_explains_it(story):
    story.line("k", "start", at=AT, start=10)
    story.files["o"] = []
    began = story.of("p", "send")["t"]
    clock = story.line("o", "clock", began=began + 500, seconds=60)
    assert story.found() == set()
    clock["began"] = clock["t"] = began - 500  # before anything was sent
    assert story.found() == {"expired"}


def test_a_reader_that_goes_past_young_records_without_a_word(story):
    """They are gone at the end, so that nothing else shows it."""
    story.of("a", "poll").update(position=20, runs=[[20, "p.1", 20, 20]])
    story.of("a", "ends").update(start=20, t=story.t + MS * 1000)
    assert story.found() == set()
    story.of("r", "poll")["runs"] = [[0, "p.1", 0, 5], [7, "p.1", 7, 13]]
    assert story.found() == {"expired"}


def test_more_is_removed_than_the_size_allows(tmp_path):
    disks = Disks(tmp_path)
    size = sum(path.stat().st_size for path in (tmp_path / "one" / "t-x-1").glob("*.log"))
    disks.mark(checkpoints.LOG_STARTS, 1, "one")
    assert not list(check_retention.too_short(disks.folders, {"t-x": size}))
    (found,) = check_retention.too_short(disks.folders, {"t-x": size * 3})
    assert found.details["folder"] == "one", "the others have removed nothing"
