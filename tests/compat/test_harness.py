"""The compatibility table itself, without Java: rows, verdicts, what is taken out of a text."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ABOUT = {"kafka": "4.1.0"}


@pytest.fixture
def compat(monkeypatch):
    """The harness's modules, importable as `python -m compat` from the root has them."""
    monkeypatch.syspath_prepend(str(ROOT))
    import compat.__main__ as command  # noqa: PLC0415

    return command


@pytest.fixture
def row(compat, monkeypatch):
    """`row`, registering in a table of its own."""
    module = sys.modules["compat.row"]
    monkeypatch.setattr(module, "ROWS", {})
    return module


@pytest.fixture
def line(compat):
    """Makes a line of the table from what both peers gave."""
    module = sys.modules["compat.row"]

    def make(kafka, ours, owed=None):
        seen = [
            module.Seen(failure=str(each)) if isinstance(each, Exception) else module.Seen(each)
            for each in (kafka, ours)
        ]
        return compat.report.Line(module.Row("a-row", "A row.", len, owed), *seen)

    return make


NO = RuntimeError("no")


@pytest.mark.parametrize(
    ("kafka", "ours", "owed", "verdict", "code"),
    [
        ([1], [1], None, "same", 0),
        ([1], [2], None, "differs", 1),
        ([1], NO, None, "fails", 1),
        ([1], NO, "quotas", "owed", 0),
        ([1], [2], "quotas", "owed", 0),
        ([1], [1], "quotas", "stale", 1),
        (NO, [1], None, "broken", 1),
        (NO, NO, "quotas", "broken", 1),
    ],
)
def test_a_row_fails_where_kafka_passes_and_we_do_not(
    compat, line, kafka, ours, owed, verdict, code
):
    made = line(kafka, ours, owed)
    assert made.verdict == verdict
    assert compat.report.exit_code([made]) == code


def test_the_note_shows_what_differs(line):
    assert '-"a"' in line(["a", "b"], ["c", "b"]).note.replace(",", "")
    assert line(["a"], NO).note == "no"
    assert line(["a"], NO, "R7").note == "R7: no"
    assert "R7" in line(["a"], ["a"], "R7").note
    assert line(["a"], ["a"]).note == ""


def test_other_words_are_a_note_and_no_failure(line):
    made = line([1], [1])
    made.kafka.said, made.anabranch.said = ["Topic is bad."], ["This topic is bad."]
    assert made.verdict == "same"
    assert "This topic is bad." in made.note


def test_the_page_and_the_document_hold_every_row(compat, line):
    lines = [line(["a|b"], ["c"]), line([1], [1])]
    page = compat.report.page(lines, ABOUT)
    assert page.count("| `a-row` |") == 2
    assert "2 rows: 1 differs, 1 same" in page
    assert "a\\|b" in page
    written = json.loads(json.dumps(compat.report.document(lines, ABOUT)))
    assert [each["verdict"] for each in written["rows"]] == ["differs", "same"]
    assert written["rows"][0]["kafka"]["value"] == ["a|b"]


def test_a_row_is_unique_has_a_sentence_and_names_a_known_debt(row):
    def observe(peer):
        """It works.

        More that the table does not want.
        """

    row.row("one")(observe)
    assert row.ROWS["one"].what == "It works."
    with pytest.raises(ValueError, match="two rows"):
        row.row("one")
    with pytest.raises(ValueError, match="no feature"):
        row.row("two", owed="later")
    with pytest.raises(ValueError, match="sentence"):
        row.row("three")(lambda peer: None)


def test_rows_are_chosen_by_name_or_how_it_begins(row):
    for name in ("topics-create", "topics-list", "kcat"):
        row.row(name)(len)
    assert [each.name for each in row.chosen([])] == ["topics-create", "topics-list", "kcat"]
    assert [each.name for each in row.chosen(["kcat", "topics-l"])] == ["topics-list", "kcat"]
    with pytest.raises(SystemExit, match="nobody"):
        row.chosen(["kcat", "nobody"])


def test_what_may_differ_is_taken_out(compat):
    normal = sys.modules["compat.normal"]
    text = "at h:9092, TopicId: zYNzLlCBQ6iXHFfOQzyuNA, 1763713200123 ms, 2026-11-21T08:27:49.123Z"
    assert normal.plain(text, {"h:9092": "<b>"}) == "at <b>, TopicId: <id>, <ms> ms, <time>"
    assert normal.plain("at 52253 since 1795252253673", {"52253": "<p>"}) == "at <p> since <ms>"
    assert normal.plain("id 8X9yZaBcDeFgHiJk27184A", {"27184": "<p>"}) == "id <id>"
    assert normal.plain("c-0c7d9a4e-1111-2222-3333-444455556666", {}) == "c-<uuid>"
    assert normal.plain("retention.ms=86400000", {}) == "retention.ms=86400000"
    assert normal.plain("a-name-of-two-and-more-words", {}) == "a-name-of-two-and-more-words"


def test_columns_are_found_by_their_heading(compat):
    normal = sys.modules["compat.normal"]
    text = "noise\n\nGROUP   TOPIC LAG\ng t 3\ng a -\n"
    assert normal.columns(text, ["TOPIC", "LAG"]) == [["a", "-"], ["t", "3"]]


def test_whatever_a_row_raises_is_its_failure(compat, row):
    class Server:
        def is_alive(self):
            return True

    class Peer:
        server = Server()
        said: list[str] = []

    def observe(peer):
        """It raises."""
        peer.said.append("before")
        raise KeyError("x")

    seen = compat.look(row.Row("r", "It raises.", observe), Peer())
    assert seen.failure == "KeyError: 'x'"
    assert seen.said == ["before"]


def test_a_topic_is_made_when_all_its_leaders_answer(compat, monkeypatch):
    """Kafka takes a second batch of a new producer whose first came before the leader led."""
    topics, peers = sys.modules["compat.families.topics"], sys.modules["compat.peer"]
    answers = iter([compat.Failed("no such topic"), "new:0:0", "new:0:0\nnew:1:0\nnew:2:0"])
    asked = []

    class Peer(peers.Peer):
        def __init__(self):
            self.server = type("Server", (), {"bootstrap": "127.0.0.1:9"})

        def tool(self, main, *words, **options):
            asked.append(main.rpartition(".")[2])
            if main == topics.TOPICS:
                return peers.Output(0, "", "")
            if isinstance(answer := next(answers), Exception):
                raise answer
            return peers.Output(0, answer, "")

    monkeypatch.setattr(peers.time, "sleep", lambda seconds: None)
    topics.create(Peer(), "new", 3)
    assert asked == ["TopicCommand", *["GetOffsetShell"] * 3]


def test_moves_are_over_when_also_the_broker_that_is_asked_knows_it(compat, monkeypatch):
    """The controller lists what moves, any broker tells where replicas are: it may know it later."""
    compat.importlib.import_module("compat.families.placement")
    placement, peers = sys.modules["compat.families.placement"], sys.modules["compat.peer"]
    late = "There is no active reassignment of partition t-0, but replica set is 3,2,1 rather than 3,2."
    done = "Reassignment of partition t-0 is completed."
    answers = {
        "--list": iter(["t-0: replicas: 3,2,1.", *["No partition reassignments found."] * 3]),
        "--verify": iter([late, late, done]),
    }

    class Peer(peers.Peer):
        def __init__(self):
            self.server = type("Server", (), {"bootstrap": "127.0.0.1:9"})

        def tool(self, main, *words, **options):
            return peers.Output(0, next(answers[words[-1]]), "")

    monkeypatch.setattr(peers.time, "sleep", lambda seconds: None)
    assert placement.settled(Peer(), "moves.json") == [done]


def test_markers_are_waited_for(compat, monkeypatch):
    """A producer's commit is answered before Kafka's coordinator has written the markers."""
    compat.importlib.import_module("compat.families.dump")
    families, peers = sys.modules["compat.families.dump"], sys.modules["compat.peer"]
    dumps = iter(["offset: 0", "offset: 0\nisControl: true endTxnMarker: COMMIT"])

    class Peer(peers.Peer):
        bootstrap = log_dir = None

        def __init__(self):
            pass

        def tool(self, main, *words, **options):
            return peers.Output(0, next(dumps) if main == families.DUMP else "", "")

    monkeypatch.setattr(families, "create", lambda peer, topic: None)
    monkeypatch.setattr(families, "files_of", lambda peer, partition, ending: ["a segment"])
    monkeypatch.setattr(peers.time, "sleep", lambda seconds: None)
    assert families.dumps_control_batches(Peer()) == ["endTxnMarker: COMMIT", "isControl: true"]


def test_the_page_wraps_its_lines(compat, line):
    versions = {f"client-{number}": "1.2.3" for number in range(20)}
    page = compat.report.page([line([1], [1])], {**ABOUT, "clients": versions})
    assert page.count("client-") == len(versions)
    assert all(len(each) <= 100 for each in page.splitlines() if not each.startswith("|"))


def test_every_family_registers_its_rows_and_no_name_twice(compat):
    for family in compat.FAMILIES:
        compat.importlib.import_module(f"compat.families.{family}")
    rows = sys.modules["compat.row"].ROWS
    assert rows
    assert all(each.what.endswith(".") for each in rows.values())
