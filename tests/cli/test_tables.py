"""Tables for people: whole on every terminal, plain where a program reads."""

from __future__ import annotations

import io
import sys

import pytest

from anabranch.cli.cluster_command import print_table, turned
from anabranch.client.views.times import time_text

HEADINGS = ("broker", "address", "state", "under-replicated")
ROWS = [
    (1, "[fe80::1]:9092", "serves, cordoned", 0),
    (2, "127.0.0.1:9093", "serves", 12),
    (3, "127.0.0.1:9094", "fenced", 3),
]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def printed(monkeypatch, columns, rows=ROWS):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", "25")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stdout", Terminal())
    print_table(HEADINGS, rows)
    return sys.stdout.getvalue()


@pytest.mark.parametrize("columns", [200, 80, 70, 64, 60, 56, 40, 20])
def test_no_word_is_cut_on_a_terminal(monkeypatch, columns):
    said = printed(monkeypatch, columns)
    words = [word for row in [HEADINGS, *ROWS] for cell in row for word in str(cell).split()]
    assert [word for word in words if word not in said] == []


def test_a_table_is_turned_where_it_does_not_fit():
    rows = [[str(each) for each in row] for row in ROWS]
    assert list(turned(HEADINGS, rows, 52)) == [
        "broker            1                 2",
        "address           [fe80::1]:9092    127.0.0.1:9093",
        "state             serves, cordoned  serves",
        "under-replicated  0                 12",
        "",
        "broker            3",
        "address           127.0.0.1:9094",
        "state             fenced",
        "under-replicated  3",
    ]
    assert list(turned(HEADINGS, [], 52)) == list(HEADINGS)


def test_a_program_gets_lines_that_can_be_cut(capsys):
    print_table(("topic", "leader"), [("flights", 1), ("t", 12)])
    assert capsys.readouterr().out == "topic    leader\nflights  1\nt        12\n"


@pytest.mark.parametrize(
    ("at_ms", "said"),
    [(0, "1970-01-01T00:00:00Z"), (1 << 62, f"{1 << 62} ms"), (-(1 << 62), f"{-(1 << 62)} ms")],
)
def test_a_time_beyond_the_calendar_is_told_in_milliseconds(at_ms, said):
    """A record's time is whatever its client says, where the topic takes it."""
    assert time_text(at_ms) == said
