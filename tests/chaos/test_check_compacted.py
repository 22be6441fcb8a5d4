"""A compacted log lacks no latest record and shows none that a tombstone deleted."""

from __future__ import annotations

import pytest
from chaos.history import TOMBSTONE, Place, content, is_tombstone, key_of, name_of, read_value
from chaos.topics import TOMBSTONE_MS
from tests.chaos.test_check import AT, END, Story

from chaos import history

OLD = 0
DELETES = next(n for n in range(END, 1000) if key_of(n) == key_of(OLD) and n % 7 == 3)
"""A tombstone of the key of record 0."""
NEXT = next(n for n in range(DELETES, 9000) if key_of(n) == key_of(OLD) and n % 7 != 3)


@pytest.fixture
def story(tmp_path, monkeypatch) -> Story:
    """Record 0 and its tombstone at offset 40 are acknowledged; the audit saw both."""
    monkeypatch.setattr(history, "TOMBSTONED", frozenset({"t"}))
    story = Story(tmp_path)
    story.line("p", "send", client="p.1", at=AT, n=DELETES, count=1)
    story.line("p", "ok", client="p.1", at=AT, n=DELETES, count=1, offset=END)
    story.of("a", "poll")["runs"] = [[0, "p.1", 0, END], [END, "p.1", DELETES, 1]]
    story.of("a", "ends").update(end=END + 1, compacted=True)
    return story


def shown(story: Story, *runs) -> set[str]:
    """What is found when the audit saw this; the others left off where they were."""
    story.of("a", "poll")["runs"] = [*runs]
    return story.found()


def test_a_tombstone_and_what_it_deletes_may_be_there_both(story):
    assert story.found() == set()


def test_a_tombstone_is_there_alone(story):
    assert shown(story, [1, "p.1", 1, END - 1], [END, "p.1", DELETES, 1]) == set()


def test_a_tombstone_and_all_before_it_are_gone(story):
    assert shown(story, [1, "p.1", 1, END - 1]) == set()


def test_a_tombstone_is_gone_and_what_it_deleted_is_there_again(story):
    assert shown(story, [0, "p.1", 0, END]) == {"risen"}


def test_a_later_record_of_the_key_is_no_resurrection(story):
    story.line("p", "send", client="p.1", at=AT, n=NEXT, count=1)
    story.line("p", "ok", client="p.1", at=AT, n=NEXT, count=1, offset=END + 1)
    story.of("a", "ends")["end"] = END + 2
    story.of("m", "assigned")  # the group reads the new record by its drain
    story.of("d", "poll")["runs"] = [[30, "p.1", 30, 10], [END + 1, "p.1", NEXT, 1]]
    assert shown(story, [1, "p.1", 1, END - 1], [END + 1, "p.1", NEXT, 1]) == set()


def test_the_record_behind_a_tombstone_is_missed(story):
    story.line("p", "send", client="p.1", at=AT, n=NEXT, count=1)
    story.line("p", "ok", client="p.1", at=AT, n=NEXT, count=1, offset=END + 1)
    story.of("a", "ends")["end"] = END + 2
    assert shown(story, [1, "p.1", 1, END - 1], [END, "p.1", DELETES, 1]) == {"lost"}


def test_the_latest_record_of_a_key_is_missed(story):
    assert shown(story, [1, "p.1", 1, END - 2], [END, "p.1", DELETES, 1]) == {"lost"}


def test_a_tombstone_that_nobody_confirmed_may_have_deleted_its_key(story):
    story.files["p"].pop()
    assert shown(story, [1, "p.1", 1, END - 1]) == set()
    assert shown(story, [0, "p.1", 0, END]) == set()


def test_an_audit_that_took_longer_than_tombstones_stay_is_not_asked(story):
    story.of("a", "ends")["began"] = story.of("a", "ends")["t"] - TOMBSTONE_MS * 1000
    assert shown(story, [0, "p.1", 0, END]) == set()


def test_a_reader_that_goes_on_reading_comes_to_the_end(story):
    story.line("r", "stood", at=AT, position=END, end=END + 1)
    assert story.found() == {"unread"}


def test_a_tombstone_is_named_by_its_header():
    assert is_tombstone("compacted", 3) and not is_tombstone("plain", 3)
    told = content(None, [("other", b"x"), (history.NAME_HEADER, name_of("p.1", 3))])
    assert told == TOMBSTONE + b"p.1:3"
    assert read_value(told) == ("p.1", 3)
    assert read_value(TOMBSTONE + b"p.1:4") is None, "no producer sends that one without a value"
    assert read_value(content(None, None)) is None
    records = history.Records()
    records.add(7, told)
    assert (records.runs, Place("t", 0).text) == ([[7, "p.1", 3, 1]], AT)
