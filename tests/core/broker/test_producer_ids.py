"""A broker hands out each producer id once, and asks for the next block in time."""

from __future__ import annotations

from anabranch.core.broker.producer_ids import PREFETCH_LEFT, ProducerIds
from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.allocate_producer_ids import AllocateProducerIdsResponse

BLOCK = 1000


class Granted:
    """A broker whose controller grants blocks when it is told to."""

    def __init__(self) -> None:
        self.epoch = 3
        self.asked = []
        self.blocks = 0
        self.ids = ProducerIds(lambda: (1, self.epoch), self.asked.append)

    def grant(self) -> None:
        self.blocks += 1
        first = 5000 * self.blocks
        answer = AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK)
        assert self.ids.answered(answer)


def test_there_is_no_id_before_the_first_block_and_one_request_under_way():
    broker = Granted()
    assert [broker.ids.take() for _ in range(3)] == [None] * 3
    assert [(each.broker_id, each.broker_epoch) for each in broker.asked] == [(1, 3)]
    broker.grant()
    assert [broker.ids.take() for _ in range(3)] == [5000, 5001, 5002]
    assert len(broker.asked) == 1


def test_the_next_block_is_asked_for_before_the_present_one_is_used_up():
    broker = Granted()
    broker.ids.take()
    broker.grant()
    for _ in range(BLOCK - PREFETCH_LEFT):
        broker.ids.take()
    assert len(broker.asked) == 1
    broker.ids.take()
    assert len(broker.asked) == 2


def test_every_id_is_handed_out_once_however_late_blocks_come():
    for late in (0, 1, PREFETCH_LEFT, PREFETCH_LEFT + 1, 2 * BLOCK):
        broker, taken, waits = Granted(), [], 0
        while len(taken) < 3 * BLOCK:
            number = broker.ids.take()
            if number is not None:
                taken.append(number)
            if len(broker.asked) > broker.blocks:
                waits += 1
                if waits > late:
                    broker.grant()
                    waits = 0
        assert taken == [5000 * (each // BLOCK + 1) + each % BLOCK for each in range(3 * BLOCK)]


def test_what_is_not_granted_is_asked_for_again_with_the_newest_epoch():
    broker = Granted()
    broker.ids.take()
    refused = AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    for answer in (None, refused, AllocateProducerIdsResponse()):
        assert not broker.ids.answered(answer)
        assert broker.ids.take() is None
    broker.epoch = 4
    broker.ids.ask()
    assert [each.broker_epoch for each in broker.asked] == [3, 4]
