"""Kafka Streams as a client of chaos, without Java: how it is started, killed, ended and reported."""

from __future__ import annotations

import signal

import pytest
from chaos.crowd import Crowd
from chaos.history import read_lines
from chaos.report import PartReport
from chaos.streams import NAME, ROLE, Figures, Program, StreamsClient, replaced

from chaos import check, streams

SAYING = 'echo "state REBALANCING"; echo "replaced java.lang.Error: x"; cat'


@pytest.fixture
def crowd(tmp_path, monkeypatch):
    """One whose Kafka Streams is a shell that ends with its input."""
    monkeypatch.setattr(StreamsClient, "command", lambda _client: ["sh", "-c", SAYING])
    monkeypatch.setattr(streams, "has_counted_all", lambda _bootstrap: True)
    program = Program(tmp_path, tmp_path)
    client = StreamsClient(program, tmp_path / "histories", tmp_path / "state")
    found = Crowd(tmp_path / "histories", 1, (), more=[client])
    yield found
    found.abandon()
    client.process.wait()


def test_it_is_killed_started_again_and_ended_with_its_input(crowd):
    crowd.start("127.0.0.1:1")
    client = crowd.one_of(ROLE)
    crowd.kill(client)
    assert client.code == -signal.SIGKILL
    crowd.replace(client)
    crowd.end(ROLE)
    assert (client.code, crowd.surprises) == (0, [])
    told = [line["op"] for path in crowd.histories for line in read_lines(path)]
    assert told == ["hello", "counting", "bye"] * 2, "one history for each life"
    assert check.judge(crowd.histories).idle == []


def test_its_figures_are_of_all_of_its_lives(crowd):
    crowd.start("127.0.0.1:1")
    client = crowd.one_of(ROLE)
    client.process.stdin.close()
    client.process.wait()
    client.start()
    crowd.end(ROLE)
    assert client.figures(7) == Figures(True, 7, 1, 2, ("java.lang.Error: x",) * 2)


def test_the_same_application_goes_on_with_the_same_state(tmp_path):
    client = StreamsClient(Program(tmp_path, tmp_path), tmp_path, tmp_path / "state")
    client.bootstrap = "127.0.0.1:1"
    first = client.command()
    client.lives += 2
    assert client.command() == first
    assert first.count(str(tmp_path / "state")) == first.count("exactly_once_v2") == 1
    assert client.name == f"{NAME}.2"


def test_what_a_trace_of_java_says_is_its_last_sentence(crowd, monkeypatch):
    trace = "Exception in thread x\n\tat a.B(C.java:1)\nCaused by: why\n\t... 5 more"
    monkeypatch.setattr(StreamsClient, "command", lambda _client: ["printf", trace])
    crowd.start("127.0.0.1:1")
    crowd.one_of(ROLE).process.wait()
    crowd.look()
    assert crowd.surprises == [
        f"client {NAME} ended with code 0 (Caused by: why) before it was asked to"
    ]


def test_the_report_says_what_it_did_and_that_it_was_left_out():
    part = PartReport("sqlite", {})
    assert any("Kafka Streams: left out" in line for line in part.lines())
    part.streams = Figures(True, 1234, 2, 5, ("why",))
    text = "\n".join(part.lines())
    assert "1,234 records counted, 2 restarts, 5 rebalances, 1 threads replaced" in text
    assert "REMARK Kafka Streams replaced a thread: why" in text
    assert part.as_dict()["streams"]["counted"] == 1234


def test_why_a_thread_ended_is_taken_from_what_it_says():
    assert replaced(["state RUNNING", "replaced a: b", "not replaced"]) == ["a: b"]


def test_it_is_left_out_where_there_is_no_java(monkeypatch):
    monkeypatch.setattr(streams.shutil, "which", lambda _name: None)
    said = []
    streams.fetch(said.append)
    assert (streams.find(), said) == (None, [])
