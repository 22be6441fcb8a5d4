"""The folders of a node: made, locked, and known to be this node's before anything is bound.

What: every folder of `log.dirs` and the one of the metadata log holds a lock file while the node
runs (`.lock`) and says whose it is (`meta.properties`, KIP-631: cluster, node and directory id). A
fresh folder needs no format step. Rules kept: nothing is written into a folder before all of them
were found to be ours; a folder of another node, of another cluster, or of an older format is
refused in one line, and so is a fresh one that holds other things alone; one that its disk refuses
is left out while another of `log.dirs` works, unless it is the folder of the metadata log. Source
of that: KIP-112, Kafka's LogManager.
"""

from __future__ import annotations

import base64
import errno
import fcntl
import os
import re
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from anabranch.core.log.checkpoints import (
    META_PROPERTIES,
    InvalidCheckpoint,
    MetaProperties,
    format_meta_properties,
    parse_meta_properties,
)
from anabranch.core.types import parse_topic_id
from anabranch.server.files import replace_file
from anabranch.server.lock_holder import holder
from anabranch.server.logs import logger
from anabranch.stores.disk import make_folder

if TYPE_CHECKING:
    from anabranch.server.config import NodeConfig

LOG = logger("folders")

LOCK = ".lock"
NOTHING = frozenset({LOCK, "lost+found", ".DS_Store"})
"""What a file system, a desktop or a start that failed puts into an empty folder."""
KNOWN = re.compile(
    r"meta\.properties(\.tmp)?|.+-\d+(\.\w+-(delete|stray|future))?|.+-checkpoint|bootstrap\.checkpoint"
    r"|metadata-store\.db.*|\.kafka_cleanshutdown|(diskless-)?objects|diskless\.db.*|supervisor|broker-1\.log"
)
"""What a node, Kafka's or ours, has in its folder: one of these tells that it is one."""
MOST_NAMED = 3
THE_STORE = "the metadata store", "metadata.store.url"
THE_CONTROLLERS = "the controllers", "controller.quorum.bootstrap.servers"
"""Who said which cluster this is, and the setting that names them."""


class FolderFault(OSError):
    """A folder cannot be used; the sentence says why and what to do."""


class UnusableFolder(FolderFault):
    """Its disk, or who owns it, refuses; other folders of the node may do without it."""


class HeldFolders:
    """Folders that this process holds until `release`. `unusable` are those that it does without,
    and why."""

    def __init__(self, node_id: int, log_dirs: Sequence[str], metadata_log_dir: str) -> None:
        self.metas: dict[str, MetaProperties | None] = {}
        self.unusable: dict[str, str] = {}
        self._node_id = node_id
        self._log_dirs = log_dirs
        self._metadata_log_dir = metadata_log_dir
        self._locks: list[int] = []

    @property
    def directories(self) -> dict[str, bytes]:
        """The ids of the folders of `log.dirs` that can be used, by path, as they were named."""
        metas = {path: self.metas.get(path) for path in self._log_dirs}
        return {path: parse_topic_id(meta.directory_id) for path, meta in metas.items() if meta}

    @property
    def home(self) -> str:
        """The id of the metadata log's folder, once settled; who holds it is this node alone."""
        meta = self.metas[self._metadata_log_dir]
        return meta.directory_id if meta is not None else ""

    @property
    def cluster_id(self) -> str:
        """The cluster that the folders belong to; empty when they are fresh."""
        return next((meta.cluster_id for meta in self.metas.values() if meta is not None), "")

    def cluster_id_or_new(self) -> str:
        """The same, a new id when they are fresh."""
        return self.cluster_id or new_id()

    def hold(self) -> None:
        """Make the folders if need be, lock them, and read whose they are. Raises FolderFault."""
        for path in dict.fromkeys((*self._log_dirs, self._metadata_log_dir)):
            try:
                refuse_foreign(path)
                self._locks.append(lock(path))
                self.metas[path] = self._read(path)
            except UnusableFolder as fault:
                self._do_without(path, fault)

    def _do_without(self, path: str, fault: UnusableFolder) -> None:
        """Leave a folder out. Raises its fault when it cannot be spared."""
        self.metas.pop(path, None)
        self.unusable[path] = str(fault)
        if path == self._metadata_log_dir or self.unusable.keys() >= set(self._log_dirs):
            raise fault
        LOG.error("a log folder is offline", path=path, why=str(fault))

    def _read(self, path: str) -> MetaProperties | None:
        name = os.path.join(path, META_PROPERTIES)
        try:
            with open(name, "rb") as file:
                meta = parse_meta_properties(file.read())
        except FileNotFoundError:
            return None
        except InvalidCheckpoint as fault:
            raise FolderFault(f"{name}: {fault}; set another folder in log.dirs") from None
        except OSError as fault:
            raise UnusableFolder(folder_sentence(path, fault)) from None
        if meta.node_id != self._node_id:
            raise FolderFault(
                f"folder {path} belongs to node {meta.node_id}, and this is node {self._node_id}; "
                "correct node.id or log.dirs"
            )
        return meta

    def settle(self, cluster_id: str, source: tuple[str, str] = THE_STORE) -> str:
        """Say in every folder whose it is; the cluster's id, where '' stands for unknown.

        `source` says who knows that id, and which setting names them. Raises FolderFault.
        """
        whose, setting = source
        cluster_id = cluster_id or self.cluster_id_or_new()
        for path, meta in self.metas.items():
            if meta is not None and meta.cluster_id != cluster_id:
                raise FolderFault(
                    f"folder {path} belongs to cluster {meta.cluster_id}, and {whose} to cluster "
                    f"{cluster_id}; correct log.dirs or {setting}"
                )
        for path, meta in tuple(self.metas.items()):
            if meta is None or not meta.directory_id:
                try:
                    fresh = MetaProperties(cluster_id, self._node_id, new_id())
                    self.metas[path] = mark(path, fresh)
                except UnusableFolder as fault:
                    self._do_without(path, fault)
        return cluster_id

    def release(self) -> None:
        """Let others have the folders."""
        for descriptor in self._locks:
            os.close(descriptor)
        self._locks.clear()


def hold(config: NodeConfig) -> HeldFolders:
    """Lock every folder of a node that can be used, or none. Raises FolderFault."""
    held = HeldFolders(config.node_id, config.log_dirs, config.metadata_log_dir)
    try:
        held.hold()
        clusters = {meta.cluster_id for meta in held.metas.values() if meta is not None}
        if len(clusters) > 1:
            raise FolderFault(
                f"the folders in log.dirs belong to clusters {', '.join(sorted(clusters))}, "
                "but a node belongs to one cluster; correct log.dirs"
            )
    except BaseException:
        held.release()
        raise
    return held


def refuse_foreign(path: str) -> None:
    """Raise FolderFault for a folder that holds only things of others."""
    try:
        names = sorted({*os.listdir(path)} - NOTHING)
    except OSError:  # it is to be made, or the lock tells
        return
    if names and not any(map(KNOWN.fullmatch, names)):
        shown = ", ".join(names[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "")
        raise FolderFault(
            f"folder {path} contains other files ({shown}); set a new or an empty folder in "
            "log.dirs"
        )


def lock(path: str) -> int:
    """The descriptor that holds a folder; the lock ends with it. Raises FolderFault."""
    try:
        make_folder(path)
        descriptor = os.open(os.path.join(path, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as fault:
        raise UnusableFolder(folder_sentence(path, fault)) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nodes of one process too
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the lock that Kafka takes
    except OSError:
        known = holder(descriptor)
        os.close(descriptor)
        raise FolderFault(
            f"folder {path} is in use by another node{known and f', {known}'}; stop that node, or "
            "set another folder in log.dirs"
        ) from None
    return descriptor


def mark(path: str, meta: MetaProperties) -> MetaProperties:
    """Write meta.properties so that it survives a power cut. Raises UnusableFolder."""
    name = os.path.join(path, META_PROPERTIES)
    try:
        replace_file(name, format_meta_properties(meta), sync=True)
    except OSError as fault:
        raise UnusableFolder(folder_sentence(path, fault)) from None
    return meta


def new_id() -> str:
    """A random id as Kafka writes them; never one that begins with a dash (a shell's trap)."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


def folder_sentence(path: str, fault: OSError) -> str:
    """Why a folder cannot be used, and what to do, in one line."""
    if fault.errno in (errno.EACCES, errno.EPERM):
        return f"folder {path} may not be written by this user; correct its owner or log.dirs"
    if fault.errno == errno.EROFS:
        return f"folder {path} is on a read-only volume; remount it or correct log.dirs"
    if fault.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the volume of folder {path} is full; free space or move log.dirs"
    if fault.errno in (errno.ENOTDIR, errno.EEXIST):
        return f"{path} is not a folder; correct log.dirs"
    return f"folder {path} cannot be used: {fault.strerror or fault}; correct log.dirs"
