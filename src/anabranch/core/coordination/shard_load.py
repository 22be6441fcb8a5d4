"""Reading back a shard of a coordinator, in slices.

What: `steps` reads its log, a piece at a time, so that a performer may warm bytes and do other work
in between; `failed` takes the fault that it met; `end` has the coordinator serve what was read.
Rules kept: what was read in part is not served; a shard that this broker leads no more is let go
of. Not here: what the records mean (the coordinators' loaders).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.core.coordination.host import Host
    from anabranch.core.errors import StorageFault
    from anabranch.core.log.files import ColdRead
    from anabranch.core.types import TopicPartition


class ShardLoad:
    """Of one shard: see `Sliced`."""

    def __init__(self, broker: Host, shard: Any) -> None:
        self.shard = shard
        self.loader = shard.coordinator.loader(shard)
        self._broker = broker
        self._is_whole = False

    @property
    def place(self) -> TopicPartition:
        place: TopicPartition = self.shard.place
        return place

    @property
    def skipped_records(self) -> int:
        skipped: int = self.loader.unknown_keys
        return skipped

    def steps(self, now_ms: int) -> Iterator[ColdRead | None]:
        """Read everything. Yields what must be warmed, and None now and then; may raise
        StorageFault."""
        for cold in self.loader.steps(now_ms):
            if not self.shard.is_current:
                return
            yield cold
        self._is_whole = True

    def failed(self, fault: StorageFault) -> None:
        """The log, or a read of it in a thread, met a fault: that is its partition's."""
        self._broker.faults.append((self.shard.replica, fault))

    def end(self, now_ms: int) -> bool:
        """Reading is over; whether the shard is served now."""
        to_load = self._broker.mailbox.to_load
        if self.shard in to_load:
            to_load.remove(self.shard)
        is_served = self._is_whole and bool(self.shard.is_current)
        if is_served:
            self.shard.coordinator.loaded(self.loader, now_ms)
        return is_served
