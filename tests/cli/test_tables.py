"""Tables for people: whole on every terminal, plain where a program reads."""

from __future__ import annotations

import io
import sys

import click
import pytest

from anabranch.cli import topics
from anabranch.cli.cluster_command import Alarming, escaped, print_table, turned, watch_option
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


@pytest.mark.parametrize("is_terminal", [True, False])
def test_what_a_client_named_itself_does_not_reach_the_terminal(monkeypatch, capsys, is_terminal):
    """Names of groups and members are any text: no escape sequence, no line of its own, nothing
    that turns the direction of what stands beside it."""
    name = "a\x1b[2Jb\nc\u202ed\x9b31m"
    rows = [(name, "é 漢", "serves", 0)]
    if is_terminal:
        said = printed(monkeypatch, 200, rows)
    else:
        print_table(HEADINGS, rows)
        said = capsys.readouterr().out
    assert not [each for each in ("\x1b[2J", "\u202e", "\x9b") if each in said]
    assert r"a\x1b[2Jb\nc\u202ed\x9b31m" in said and "é 漢" in said


@pytest.mark.parametrize("columns", ["80", "9"])
@pytest.mark.parametrize("colourless", [False, True])
def test_only_a_terminal_that_wants_colours_gets_them(monkeypatch, capsys, colourless, columns):
    """One that is too narrow for a table showed the same without colours."""
    rows = [("leaders", Alarming(3)), ("topics", 7)]
    monkeypatch.setenv("COLUMNS", columns)
    print_table(("what", "count"), rows)
    assert "\x1b" not in capsys.readouterr().out
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if colourless:
        monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stdout", Terminal())
    print_table(("what", "count"), rows)
    assert ("\x1b[31m3" in sys.stdout.getvalue()) != colourless
    assert "7" in sys.stdout.getvalue() and "\x1b[31m7" not in sys.stdout.getvalue()


def test_a_partition_that_is_offline_is_alarming():
    part = {"partition": 0, "leader": -1, "replicas": [1, 2], "isr": [], "offline_replicas": [1],
            "missing_replicas": 0}  # fmt: skip
    row = topics._row(part, topics.LISTS)
    assert [str(each) for each in row if isinstance(each, Alarming)] == ["none", "1"]
    sound = topics._row({**part, "leader": 1, "isr": [1, 2], "offline_replicas": []}, topics.LISTS)
    assert not [each for each in sound if isinstance(each, Alarming)]


def test_an_error_that_repeats_a_name_is_shown_without_its_escapes():
    fault = click.UsageError("no group 'a\x1b[2J'")
    assert escaped(fault).format_message() == r"no group 'a\x1b[2J'"
    assert escaped(fault).exit_code == 2
    plain = click.ClickException("two\nlines")
    assert escaped(plain) is plain


def test_a_watched_verb_goes_on_until_it_is_interrupted(monkeypatch, capsys):
    rounds = []

    @click.command()
    @watch_option
    def verb():
        rounds.append(len(rounds))
        if len(rounds) == 2:
            raise click.ClickException("away for a moment")
        if len(rounds) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", lambda _: None)
    verb.main(["--watch", "0.5"], standalone_mode=False)
    assert len(rounds) == 4
    assert "away for a moment" in capsys.readouterr().err
    with pytest.raises(click.BadParameter):
        verb.main(["--watch", "0"], standalone_mode=False)
    rounds.clear()
    verb.main([], standalone_mode=False)
    assert rounds == [0]
