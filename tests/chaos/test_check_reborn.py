"""Records of a deleted topic stay away; those of the next topic of its name stay."""

from __future__ import annotations

import pytest
from chaos.operator_log import NAME, OperatorLog
from tests.chaos.test_check import AT, END, Story

from chaos import check


class Again(Story):
    """The forty records of the story are of a topic that was deleted; ten more were sent before all
    knew the next one, ten after that."""

    def _tell(self) -> None:
        super()._tell()
        self.files.pop("a")
        self.line(NAME, "hello", kind=NAME, role=NAME, group="", topics="")
        asked = self.line(NAME, "deletion", topic="t")["t"]
        self.write(END, offset=0)
        self.line(NAME, "reborn", topic="t", asked=asked, created=asked + 500)
        self.write(END + 10, offset=5)
        self.hello("a", "audit")
        self.poll("a", 0, [0, "p.1", END + 5, 15])
        self.line("a", "ends", at=AT, start=0, end=15, whole=True, compacted=False)

    def write(self, n: int, offset: int) -> None:
        self.line("p", "send", client="p.1", at=AT, n=n, count=10)
        self.line("p", "ok", client="p.1", at=AT, n=n, count=10, offset=offset)


@pytest.fixture
def story(tmp_path, monkeypatch) -> Again:
    monkeypatch.setattr(check, "REBORN", ("t",))
    return Again(tmp_path)


def test_what_was_sent_meanwhile_may_be_in_either(story):
    assert story.found() == set()


def test_a_record_of_the_deleted_topic_is_in_the_next(story):
    story.of("a", "poll")["runs"] = [[0, "p.1", END + 5, 15], [15, "p.1", 3, 1]]
    story.of("a", "ends")["end"] = 16
    assert story.found() == {"risen"}


def test_a_producer_that_knew_the_deleted_topic_may_write_again(story):
    """librdkafka raises its epoch when it misses a record, and sends all once more."""
    story.of("a", "poll")["runs"] = [[0, "p.1", END + 5, 15], [15, "p.1", END + 19, 1]]
    story.of("a", "ends")["end"] = 16
    assert story.found() == set()


def test_a_producer_that_came_later_may_not(story):
    story.line("p", "send", client="p.2", at=AT, n=90, count=1)
    story.line("p", "ok", client="p.2", at=AT, n=90, count=1, offset=15)
    story.of("a", "poll")["runs"] = [[0, "p.1", END + 5, 15], [15, "p.2", 90, 1]]
    story.of("a", "ends")["end"] = 17
    assert story.found() == set()
    story.of("a", "poll")["runs"].append([16, "p.2", 90, 1])
    assert story.found() == {"duplicated"}


def test_a_record_of_the_next_topic_is_lost(story):
    story.of("a", "poll")["runs"] = [[0, "p.1", END + 5, 14]]
    story.of("a", "ends")["end"] = 14
    assert story.found() == {"lost"}


def test_without_a_deletion_all_must_be_there(story):
    del story.files[NAME]
    assert "lost" in story.found()


def test_the_operator_is_no_client_that_has_to_do_something(story):
    assert story.judged().idle == []


class Ids:
    def __init__(self) -> None:
        self.now = "one"

    def __call__(self, _topic: str) -> str:
        return self.now


def told(folder) -> list[dict]:
    from chaos.history import read_lines

    return [line for line in read_lines(folder / f"{NAME}.jsonl") if line["op"] == "reborn"]


def test_a_topic_counts_as_new_when_its_id_is(tmp_path):
    ids = Ids()
    log = OperatorLog(tmp_path, ids)
    log.settled(["t"])
    log.deletion("t")  # nobody answered, and nothing was deleted
    log.settled(["t"])
    assert told(tmp_path) == []
    log.answered("t", log.deletion("t"))
    log.deletion("t")  # refused: it is gone
    log.creation("t")
    ids.now = "two"
    log.settled(["t"])
    log.close()
    (line,) = told(tmp_path)
    assert line["asked"] < line["created"] < line["t"]


def test_a_topic_may_be_there_from_the_first_time_it_was_asked_for(tmp_path, monkeypatch):
    times = iter(range(100))
    monkeypatch.setattr("chaos.operator_log.now_us", lambda: next(times))
    ids = Ids()
    log = OperatorLog(tmp_path, ids)
    log.settled(["t"])
    log.answered("t", log.deletion("t"))
    log.creation("t")
    first = next(times) - 1
    log.creation("t")  # the first answer was lost
    ids.now = "two"
    log.settled(["t"])
    log.close()
    assert told(tmp_path)[0]["created"] == first
