"""What a leader takes while its topic becomes diskless: nothing that comes after its seal."""

from __future__ import annotations

import pytest
from tests.core.api.transactions_kit import (
    PRODUCER,
    Transactions,
    codes,
    marked,
    transactional,
)

from anabranch.core.diskless.migration import phase_of
from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

PREPARING, SEALING = phase_of("preparing:7"), phase_of("sealing:7")
WAIT = ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.fixture
def world():
    return Transactions()


def written(world, records):
    outcome = world.produce(records)
    if not hasattr(outcome, "responses"):
        world.answer()
        outcome = world.node.poll(outcome)
    return codes(outcome)


def delete(world, offset):
    wanted = DeleteRecordsPartition(partition_index=0, offset=offset)
    topics = [DeleteRecordsTopic(name="t", partitions=[wanted])]
    answer = world.node.send(DeleteRecordsRequest(topics=topics, timeout_ms=0), 2)
    ((found,),) = (each.partitions for each in answer.topics)
    return found.error_code


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_a_log_that_is_sealed_takes_only_markers_that_end_what_is_open(world, version, commit):
    replica = world.node.replica()
    world.open()
    replica.phase = SEALING
    assert marked(world.end(epoch=version - 1, version=version, commit=commit)) == 0
    end = replica.end_offset
    assert end == replica.last_stable_offset == 2
    for producer in (PRODUCER, PRODUCER + 1):  # it may be sealed now
        assert marked(world.end(epoch=2, version=version, producer=producer)) == WAIT
    assert replica.end_offset == end
    replica.phase = None
    assert marked(world.end(epoch=2, version=version)) == 0


@pytest.mark.parametrize(("phase", "takes"), [(None, True), (PREPARING, True), (SEALING, False)])
def test_no_record_is_deleted_whose_log_may_be_sealed(world, phase, takes):
    world.open()
    world.end()
    replica = world.node.replica()
    replica.phase = phase
    assert delete(world, 1) == (ErrorCode.NONE if takes else WAIT)
    assert replica.start_offset == int(takes)


@pytest.mark.parametrize("phase", [PREPARING, SEALING])
def test_open_transactions_go_on_and_new_ones_wait(world, phase):
    replica = world.node.replica()
    world.open()
    replica.phase = phase
    assert written(world, transactional(1)) == [0]
    assert written(world, transactional(1)) == [0], "said again"
    assert written(world, transactional(producer=PRODUCER + 1)) == [WAIT]
    assert replica.end_offset == 2
    world.end()
    assert written(world, transactional(2)) == [WAIT]
    assert replica.end_offset == 3
