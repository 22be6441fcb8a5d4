"""The faults of diskless topics: their store, their coordinator, and brokers at a bad moment.

What: one context manager a kind, as in `faults`. Moments: a broker is killed while its objects are
stored and their commits wait, and one is paused until the leases of what it has prepared are over,
so that others have collected it; what it then commits must be refused. Rule kept: as in `faults`.
Not here: how stores fail (`objects`), what ends a lease (`diskless`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from chaos.plan import Fault
from chaos.scene import Scene
from chaos.stores import Nothing

WAITING_SECONDS = 1.0
"""Until objects are stored whose commits wait; a broker stores one in milliseconds."""


@contextlib.contextmanager
def kill_between(scene: Scene, fault: Fault) -> Iterator[str]:
    """Kill a broker between its puts and their commits."""
    one = scene.some(fault.aim)
    with scene.diskless.hold():
        scene.over.wait(WAITING_SECONDS * (0.2 + fault.strength))
        said = f"kill {scene.role(one)} while its objects wait for their commits"
        if not scene.nodes.kill(one):
            raise Nothing(f"{one} is dead already")
    yield said
    scene.nodes.begin(one)


@contextlib.contextmanager
def outlive_lease(scene: Scene, fault: Fault) -> Iterator[str]:
    """Pause a broker until what it has prepared is collected."""
    one = scene.some(fault.aim)
    said = f"pause {scene.role(one)}"
    if not scene.nodes.pause(one):
        raise Nothing(f"{one} is not there to pause")
    try:
        count = scene.diskless.outlive_leases(one)
        yield f"{said} until the leases of {count} prepared objects are over"
    finally:
        scene.nodes.resume(one)
