"""R5: a producer is forgotten by when it last wrote, whatever time its records say."""

from __future__ import annotations

from random import Random

import pytest
from tests.core.log.support import NOW_MS, batch, new_log, reopen, sync

from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.log.log import AppendResult

EXPIRATION_MS = 1000
STEPS = 60
RECORD_TIMES = [NOW_MS, NOW_MS - 7 * 86_400_000, NOW_MS + 7 * 86_400_000, -1]


class Writers:
    """Some producers of one partition, of which each has records of a time of its own."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_ms = NOW_MS
        self.log = new_log(
            producer_id_expiration_ms=EXPIRATION_MS,
            message_timestamp_after_max_ms=1 << 60,
            index_interval_bytes=100,
        )
        self.sent: dict[int, list[tuple[int, int]]] = {}
        """(first sequence, first offset) of each producer's batches that it may send again."""
        self.wrote_ms: dict[int, int] = {}
        self.opened_ms = NOW_MS

    def send(self, producer: int, sequence: int) -> AppendResult:
        records = batch(
            2,
            timestamp=RECORD_TIMES[producer],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
        )
        return self.log.append_as_leader(records, leader_epoch=0, now_ms=self.now_ms)

    def write(self) -> None:
        """The next batch of one of them; who was forgotten goes on where it was."""
        producer = self.random.randrange(len(RECORD_TIMES))
        sent = self.sent.get(producer, [])
        sequence = sent[-1][0] + 2 if sent else 0
        if producer not in self.log.producers.producers:
            sent = []
        first_offset = self.send(producer, sequence).first_offset
        self.sent[producer] = [*sent, (sequence, first_offset)][-5:]
        self.wrote_ms[producer] = self.now_ms

    def wait(self) -> None:
        self.now_ms += self.random.choice([1, 400, 700])

    def retain(self) -> None:
        """A round of retention."""
        self.log.expire_producers(self.now_ms)

    def roll(self) -> None:
        if self.log.active is not None and self.log.active.size:
            self.log.roll(self.now_ms)

    def restart(self) -> None:
        """In order, or killed, when perhaps all was synced."""
        if self.random.random() < 0.5:
            sync(self.log)
        self.log = reopen(self.log, clean=self.random.random() < 0.5, now_ms=self.now_ms)
        self.opened_ms = self.now_ms

    def check(self) -> None:
        """Who wrote of late is known; a batch sent again is recognised, and a gap refused."""
        known = self.log.producers.producers
        for producer, wrote_ms in self.wrote_ms.items():
            if self.now_ms - wrote_ms >= EXPIRATION_MS:
                continue
            assert producer in known, f"producer {producer} was forgotten"
            for sequence, first_offset in self.sent[producer]:
                assert self.again(producer, sequence) == (True, first_offset)
            with pytest.raises(ApiError) as refusal:
                self.send(producer, self.sent[producer][-1][0] + 4)
            assert refusal.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def again(self, producer: int, sequence: int) -> tuple[bool, int]:
        """Whether a batch that is sent again is recognised, and where it is."""
        try:
            result = self.send(producer, sequence)
        except ApiError as refusal:
            raise AssertionError(f"a batch that was sent again was refused: {refusal}") from None
        return result.duplicate, result.first_offset

    def check_idle(self) -> None:
        """Nobody is kept for longer than the setting says, counted from the opening at most."""
        self.retain()
        for producer in self.log.producers.producers:
            last_ms = max(self.wrote_ms[producer], self.opened_ms)
            assert self.now_ms - last_ms < EXPIRATION_MS, f"producer {producer} is kept"


@pytest.mark.parametrize("seed", range(30))
def test_a_producer_is_forgotten_by_when_it_wrote(seed: int) -> None:
    writers = Writers(seed)
    for step in writers.random.choices(
        [writers.write, writers.wait, writers.retain, writers.roll, writers.restart],
        weights=[50, 20, 15, 8, 8],
        k=STEPS,
    ):
        step()
        writers.check()
    writers.check_idle()


@pytest.mark.parametrize("timestamp", RECORD_TIMES)
def test_a_clean_restart_does_not_begin_the_time_anew(timestamp: int) -> None:
    """Else a broker that is restarted once a day would never forget anybody."""
    writers = Writers(1)
    writers.send(RECORD_TIMES.index(timestamp), 0)
    for _ in range(3):
        writers.now_ms += 400
        writers.log = reopen(writers.log, clean=True, now_ms=writers.now_ms)
    assert not len(writers.log.producers)


def test_a_clock_that_was_wrong_keeps_nobody_for_ever() -> None:
    writers = Writers(1)
    writers.now_ms += 10**12
    writers.send(0, 0)
    writers.now_ms = NOW_MS
    log = reopen(writers.log, clean=True, now_ms=NOW_MS)
    assert log.expire_producers(NOW_MS + EXPIRATION_MS - 1) == 0
    assert log.expire_producers(NOW_MS + EXPIRATION_MS) == 1


def test_a_cut_does_not_begin_the_time_again() -> None:
    """A cut reads again what was written since the last snapshot."""
    writers = Writers(1)
    writers.send(0, 0)
    writers.now_ms += EXPIRATION_MS - 1
    writers.send(1, 0)
    writers.log.truncate_to(2)
    assert writers.log.expire_producers(writers.now_ms) == 0
    assert writers.log.expire_producers(writers.now_ms + 1) == 1


def test_a_compacted_log_that_is_read_again_goes_by_its_records() -> None:
    """Compaction may have taken the last batch of a producer that was forgotten."""
    log = new_log(cleanup_policy=("compact",), producer_id_expiration_ms=EXPIRATION_MS)
    old = batch(2, timestamp=NOW_MS - 2 * EXPIRATION_MS, producer_id=1, base_sequence=0)
    log.append_as_leader(old, leader_epoch=0, now_ms=NOW_MS)
    assert not len(reopen(log).producers)
