"""Each check objects to what it is there for."""

from __future__ import annotations

from random import Random

import pytest

from anabranch.core.mirror.formats import Checkpoint
from anabranch.core.wire.records import Record, build_batch
from anabranch.sim.checks.violation import Violation
from anabranch.sim.mirror.checks import Checks
from anabranch.sim.mirror.cluster import Cluster
from anabranch.sim.mirror.direction import SimFlow

HERE, THERE = ("orders", 0), ("A.orders", 0)


@pytest.fixture
def checks():
    return Checks()


@pytest.fixture
def flow():
    random = Random(1)
    flow = SimFlow(Cluster("A", random), Cluster("B", random), random, is_exactly_once=True)
    for cluster, place in ((flow.source, HERE), (flow.target, THERE)):
        cluster.create(place[0], 1)
    return flow


def write(cluster, place, *values):
    records = [Record(at, 0, b"k", b"%06d" % value) for at, value in enumerate(values)]
    cluster.produce(None, place, build_batch(records))


def objects(id, call, *args, **more):
    with pytest.raises(Violation) as found:
        call(*args, **more)
    assert found.value.id == id


@pytest.mark.parametrize(
    ("there", "id"), [((1,), "lost"), ((1, 2, 2), "doubled"), ((2, 1), "order"), ((1, 2, 3), "aborted")]
)  # fmt: skip
def test_what_is_not_the_same_on_both_sides_is_told(flow, checks, there, id):
    write(flow.source, HERE, 1, 2)
    write(flow.target, THERE, *there)
    checks.aborted.add(b"%06d" % 3)
    objects(id, checks.compare, flow)


def test_the_same_on_both_sides_is_right(flow, checks):
    write(flow.source, HERE, 1, 2)
    write(flow.target, THERE, 1, 2)
    checks.compare(flow)


def test_a_translation_that_skips_or_repeats_is_told(flow, checks):
    write(flow.source, HERE, 1, 2, 3)
    write(flow.target, THERE, 1, 2, 3)
    checks.translated(flow, HERE, 1, 1, known_to=3)
    objects("skipped", checks.translated, flow, HERE, 1, 2, known_to=3)
    objects("read-again", checks.translated, flow, HERE, 2, 1, known_to=3)


def test_a_checkpoint_that_goes_back_alone_is_told(flow, checks):
    checks.checkpoint(flow, Checkpoint("g", *THERE, 5, 5))
    checks.checkpoint(flow, Checkpoint("g", *THERE, 4, 4))
    objects("checkpoint-back", checks.checkpoint, flow, Checkpoint("g", *THERE, 4, 3))


def test_a_group_that_is_moved_back_alone_or_while_it_has_members_is_told(flow, checks):
    checks.moved(flow, "g", THERE, 3, 5)
    objects("moved-back", checks.moved, flow, "g", THERE, 5, 3)
    checks.rewound.add(("A", "g", HERE))
    checks.moved(flow, "g", THERE, 5, 3)
    flow.target.active.add("g")
    objects("moved-members", checks.moved, flow, "g", THERE, 3, 4)
