"""C6: compaction goes by what a loss of power leaves, the markers of transactions too.

    A pass reads no record of a transaction whose marker is not on the log's own disk, and nothing
    behind the first one of such a transaction.

What: `check_decided` is asked when segments were exchanged. It takes the batches of the copy up to
the first one that the disk has not stored, and asks which transactions are open there. Of those
that begin where another copy's pass has been before, it asks nothing: a follower may have copied
what that pass left, an emptied batch that opens no transaction. Why: the
loss itself is no violation, since all replicas may lose what was never synced; nor is what follows
for the clients, for a checker cannot know what a coordinator that lost its log decides. Not here:
which of the records that count may go (`compacted.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.sim.checks.ended import outcomes
from anabranch.sim.checks.entries import unsynced_entries
from anabranch.sim.checks.violation import Violation

if TYPE_CHECKING:
    from anabranch.sim.checks.copies import Copy


def check_decided(copy: Copy, upto: int) -> None:
    """C6 of a copy of which it is known for certain what it had, compacted up to an offset."""
    compacted, replica = copy.compacted, copy.replica
    if compacted is None or replica is None:
        return
    before, compacted.passed_upto = compacted.passed_upto, max(compacted.passed_upto, upto)
    if compacted.is_excused:
        return
    if copy.is_rotten or not copy.is_sure or replica.log.fault is not None:
        return
    log = replica.log
    behind = (each.base_offset for each in log.segments if each.base_offset >= upto)
    unsynced = unsynced_entries(copy.node.disk, log, next(behind, log.end_offset))
    stored_upto = next((each.base for each in unsynced), log.end_offset)
    stored = [each for each in copy.entries if each.end <= stored_upto]
    opened, _, _ = outcomes(compacted, stored)
    for producer_id, first in opened.items():
        if max(log.local_start_offset, before) <= first < upto:
            raise Violation(
                "C6", "Compaction went by a marker that the disk has not stored.",
                {**copy.told(), "producer": producer_id, "offset": first, "upto": upto,
                 "stored_upto": stored_upto},
            )  # fmt: skip
