"""Reads the descriptions of remote segments from a store, and gives them to a coordinator.

Rule kept: what cannot be used is said, and nothing is deleted here. Not here: what a description
tells, and what counts (`core/remote`).
"""

from __future__ import annotations

from anabranch.core.diskless.objects import ObjectMissing, ObjectsAway, ObjectStore
from anabranch.core.errors import StorageFault
from anabranch.core.remote.facts import RemoteFacts
from anabranch.core.remote.keys import SIDECAR, place_of, remote_prefix
from anabranch.core.remote.restored_facts import RestoredFacts, restored_facts
from anabranch.core.remote.sidecar import MOST_BYTES, Described, decode_sidecar


async def read_segments(objects: ObjectStore, cluster_id: str) -> RestoredFacts:
    """The facts that the store of a cluster tells of. Raises StorageFault where it cannot be
    listed or does not answer."""
    return restored_facts(*await read_sidecars(objects, cluster_id))


async def has_segments(objects: ObjectStore, cluster_id: str) -> bool:
    """Whether there is any object of a remote segment. Raises StorageFault."""
    async for page in objects.list(remote_prefix(cluster_id)):
        if page:
            return True
    return False


async def read_sidecars(
    objects: ObjectStore, cluster_id: str
) -> tuple[dict[str, int], dict[str, Described | StorageFault]]:
    """The objects of remote segments with their sizes, and what was read of the sidecars. Raises
    StorageFault as `read_segments`."""
    listed: dict[str, int] = {}
    sidecars: dict[str, Described | StorageFault] = {}
    async for page in objects.list(remote_prefix(cluster_id)):
        for each in page:
            listed[each.key] = each.byte_size
            place = place_of(each.key)
            if place is not None and place.name == SIDECAR:
                sidecars[each.key] = await _read(objects, each.key, each.byte_size)
    return listed, sidecars


async def restore_segments(
    objects: ObjectStore, facts: RemoteFacts, cluster_id: str
) -> RestoredFacts:
    """Give a coordinator that has no facts those that the store tells of, while no broker runs:
    what one puts meanwhile would have no fact. Raises StorageFault."""
    restored = await read_segments(objects, cluster_id)
    await facts.load(restored.logs)
    return restored


async def _read(objects: ObjectStore, key: str, size: int) -> Described | StorageFault:
    try:
        [encoded] = await objects.read(key, [(0, min(size, MOST_BYTES))])
        return decode_sidecar(encoded, key)
    except ObjectsAway:
        raise
    except ObjectMissing as gone:  # removed while the store was listed
        return gone
    except StorageFault as fault:
        return fault
