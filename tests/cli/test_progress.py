"""What takes longer than two seconds says on standard error how far it is."""

from __future__ import annotations

import json
import time

import pytest
from click.testing import CliRunner

from anabranch.cli import diskless, log, progress, remote
from anabranch.cli.main import main

PAUSE_SECONDS = 0.02


@pytest.fixture
def impatient(monkeypatch):
    """Commands that speak after a hundredth of a second."""
    monkeypatch.setattr(progress, "SILENCE_SECONDS", PAUSE_SECONDS)


def slowly(function):
    """The same, after several pauses."""

    def slow(*words, **named):
        time.sleep(PAUSE_SECONDS * 10)
        return function(*words, **named)

    return slow


def test_log_verify_counts_segments_on_standard_error_alone(tmp_path, monkeypatch, impatient):
    for name in ("t-0", "t-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020}.log").touch()
    monkeypatch.setattr(log, "check_segment", slowly(log.check_segment))
    done = CliRunner().invoke(main, ["log", "verify", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["segments"]) == 2
    assert "Verifying: 0 of 2 segments, 0 s so far." in done.stderr
    assert "Verifying: 1 of 2 segments, 0 s so far." in done.stderr


@pytest.mark.parametrize("module", [diskless, remote])
def test_comparing_objects_is_told(module, monkeypatch, impatient):
    def refuse(*_words, **_named):
        time.sleep(PAUSE_SECONDS * 10)
        raise ValueError("enough")

    monkeypatch.setattr(module, "_run", refuse)
    place = ["--storage-url", "memory://a", "--coordinator-url", "sqlite:///a.db"]
    done = CliRunner().invoke(main, [module.__name__.split(".")[-1], "verify", *place])
    assert "Comparing objects: 0 s so far." in done.stderr


def test_nothing_is_said_of_what_is_quick(capsys):
    with progress.told_while("Work"):
        pass
    assert capsys.readouterr().err == ""
