"""Which incarnations of a broker a log folder has seen: how an older copy of it is told from it.

What: each folder of `log.dirs` keeps a small file, `.broker-incarnations`: JSON with the
incarnation that was registered last, its broker epoch, and the incarnations that have tried since.
A process adds itself before it registers, and leaves only itself when it is registered. A folder
without such a file gets one only then: one that named an attempt alone, which may never be
registered, would not know the registered incarnation that the folder has seen. Why ids: a
process may die between the controller's commit and its own note; its id is in the folder by then,
its epoch is not. Why the epoch too: metadata that were put back from a backup name an incarnation
that no folder knows any more, and the epoch shows that the folder is the newer one. Rule kept: the
controller's last incarnation of a broker is in every folder that was not replaced by an older copy.
Here too: the epoch of the last clean stop. Source of that: Kafka's
LogManager.readBrokerEpochFromCleanShutdownFiles. Not here: what follows from it
(`core/controller/brokers/succession.py`).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Mapping, Sequence

from anabranch.core.errors import StorageFault
from anabranch.core.log.checkpoints import CLEAN_SHUTDOWN, parse_clean_shutdown
from anabranch.core.log.files import Files
from anabranch.core.types import UNKNOWN_BROKER_EPOCH
from anabranch.core.wire.own_fields import FolderHistory, SeenFolder, tagged

INCARNATIONS = ".broker-incarnations"
MOST_ATTEMPTS = 16
"""Ids of processes that tried and were not answered. One of them may be registered; with more than
these the oldest attempts are forgotten, and at worst a folder is taken for older than it is."""


def previous_broker_epoch(files: Files, folders: Sequence[str]) -> int:
    """The epoch that the broker had when it last stopped cleanly, -1 when it did not.

    Every folder must have the marker, with the same epoch. Ask before the folders are opened: that
    takes the markers away.
    """
    try:
        epochs = {
            parse_clean_shutdown(files.read(f"{folder}/{CLEAN_SHUTDOWN}")) for folder in folders
        }
    except StorageFault:
        return UNKNOWN_BROKER_EPOCH
    return epochs.pop() if len(epochs) == 1 else UNKNOWN_BROKER_EPOCH


class FolderNotes:
    """The accounts of one broker's folders, in one life of its process.

    A folder that cannot be read or written is named in `faults`. One that takes no account, as on
    a full disk, keeps none until it takes it (`again`): with that of an earlier life it would count
    as older than it is after the next crash, and what it alone has would have no leader. One whose
    account is rotten counts so. One whose account its disk does not give is `unreadable`: this life
    does without it, since it may be an older copy, and since all that it holds would else count as
    lost.
    """

    def __init__(self, files: Files, directories: Mapping[str, bytes]) -> None:
        """`directories` are the ids of the folders by path."""
        self.faults: list[str] = []
        self.unreadable: set[str] = set()
        self.lacking: set[str] = set()
        """Folders that took no account of this life: a copy of them could not be told from them."""
        self._files = files
        self._folders = directories
        self._epochs: dict[str, int] = {}
        self._history = FolderHistory()
        self._last: tuple[bytes, int] = (b"", UNKNOWN_BROKER_EPOCH)

    def begin(self, incarnation_id: bytes) -> None:
        """This incarnation is about to register."""
        seen = {folder: self._read(folder) for folder in self._folders}
        epochs = self._epochs
        self._history = FolderHistory(
            folders=[
                SeenFolder(
                    directory_id=self._folders[folder],
                    incarnation_ids=[*ids, incarnation_id],
                    broker_epoch=epochs.get(folder, UNKNOWN_BROKER_EPOCH),
                )
                for folder, ids in seen.items()
                if ids is not None
            ]
        )
        for folder, ids in seen.items():
            if ids is not None:
                ids = [*ids[:1], *ids[1:][1 - MOST_ATTEMPTS :], incarnation_id]
                self._write(folder, ids, epochs.get(folder, UNKNOWN_BROKER_EPOCH))

    def registered(self, incarnation_id: bytes, broker_epoch: int) -> None:
        """It is registered: the others count no longer."""
        self._last = incarnation_id, broker_epoch
        for folder in self._folders.keys() - self.unreadable:
            self._write(folder, [incarnation_id], broker_epoch)

    def again(self, full: Collection[str]) -> None:
        """Have folders that took no account, and are not full now, take it. One that fails is not
        named again."""
        incarnation_id, broker_epoch = self._last
        for folder in self.lacking.difference(full):
            self._write(folder, [incarnation_id], broker_epoch)

    def told(self) -> dict[int, bytes]:
        """The tagged fields of a registration: what each folder had seen when this life began."""
        return tagged(self._history)

    def _read(self, folder: str) -> list[bytes] | None:
        """The ids in a folder, None where it tells of no account; none where that is rotten."""
        path = f"{folder}/{INCARNATIONS}"
        try:
            if not self._files.exists(path):
                return None
            account = json.loads(self._files.read(path))
            self._epochs[folder] = int(account.get("epoch", UNKNOWN_BROKER_EPOCH))
            return [bytes.fromhex(each) for each in account["ids"]]
        except StorageFault as fault:
            self.faults.append(f"{path} cannot be read: {fault}")
            self.unreadable.add(folder)
            return None
        except (AttributeError, ValueError, KeyError, TypeError) as fault:
            self.faults.append(f"{path} cannot be read: {fault}")
            return []

    def _write(self, folder: str, ids: Sequence[bytes], epoch: int) -> None:
        text = json.dumps({"version": 0, "ids": [each.hex() for each in ids], "epoch": epoch})
        try:
            self._files.write_atomic(f"{folder}/{INCARNATIONS}", text.encode(), sync=True)
            self._files.sync_dir(folder)
            self.lacking.discard(folder)
        except StorageFault as fault:
            if folder not in self.lacking:
                self.faults.append(f"{folder}/{INCARNATIONS} cannot be written: {fault}")
            self.lacking.add(folder)
            with contextlib.suppress(StorageFault):
                self._files.remove(f"{folder}/{INCARNATIONS}")
                self._files.sync_dir(folder)  # a power cut brings no earlier account back
