"""What the simulated operator does once faults are over: no more than a cluster needs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.sim.test_cluster import PLACE, Scene

from anabranch.core.errors import ProtocolError
from anabranch.sim.repair import Repair

SOUND = "00000000000000000000.log"


def scene_with_records() -> Scene:
    scene = Scene(3)
    scene.create_topic()
    scene.write(4)
    scene.wait(3)
    return scene


def change(scene: Scene, path: str, log: bytes) -> None:
    """Have these bytes in a log, with no broker noticing."""
    file = scene.cluster.nodes[2].disk.open(path)
    file.truncate(0)
    file.write(0, [log])
    file.sync()


def care(scene: Scene, path: str) -> list[str]:
    """The disks that the operator replaces, where a bit had flipped in a folder of broker 2."""
    replaced: list[str] = []

    def hear(_at: int, kind: str, _who: str, text: str, _details: dict[str, Any]) -> None:
        if kind == "repair":
            replaced.append(text)

    scene.world.listeners.append(hear)
    faults: Any = SimpleNamespace(rotten=[(scene.cluster.nodes[2], path)])
    workload: Any = SimpleNamespace(operator=None)
    repair = Repair(scene.cluster, faults, workload)
    for _ in range(3):
        repair.care()
        scene.wait(3)
    return replaced


def flipped(log: bytes) -> bytes:
    return log[:-1] + bytes([log[-1] ^ 1])


def zeroed(log: bytes) -> bytes:
    """As a power cut leaves a page that was never synced."""
    size = len(log) // 4
    return log[:size] + bytes(len(log) - size)


@pytest.mark.parametrize("damaged", [flipped, zeroed, lambda log: log[:-5]])
@pytest.mark.parametrize("name", ["gone-0", "t-7"])
def test_a_log_that_no_broker_has_opened_is_left_as_it_is(name, damaged):
    scene = scene_with_records()
    node = scene.cluster.nodes[2]
    path = f"{node.folders[0]}/{name}"
    sound = node.disk.read(f"{node.folders[0]}/{PLACE}/{SOUND}")
    node.crash()
    node.disk.make_dirs(path)
    node.disk.write_atomic(f"{path}/{SOUND}", damaged(sound), sync=True)
    node.start()
    scene.wait(5)
    assert node.is_serving
    assert care(scene, path) == []
    assert node.disk.read(f"{path}/{SOUND}") == damaged(sound)


def test_the_disk_of_an_open_log_with_a_wrong_checksum_is_replaced():
    scene = scene_with_records()
    node = scene.cluster.nodes[2]
    path = f"{node.folders[0]}/{PLACE}"
    change(scene, f"{path}/{SOUND}", flipped(node.disk.read(f"{path}/{SOUND}")))
    assert care(scene, path) == [path]
    scene.wait(10)
    assert node.is_serving
    scene.assert_nothing_lost()


def test_zeros_within_an_open_log_are_no_flipped_bit_and_end_the_run():
    """Recovery would have cut them: a log that counts as whole has none."""
    scene = scene_with_records()
    node = scene.cluster.nodes[2]
    path = f"{node.folders[0]}/{PLACE}"
    change(scene, f"{path}/{SOUND}", zeroed(node.disk.read(f"{path}/{SOUND}")))
    with pytest.raises(ProtocolError, match="smaller than a header"):
        care(scene, path)
