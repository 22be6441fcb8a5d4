"""The commit point of the metadata log: what any store must do, whatever stands behind it.

What: an append that succeeds only for the holder of the newest lease and only at the end of the
log, the batches it committed, one snapshot, and the lease. Why: so small an interface lets SQLite,
PostgreSQL or another consensus stand here. Rule kept: an append under a lease that is not the
present one is refused for ever, hence taking a lease early is safe; so it is when the store was put
back and an epoch is given again, since each taking of the lease has a mark of its own. After
`Unknown` the caller must not go on before it has reread the log. Not here: what the records mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from anabranch.core.errors import StorageFault
from anabranch.core.types import Buffer

NOBODY = -1
"""Who holds a lease that was given back."""
MARK_BYTES = 8
"""Random bytes that tell one taking of the lease from all others: enough not to meet twice."""


class StoreAway(StorageFault):
    """It gives no answer now, which may pass: a server that restarts, or begins after us, a lock, a
    log that was trimmed while it was read."""


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
    incarnation is one process, `folder id/when it began`, and, after a dot, the mark of one taking.
    `endpoint` is where it can be watched, empty where that is not known: it listens on every
    address of its machine."""

    epoch: int
    holder: int
    incarnation: str
    endpoint: str
    beat: int

    @property
    def process(self) -> str:
        """The process that took it, without the mark of this taking."""
        return self.incarnation.partition(".")[0]

    def is_still(self, present: Lease | None) -> bool:
        """Whether the store's present lease is this one, renewed or not: of the same taking."""
        if present is None:
            return False
        mine = self.epoch, self.holder, self.incarnation
        return mine == (present.epoch, present.holder, present.incarnation)

    def was_given(self, holder: int, incarnation: str, endpoint: str) -> bool:
        """Whether to this process or one whose place it has, which is no more: only one can listen
        at an address, or hold a folder where the address is not known."""
        if holder != self.holder or endpoint != self.endpoint:
            return False
        return bool(endpoint) or _folder(incarnation) == _folder(self.incarnation)


def next_lease(
    seen: Lease | None, last_epoch: int, holder: int, incarnation: str, endpoint: str, mark: str
) -> Lease:
    """The lease of who takes over from `seen`; `last_epoch` is of the log's last batch, and `mark`
    is random and never the same: an epoch may come again after the store was put back."""
    epoch = max(seen.epoch if seen is not None else 0, last_epoch) + 1
    return Lease(epoch, holder, f"{incarnation}.{mark}", endpoint, 0)


def _folder(incarnation: str) -> str:
    return incarnation.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Committed:
    """The batches are durable; the log now ends at `end_offset`."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class Deposed:
    """Nothing was written: the lease is another one, or the log ends elsewhere."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """The store cannot say whether the batches are durable. Resign and reread."""

    cause: str


Appended: TypeAlias = Committed | Deposed | Unknown


def refusal(
    lease: Lease, present: Lease | None, expected_end_offset: int, end_offset: int
) -> Deposed | None:
    """Why an append under `lease` changes nothing where the store has the lease `present` and its
    log ends at `end_offset`; None where all of it is to be committed."""
    if lease.is_still(present) and end_offset == expected_end_offset:
        return None
    return Deposed(0 if present is None else present.epoch, end_offset)


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

    async def append(
        self, lease: Lease, expected_end_offset: int, batches: list[StoredBatch]
    ) -> Appended:
        """Commit all batches or none, if this is the present lease and the log ends as expected."""

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
        """Put a node's copy in place of what is here; refused when it lacks some of that."""

    async def close(self) -> None:
        """Let go of the store."""
