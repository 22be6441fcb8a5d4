"""Coordinator and object store of a cluster, opened and tried when a node starts.

Rule kept: what is wrong with them is said before the first record comes, with place, reason and
remedy, and nothing stays open. Not here: how they work (`stores/coordinator`, `stores/objects`).
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, NamedTuple

from anabranch.core.diskless.claim import SETTING
from anabranch.core.diskless.coordinator import Coordinator
from anabranch.core.diskless.objects import ObjectStore
from anabranch.core.errors import StorageFault
from anabranch.core.remote.facts import RemoteFacts
from anabranch.core.tiering.claims import TieringClaims
from anabranch.core.tiering.seals import Seals
from anabranch.stores.coordinator.engines import open_coordinator
from anabranch.stores.coordinator.front import Front
from anabranch.stores.coordinator.remote_front import RemoteFront
from anabranch.stores.coordinator.seal_front import SealFront
from anabranch.stores.coordinator.tiering_front import TieringFront
from anabranch.stores.objects.engines import open_objects
from anabranch.stores.objects.store_check import (
    check_commits,
    check_coordinator,
    check_names,
    claim_store,
    try_store,
)

if TYPE_CHECKING:
    from anabranch.core.settings.broker import BrokerConfig
    from anabranch.server.config import NodeConfig

OTHER = "remote.storage.url"
INTERVAL_MS = 250
"""`diskless.produce.commit.interval.ms` where requests cost money."""
FREE = ("file://", "memory://")
"""Stores in which an object costs no money."""


class Stores(NamedTuple):
    """Coordinator and object store of a cluster."""

    coordinator: Coordinator
    objects: ObjectStore
    interval_ms: int

    @property
    def remote(self) -> RemoteFacts:
        """The facts of remote segments."""
        assert isinstance(self.coordinator, Front)
        return RemoteFront(self.coordinator)

    @property
    def tiering(self) -> TieringClaims:
        """Who makes segments of diskless batches."""
        assert isinstance(self.coordinator, Front)
        return TieringFront(self.coordinator)

    @property
    def seals(self) -> Seals:
        """How classic partitions end that become diskless."""
        assert isinstance(self.coordinator, Front)
        return SealFront(self.coordinator)

    @classmethod
    async def open(cls, config: NodeConfig, cluster_id: str) -> Stores | None:
        """Both, tried; None where diskless topics and remote logs are off. Raises StorageFault."""
        broker = config.broker
        if not has_stores(broker):
            return None
        setting, url = _storage(broker)
        where = config.diskless_coordinator_url
        if not where:
            raise StorageFault(
                f"{_switch(broker)} is true and diskless.coordinator.url is empty; "
                "write sqlite:///path/to/diskless.db, or postgresql://user@host/database, the "
                "same on every node"
            )
        async with AsyncExitStack() as opened:
            objects = await open_objects(url, setting)
            opened.push_async_callback(objects.close)
            await try_store(objects, cluster_id, setting)
            coordinator = await open_coordinator(where, cluster_id)
            opened.push_async_callback(coordinator.close)
            mark = await coordinator.mark()
            await claim_store(objects, coordinator, cluster_id, setting)
            await check_coordinator(objects, cluster_id, mark)
            await check_commits(objects, coordinator, cluster_id, mark)
            await check_names(objects, coordinator, cluster_id, mark)
            opened.pop_all()
        interval_ms = broker.diskless_produce_commit_interval_ms
        if interval_ms is None:
            interval_ms = 0 if url.startswith(FREE) else INTERVAL_MS
        return cls(coordinator, objects, interval_ms)

    def abandon(self) -> None:
        """See `Node.abandon`."""
        if isinstance(self.coordinator, Front):
            self.coordinator.abandon()

    async def close(self) -> None:
        """Let go of both, whatever becomes of the first."""
        try:
            await self.coordinator.close()
        finally:
            await self.objects.close()


def has_stores(broker: BrokerConfig) -> bool:
    """Whether a cluster with these settings has a coordinator and an object store."""
    return broker.diskless_storage_system_enable or broker.remote_log_storage_system_enable


def _storage(broker: BrokerConfig) -> tuple[str, str]:
    """The setting that names the store, and its URL. Diskless records and remote segments have one
    store, since a coordinator knows one."""
    own, remote = broker.diskless_storage_url, broker.remote_storage_url
    if broker.diskless_storage_system_enable:
        setting, url = SETTING, own
        if broker.remote_log_storage_system_enable and own and remote not in ("", own):
            raise StorageFault(
                f"{OTHER} and {SETTING} differ; a cluster has one store for both: remove {OTHER}, "
                "or set it to the same URL"
            )
    else:
        setting, url = (SETTING, own) if own and not remote else (OTHER, remote)
    if not url:
        raise StorageFault(
            f"{_switch(broker)} is true and {setting} is empty; write "
            "file:///path/to/folder, s3://bucket/prefix, gs://… or az://…"
        )
    return setting, url


def _switch(broker: BrokerConfig) -> str:
    is_diskless = broker.diskless_storage_system_enable
    return "diskless.storage.system.enable" if is_diskless else "remote.log.storage.system.enable"
