"""The commit point of the metadata log: what any store must do, whatever stands behind it.

What: an append that succeeds only for the holder of the newest lease and only at the end of the
log, the batches it committed, one snapshot, and the lease. Why: so small an interface lets SQLite,
PostgreSQL or another consensus stand here. Rule kept: an append under an old controller epoch is
refused for ever, hence taking a lease early is safe; after `Unknown` the caller must not go on
before it has reread the log. Not here: what the records mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from anabranch.core.errors import StorageFault
from anabranch.core.types import Buffer

NOBODY = -1
"""Who holds a lease that was given back."""


class StoreAway(StorageFault):
    """Nobody answers there now, which may pass: a server that restarts, or begins after us."""


class StoredBatch(NamedTuple):
    """One committed record batch (v2, metadata records or a control record), whole."""

    first_offset: int
    end_offset: int  # exclusive
    epoch: int
    payload: Buffer


class Snapshot(NamedTuple):
    """The state up to `end_offset` (exclusive) as a checkpoint file; `epoch` of its last record."""

    end_offset: int
    epoch: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Lease:
    """Who may append. `beat` grows with every renewal: takers watch it with their own clock. An
    incarnation is one process, `folder id/when it began`. `endpoint` is where it can be watched,
    empty where that is not known: it listens on every address of its machine."""

    epoch: int
    holder: int
    incarnation: str
    endpoint: str
    beat: int

    def was_given(self, holder: int, incarnation: str, endpoint: str) -> bool:
        """Whether to this process or one whose place it has, which is no more: only one can listen
        at an address, or hold a folder where the address is not known."""
        if holder != self.holder or endpoint != self.endpoint:
            return False
        return bool(endpoint) or _folder(incarnation) == _folder(self.incarnation)


def _folder(incarnation: str) -> str:
    return incarnation.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Committed:
    """The batches are durable; the log now ends at `end_offset`."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class Deposed:
    """Nothing was written: another controller epoch holds the lease, or the log ends elsewhere."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """The store cannot say whether the batches are durable. Resign and reread."""

    cause: str


Appended: TypeAlias = Committed | Deposed | Unknown


class StoreEnd(NamedTuple):
    """Where the committed log stands: first offset, end (exclusive), epoch of its last batch."""

    start_offset: int
    end_offset: int
    epoch: int


class MetadataStore(Protocol):
    """All calls may be made from one event loop; none of them blocks it.

    Raises StorageFault when the store cannot be reached; `append` answers `Unknown` instead.
    """

    async def cluster_id(self, proposed: str) -> str:
        """The cluster's id; `proposed` becomes it when the store has none yet."""

    async def stored_cluster_id(self) -> str | None:
        """The cluster's id, None when the store is new."""

    async def append(
        self, controller_epoch: int, expected_end_offset: int, batches: list[StoredBatch]
    ) -> Appended:
        """Commit all batches or none, if the epoch holds the lease and the log ends as expected."""

    async def end(self) -> StoreEnd:
        """Where the log stands."""

    async def read(self, from_offset: int, max_bytes: int) -> list[StoredBatch]:
        """Committed batches from the one that holds `from_offset`; at least one if there is any."""

    async def save_snapshot(self, snapshot: Snapshot, *, keep_log_from: int) -> None:
        """Replace the snapshot and let go of batches that end at or before `keep_log_from`."""

    async def load_snapshot(self) -> Snapshot | None:
        """The newest snapshot."""

    async def lease(self) -> Lease | None:
        """The lease as it stands, None before the first controller."""

    async def take_lease(
        self, seen: Lease | None, holder: int, incarnation: str, endpoint: str
    ) -> Lease | None:
        """Take over with the next epoch if the lease still is as `seen`; None when it is not."""

    async def renew_lease(self, lease: Lease) -> Lease | None:
        """One beat more; None when another epoch holds it."""

    async def release_lease(self, lease: Lease) -> None:
        """Give it back, so that the next taker need not wait; the epoch stays used."""

    async def restore(
        self, cluster_id: str, snapshot: Snapshot | None, batches: list[StoredBatch]
    ) -> None:
        """Put a node's copy in place of what is here; refused when what is here is longer."""

    async def close(self) -> None:
        """Let go of the store."""
