"""A simulated object store: immutable objects by name, with a clock of its own.

What: put, read, delete and list, each done at one moment, with the faults of `remote.py`. Watchers
are told what was put and what is about to be removed. Rule kept: a put never replaces; bytes are
those that the caller had when it called. Not here: what is in an object (`core/diskless/layout`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from anabranch.core.diskless.objects import Listed, ObjectMissing, ObjectsAway, ObjectTaken
from anabranch.core.types import Buffer
from anabranch.sim.remote import Done, Remote
from anabranch.sim.world import World

HANG_US = 30_000_000
"""How long a put hangs: as long as a broker waits for a call."""
HANGING = "hanging"


class Stored(NamedTuple):
    """One object."""

    data: bytes
    modified_ms: int


class SimObjects(Remote):
    """All objects by name."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "objects", ObjectsAway)
        self.objects: dict[str, Stored] = {}
        self.on_put: list[Callable[[str], None]] = []
        self.on_delete: list[Callable[[str], None]] = []
        self.hangs: dict[str, Callable[[str], bool | None]] = {}
        """Of a caller: whether its put of an object hangs, see `hanging_puts.py`."""
        self.lists_late_ms = 0
        """How old an object is before it is listed."""

    def put(self, caller: str, key: str, buffers: Sequence[Buffer], done: Done) -> None:
        """See ObjectStore."""
        data = b"".join(bytes(each) for each in buffers)

        def act() -> None:
            if key in self.objects:
                if self.objects[key].data != data:
                    raise ObjectTaken(f"there is an object {key}")
                return
            self.objects[key] = Stored(data, self.now_ms)
            for told in self.on_put:
                told(key)

        hangs = self.hangs.get(caller)
        is_done = hangs(key) if hangs else None
        if is_done is None:
            self.call(caller, "put", act, done)
            return
        self.met["put", HANGING] += 1
        if is_done:
            self.world.after(HANG_US, self._carry_out, act)
        self.world.after(HANG_US, done, self.unanswered())

    def read(self, caller: str, key: str, ranges: Sequence[tuple[int, int]], done: Done) -> None:
        """See ObjectStore."""

        def act() -> list[Buffer]:
            found = self.objects.get(key)
            if found is None or any(sum(each) > len(found.data) for each in ranges):
                raise ObjectMissing(f"there is no object {key}, or less of it")
            return [found.data[first : first + length] for first, length in ranges]

        self.call(caller, "read", act, done)

    def read_whole(self, caller: str, key: str, done: Done) -> None:
        """An object of any size, as one range."""

        def act() -> list[Buffer]:
            found = self.objects.get(key)
            if found is None:
                raise ObjectMissing(f"there is no object {key}")
            return [found.data]

        self.call(caller, "read", act, done)

    def delete(self, caller: str, keys: Sequence[str], done: Done) -> None:
        """See ObjectStore."""

        def act() -> list[str]:
            for key in keys:
                if key in self.objects:
                    for told in self.on_delete:
                        told(key)
                    del self.objects[key]
            return list(keys)

        self.call(caller, "delete", act, done)

    def list(self, caller: str, prefix: str, done: Done) -> None:
        """See ObjectStore; all in one page."""

        def act() -> list[Listed]:
            return [
                Listed(key, len(stored.data), stored.modified_ms)
                for key, stored in sorted(self.objects.items())
                if key.startswith(prefix) and stored.modified_ms + self.lists_late_ms <= self.now_ms
            ]

        self.call(caller, "list", act, done)
