"""The coordinator's rows of diskless partitions, kept by the active controller.

What: a small machine that makes the rows of what the metadata log has, and deletes those of what it
no longer has; with `has_remote`, also those of remote logs, which leaders make. First the epoch is
taken, so that calls of older controllers fail; then the rows are compared with the metadata in
pages; from then on each committed change is followed. Rules kept: the metadata log comes first, so
that only committed metadata is looked at, and none that is older than the begin of this
controller's term; one call at a time, and each may be made again; what fails is tried again after a
pause. Rows are known by topic id, and those of a deleted id never come back. Of classic topics that
become diskless it asks how far their leaders are, and has that `heard`.
Times are of the steady clock. Not here: calls (`server/diskless/rows.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from anabranch.core.diskless.coordinator import Deposed
from anabranch.core.diskless.migration import migrating
from anabranch.core.diskless.rows import NewLogs
from anabranch.core.diskless.topics import begins_of, is_diskless
from anabranch.core.errors import StorageFault
from anabranch.core.metadata.image import RESOURCE_TOPIC
from anabranch.core.types import NEVER_MS, ZERO_TOPIC_ID, TopicId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from anabranch.core.diskless.migration import Phase
    from anabranch.core.metadata.image import MetadataDelta, MetadataImage
    from anabranch.core.tiering.seals import Progress

PAGE = 1_000
"""Topics in one page of the comparison."""
MOST_ROWS = 5_000
"""Partitions that one call makes: a transaction of tens of milliseconds."""
MOST_DELETED = 100
"""Topics that one call deletes."""
RETRY_MS, MOST_RETRY_MS = 100, 5_000
SEALS_MS, SEALS_FAILED_MS = 100, 1_000
"""Between two questions about a topic that becomes diskless: its producers may be waiting."""
DEPOSED = (
    "{}; a newer controller is at work, or this cluster's metadata is older than its coordinator: "
    "then put the newest metadata back"
)


@dataclass(frozen=True, slots=True)
class TakeControl:
    """coordinator.take_control"""

    epoch: int


@dataclass(frozen=True, slots=True)
class ListTopics:
    """coordinator.topics -> list of (topic id, partitions)"""

    after: TopicId
    limit: int


@dataclass(frozen=True, slots=True)
class ListRemoteTopics:
    """RemoteFacts.topics -> list of topic ids"""

    after: TopicId
    limit: int


@dataclass(frozen=True, slots=True)
class CreateRows:
    """coordinator.create_logs"""

    epoch: int
    new: tuple[NewLogs, ...]


@dataclass(frozen=True, slots=True)
class DeleteRows:
    """coordinator.delete_topics"""

    epoch: int
    topic_ids: tuple[TopicId, ...]


@dataclass(frozen=True, slots=True)
class LookAtSeals:
    """Seals.progress"""

    topic_id: TopicId
    migration: int
    broker_ids: tuple[int, ...]


Effect: TypeAlias = (
    TakeControl | ListTopics | ListRemoteTopics | CreateRows | DeleteRows | LookAtSeals
)


class Stage(Enum):
    """How far this controller's term has come."""

    IDLE = "not the active controller"
    TAKING = "its epoch is not known to the coordinator yet"
    LISTING = "rows are being compared with the metadata"
    LISTING_REMOTE = "remote logs are being compared with the metadata"
    KEEPING = "rows follow the metadata"


class LogRows:
    """The rows, as the active controller keeps them."""

    def __init__(self, *, has_remote: bool = False) -> None:
        self._has_remote = has_remote
        self.heard: Callable[[TopicId, int, Progress], object] = _unheard
        """Told how far topics are that become diskless."""
        self._migrating: dict[str, Phase] = {}
        self._asked_seals: dict[str, None] = {}
        """Those of them that were asked for in this turn."""
        self._seals_ms = 0
        self.stage = Stage.IDLE
        self.trouble = ""
        """Why the last call failed; "" when it did not."""
        self._epoch = -1
        self._from_offset = -1
        self._image: MetadataImage | None = None
        self._rows: dict[TopicId, int] = {}
        """Partitions of each topic that have rows, as far as this term knows."""
        self._remote: set[TopicId] = set()
        """Topics that have, or had, a remote log, as far as this term knows."""
        self._deleted: dict[TopicId, None] = {}
        """Topics that were deleted in this term, until the coordinator knows: a leader that does
        not know it yet may begin a remote log."""
        self._listed = ZERO_TOPIC_ID
        self._stale: dict[TopicId, None] = {}
        """Topics to be compared with their rows, in the order in which they moved."""
        self._under_way: Effect | None = None
        self._due_ms, self._attempts = 0, 0

    # What happens.

    def began(self, epoch: int, end_offset: int) -> None:
        """This node is the active controller, of metadata that ends at `end_offset`."""
        self.stage, self._epoch, self._from_offset = Stage.TAKING, epoch, end_offset
        self._rows, self._stale, self._remote, self._deleted = {}, {}, set(), {}
        self._listed, self._under_way, self._due_ms, self._attempts = ZERO_TOPIC_ID, None, 0, 0

    def resigned(self) -> None:
        """Another one is, or none."""
        self.stage, self._under_way = Stage.IDLE, None

    def follow(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Committed metadata."""
        self._image = image
        if any(kind == RESOURCE_TOPIC for kind, _ in delta.changed_configs) or delta.deleted_topics:
            self._migrating = dict(migrating(image))
        if self.stage is not Stage.IDLE:
            for topic in delta.deleted_topics:
                self._stale[topic.topic_id] = None
                if self._has_remote:
                    self._deleted[topic.topic_id] = None
            for topic_id in delta.changed_partitions:
                if self._count(topic_id) > self._rows.get(topic_id, 0):
                    self._stale[topic_id] = None

    def answered(self, effect: Effect, result: Any, now_ms: int) -> None:
        """A call has ended: what it gave, or the StorageFault that it raised."""
        if effect is not self._under_way:
            return  # of an earlier term
        self._under_way = None
        if isinstance(effect, LookAtSeals):
            self._took_progress(effect, result, now_ms)
            return
        if isinstance(result, StorageFault):
            self._failed(result, now_ms)
            return
        self.trouble, self._attempts = "", 0
        if isinstance(effect, TakeControl):
            self.stage = Stage.LISTING
        elif isinstance(effect, ListTopics):
            self._took(result)
        elif isinstance(effect, ListRemoteTopics):
            self._took_remote(result)
        elif isinstance(effect, CreateRows):
            for each in effect.new:
                self._rows[each.topic_id] = max(each.end, self._rows.get(each.topic_id, 0))
        else:
            for topic_id in effect.topic_ids:
                self._rows.pop(topic_id, None)
                self._remote.discard(topic_id)
                self._deleted.pop(topic_id, None)

    def _took_progress(self, effect: LookAtSeals, result: Any, now_ms: int) -> None:
        if isinstance(result, StorageFault):
            self.trouble, self._seals_ms = str(result), now_ms + SEALS_FAILED_MS
        else:
            self.trouble = ""
            self.heard(effect.topic_id, effect.migration, result)

    @property
    def next_tick_ms(self) -> int:
        """When `take_effects` should be called again although nothing happened."""
        if not self._may_call:
            return NEVER_MS
        if self._attempts:
            return self._due_ms
        return self._seals_ms if self._migrating and self.stage is Stage.KEEPING else NEVER_MS

    def take_effects(self, now_ms: int) -> tuple[Effect, ...]:
        """The next call to be made, if it may be made now."""
        if now_ms < self._due_ms or not self._may_call:
            return ()
        self._under_way = self._next() or self._next_seals(now_ms)
        return () if self._under_way is None else (self._under_way,)

    @property
    def _may_call(self) -> bool:
        """Whether this is the active controller, with metadata of its term, and no call is under
        way."""
        image = self._image
        if self._under_way is not None or image is None or self.stage is Stage.IDLE:
            return False
        return image.next_offset >= self._from_offset

    # What follows.

    def _next(self) -> Effect | None:
        if self.stage is Stage.TAKING:
            return TakeControl(self._epoch)
        if self.stage is Stage.LISTING:
            return ListTopics(self._listed, PAGE)
        if self.stage is Stage.LISTING_REMOTE:
            return ListRemoteTopics(self._listed, PAGE)
        gone = tuple(each for each in self._stale if self._is_gone(each))[:MOST_DELETED]
        if gone:
            return DeleteRows(self._epoch, self._settled(gone))
        new: list[NewLogs] = []
        left = MOST_ROWS
        for topic_id in list(self._stale):
            first, end = self._rows.get(topic_id, 0), self._count(topic_id)
            if left <= 0:
                break
            del self._stale[topic_id]
            if first < end:
                upto = min(end, first + left)
                name = self._name(topic_id)
                new.append(NewLogs(topic_id, name, first, upto, self._begins(name)))
                left -= upto - first
                if upto < end:
                    self._stale[topic_id] = None
                    break
        return CreateRows(self._epoch, tuple(new)) if new else None

    def _next_seals(self, now_ms: int) -> LookAtSeals | None:
        """The next topic that becomes diskless, each once in a while."""
        image = self._image
        if self.stage is not Stage.KEEPING or image is None or now_ms < self._seals_ms:
            return None
        for name, phase in self._migrating.items():
            topic = image.topic(name)
            if name not in self._asked_seals and topic is not None:
                self._asked_seals[name] = None
                brokers = tuple(sorted(image.brokers))
                return LookAtSeals(topic.topic_id, phase.migration, brokers)
        self._asked_seals.clear()
        if self._migrating:
            self._seals_ms = now_ms + SEALS_MS
        return None

    def _settled(self, topic_ids: tuple[TopicId, ...]) -> tuple[TopicId, ...]:
        for topic_id in topic_ids:
            del self._stale[topic_id]
        return topic_ids

    def _took(self, page: list[tuple[TopicId, int]]) -> None:
        self._rows.update(page)
        if len(page) == PAGE:
            self._listed = page[-1][0]
        elif self._has_remote:
            self.stage, self._listed = Stage.LISTING_REMOTE, ZERO_TOPIC_ID
        else:
            self._keep()

    def _took_remote(self, page: list[TopicId]) -> None:
        self._remote.update(page)
        if len(page) == PAGE:
            self._listed = page[-1]
        else:
            self._keep()

    def _keep(self) -> None:
        self.stage = Stage.KEEPING
        self._migrating = {} if self._image is None else dict(migrating(self._image))
        self._compare(self._rows)
        self._compare(sorted({*self._remote, *self._deleted}))
        assert self._image is not None
        self._compare(sorted(self._image.topics_by_id))

    def _compare(self, topic_ids: Iterable[TopicId]) -> None:
        for topic_id in topic_ids:
            if self._is_gone(topic_id) or self._count(topic_id) > self._rows.get(topic_id, 0):
                self._stale[topic_id] = None

    def _failed(self, fault: StorageFault, now_ms: int) -> None:
        if isinstance(fault, Deposed):
            self.stage, self.trouble = Stage.IDLE, DEPOSED.format(fault)
        else:  # it may have happened, or not: compare anew
            self.trouble = str(fault)
            self.stage, self._listed, self._rows, self._stale = (
                Stage.TAKING, ZERO_TOPIC_ID, {}, {},
            )  # fmt: skip
        self._due_ms = now_ms + min(MOST_RETRY_MS, RETRY_MS << min(self._attempts, 10))
        self._attempts += 1

    def _count(self, topic_id: TopicId) -> int:
        """Partitions of a diskless topic; 0 for any other."""
        assert self._image is not None
        topic = self._image.topic_by_id(topic_id)
        if topic is None or not is_diskless(self._image, topic.name):
            return 0
        return len(topic.partitions)

    def _is_gone(self, topic_id: TopicId) -> bool:
        assert self._image is not None
        if topic_id in self._rows and not self._count(topic_id):
            return True
        has_remote = topic_id in self._remote or topic_id in self._deleted
        return has_remote and self._image.topic_by_id(topic_id) is None

    def _begins(self, name: str) -> tuple[int, ...]:
        assert self._image is not None
        return begins_of(self._image, name)

    def _name(self, topic_id: TopicId) -> str:
        assert self._image is not None
        topic = self._image.topic_by_id(topic_id)
        return "" if topic is None else topic.name


def _unheard(_topic_id: TopicId, _migration: int, _progress: Progress) -> None:
    """No client has asked to hear it."""
