"""A metadata snapshot that is loaded survives a second failure, wherever both of them come."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from random import Random

import pytest
from tests.core.metadata.served import Node, Served, topic

from anabranch.core.errors import StorageFault
from anabranch.sim.disk import SimDisk

MOST_CALLS = 200


def behind() -> tuple[Served, Node, SimDisk]:
    """A node whose next step is the loading of a snapshot, since the log begins behind its copy."""
    served, disk = Served(), SimDisk(Random(1))
    served.commit(topic(1), topic(2))
    node = Node(disk, piece_bytes=1_000_000)
    node.catch_up(served)
    served.trimmed(10)
    served.commit(topic(20))
    return served, node, disk


def fails_at(node: Node, served: Served, disk: SimDisk, call: int) -> bool:
    """Follow until a disk's call fails; whether that many were made."""
    disk.fail_in = call
    with suppress(StorageFault):
        node.catch_up(served)
    failed, disk.fail_in = disk.fail_in < 0, -1
    return failed


def restarts(node: Node, disk: SimDisk, call: int) -> bool:
    """Begin again while a call fails; whether that many were made. A fault is the process's end."""
    disk.fail_in, node.stopped = call, ""
    with suppress(StorageFault):
        node.restart()
    failed, disk.fail_in = disk.fail_in < 0, -1
    return failed


def interruptions() -> Iterator[tuple[int, int]]:
    """Every call at which the loading fails, with the first calls of the start after it."""
    for first in range(1, MOST_CALLS):
        served, node, disk = behind()
        if not fails_at(node, served, disk, first):
            return
        for second in range(1, 25):
            yield first, second


@pytest.mark.parametrize("powers", [(False, False), (True, False), (False, True), (True, True)])
def test_a_second_failure_leaves_a_copy_that_goes_on(powers: tuple[bool, bool]) -> None:
    """Each with the power cut or with a process that ends; what was committed is all there after
    the next start, and nothing else."""
    seen = 0
    for first, second in interruptions():
        served, node, disk = behind()
        before = node.copy.image
        assert fails_at(node, served, disk, first)
        if powers[0]:
            disk.cut_power()
        restarts(node, disk, second)
        if powers[1]:
            disk.cut_power()
        node.stopped = ""
        node.restart()
        assert node.copy.image in (before, *served.images.values()), (first, second)
        node.catch_up(served)
        assert not node.stopped, (first, second)
        assert node.copy.image == served.image
        node.restart()
        assert node.copy.image == served.image
        seen += 1
    assert seen > 100
