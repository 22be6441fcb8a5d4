"""Where commands find a store of objects and its coordinator, and what they do with both open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import click

if TYPE_CHECKING:
    from anabranch.core.diskless.coordinator import Coordinator
    from anabranch.core.diskless.objects import ObjectStore

T = TypeVar("T")
Owned = TypeVar("Owned")
Check: TypeAlias = "Callable[[ObjectStore, ExitStack], Awaitable[None]]"
"""Refuses to go on with a store, and holds what must not change until the end."""
DISKLESS, REMOTE = "diskless.storage.url", "remote.storage.url"


class Where(NamedTuple):
    """What a command was told of store and coordinator."""

    setting: str
    """The one that names the store in a broker's file."""
    properties_file: str | None
    storage_url: str | None
    coordinator_url: str | None

    @property
    def urls(self) -> tuple[str, str]:
        """Of store and coordinator: options win over the file. Raises a usage error."""
        storage, coordinator = self.storage_url, self.coordinator_url
        if self.properties_file is not None:
            from anabranch.cli.serve import configured

            config = configured(self.properties_file, [])
            told = config.broker.diskless_storage_url
            if self.setting == REMOTE:
                told = config.broker.remote_storage_url or told
            storage = storage or told
            coordinator = coordinator or config.diskless_coordinator_url
        if not storage or not coordinator:
            raise click.UsageError(
                f"Give store and coordinator: --config FILE with {self.setting} and "
                "diskless.coordinator.url, or --storage-url URL and --coordinator-url URL."
            )
        return storage, coordinator


def where_options(setting: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Options that say where store and coordinator are; the command gets them as `where`."""
    options = (
        click.option(
            "--config", "properties_file", type=click.Path(exists=True, dir_okay=False),
            metavar="FILE",
            help="A broker's server.properties, which says where store and coordinator are.",
        ),
        click.option("--storage-url", metavar="URL", help=f"The store; overrides {setting}."),
        click.option(
            "--coordinator-url", metavar="URL",
            help="The coordinator; overrides diskless.coordinator.url.",
        ),
    )  # fmt: skip

    def add(verb: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(verb)
        def with_where(
            properties_file: str | None,
            storage_url: str | None,
            coordinator_url: str | None,
            **others: Any,
        ) -> Any:
            where = Where(setting, properties_file, storage_url, coordinator_url)
            return verb(where=where, **others)

        told: Callable[..., Any] = with_where
        for option in reversed(options):
            told = option(told)
        return told

    return add


def with_both(
    where: Where,
    read: Callable[[ObjectStore], Awaitable[Owned]],
    cluster_of: Callable[[Owned], str],
    work: Callable[[ObjectStore, Coordinator, Owned], Awaitable[T]],
    *,
    makes: bool,
    check: Check | None = None,
) -> T:
    """Do the work with store, coordinator and what was read of the store, which tells the cluster;
    `check` comes before anything is made."""
    from anabranch.stores.coordinator.engines import open_coordinator
    from anabranch.stores.objects.engines import open_objects

    storage, at = where.urls

    async def run() -> T:
        async with AsyncExitStack() as stack:
            store = await open_objects(storage, where.setting)
            stack.push_async_callback(store.close)
            if check is not None:
                await check(store, stack.enter_context(ExitStack()))
            owned = await read(store)
            coordinator = await open_coordinator(at, cluster_of(owned), makes=makes)
            stack.push_async_callback(coordinator.close)
            return await work(store, coordinator, owned)

    return asyncio.run(run())
