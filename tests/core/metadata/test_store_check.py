"""What a snapshot that is offered in place of batches says about the store that offers it."""

from __future__ import annotations

import itertools

from anabranch.core.metadata.store_check import CopyEnd, snapshot_fault

COPY = CopyEnd("/logs/__cluster_metadata-0", 10, 3)


def test_no_snapshot_takes_a_copy_back() -> None:
    """Over all that may be offered: what is loaded ends where the copy does or later, in an epoch
    that is not older."""
    for end, length, epoch in itertools.product(range(8, 13), range(8, 13), range(5)):
        if length <= end:
            fault = snapshot_fault(COPY, end, length, epoch, "here")
            assert (fault is None) == (length >= 10 and epoch >= 3)
    assert snapshot_fault(CopyEnd("/logs"), 5, 4, 0, "here") is None
