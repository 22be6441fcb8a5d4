"""Which replicas of a broker are to lie in which of its folders: what was asked for, and how far.

What requests (AlterReplicaLogDirs, DescribeLogDirs) and the hosting of logs share. The last word
counts; asking for the folder in which a replica lies ends its move. A partition that is not hosted
yet is remembered too: its log then begins there (KIP-113). Not here: copying
(`core/log/future_log.py`) and when (`core/broker/hosting/folder_moves.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.core.log.future_log import FutureLog
    from anabranch.core.types import TopicPartition


class WantedFolders:
    """One broker's. `wanted` is in the order in which it was asked for."""

    __slots__ = ("copies", "wanted")

    def __init__(self) -> None:
        self.wanted: dict[TopicPartition, str] = {}
        """Partition -> the folder that it is to lie in, and does not lie in yet."""
        self.copies: dict[TopicPartition, FutureLog] = {}
        """Of those: the ones that are being copied now."""

    def ask(self, place: TopicPartition, path: str, lies_in: str | None) -> None:
        """Have a partition lie in a folder; `lies_in` is where it does now, None: nowhere."""
        if path == lies_in:
            self.wanted.pop(place, None)
        else:
            self.wanted[place] = path
