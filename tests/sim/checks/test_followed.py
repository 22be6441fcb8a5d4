"""What a node's copy of the metadata may lose in a power cut, and what it may not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.core.metadata.following.effects import SnapshotWritten, Unanswered
from anabranch.sim.checks.followed import CopyChecks
from anabranch.sim.checks.marks import Marks
from anabranch.sim.checks.violation import Violation
from anabranch.sim.metadata_log import why_it_begins_later
from anabranch.sim.schedule import run_schedule


def copy_of(start_offset: int, end_offset: int) -> Any:
    """A copy whose log begins and ends there."""
    log = SimpleNamespace(start_offset=start_offset)
    return SimpleNamespace(log=log, end_offset=end_offset, image=end_offset)


def changed_then_power_cut(copy: Any, event: Any, *, left: int) -> None:
    """The start of a copy's log moved, then its machine lost power: it is opened with `left`."""
    follower = SimpleNamespace(written_to=83, is_cut_short=False)
    node: Any = SimpleNamespace(node_id=2, name="node-2", copy=copy, follower=follower)
    checks = CopyChecks(Marks())
    checks.copy_changed(node, "snapshot")
    checks.copy_changed(node, why_it_begins_later(copy, event))
    checks.node_changed(node, "power")
    node.copy = copy_of(83, left)
    checks.copy_changed(node, "opened")


def test_a_power_cut_may_take_what_follows_the_snapshot_behind_which_a_log_began_anew():
    changed_then_power_cut(copy_of(83, 87), Unanswered(""), left=83)
    changed_then_power_cut(copy_of(83, 87), SnapshotWritten(), left=83)


def test_a_power_cut_may_not_take_a_snapshot_that_was_loaded():
    with pytest.raises(Violation, match="lost more than it may"):
        changed_then_power_cut(copy_of(87, 87), Unanswered(""), left=83)


def test_two_power_cuts_of_a_machine_whose_log_began_anew_between_them():
    """The first leaves less of the log than the newest snapshot covers."""
    outcome = run_schedule(3788)
    assert outcome.ok, outcome.sentence
