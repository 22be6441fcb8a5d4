"""A simulated batch coordinator: the SQL of SQLite behind calls that fail, and a clock of its own.

What: any call of `stores/coordinator/sqlite_memory.py`, made over `remote.py`, and watches: changes
reach a broker in order, each after a moment, until the watch breaks, which the broker learns later.
Checks are told of each call as it is carried out. Rule kept: nothing is missed between the begin of
a watch and the moment at which it breaks. Not here: decisions (`core/diskless/commit.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.core.diskless.coordinator import CoordinatorAway
from anabranch.core.diskless.rows import Change
from anabranch.sim.remote import Done, Remote
from anabranch.sim.world import World
from anabranch.stores.coordinator.remote_reads import RemoteFactReads
from anabranch.stores.coordinator.sqlite_memory import SqliteInMemory

HEARD_US = (300, 3_000)
"""Until a broker hears of a change."""
NOTICED_US = (1_000, 2_000_000)
"""Until a broker notices that its watch broke."""
MARK = "sim"
REMOTE, TIERING, COMPACTION, SEALS = "remote.", "tiering.", "compaction.", "seals."
"""What the names of the calls of RemoteTables, TieringTables, CompactionTables and SealTables begin
with."""
READS = frozenset({f"{REMOTE}lead", f"{REMOTE}look"})
"""What tells a caller only what has changed."""

Called = Callable[[str, tuple[Any, ...], Any], None]
"""Takes a call's name, its arguments, and what it gave."""


class Watch:
    """One broker's watch: `hear` takes lists of changes, `broken` is called once."""

    def __init__(
        self,
        coordinator: SimCoordinator,
        hear: Callable[[list[Change]], None],
        broken: Callable[[], None],
    ) -> None:
        self._coordinator = coordinator
        self._hear, self._broken = hear, broken
        self._free_us = 0
        self._unlisten = coordinator.tables.listen(self._changed)
        self.is_open = True

    def _changed(self, changes: list[Change]) -> None:
        coordinator = self._coordinator
        world, faults = coordinator.world, coordinator.faults
        way_us = coordinator.random.randint(*HEARD_US)
        if faults.slow_us:
            way_us += coordinator.random.randrange(faults.slow_us)
        self._free_us = max(world.now_us + way_us, self._free_us)
        world.after(self._free_us - world.now_us, self._arrive, changes)

    def _arrive(self, changes: list[Change]) -> None:
        if self.is_open:
            self._hear(changes)

    def close(self) -> None:
        """Its broker is gone."""
        if self.is_open:
            self.is_open = False
            self._unlisten()
            self._coordinator.watches.remove(self)

    def break_off(self) -> None:
        """Nothing is told any more; its broker notices later."""
        self.close()
        delay_us = self._coordinator.random.randint(*NOTICED_US)
        self._coordinator.world.after(delay_us, self._broken)


class SimCoordinator(Remote):
    """See the module."""

    def __init__(self, world: World, cluster_id: str) -> None:
        super().__init__(world, "coordinator", CoordinatorAway)
        self.random = world.random("coordinator/watches")
        self.tables = SqliteInMemory(cluster_id, lambda: self.now_ms, mark=MARK)
        self.watches: list[Watch] = []
        self.on_called: list[Called] = []
        self.reads: dict[str, RemoteFactReads] = {}
        """What each caller knows of remote segments, whatever became of the answers."""

    def ask(self, caller: str, name: str, args: tuple[Any, ...], done: Done) -> None:
        """Make a call of SqliteInMemory, or of one of the other tables."""

        def act() -> Any:
            result = self._made(caller, name, args)
            self.tell(name, args, result)
            return result

        self.call(caller, name, act, done)

    def _made(self, caller: str, name: str, args: tuple[Any, ...]) -> Any:
        room, dot, what = name.rpartition(".")
        if name in READS:
            reads = self.reads.setdefault(caller, RemoteFactReads())
            return getattr(reads, what)(self.tables.remote, *args)
        return getattr(getattr(self.tables, room) if dot else self.tables, what)(*args)

    def tell(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        """A call was carried out."""
        for told in self.on_called:
            told(name, args, result)

    def watch(
        self,
        caller: str,
        hear: Callable[[list[Change]], None],
        broken: Callable[[], None],
        done: Done,
    ) -> None:
        """Begin a watch; `done` gets it."""

        def act() -> Watch:
            watch = Watch(self, hear, broken)
            self.watches.append(watch)
            return watch

        self.call(caller, "watch", act, done)

    def break_watches(self) -> None:
        """All connections end."""
        for watch in list(self.watches):
            watch.break_off()
