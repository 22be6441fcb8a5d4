"""R19: what counts as an election, and as an unclean one."""

from anabranch.core.controller.partitions.election_counts import elections_in
from anabranch.core.metadata.image import RECOVERED, RECOVERING
from anabranch.core.wire.metadata_records import FenceBrokerRecord, PartitionChangeRecord


def test_changes_that_name_a_leader_are_elections():
    records = [
        FenceBrokerRecord(id=1),
        PartitionChangeRecord(partition_id=0, isr=[2]),
        PartitionChangeRecord(partition_id=1, leader=-1),
        PartitionChangeRecord(partition_id=2, leader=2),
        PartitionChangeRecord(partition_id=3, leader=0, leader_recovery_state=RECOVERING),
        PartitionChangeRecord(partition_id=4, leader=3, leader_recovery_state=RECOVERED),
    ]
    assert elections_in(records) == (3, 1)
    assert elections_in(()) == (0, 0)
