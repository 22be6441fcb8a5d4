"""The batch coordinator: what gives offsets to batches, whatever stands behind it.

What: the calls that brokers and the active controller make. SQLite and PostgreSQL implement it
(`stores/coordinator`); the simulator runs the SQL of SQLite. Rules kept: one transaction a call;
rows of partitions are locked in the order of LogKey; what a call promises is durable when it
returns. Each may raise `CoordinatorAway` (nothing happened, or, for `commit`, it is not known
whether it did) and StorageFault (it cannot work: a sentence says why). Not here: decisions
(`commit.py`), SQL.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Protocol

from anabranch.core.diskless.contents import Contents
from anabranch.core.diskless.rows import (
    Change,
    Commit,
    Committed,
    Found,
    LogKey,
    LogState,
    NewLogs,
    Prepared,
    Run,
    Wanted,
)
from anabranch.core.errors import StorageFault
from anabranch.core.types import TopicId


class CoordinatorAway(StorageFault):
    """It does not answer now, which may pass. Whether the last call took effect is not known."""


class Deposed(StorageFault):
    """A newer controller or a newer incarnation of the broker has been there."""


class OlderCopy(StorageFault):
    """It does not know what it has committed, or is another database than before: whatever it
    answered would be wrong, and it is asked nothing more."""


class Coordinator(Protocol):
    """All calls are for the loop's thread. Batches, runs and keys come and go in lists, since one
    object holds many partitions."""

    # The active controller: the metadata log comes first.

    async def take_control(self, controller_epoch: int) -> None:
        """Calls of older controllers raise Deposed from now on; so does this if one is newer."""

    async def topics(self, after: TopicId, limit: int) -> list[tuple[TopicId, int]]:
        """(topic id, partitions) that have rows, by id: compared with the metadata log."""

    async def create_logs(self, controller_epoch: int, new: Sequence[NewLogs]) -> None:
        """Make what is not there below each end; what is, stays. Holes are filled: a restore by an
        earlier version left some. A topic id that was deleted stays refused. A partition may have
        forgotten the producers that a deleted topic of its name knew."""

    async def delete_topics(self, controller_epoch: int, topic_ids: Sequence[TopicId]) -> None:
        """Delete rows for good. Objects without rows are left to be collected."""

    # Brokers: writing.

    async def register(self, broker_id: int, broker_epoch: int) -> None:
        """Commits under older epochs of this broker are refused from now on. Raises Deposed."""

    async def prepare(
        self, broker_id: int, broker_epoch: int, count: int, lease_ms: int
    ) -> list[Prepared]:
        """Ids and keys for objects that this broker is about to upload. Raises Deposed."""

    async def commit(self, commit: Commit) -> Committed:
        """Give offsets to an uploaded object's batches. CoordinatorAway: ask `outcome`."""

    async def outcome(self, object_key: str) -> Committed:
        """What became of an object whose commit had no answer. REFUSED is final. To have a final
        answer before the lease is over, `refuse` the object first: it stays COMMITTED if it is."""

    async def refuse(self, object_ids: Sequence[int]) -> None:
        """Objects of which an upload failed: they may be collected, and never be committed."""

    # Brokers: reading.

    async def states(self, keys: Sequence[LogKey]) -> list[LogState | None]:
        """Where partitions stand now; None for those that have no row."""

    async def find(self, wanted: Sequence[Wanted]) -> list[Found]:
        """Runs to be read, one answer for each that is wanted."""

    async def by_time(self, key: LogKey, timestamp: int, first: int = 0) -> Run | None:
        """The first run with a record that is not older, of those that begin at an offset or behind
        it."""

    async def newest(self, key: LogKey) -> Run | None:
        """The first run that has the greatest timestamp."""

    def changes(self) -> AsyncIterator[list[Change]]:
        """What moves, by whatever broker. The first list is empty: from then on nothing is missed.
        Raises CoordinatorAway when something may have been: ask again for all that was known."""

    # Shortening.

    async def delete_before(self, wanted: Iterable[tuple[LogKey, int]]) -> list[LogState | None]:
        """Raise the starts of partitions, never beyond their ends, and never back. Few rows go at
        once; `expire` drops the others."""

    async def expire(
        self, key: LogKey, *, older_than_ms: int, most_bytes: int, most_runs: int
    ) -> tuple[LogState | None, int]:
        """Delete the oldest runs whose records are all older than a time (-1: none are), or that
        the log has beyond `most_bytes` (-1: it has none), at most so many; how many it were. Also
        drops what `delete_before` left below the start, which counts."""

    # Garbage.

    async def mark_expired(self, limit: int) -> int:
        """One bounded step: prepared objects whose lease is over wait for deletion, in the order
        in which leases ended; old verdicts are forgotten; runs and producers of deleted topics go.
        How many rows; 0 when nothing is left to do."""

    async def forget_producers(self, idle_ms: int, limit: int) -> int:
        """Forget producers that have written nothing to a partition for so long; how many. The
        partition keeps the greatest id of them: a producer with a greater one was not forgotten."""

    async def to_delete(self, grace_ms: int, limit: int) -> list[tuple[int, str]]:
        """(id, key) of objects that have waited for so long, the longest first."""

    async def count_to_delete(self, grace_ms: int, limit: int) -> int:
        """How many they are; at most `limit`."""

    async def deleted(self, object_ids: Sequence[int]) -> None:
        """These objects are gone from the store: forget them."""

    async def unknown(self, object_keys: Sequence[str]) -> list[str]:
        """Those of these keys that the coordinator does not know: the slow LIST's question."""

    async def uncommitted(self, object_ids: Sequence[int]) -> list[int]:
        """Those of these objects, of which each was committed once, that this coordinator has not
        committed: it is older than they are."""

    async def last_id(self) -> int:
        """The greatest object id that it has given; 0 before the first."""

    async def store(self, store_id: str) -> str:
        """The id of the store in which its objects lie: the first one that it is told stays. "" is
        only asked with, and is the answer before the first."""

    async def mark(self) -> str:
        """What the names of its objects end with; another database has another one."""

    # Restoring.

    async def load(self, contents: Contents) -> None:
        """Take the rows of a coordinator that was lost. Raises StorageFault unless it is empty."""

    async def close(self) -> None:
        """Let go of connections and threads."""
