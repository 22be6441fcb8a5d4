"""The controller's calls of the metadata store: what a tenure asks for, carried out.

What: `carried_out` makes one call and returns the event that answers it. A log is understood, and a
snapshot made, in a thread: where there are hundreds of thousands of partitions that takes seconds,
in which the node's loop has other things to do. Raises StorageFault, TooOld (the log is of a newer
version), CorruptStore. Not here: what is asked when, and what an answer means
(`core/controller/tenure`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from anabranch.core.controller.tenure import effects, events
from anabranch.core.controller.tenure.committed import Committed
from anabranch.core.controller.tenure.snapshots import encoded_parts, made_of
from anabranch.core.metadata.store import MetadataStore, StoreAway
from anabranch.server.clocks import wall_ms
from anabranch.server.collector import without_collector
from anabranch.server.gentle import in_parts
from anabranch.server.logs import logger

LOG = logger("controller")
READ_BYTES = 8 * 1024 * 1024
StoredT = TypeVar("StoredT")


async def carried_out(store: MetadataStore, call: effects.StoreCall) -> events.StoreAnswer | None:
    """The answer to a call, None to one that nobody waits for."""
    return cast("events.StoreAnswer | None", await _CALLS[type(call)](store, call))


async def _read_end(store: MetadataStore, call: effects.ReadEnd) -> events.EndRead:
    end, batch = await store.end(), None
    if end.start_offset <= call.last_base_offset < end.end_offset:
        found = await store.read(call.last_base_offset, 1)
        batch = bytes(found[0].payload) if found else None
    return events.EndRead(call, end.end_offset, batch)


async def _read_lease(store: MetadataStore, call: effects.ReadLease) -> events.LeaseRead:
    return events.LeaseRead(call, await store.lease())


async def _take_lease(store: MetadataStore, call: effects.TakeLease) -> events.LeaseTaken:
    return events.LeaseTaken(call, await store.take_lease(call.seen, *call.me))


async def _renew_lease(store: MetadataStore, call: effects.RenewLease) -> events.LeaseRenewed:
    return events.LeaseRenewed(call, await store.renew_lease(call.lease))


async def _release_lease(store: MetadataStore, call: effects.ReleaseLease) -> None:
    await store.release_lease(call.lease)


async def _read_log(store: MetadataStore, call: effects.ReadLog) -> events.LogRead:
    read = Committed()
    stored = await store.load_snapshot()
    if stored is not None:
        await asyncio.to_thread(_quietly, read.begin, stored)
    while batches := await store.read(read.log.end_offset, READ_BYTES):
        if batches[0].first_offset > read.log.end_offset:  # another controller stored a snapshot
            raise StoreAway("the metadata log was trimmed while it was read")
        await asyncio.to_thread(_quietly, read.go_on, batches)
    return events.LogRead(call, read.image, read.log, read.history)


def _quietly(read: Callable[[StoredT], None], stored: StoredT) -> None:
    with without_collector():
        read(stored)


async def _append(store: MetadataStore, call: effects.Append) -> events.AppendEnded:
    outcome = await store.append(call.lease, call.first_offset, list(call.batches))
    return events.AppendEnded(call, outcome)


async def _write_snapshot(
    store: MetadataStore, call: effects.WriteSnapshot
) -> events.SnapshotStored:
    snapshot = made_of(call, await in_parts(encoded_parts(call, wall_ms())))
    await store.save_snapshot(snapshot, keep_log_from=call.keep_log_from)
    size_bytes = len(snapshot.payload)
    LOG.info("snapshot of the metadata", offset=snapshot.end_offset, size_bytes=size_bytes)
    return events.SnapshotStored(call, snapshot)


_CALLS: dict[type[effects.StoreCall], Callable[..., Awaitable[Any]]] = {
    effects.ReadEnd: _read_end,
    effects.ReadLease: _read_lease,
    effects.TakeLease: _take_lease,
    effects.RenewLease: _renew_lease,
    effects.ReleaseLease: _release_lease,
    effects.ReadLog: _read_log,
    effects.Append: _append,
    effects.WriteSnapshot: _write_snapshot,
}
