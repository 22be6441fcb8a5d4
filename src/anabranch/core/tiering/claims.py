"""What a tiering job and the batch coordinator tell each other, through brokers.

What: the calls of `TieringClaims`, which SQLite and PostgreSQL implement (`stores/coordinator`).
Rules kept: one job at a time holds the claim, on all that was committed up to a commit number; a
job that takes it over ends all tries of the one before in the same transaction, so that a try that
is still STARTED is one of the job that holds it; leases only decide when another job may take over,
so that a clock that is wrong costs work, and no record. A segment counts only where it begins where
the tiered part ends, so that two jobs that make the same one harm nothing. Not here: SQL, which
runs are ready (`plan.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from anabranch.core.diskless.rows import LogKey, LogState
from anabranch.core.errors import StorageFault
from anabranch.core.remote.facts import TryEnded
from anabranch.core.remote.segments import RemoteSegment, SegmentId
from anabranch.core.tiering.compaction_claims import CompactionClaims
from anabranch.core.tiering.lag import PartitionLag
from anabranch.core.tiering.plan import AgedRun, Eligible, TieredEnd

LEASE_MS = 120_000
"""How long a job that says nothing keeps its claim. Each call of it renews the claim."""


def is_held(expires_ms: int, now_ms: int) -> bool:
    """Whether a claim keeps other jobs away. One that ends later than a lease from now was renewed
    while the clock was ahead, and would keep them away until the clock is there again."""
    return now_ms < expires_ms <= now_ms + LEASE_MS


class ClaimHeld(StorageFault):
    """Another job holds the claim."""


class TieredBefore(TryEnded):
    """This job has made the same segment already, in a task that was begun again."""


class Claim(NamedTuple):
    """What a job may tier."""

    claim_id: int
    """Drawn at random by the job."""
    commit_number: int
    """Of the newest commit when the claim was taken."""
    store_id: str = ""
    """Of the store in which the coordinator's objects lie."""


class Aged(NamedTuple):
    """What is known of a partition for its next segment."""

    state: LogState
    runs: Sequence[AgedRun]
    """The oldest ones, in order, that the claim covers."""
    before: TieredEnd | None
    """The segment before."""
    now_ms: int
    """By the coordinator's clock."""


class TieringClaims(CompactionClaims, Protocol):
    """Each call may raise CoordinatorAway and StorageFault, and is one transaction."""

    async def claim(self, claim_id: int, owner: str, broker_ids: Collection[int]) -> Claim:
        """Take the claim, or renew it. Raises ClaimHeld, and StorageFault where one of the
        cluster's brokers does not know of tiering."""

    async def aged(self, claim_id: int, wanted: Sequence[Eligible]) -> list[Aged | None]:
        """What may become segments; None for a partition that has no row. Raises ClaimHeld."""

    async def lags(self, wanted: Sequence[Eligible], most_rows: int) -> list[PartitionLag | None]:
        """What is old enough to be tiered, of at most so many rows of each partition; None for one
        that has no row. No claim is needed."""

    async def start(self, claim_id: int, topic: str, segment: RemoteSegment) -> None:
        """A try begins. Raises Deposed, ClaimHeld, and TryEnded where the segment does not begin
        where the tiered part ends; TieredBefore where that is because this job has made it."""

    async def stands(self, claim_id: int, segment_id: SegmentId) -> bool:
        """Whether a try may go on."""

    async def finish(self, key: LogKey, leader_epoch: int, segment_id: SegmentId) -> LogState:
        """A try whose objects are all stored becomes FINISHED, its runs are deleted, and the tiered
        end is raised. Raises Deposed and TryEnded as `start`. Made again, it answers the same."""

    async def release(self, claim_id: int) -> None:
        """The job is done: another one may begin."""
