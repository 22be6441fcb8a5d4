"""Whether a store can be used: tried with small objects before a producer needs it.

What: claims the store for the cluster, then puts, reads, lists and deletes a probe; records which
coordinator names its objects. Why: wrong
rights or a server that ignores "create only" would be noticed with the first record, or only when
an object has been replaced. Rule kept: what is found is said with the store's name and a remedy,
and no probe stays. Not here: what the claim says (`core/diskless/claim.py`).
"""

from __future__ import annotations

import asyncio
import uuid

from anabranch.core.diskless.claim import (
    CLAIM_KEY,
    CLAIM_MOST,
    SETTING,
    check_claim,
    check_place,
    check_recorded,
    check_unused,
    claim,
    coordinator_key,
    coordinators_prefix,
    recorded,
)
from anabranch.core.diskless.coordinator import Coordinator
from anabranch.core.diskless.last_commits import (
    check_committed,
    check_given,
    last_commits_prefix,
    names_after,
    noted_ids,
)
from anabranch.core.diskless.objects import ObjectMissing, ObjectStore, ObjectTaken
from anabranch.core.errors import StorageFault

PROBES = "probes/"
NAMES_AT_ONCE = 16
_PROBE = b"anabranch: a probe, which may be deleted\n"


async def check_store(store: ObjectStore, cluster_id: str) -> None:
    """Claim a store, and try it. Raises StorageFault or ObjectsAway with place, cause and
    remedy."""
    if await _claimed(store, cluster_id) is None:
        await _claim(store, cluster_id)
    await _try(store)


async def try_store(store: ObjectStore, cluster_id: str, setting: str = SETTING) -> None:
    """The same, but for the claim: no other cluster may have made one. `setting` is what names
    the store."""
    await _claimed(store, cluster_id, setting)
    await _try(store)


async def claim_store(
    store: ObjectStore, coordinator: Coordinator, cluster_id: str, setting: str = SETTING
) -> None:
    """Claim a store for a cluster and its coordinator, which has this one alone. Raises
    StorageFault when the coordinator's objects lie elsewhere; nothing is claimed then. The
    coordinator is asked first: what it knows is of a store that was claimed before."""
    last_id, known = await coordinator.last_id(), await coordinator.store("")
    here = await _claimed(store, cluster_id, setting)
    if here is None:
        check_unused(known, last_id, store.url, setting)
        here = await _claim(store, cluster_id)
    if here or known:
        check_place(here, await coordinator.store(here), store.url, setting)


async def _try(store: ObjectStore) -> None:
    key = f"{PROBES}{uuid.uuid4().hex}"
    await store.put(key, [_PROBE[:9], _PROBE[9:]])
    try:
        await _probe(store, key)
    finally:
        await store.delete([key])


async def check_coordinator(store: ObjectStore, cluster_id: str, mark: str) -> None:
    """Whether the coordinator with this mark named the store's objects; the first one is recorded.
    Raises StorageFault for one that was made anew."""
    keys = await _coordinators(store, cluster_id)
    if not keys:
        first = coordinator_key(cluster_id, 0)
        try:
            await store.put(first, [recorded(mark)])
            return
        except ObjectTaken:  # by another broker, just now
            keys = [first]
    size = await store.size(keys[-1])
    [held] = await store.read(keys[-1], [(0, min(size, CLAIM_MOST))])
    check_recorded(held, mark, f"{store.url}: the object {keys[-1]}")


async def check_commits(
    store: ObjectStore, coordinator: Coordinator, cluster_id: str, mark: str
) -> None:
    """Whether the coordinator knows the last commits that brokers noted in the store. Raises
    StorageFault for one that was put back from an older copy."""
    prefix = last_commits_prefix(cluster_id)
    notes = [each.key async for page in store.list(prefix) for each in page]
    lacking = await coordinator.uncommitted(noted_ids(notes, mark))
    check_committed(lacking, f"{store.url}: {prefix}")


async def check_names(
    store: ObjectStore, coordinator: Coordinator, cluster_id: str, mark: str
) -> None:
    """Whether the coordinator has given the names of the objects that there are after its last
    one. Raises StorageFault for one that was put back from an older copy."""
    names = names_after(cluster_id, mark, await coordinator.last_id())
    ids, present = list(names), []
    for first in range(0, len(ids), NAMES_AT_ONCE):
        some = ids[first : first + NAMES_AT_ONCE]
        found = await asyncio.gather(*(_is_there(store, names[each]) for each in some))
        present += [each for each, there in zip(some, found, strict=True) if there]
    if present:  # brokers at work may have got these ids meanwhile
        check_given(present, await coordinator.last_id(), store.url)


async def _is_there(store: ObjectStore, key: str) -> bool:
    try:
        await store.size(key)
    except ObjectMissing:
        return False
    return True


async def record_restored(store: ObjectStore, cluster_id: str, mark: str) -> None:
    """Record that another coordinator goes on for a lost one."""
    number = len(await _coordinators(store, cluster_id))
    await store.put(coordinator_key(cluster_id, number), [recorded(mark)])


async def _coordinators(store: ObjectStore, cluster_id: str) -> list[str]:
    prefix = coordinators_prefix(cluster_id)
    return [each.key async for page in store.list(prefix) for each in page]


async def _claimed(store: ObjectStore, cluster_id: str, setting: str = SETTING) -> str | None:
    """The store's id, None while it is not claimed."""
    try:
        size = await store.size(CLAIM_KEY)
    except ObjectMissing:
        return None
    [held] = await store.read(CLAIM_KEY, [(0, min(size, CLAIM_MOST))])
    return check_claim(held, cluster_id, store.url, setting)


async def _claim(store: ObjectStore, cluster_id: str) -> str:
    store_id = uuid.uuid4().hex
    try:
        await store.put(CLAIM_KEY, [claim(cluster_id, store_id)])
    except ObjectTaken:  # by another broker, just now
        store_id = await _claimed(store, cluster_id) or ""
    return store_id


async def _probe(store: ObjectStore, key: str) -> None:
    [held] = await store.read(key, [(9, len(_PROBE) - 9)])
    if bytes(held) != _PROBE[9:]:
        raise StorageFault(f"{store.url}: a range of an object differs from the stored bytes")
    listed = [each.key async for page in store.list(key) for each in page]
    if listed != [key]:
        raise StorageFault(f"{store.url}: a stored object is not listed")
    try:
        await store.put(key, [b"another"])
    except ObjectTaken:
        return
    raise StorageFault(
        f"{store.url}: it replaces an existing object despite If-None-Match; use a store that "
        "supports conditional writes"
    )
