"""A loss without a rule, and a broken invariant, are told as what they are (B1)."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from anabranch.cli.main import main
from anabranch.sim.checks.suite import Suite
from anabranch.sim.checks.violation import Violation
from anabranch.sim.rehearsal.library import text_of
from anabranch.sim.rehearsal.losses import ONLY_THE_LEADER, losses
from anabranch.sim.rehearsal.producer import Sent
from anabranch.sim.rehearsal.rehearsal_file import read
from anabranch.sim.rehearsal.stage import Stage


@pytest.fixture(scope="module")
def stage():
    stage = Stage(read(text_of("leader-crash") or "", "leader-crash.yaml"))
    stage.run()
    return stage


def acknowledged(stage, topic, acks, *, offset, value=b"never written"):
    now_us = stage.begins_us
    return Sent((topic, 0), (value,), acks, now_us, told="NONE", base_offset=offset, told_us=now_us)


def test_what_is_there_is_not_lost(stage):
    kept = [sent for each in stage.producers for sent in each.log if sent.acks == -1]
    assert len([sent for sent in kept if sent.is_acknowledged]) > 500
    assert losses(stage.probe, kept) == []


def test_a_committed_record_that_is_gone_has_no_rule(stage):
    (loss,) = losses(stage.probe, [acknowledged(stage, "payments", -1, offset=3)])
    assert (loss.place, loss.offsets, loss.rule) == (("payments", 0), (3,), "")


def test_acks_1_excuses_only_what_was_not_committed(stage):
    committed, alone = (acknowledged(stage, "clicks", 1, offset=offset) for offset in (3, 190))
    assert [loss.rule for loss in losses(stage.probe, [committed])] == [""]
    assert [loss.rule for loss in losses(stage.probe, [alone])] == [ONLY_THE_LEADER]


def test_another_value_at_the_offset_is_a_loss_too(stage):
    sent = next(each for each in stage.producers[1].log if each.is_acknowledged)
    other = acknowledged(stage, "payments", -1, offset=sent.base_offset + 1, value=sent.values[0])
    assert len(losses(stage.probe, [other])) == 1


@pytest.mark.parametrize("fault", [Violation("L6", "A log was cut.", {}), KeyError("x")])
def test_what_breaks_ends_the_rehearsal_and_is_told(monkeypatch, fault):
    looks = iter(range(5_000))

    def event_ended(self, node):
        if next(looks, None) is None:
            raise fault

    monkeypatch.setattr(Suite, "event_ended", event_ended)
    said = CliRunner().invoke(main, ["rehearse", "one-broker-lost"])
    assert said.exit_code == 1
    assert f"Invariants: {'L6: A log was cut' if isinstance(fault, Violation) else 'KeyError'}" in (
        said.stdout
    )
    assert "An invariant was violated" in said.stdout
    assert "Traceback" not in said.output
