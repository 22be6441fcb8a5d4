"""A reader that is told that its place is nowhere, and when that is a violation."""

import pytest
from tests.sim.checks.test_suite import Watched
from tests.sim.test_cluster import PLACE

from anabranch.sim.checks.violation import Violation
from anabranch.sim.history import Thrown


def told(scene, position):
    scene.history.add(Thrown("reader", PLACE, position, scene.cluster.world.now_us))
    scene.suite.event_ended(None)


@pytest.mark.parametrize("position", [0, 3, 5])
def test_a_reader_is_told_that_a_committed_offset_is_out_of_range(position):
    scene = Watched()
    scene.write(5)
    scene.wait(2)
    with pytest.raises(Violation, match="thrown-out"):
        told(scene, position)


def test_what_lies_beyond_all_that_was_committed_may_be_out_of_range():
    scene = Watched()
    scene.write(5)
    scene.wait(2)
    told(scene, 6)


def test_what_was_deleted_may_be_out_of_range():
    scene = Watched()
    scene.write(5)
    scene.wait(2)
    scene.suite.logs.places[PLACE].start_moved(3)
    told(scene, 2)
    with pytest.raises(Violation, match="thrown-out"):
        told(scene, 3)
