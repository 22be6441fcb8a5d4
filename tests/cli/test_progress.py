"""What takes longer than two seconds says on standard error how far it is."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import time

import click
import pytest
from click.testing import CliRunner
from tests.cli.test_name_option import ALL

from anabranch.cli import log, progress, spark
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


STORES = ["--storage-url", "memory://a", "--coordinator-url", "sqlite:///a.db"]
MIRROR = (
    "clusters = a, b\na.bootstrap.servers = h:1\nb.bootstrap.servers = h:2\na->b.enabled = true\n"
)
SLOW = {
    "diskless verify": ("cli.diskless._run", STORES),
    "log verify": ("cli.log.check_segment", ["{folder}"]),
    "metadata restore": ("server.metadata_restore.restore_store", ["--dir", "{folder}"]),
    "mirror failback": ("pipelines.mirror.failover.failback_plan", ["{mirror}"]),
    "mirror failover": ("pipelines.mirror.failover.failover_plan", ["{mirror}"]),
    "mirror run": ("pipelines.mirror.validation.look_at", ["{mirror}", "--validate-only"]),
    "mirror status": ("pipelines.mirror.lag.flow_lag", ["{mirror}"]),
    "mirror translate": ("pipelines.mirror.translation.translated", ["{mirror}", "--group", "g"]),
    "rehearse": ("sim.rehearsal.stage.run", ["rack-loss"]),
    "remote export": ("cli.remote._run", ["{folder}/new", *STORES]),
    "remote list": ("cli.remote._run", STORES),
    "remote verify": ("cli.remote._run", STORES),
    "sim": ("sim.life.draw_plan", ["--seed", "1"]),
    "spark compact": ("pipelines.compaction.compact", ["--storage-url", "memory://a"]),
    "spark scrub": ("pipelines.scrub.scrub", []),
    "spark tables": ("pipelines.tables.keep_table", ["t", "--table", "{folder}/new"]),
    "spark tier": ("pipelines.tiering.tier", ["--storage-url", "memory://a"]),
}
"""Verb -> what takes long in it, and words to call it with."""
QUICK = {"completion", "security check", "version"}
TELL_THEMSELVES = {
    "serve", "up", "demo", "log dump", "metadata dump", "diskless restore", "remote restore",
}  # fmt: skip
"""They say each step, or print what they find as they find it."""


def test_every_verb_is_quick_or_waits_for_a_cluster_or_is_slow():
    asking = {name for name, verb in ALL.items() if any(e.name == "bootstrap" for e in verb.params)}
    known = asking | set(SLOW) | QUICK | TELL_THEMSELVES
    assert known == set(ALL), known ^ set(ALL)


@pytest.mark.parametrize("name", sorted(SLOW))
def test_work_that_takes_long_is_told(name, tmp_path, monkeypatch, impatient):
    """Mirrors' plans, rehearsals, schedules and waves on Spark said nothing for their whole time."""
    place, words = SLOW[name]
    module, function = f"anabranch.{place}".rsplit(".", 1)
    (tmp_path / f"{0:020}.log").touch()
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=abc\n")
    mirror = tmp_path / "mm2.properties"
    mirror.write_text(MIRROR)

    def refuse(*_words, **_named):
        time.sleep(PAUSE_SECONDS * 10)
        raise click.ClickException("enough")

    async def refuse_later(*words, **named):
        refuse(*words, **named)

    found = getattr(importlib.import_module(module), function)
    slow = refuse_later if inspect.iscoroutinefunction(found) else refuse
    monkeypatch.setattr(f"{module}.{function}", slow)
    monkeypatch.setattr(spark, "_session", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(spark, "_refuse_absent", lambda *_: None)
    monkeypatch.setattr("anabranch.pipelines.session.leave_faults_to_the_job", lambda _: None)
    given = [each.format(folder=tmp_path, mirror=mirror) for each in words]
    done = CliRunner().invoke(main, [*name.split(), *given])
    assert "enough" in done.stderr, done.output
    assert ": 0 s so far." in done.stderr or ", 0 s so far." in done.stderr


def test_nothing_is_said_of_what_is_quick(capsys):
    with progress.told_while("Work"):
        pass
    assert capsys.readouterr().err == ""
