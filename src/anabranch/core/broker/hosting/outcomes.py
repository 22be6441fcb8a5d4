"""What came of the effects of hosting that only touch files: the event that answers each.

What: `refusal`, `folder_opened` and `log_opened` perform on whatever files a folder lies on. Server
and simulator call them, so that what a disk refuses means the same to both. Not here: which log is
opened when (`logs.py`), what follows from a fault (`folders.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from anabranch.core.broker.hosting.effects import CreateLog, OpenLog
from anabranch.core.broker.hosting.events import (
    FolderFailed,
    FolderOpened,
    LogOpened,
    NameTaken,
    OpeningFailed,
    Refused,
)
from anabranch.core.errors import StorageFault
from anabranch.core.log.files import DiskFull
from anabranch.core.log.logs import LogFolder


def refusal(path: str, fault: StorageFault) -> Refused | FolderFailed:
    """A folder's disk refused something: for want of room, or for another reason."""
    return Refused(path, fault) if isinstance(fault, DiskFull) else FolderFailed(path, fault)


def folder_opened(path: str, opens: Callable[[], LogFolder]) -> FolderOpened | FolderFailed:
    """Open a folder of `log.dirs`. One that cannot be read has failed, whatever its disk says."""
    try:
        folder = opens()
        return FolderOpened(folder, folder.partitions(), folder.files.volume_bytes(path))
    except StorageFault as fault:
        return FolderFailed(path, fault)


def log_opened(
    effect: OpenLog | CreateLog, folder: LogFolder, now_ms: int
) -> LogOpened | OpeningFailed | NameTaken:
    """Open a log, or begin one where nothing lies yet."""
    place, opens = effect.place, folder.open_log
    if isinstance(effect, CreateLog):
        if folder.files.exists(f"{effect.path}/{place}"):
            return NameTaken(place)
        opens = folder.create_log
    try:
        return LogOpened(place, opens(place, effect.topic_id, effect.config, now_ms=now_ms))
    except StorageFault as fault:
        return OpeningFailed(place, fault)
