"""What the checks of expiring offsets object to, and what they let pass."""

from __future__ import annotations

import pytest

from anabranch.core.types import TopicPartition
from anabranch.sim.checks.marks import Marks
from anabranch.sim.checks.offset_expiry import NONE_TOLD, OffsetExpiryChecks
from anabranch.sim.checks.violation import Violation
from anabranch.sim.plan_parts import NamePlan

PLACE = TopicPartition("t", 0)
PLAN = NamePlan("name-0", retention_ms=4_000, version=3, commits=())
SECOND_US = 1_000_000


class Scene:
    """One name, and a clock that is set by hand."""

    def __init__(self, *, doubles: bool = False) -> None:
        self.now_us = 0
        self.is_void = False
        self.marks = Marks()
        self.checks = OffsetExpiryChecks(
            self.marks, doubles=doubles, is_void=lambda: self.is_void, now_us=lambda: self.now_us
        )

    def commit(self, at_s: float, number: int) -> None:
        """A commit that is acknowledged at once."""
        self.now_us = int(at_s * SECOND_US)
        sent = self.checks.sent(PLAN, PLACE, number, self.now_us)
        sent.acknowledged_us = self.now_us

    def look(self, at_s: float, offset: int) -> None:
        """An answer that comes at once."""
        self.now_us = int(at_s * SECOND_US)
        self.checks.told(PLAN, PLACE, self.now_us, offset)


def violated(scene: Scene, at_s: float, offset: int) -> str:
    with pytest.raises(Violation) as caught:
        scene.look(at_s, offset)
    return caught.value.id


def test_an_offset_is_told_until_its_retention_is_over() -> None:
    scene = Scene()
    scene.commit(1, 1)
    scene.look(2, 1)
    assert violated(scene, 4.9, NONE_TOLD) == "offset-early"
    scene.look(5, NONE_TOLD)
    scene.checks.end(crashed=True)
    assert scene.marks["offsets-expired"] == 1


def test_the_last_that_was_acknowledged_counts() -> None:
    scene = Scene()
    scene.commit(1, 1)
    scene.commit(3, 2)
    assert violated(scene, 6, NONE_TOLD) == "offset-early"


def test_what_was_not_acknowledged_may_be_missing() -> None:
    scene = Scene()
    scene.checks.sent(PLAN, PLACE, 1, 0)
    scene.look(1, NONE_TOLD)
    scene.look(2, 1)  # it came late
    assert scene.checks.left == [("name-0", PLACE, 1)]


def test_what_nobody_committed_is_never_told() -> None:
    assert violated(Scene(), 1, 7) == "offset-strange"


@pytest.mark.parametrize("doubles", [False, True])
def test_what_expired_stays_away_unless_the_network_carries_it_twice(doubles: bool) -> None:
    scene = Scene(doubles=doubles)
    scene.commit(1, 1)
    scene.look(6, NONE_TOLD)
    if doubles:
        scene.look(7, 1)
    else:
        assert violated(scene, 7, 1) == "offset-again"


def test_a_loss_that_a_rule_allows_voids_what_was_committed() -> None:
    scene = Scene()
    scene.commit(1, 1)
    scene.is_void = True
    scene.look(2, NONE_TOLD)


def test_what_is_left_is_asked_anew_when_the_world_heals() -> None:
    scene = Scene()
    scene.commit(1, 1)
    scene.look(2, 1)
    scene.checks.heal()
    assert scene.checks.left == []
