"""The metadata log that followers fetch: its batches and its newest snapshot."""

from anabranch.core.metadata.committed_log import CommittedBatch, CommittedLog, SnapshotView


def test_an_older_snapshot_than_the_one_that_is_there_changes_nothing():
    """Seed 49000452: it would end before the log begins, as if the store had gone back."""
    log = CommittedLog()
    for offset in range(6):
        log.extend(CommittedBatch(offset, offset + 1, 1, b"-"))
    for end_offset in (2, 5, 3):
        log.take_snapshot(SnapshotView(end_offset, 1, b""))
    assert (log.start_offset, log.snapshot.end_offset, log.bytes_since_snapshot) == (2, 5, 1)
