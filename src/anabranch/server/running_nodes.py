"""Looks for nodes of a cluster that run, for commands that only a stopped cluster bears.

What: whether a node holds a folder of this machine, answers at an address that is known here, or
writes to the object store. What is known here: the settings of the command, the copies of the
metadata log in the folders, and the folders beside the store and the coordinator.
Rules kept: nothing is written; a folder or an answer of another cluster is no sign; what could not
be looked at is told. Not here: what follows (`core/running_nodes.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.client.connection import Connection, ConnectionLost
from anabranch.core.diskless.layout import HEADER_MOST, DamagedObject, decode_header
from anabranch.core.diskless.objects import ObjectMissing, ObjectStore
from anabranch.core.errors import ApiError, Bug, ErrorCode, ProtocolError, StorageFault
from anabranch.core.log.checkpoints import (
    META_PROPERTIES,
    InvalidCheckpoint,
    MetaProperties,
    parse_meta_properties,
)
from anabranch.core.log.files import Files
from anabranch.core.metadata.following.copied_image import image_in
from anabranch.core.running_nodes import (
    MOST_NAMED,
    TWO_COORDINATORS,
    WATCH_MS,
    Changed,
    NodeAddress,
    addresses_of,
    changed,
    is_object,
    refuse,
    writer_of,
)
from anabranch.core.settings.urls import SQLITE
from anabranch.core.wire.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from anabranch.server.files import RealFiles
from anabranch.server.folders import LOCK, FolderFault, UnusableFolder, lock
from anabranch.server.outbound import reach
from anabranch.stores.objects.folder import FOLDER

if TYPE_CHECKING:
    from anabranch.server.config import NodeConfig

ANSWER_S = 3.0
"""A node answers this request from memory."""
AT_ONCE = 32
WATCH_S = WATCH_MS / 1000
BROKERS, CONTROLLERS = 1, 2
Tell = Callable[[str], None]
"""Is given what could not be looked at."""


def folders_beside(storage_url: str, coordinator_url: str) -> list[str]:
    """Folders of nodes beside objects and coordinator on this machine, as `up` and small set-ups
    have them: the folder that these are in, and those in it."""
    file = coordinator_url.removeprefix(SQLITE)
    paths = [] if "://" in file else [file]
    if storage_url.startswith(FOLDER):
        paths.append(storage_url.removeprefix(FOLDER).rstrip("/"))
    found: list[str] = []
    for home in dict.fromkeys(os.path.dirname(os.path.abspath(each)) for each in paths):
        found.append(home)
        with contextlib.suppress(OSError):
            found += sorted(each.path for each in os.scandir(home) if each.is_dir())
    return [each for each in found if os.path.exists(os.path.join(each, META_PROPERTIES))]


def folders_of(config: NodeConfig) -> list[str]:
    """Those of a node with these settings."""
    return [*config.log_dirs, config.metadata_log_dir]


def addresses_told(config: NodeConfig) -> list[NodeAddress]:
    """The addresses in a node's settings: its own ones, and those of controllers."""
    own = [*config.advertised_listeners, *config.advertised_controllers]
    return [
        *(NodeAddress(config.node_id, each.host, each.port) for each in own),
        *(NodeAddress(None, host, port) for host, port in config.controllers),
    ]


class Folders:
    """Folders of nodes of one cluster on this machine. Those that nobody holds are held until
    `held` ends, so that no node starts on them meanwhile."""

    def __init__(
        self, cluster_id: str, paths: Iterable[str], held: contextlib.ExitStack, tell: Tell
    ) -> None:
        self.seen: list[str] = []
        """Who holds which."""
        self.paths: list[str] = []
        """Those of the cluster."""
        self._cluster_id, self._tell = cluster_id, tell
        for path in dict.fromkeys(map(os.path.realpath, paths)):
            self._look(path, held)

    def _look(self, path: str, held: contextlib.ExitStack) -> None:
        meta = self._meta(path)
        if meta is None or meta.cluster_id != self._cluster_id:
            return
        self.paths.append(path)
        if not os.path.exists(os.path.join(path, LOCK)):
            return  # no node has run on it, as on a copy; and nothing is made here
        try:
            held.callback(os.close, lock(path))
        except UnusableFolder as fault:
            self._tell(f"whether node {meta.node_id} runs: {fault}")
        except FolderFault:
            self.seen.append(f"node {meta.node_id} runs on this machine now: it holds {path}")

    def _meta(self, path: str) -> MetaProperties | None:
        name = os.path.join(path, META_PROPERTIES)
        try:
            return parse_meta_properties(Path(name).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, InvalidCheckpoint) as fault:
            self._tell(f"{name}: {fault}")
            return None

    def addresses(self, files: Files) -> list[NodeAddress]:
        """Where the nodes of the cluster listened, by the copies of the metadata log in them."""
        found: list[NodeAddress] = []
        for path in self.paths:
            try:
                found += addresses_of(image_in(files, path))
            except (OSError, ProtocolError, StorageFault, Bug) as fault:
                self._tell(f"the addresses in the metadata log of {path}: {fault}")
        return found


async def refuse_beside_brokers(
    store: ObjectStore,
    cluster_id: str,
    paths: Iterable[str],
    addresses: Iterable[NodeAddress],
    held: contextlib.ExitStack,
    tell: Tell,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Whether a coordinator may be restored: no node of the cluster is seen. Raises StorageFault.
    `paths` are folders that may be those of nodes; they are held until `held` ends."""
    folders = Folders(cluster_id, paths, held, tell)
    refuse(folders.seen, TWO_COORDINATORS)
    known = [*folders.addresses(RealFiles()), *addresses]
    refuse(await answering(known, cluster_id, tell), TWO_COORDINATORS)
    refuse(await writing(store, cluster_id, pause), TWO_COORDINATORS)


async def answering(addresses: Iterable[NodeAddress], cluster_id: str, tell: Tell) -> list[str]:
    """At which of these addresses a node of this cluster answers."""
    by_place: dict[tuple[str, int], NodeAddress] = {}
    for each in addresses:
        if each.port:
            by_place.setdefault((each.host, each.port), each)
    turns = asyncio.Semaphore(AT_ONCE)

    async def ask(address: NodeAddress) -> str | None:
        async with turns:
            return await _answer(address, cluster_id, tell)

    found = await asyncio.gather(*map(ask, by_place.values()))
    return [each for each in found if each is not None]


async def _answer(address: NodeAddress, cluster_id: str, tell: Tell) -> str | None:
    """What shows that a node is there. A suspended one takes connections and does not answer."""
    place = f"{address.who}, {address.text}"
    try:
        async with asyncio.timeout(ANSWER_S):
            _, writer = await asyncio.open_connection(address.host, address.port)
        writer.close()
    except ConnectionRefusedError:
        return None
    except TimeoutError:
        tell(f"{place}: no connection within {ANSWER_S:g} s")
        return None
    except (socket.gaierror, UnicodeError):
        tell(f"{place}: no host is known by this name")
        return None
    except OSError as fault:
        tell(f"{place}: {fault.strerror or fault}")
        return None
    try:
        async with asyncio.timeout(ANSWER_S):
            found = await _cluster_at(address)
    except (ConnectionLost, ProtocolError):
        if await _speaks_tls(address):
            return f"something answers with TLS at {address.text}, the address of {address.who}"
        return None  # it is no node
    except TimeoutError:
        return (
            f"something listens at {address.text}, the address of {address.who}, and does not "
            "answer now, as a suspended node"
        )
    except ApiError:
        found = cluster_id
    return f"{address.who} answers at {address.text} now" if found == cluster_id else None


async def _cluster_at(address: NodeAddress) -> str:
    """The cluster of who answers there. Raises ConnectionLost, ApiError."""
    connection = await reach(address.host, address.port, timeout_seconds=2 * ANSWER_S)
    try:
        return await _told(connection)
    except ConnectionLost:  # it told its versions, and wants a login before it tells more
        raise ApiError(ErrorCode.SASL_AUTHENTICATION_FAILED) from None
    finally:
        connection.abort()


async def _speaks_tls(address: NodeAddress) -> bool:
    """Whether a listener with TLS is there: any certificate will do, since nothing is sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(ANSWER_S):
            _, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def _told(connection: Connection) -> str:
    """The cluster of a node. Raises ConnectionLost, ApiError."""
    for kind in (BROKERS, CONTROLLERS):
        request = DescribeClusterRequest(endpoint_type=kind)
        answer: DescribeClusterResponse = await connection.send(request)
        if not answer.error_code:
            return answer.cluster_id
    raise ApiError(ErrorCode(answer.error_code))


async def writing(
    store: ObjectStore, cluster_id: str, pause: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> list[str]:
    """Who writes to a store, or deletes in it, while it is watched."""
    before = await _listed(store, cluster_id)
    await pause(WATCH_S)
    found = changed(before, await _listed(store, cluster_id))
    last: dict[int | None, Changed] = {}
    for each in found:
        last[writer_of(each.key, cluster_id)] = each
    if last.keys() == {None}:  # no name tells who it was
        for each in found[-MOST_NAMED:]:
            last[await _writer_in(store, each, cluster_id)] = each
    named = [(who, each) for who, each in last.items() if who is not None or len(last) == 1]
    return [_written(who, each) for who, each in sorted(named, key=lambda one: one[0] or 0)]


def _written(who: int | None, what: Changed) -> str:
    whose = "a broker" if who is None else f"broker {who}"
    if what.modified_ms is None:
        return f"{whose} has just deleted {what.key} in the store"
    when = datetime.fromtimestamp(what.modified_ms / 1000, UTC)
    return f"{whose} stored {what.key} at {when:%Y-%m-%d %H:%M:%S} UTC by the store's clock"


async def _writer_in(store: ObjectStore, what: Changed, cluster_id: str) -> int | None:
    if what.modified_ms is None or not is_object(what.key, cluster_id):
        return None
    try:
        size = await store.size(what.key)
        [head] = await store.read(what.key, [(0, min(size, HEADER_MOST))])
        return decode_header(head, what.key).broker_id
    except (ObjectMissing, DamagedObject):
        return None


async def _listed(store: ObjectStore, cluster_id: str) -> dict[str, int]:
    prefix = f"{cluster_id}/"
    return {each.key: each.modified_ms async for page in store.list(prefix) for each in page}
