"""How many leaders a batch of metadata records elects, and how many of them uncleanly.

The rule it keeps: an election is a change of a partition that names a leader; it was unclean when
the partition has to recover afterwards, as Kafka counts it (PartitionRegistration.
electionWasUnclean). Source: Kafka's ControllerStats. Not here: when it is counted (the shell does,
once the batch is committed).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from anabranch.core.metadata.image import RECOVERING
from anabranch.core.wire.metadata_records import MetadataRecord, PartitionChangeRecord


class ElectionCounts(NamedTuple):
    """Elections, and those of them that may have lost acknowledged records."""

    elections: int
    unclean: int


def elections_in(records: Iterable[MetadataRecord]) -> ElectionCounts:
    """Count what a decision elects."""
    elected = [
        record for record in records if type(record) is PartitionChangeRecord and record.leader >= 0
    ]
    unclean = sum(record.leader_recovery_state == RECOVERING for record in elected)
    return ElectionCounts(len(elected), unclean)
