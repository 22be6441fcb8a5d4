"""A reader that is told that its place is nowhere, and when that is a violation."""

import pytest
from tests.sim.checks.stage import KEY, Stage
from tests.sim.checks.stage import PLACE as STAGE_PLACE
from tests.sim.checks.test_suite import Watched
from tests.sim.test_cluster import PLACE

from anabranch.sim.checks.readers import check_thrown
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


@pytest.mark.parametrize("settings", [{"retention_ms": "1000"}, {}], ids=["expired", "asked for"])
def test_what_a_replaced_leader_has_dropped_may_be_out_of_range_there(settings):
    stage = Stage(**settings)
    stage.write(4)
    stage.elect(2, [2, 3], 1)
    stage.follow(2, 3)
    stage.log(1).delete_records_before(3)
    stage.look(1)
    truth = stage.logs.truths[KEY]
    assert truth.start == 0
    check_thrown(Thrown("reader", STAGE_PLACE, 2, 0), truth)
    with pytest.raises(Violation, match="thrown-out"):
        check_thrown(Thrown("reader", STAGE_PLACE, 3, 0), truth)


def test_what_a_follower_has_expired_may_not():
    stage = Stage(retention_ms="1000")
    stage.write(4)
    stage.log(2).delete_records_before(3)
    stage.look(2)
    with pytest.raises(Violation, match="thrown-out"):
        check_thrown(Thrown("reader", STAGE_PLACE, 2, 0), stage.logs.truths[KEY])
