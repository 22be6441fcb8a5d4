"""The judge of real histories accepts a sound one and rejects every fault that is planted in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from chaos.history import Place, Records, Writer, key_of, make_value, read_lines, read_value

from chaos import check

Line = dict[str, Any]
AT = "t-0"
END = 40


class Story:
    """The files of a small run, line by line: a producer's forty records, readers, a group."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.files: dict[str, list[Line]] = {}
        self.t = 0
        self._tell()

    def line(self, file: str, op: str, **fields: Any) -> Line:
        self.t += 1000
        line = {"op": op, "t": self.t, "client": file, **fields}
        self.files.setdefault(file, []).append(line)
        return line

    def hello(self, client: str, role: str, group: str = "") -> None:
        self.line(client, "hello", kind="confluent", role=role, group=group, topics="t")

    def poll(self, client: str, position: int, *runs: list[Any], odd: Any = ()) -> Line:
        return self.line(client, "poll", at=AT, position=position, runs=[*runs], odd=[*odd])

    def _tell(self) -> None:
        self.hello("p", "producer")
        for first in range(0, END, 10):
            self.line("p", "send", client="p.1", at=AT, n=first, count=10)
            self.line("p", "ok", client="p.1", at=AT, n=first, count=10, offset=first)
        self.hello("r", "reader")
        self.poll("r", 0, [0, "p.1", 0, 20])
        self.poll("r", 20, [20, "p.1", 20, 20])
        self.hello("m", "member", "g")
        self.line("m", "assigned", group="g", places=[AT])
        self.poll("m", 0, [0, "p.1", 0, 30])
        self.line("m", "commit", group="g", at=AT, offset=30, ok=True, why="")
        self.hello("d", "drain", "g")
        self.line("d", "assigned", group="g", places=[AT])
        self.poll("d", 30, [30, "p.1", 30, 10])
        self.line("d", "commit", group="g", at=AT, offset=40, ok=True, why="")
        self.line("d", "bye", status=0)
        self.hello("a", "audit")
        self.poll("a", 0, [0, "p.1", 0, END])
        self.line("a", "ends", at=AT, start=0, end=END, whole=True, compacted=False)

    def of(self, client: str, op: str, index: int = 0) -> Line:
        return [line for line in self.files[client] if line["op"] == op][index]

    def read_by_all(self, *runs: list[Any]) -> None:
        """Each reader was shown just this."""
        for client in ("r", "m", "d", "a"):
            polls = [line for line in self.files[client] if line["op"] == "poll"]
            polls[0]["position"], polls[0]["runs"] = runs[0][0], [*runs]
            for line in polls[1:]:
                self.files[client].remove(line)
        end = runs[-1][0] + runs[-1][3]
        self.of("m", "commit")["offset"] = runs[0][0]
        self.of("d", "commit")["offset"] = end
        self.of("a", "ends")["end"] = end

    def judged(self) -> check.Verdict:
        paths = []
        for client, lines in self.files.items():
            path = self.folder / f"{client}.jsonl"
            path.write_text(
                "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
            )
            paths.append(path)
        return check.judge(paths, scratch=self.folder)

    def found(self) -> set[str]:
        return set(self.judged().counts)


@pytest.fixture
def story(tmp_path) -> Story:
    return Story(tmp_path)


def test_a_sound_history(story):
    verdict = story.judged()
    assert verdict.is_clean, verdict.lines()
    assert (verdict.acks, verdict.sends, verdict.seen, verdict.partitions) == (END, END, END, 1)
    assert verdict.shown == 3 * END
    assert verdict.longest_gap_ms == 2


def test_a_history_without_acknowledgements_proves_nothing(story):
    story.files["p"] = [line for line in story.files["p"] if line["op"] != "ok"]
    verdict = story.judged()
    assert not verdict.counts and not verdict.is_clean


def test_a_kind_of_client_that_does_nothing_proves_nothing(story):
    story.line("k", "hello", kind="kafka-python", role="producer", group="", topics="t")
    verdict = story.judged()
    assert not verdict.counts and not verdict.is_clean
    assert verdict.lines()[-1] == "no kafka-python producer was acknowledged or shown anything"


# Planted faults.


def lose_one(story: Story) -> None:
    story.read_by_all([0, "p.1", 0, 17], [18, "p.1", 18, 22])


def lose_the_tail(story: Story) -> None:
    story.read_by_all([0, "p.1", 0, 39])


def lose_at_the_end_what_was_read_before(story: Story) -> None:
    story.of("a", "poll")["runs"] = [[0, "p.1", 0, 5], [6, "p.1", 6, 34]]


def write_one_twice(story: Story) -> None:
    story.read_by_all([0, "p.1", 0, 40], [40, "p.1", 39, 1])


def write_an_unknown_one_twice(story: Story) -> None:
    story.line("p", "send", client="p.1", at=AT, n=40, count=1)
    story.line("p", "unknown", client="p.1", at=AT, n=40, count=1, why="timed out")
    story.read_by_all([0, "p.1", 0, 41], [41, "p.1", 40, 1])


def swap_two(story: Story) -> None:
    story.of("p", "ok", 0)["count"] = 9
    story.of("p", "ok", 1)["n"], story.of("p", "ok", 1)["count"] = 11, 9
    story.of("p", "ok", 1)["offset"] = 11
    story.line("p", "ok", client="p.1", at=AT, n=9, count=1, offset=10)
    story.line("p", "ok", client="p.1", at=AT, n=10, count=1, offset=9)
    story.read_by_all([0, "p.1", 0, 9], [9, "p.1", 10, 1], [10, "p.1", 9, 1], [11, "p.1", 11, 29])


def swap_unknown_ones(story: Story) -> None:
    story.line("p", "send", client="p.1", at=AT, n=40, count=2)
    story.read_by_all([0, "p.1", 0, 40], [40, "p.1", 41, 1], [41, "p.1", 40, 1])


def acknowledge_elsewhere(story: Story) -> None:
    story.of("p", "ok", 3)["offset"] = 31


def show_two_values(story: Story) -> None:
    story.of("r", "poll", 1)["runs"] = [[20, "p.1", 20, 10], [30, "p.1", 31, 1]]


def show_what_nobody_wrote(story: Story) -> None:
    story.read_by_all([0, "p.1", 0, 40], [40, "p.1", 40, 1])


def change_a_byte(story: Story) -> None:
    story.of("r", "poll", 1).update(runs=[[21, "p.1", 21, 19]], odd=[[20, "702e313a"]])


def go_back(story: Story) -> None:
    story.poll("r", 10, [10, "p.1", 10, 5])


def begin_before_the_commit(story: Story) -> None:
    story.of("d", "poll").update(position=20, runs=[[20, "p.1", 20, 20]])


def throw_a_reader_out(story: Story) -> None:
    story.line("r", "thrown", at=AT, position=40, why="out of range")


def skip_one(story: Story) -> None:
    story.of("r", "poll", 1)["runs"] = [[21, "p.1", 21, 19]]


def skip_by_a_commit(story: Story) -> None:
    story.of("d", "poll").update(position=31, runs=[[31, "p.1", 31, 9]])


def leave_the_tail_to_nobody(story: Story) -> None:
    story.files["d"] = [line for line in story.files["d"] if line["op"] not in ("poll", "commit")]


def commit_beyond(story: Story) -> None:
    story.of("d", "commit")["offset"] = 41


def read_half(story: Story) -> None:
    story.of("a", "ends")["whole"] = False


def read_nothing(story: Story) -> None:
    del story.files["a"]


PLANTS: dict[Callable[[Story], None], set[str]] = {
    lose_one: {"lost"},
    lose_the_tail: {"lost"},
    lose_at_the_end_what_was_read_before: {"lost"},
    write_one_twice: {"duplicated", "reordered"},
    write_an_unknown_one_twice: {"duplicated"},
    swap_two: {"reordered"},
    swap_unknown_ones: {"reordered"},
    acknowledge_elsewhere: {"mismatched"},
    show_two_values: {"mismatched", "duplicated", "skipped"},
    show_what_nobody_wrote: {"phantom"},
    change_a_byte: {"mismatched", "phantom"},
    go_back: {"went back"},
    begin_before_the_commit: {"went back"},
    throw_a_reader_out: {"went back"},
    skip_one: {"skipped"},
    skip_by_a_commit: {"skipped"},
    leave_the_tail_to_nobody: {"skipped"},
    commit_beyond: {"beyond"},
    read_half: {"unread"},
    read_nothing: {"unread"},
}
"""What is planted -> the headings under which it must be found."""


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(story, plant):
    plant(story)
    found = story.found()
    assert found & PLANTS[plant], found
    assert found <= PLANTS[plant], found


def test_every_heading_is_planted():
    elsewhere = {"forgotten", "expired", "risen", "torn", "aborted read"}  # by its neighbours
    planted = set().union(*PLANTS.values()) | elsewhere
    assert planted == set(check.HEADINGS.values())


# What is allowed.


def test_an_unknown_record_may_be_there_or_not(story):
    story.line("p", "send", client="p.1", at=AT, n=40, count=2)
    story.line("p", "unknown", client="p.1", at=AT, n=40, count=1, why="timed out")
    assert story.found() == set()
    story.read_by_all([0, "p.1", 0, 42])
    assert story.found() == set()


def test_an_acknowledgement_may_lack_the_offset(story):
    story.of("p", "ok", 1)["offset"] = -1
    assert story.found() == set()


def test_the_next_life_of_a_producer_has_its_own_order(story):
    story.line("p", "send", client="p.1", at=AT, n=40, count=1)
    story.line("p", "send", client="p.2", at=AT, n=41, count=1)
    story.line("p", "ok", client="p.2", at=AT, n=41, count=1, offset=40)
    story.read_by_all([0, "p.1", 0, 40], [40, "p.2", 41, 1], [41, "p.1", 40, 1])
    assert story.found() == set()


def test_what_retention_deleted_is_not_missed(story):
    story.of("a", "poll").update(position=10, runs=[[10, "p.1", 10, 30]])
    story.of("a", "ends")["start"] = 10
    story.line("r", "thrown", at=AT, position=9, why="out of range")
    assert story.found() == set()


def test_no_fault_excuses_that_a_reader_is_thrown_out(story):
    story.line("o", "hello", kind="operator", role="operator", group="", topics="")
    story.line("o", "clock", began=story.t - 2000, seconds=100.0)
    story.line("r", "thrown", at=AT, position=40, why="out of range")
    assert story.found() == {"went back"}


def test_a_reader_that_is_started_again_may_go_back(story):
    story.hello("r", "reader")
    story.poll("r", 0, [0, "p.1", 0, 20])
    assert story.found() == set()


def test_a_member_begins_anew_after_an_assignment(story):
    story.line("m", "assigned", group="g", places=[AT])
    story.poll("m", 40, [40, "p.1", 40, 0])
    story.of("m", "commit")["ok"] = False
    assert story.found() == set()


def test_a_commit_of_which_nobody_heard_may_come_late(story):
    story.files["d"].clear()
    story.line("m", "commit", group="g", at=AT, offset=20, ok=False, why="timed out")
    story.hello("d", "drain", "g")
    story.line("d", "assigned", group="g", places=[AT])
    story.poll("d", 20, [20, "p.1", 20, 20])
    assert story.found() == set()


def test_a_compacted_log_may_lack_what_has_a_later_record_of_its_key(story):
    same = next(n for n in range(1, 1000) if key_of(n) == key_of(0))
    story.line("p", "send", client="p.1", at=AT, n=40, count=same - 39)
    story.line("p", "ok", client="p.1", at=AT, n=40, count=same - 39, offset=40)
    story.read_by_all([1, "p.1", 1, same])
    assert story.found() == {"lost"}
    story.of("a", "ends")["compacted"] = True
    verdict = story.judged()
    assert (set(verdict.counts), verdict.compacted) == (set(), 1)


def test_a_cleaner_may_work_between_two_audits(story):
    same = next(n for n in range(1, 1000) if key_of(n) == key_of(0))
    story.line("p", "send", client="p.1", at=AT, n=40, count=same - 39)
    story.line("p", "ok", client="p.1", at=AT, n=40, count=same - 39, offset=40)
    story.read_by_all([0, "p.1", 0, same + 1])
    story.of("a", "ends")["compacted"] = True
    story.hello("b", "audit")
    story.poll("b", 0, [1, "p.1", 1, same])
    story.hello("s", "reader")
    story.poll("s", 0, [1, "p.1", 1, same])
    assert story.found() == set()
    story.poll("s", same + 1, [0, "p.1", 0, 0])
    story.of("s", "poll")["runs"] = [[1, "p.1", 1, same - 2], [same, "p.1", same, 1]]
    assert story.found() == {"skipped"}


def test_a_compacted_log_must_have_the_last_record_of_each_key(story):
    story.of("a", "ends")["compacted"] = True
    story.read_by_all([0, "p.1", 0, 17], [18, "p.1", 18, 22])
    assert story.found() == {"lost"}


# The files.


def test_a_line_within_which_a_process_was_killed_is_left_out(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(
        b'{"op":"note","t":1,"client":"r","what":"x","count":1}\n{"op":"note","t":2,"wh'
    )
    writer = Writer(path, "r")
    writer.line("note", what="y", count=1)
    writer.close()
    told = [line.get("what") for line in read_lines(path)]
    assert told == ["x", "y", None]


def test_acknowledgements_and_records_are_gathered_into_runs(tmp_path):
    writer = Writer(tmp_path / "p.jsonl", "p")
    place = Place("t-x", 3)
    writer.acknowledged("p.1", [(place, 1, 10), (place, 2, 11), (place, 3, 13), (place, 4, -1)])
    records = Records()
    for offset, n in ((5, 1), (6, 2), (8, 3), (9, 7)):
        records.add(offset, make_value("p.1", n))
    records.add(10, b"p.1:4:other")
    writer.polled(place, 5, records)
    writer.close()
    lines = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    acks = [(line["n"], line["count"], line["offset"]) for line in lines if line["op"] == "ok"]
    assert acks == [(1, 2, 10), (3, 1, 13), (4, 1, -1)]
    assert lines[3]["at"] == "t-x-3"
    assert lines[3]["runs"] == [[5, "p.1", 1, 2], [8, "p.1", 3, 1], [9, "p.1", 7, 1]]
    assert lines[3]["odd"] == [[10, b"p.1:4:other".hex()]]


@pytest.mark.parametrize("n", [0, 1, 997, 123_456])
def test_a_value_says_who_wrote_it_and_is_whole(n):
    value = make_value("p.1", n)
    assert read_value(value) == ("p.1", n)
    assert read_value(value[:-1]) is None
    assert read_value(value + b"x") is None
