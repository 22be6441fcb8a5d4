"""The facts of remote segments: what keeps them, whatever stands behind it.

What: the calls that leaders, readers, the active controller and a restore make. SQLite and
PostgreSQL implement them beside the batch coordinator (`stores/coordinator`). Rules kept: one
transaction a call; a leader is known by its epoch, and an older one is refused once a newer one has
asked; a log start only rises, but for what an unclean election has lost of the log; what a call
promises is durable when it returns. Each may raise CoordinatorAway (for a call that writes it is
then not known whether it did) and StorageFault. Not here: decisions, SQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from anabranch.core.diskless.rows import LogKey
from anabranch.core.errors import StorageFault
from anabranch.core.remote.segments import EpochStart, RemoteSegment, SegmentId
from anabranch.core.types import TopicId


class TryEnded(StorageFault):
    """The try was given up, or its topic was deleted: nothing that it stored counts."""


class Facts(NamedTuple):
    """What is known of a partition."""

    log_start: int
    segments: tuple[RemoteSegment, ...]
    """By start offset."""
    now_ms: int
    """By the coordinator's clock."""


class HeldRemoteLog(NamedTuple):
    """A partition's remote log, for a restore."""

    topic: str
    key: LogKey
    leader_epoch: int
    log_start: int
    segments: tuple[RemoteSegment, ...]


class RemoteFacts(Protocol):
    """All calls are for the loop's thread."""

    async def lead(
        self, key: LogKey, topic: str, leader_epoch: int, epochs: Sequence[EpochStart] = ()
    ) -> Facts:
        """What is known, for the partition's leader, whose log has these epochs: calls of older
        leaders raise Deposed from now on, and so does this if a newer one has asked. What was
        written after the leader that asked before is behind the log start. Raises TryEnded for a
        topic that was deleted."""

    async def look(self, key: LogKey) -> Facts | None:
        """What is known, for a reader; None where no leader has ever asked."""

    async def start(self, segment: RemoteSegment) -> None:
        """A try begins; made again, it is the same try. Raises Deposed and TryEnded."""

    async def stands(self, segment: RemoteSegment) -> bool:
        """Whether a try may go on."""

    async def finish(self, segment: RemoteSegment) -> None:
        """A try whose objects are all stored becomes FINISHED. Raises Deposed and TryEnded."""

    async def begin_removal(
        self,
        key: LogKey,
        leader_epoch: int,
        log_start: int,
        finished: Sequence[SegmentId],
        given_up: Sequence[SegmentId],
    ) -> None:
        """Record a log start, and what is removed: these finished segments, and those of the tries
        that are not FINISHED by now. Raises Deposed."""

    async def forget(self, segment_ids: Sequence[SegmentId]) -> None:
        """Removals are over: only segments that are being removed are forgotten."""

    async def topics(self, after: TopicId, limit: int) -> list[TopicId]:
        """Topics that have a remote log, by id: compared with the metadata log."""

    async def copied_topics(self) -> list[TopicId]:
        """Topics that have remote segments, whatever their settings are now."""

    async def known(self, segment_ids: Sequence[SegmentId]) -> set[SegmentId]:
        """Those of which there is a fact, in any state."""

    async def orphans(self, limit: int) -> list[RemoteSegment]:
        """Removals of deleted topics, which have no leader; the oldest first."""

    async def load(self, logs: Sequence[HeldRemoteLog]) -> None:
        """Take the facts of a coordinator that was lost. Raises StorageFault unless it has none."""
