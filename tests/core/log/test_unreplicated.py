"""Where a transaction began whose marker not all replicas have, as a log that is opened finds it."""

from __future__ import annotations

import pytest
from tests.core.log.support import NOW_MS, append, batch, marker, new_log, reopen

from anabranch.core.log.log import Log

LAST_SEQUENCE = 2**31 - 1


@pytest.mark.parametrize(
    ("sequence", "epoch"),
    [
        pytest.param(7, 3, id="after_a_lost_marker"),  # an unclean election lost it
        pytest.param(LAST_SEQUENCE, 0, id="wrapped"),
    ],
)
def test_sequence_zero_is_not_always_the_begin_of_a_transaction(sequence: int, epoch: int) -> None:
    log = new_log()
    begin = _write(log, sequence, 0)
    _write(log, 0, epoch)
    high_watermark = log.end_offset
    ended = marker(1, committed=True, producer_epoch=epoch)
    log.append_as_leader(ended, leader_epoch=0, now_ms=NOW_MS, client=False)
    assert log.last_stable_offset(high_watermark) == begin

    log = reopen(log)
    log.recall_unreplicated(high_watermark)

    assert log.last_stable_offset(high_watermark) == begin


def _write(log: Log, sequence: int, epoch: int) -> int:
    """One record of a transaction."""
    records = batch(
        1, producer_id=1, producer_epoch=epoch, base_sequence=sequence, transactional=True
    )
    return append(log, records)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_marker_is_found_also_where_its_producer_has_expired(policy: str, clean: bool) -> None:
    """A partition without enough replicas in sync keeps its high watermark for days."""
    log = new_log(cleanup_policy=(policy,), producer_id_expiration_ms=1_000)
    begin = _write(log, 0, 0)
    high_watermark = log.end_offset
    ended = marker(1, committed=True, producer_epoch=0)
    log.append_as_leader(ended, leader_epoch=0, now_ms=NOW_MS, client=False)
    for now_ms in (NOW_MS + 10_000, NOW_MS + 20_000):
        log.expire_producers(now_ms)
        log = reopen(log, clean=clean, now_ms=now_ms)
        log.recall_unreplicated(high_watermark)
        assert log.last_stable_offset(high_watermark) == begin
    assert log.last_stable_offset(log.end_offset) == log.end_offset
    log.expire_producers(NOW_MS + 30_000)
    assert not len(log.producers)
