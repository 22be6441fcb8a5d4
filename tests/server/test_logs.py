"""One event, one line, its values named."""

from __future__ import annotations

import json
import logging

import pytest

from anabranch.server import logs


@pytest.fixture
def restored():
    root = logging.getLogger(logs.ROOT)
    before = root.handlers[:], root.level, root.propagate
    yield
    root.handlers[:], root.propagate = before[0], before[2]
    root.setLevel(before[1])


def test_text_is_one_line_with_named_values(capsys, restored):
    logs.configure("info", "text")
    logs.logger("node").info("two\nlines", peer="127.0.0.1", why='say "hi"', empty="")
    logs.logger("node").debug("not asked for")
    (line,) = capsys.readouterr().err.splitlines()
    assert line[10] == "T"
    assert line[24:] == r' INFO node: two lines peer=127.0.0.1 why="say \"hi\"" empty=""'


def test_json_has_the_values_as_fields(capsys, restored):
    logs.configure("debug", "json")
    logs.logger("node").warning("full", bytes=7, folder=object)
    found = json.loads(capsys.readouterr().err)
    assert found["event"] == "full"
    assert found["bytes"] == 7
    assert (found["level"], found["part"]) == ("warning", "node")


def test_an_instant_is_utc():
    assert logs.instant(0.25) == "1970-01-01T00:00:00.250Z"


def test_levels_have_kafkas_names_and_go_back_to_that_of_root():
    levels = logs.LogLevels()
    logs.logger("some-part")
    name = f"{logs.ROOT}.some-part"
    before = levels.levels()["root"]
    try:
        levels.set_level("root", "WARN")
        assert levels.levels()[name] == "WARN"
        for level in logs.KAFKA_LEVELS:
            levels.set_level(name, level)
            assert levels.levels()[name] == level
        levels.set_level(name, None)
        assert levels.levels()[name] == "WARN"
    finally:
        levels.set_level("root", before)
