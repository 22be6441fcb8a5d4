"""Compaction on one simulated broker: passes without threads and processes.

What: every `log.cleaner.backoff.ms` it performs what `core.broker.hosting.log_cleaner` decides.
Reading and writing takes virtual time, and so does each step of the exchange of segments, so that a
crash, a cut, a move or a deletion comes between any two. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from anabranch.core.errors import StorageFault
from anabranch.core.log import compaction
from anabranch.core.log.cleaner import PassEnd, end_of
from anabranch.core.log.segment_swap import Stale

if TYPE_CHECKING:
    from collections.abc import Callable

    from anabranch.core.broker.hosting.log_cleaner import LogCleaner, Pass
    from anabranch.core.types import TopicPartition
    from anabranch.sim.node_life import NodeLife

STEP_US = (200, 20_000)
"""What each step of a pass takes, besides a slow disk."""
MAP_BYTES = (300, 1 << 16)
"""Memory of a pass: some passes end before all that is dirty."""


class Cleaner:
    """See the module. One a life of a node. `perform` does what the machine wants done,
    `on_pass` hears of each pass that begins, and later, before it exchanges the first segment, how
    far it has read; `on_compacted` hears of each exchange."""

    def __init__(
        self,
        node: NodeLife,
        machine: LogCleaner,
        perform: Callable[[], None],
        on_compacted: Callable[[TopicPartition, int], None],
        on_pass: Callable[[TopicPartition, int | None], None],
    ) -> None:
        self._machine = machine
        self._perform = perform
        self._on_compacted, self._on_pass = on_compacted, on_pass
        self._node = node
        self._world = node.world
        self._random = self._world.random(f"{self._node.name}/cleaner")
        self._is_awake = False

    def wake(self) -> None:
        """A log is hosted that is compacted: look after it from now on."""
        if not self._is_awake:
            self._is_awake = True
            self._later()

    def _later(self) -> None:
        self._node.later(self._machine.backoff_ms, self._look)

    def _look(self) -> None:
        """Begin passes, unless one runs."""
        if not self._machine.is_busy:
            for cold in self._machine.look(self._world.steady_ms, self._world.now_ms):
                if cold is not None:
                    cold.warm()
            for begun in self._machine.take_passes():
                self._on_pass(begun.place, None)
                self._wait(self._steps(begun), begun)
        self._later()

    def _wait(self, steps: Iterator[None], begun: Pass) -> None:
        delay_us = self._random.randint(*STEP_US) + self._node.disk_delay_us
        self._world.after_in(self._node, delay_us, self._go_on, steps, begun)

    def _go_on(self, steps: Iterator[None], begun: Pass) -> None:
        """Make the next step of a pass."""
        self._node.begin()
        try:
            next(steps)
        except StopIteration:
            self._end(begun, PassEnd.DONE, "")
        except (Stale, StorageFault) as fault:
            self._end(begun, end_of(fault), str(fault))
        else:
            self._wait(steps, begun)
        self._node.settle()

    def _steps(self, begun: Pass) -> Iterator[None]:
        """A pass, which pauses wherever a real one waits for its worker or for the disk."""
        replica, world = begun.replica, self._world
        job = begun.job(now_ms=world.now_ms, map_bytes=self._random.choice(MAP_BYTES), io_bytes=0)
        yield
        begun.check()
        *_, outcome = compaction.run(self._node.disk, job)
        assert isinstance(outcome, compaction.Outcome)
        yield
        begun.check()
        segments = list(replica.log.segments)
        self._on_pass(begun.place, outcome.upto)
        for step in begun.install(outcome, lambda: world.now_ms):
            if replica.log.segments[: len(segments)] != segments:
                segments = list(replica.log.segments)
                self._on_compacted(begun.place, outcome.upto)
            step.call()
            yield
        world.note(
            "compacted", self._node.name, str(begun.place),
            upto=outcome.upto, read=outcome.read_records, kept=outcome.kept_records,
        )  # fmt: skip

    def _end(self, begun: Pass, end: PassEnd, why: str) -> None:
        try:
            begun.discard()
        except StorageFault as fault:
            end, why = end_of(fault), str(fault)
        self._machine.ended(begun, end, why, self._world.steady_ms)
        self._perform()
