"""Reasons outlive their controller: in the metadata log, and told once what they explain is so."""

from __future__ import annotations

from tests.core.controller.world import World

from anabranch.core.controller.history import MOST, MOST_A_DECISION, History, carrying
from anabranch.core.controller.reasons import Code
from anabranch.core.controller.result import Reason
from anabranch.core.metadata.batches import decode_batches, encode_batch, encode_snapshot
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.replay import replay_batch
from anabranch.core.metadata.snapshot import from_snapshot, snapshot_records
from anabranch.core.wire.messages.describe_quorum import DescribeQuorumRequest
from anabranch.core.wire.metadata_records import FeatureLevelRecord
from anabranch.core.wire.own_fields import ASKED, OWN_TAG, SaidReasons, untagged

LEFT = Reason(
    Code.ISR_CHANGED,
    "broker 2 left the ISR of flights-3: no fetch for 30.0 s",
    {"partition": "flights-3", "left": [2]},
)
RECORDS = (FeatureLevelRecord(name="a", feature_level=1), FeatureLevelRecord(name="b"))


def batch_of(records, first):
    payload = encode_batch(records, base_offset=first, epoch=1, now_ms=7)
    return next(decode_batches(payload)).records


def test_a_reason_is_told_when_what_it_explains_is_committed():
    history = History()
    history.plan(RECORDS, [LEFT], 1_000, 5)
    assert history.newest() == []
    history.commit(5)
    [said] = history.newest()
    assert (said.offset, said.at_ms, said.code) == (5, 1_000, "ISR_CHANGED")
    assert (said.sentence, said.partition, said.brokers) == (LEFT.sentence, "flights-3", [2])
    history.commit(5)
    assert len(history.newest()) == 1


def test_the_next_controller_reads_it_from_the_log():
    first, second = History(), History()
    committed = batch_of(first.plan(RECORDS, [LEFT], 1_000, 5), 5)
    first.commit(5)
    second.read(committed)
    assert second.newest() == first.newest()


def test_it_changes_nothing_of_the_state():
    told = batch_of(History().plan(RECORDS, [LEFT], 1_000, 0), 0)
    plain = batch_of(RECORDS, 0)
    assert replay_batch(MetadataImage.empty(), told, 1, 1) == replay_batch(
        MetadataImage.empty(), plain, 1, 1
    )
    assert RECORDS[0].unknown_tagged_fields is None, "the decision itself was not touched"


def test_a_snapshot_keeps_what_was_said_before_it():
    world, history = World(), History()
    world.start(1)
    for offset in (3, 9):
        history.plan(RECORDS, [LEFT], 1_000, offset)
        history.commit(offset)
    said = history.newest(9)
    payload = encode_snapshot(
        carrying(snapshot_records(world.image), said), epoch=1, last_contained_ms=7, now_ms=7
    )
    records = [each for batch in decode_batches(payload) for each in batch.records]
    again = History()
    again.read(records)
    assert [each.offset for each in again.newest()] == [3]
    assert from_snapshot(records, world.image.next_offset, 1) == world.image


def test_what_is_kept_is_bounded():
    history = History()
    for offset in range(MOST):
        history.plan(RECORDS, [LEFT] * 1000, 1_000, offset)
        history.commit(offset)
    assert len(history.newest()) == MOST
    assert history.newest()[0].offset == MOST - MOST // MOST_A_DECISION


def test_nothing_is_kept_of_a_decision_that_changed_nothing():
    history = History()
    assert history.plan((), [LEFT], 1_000, 5) == ()
    history.commit(5)
    assert history.newest() == []


def test_describe_quorum_tells_who_asks_and_nobody_else():
    world = World()
    world.controller.history.plan(RECORDS, [LEFT], 1_000, 5)
    world.controller.history.commit(5)
    asked = world.ask(DescribeQuorumRequest(unknown_tagged_fields=ASKED))
    [said] = untagged(SaidReasons, asked.unknown_tagged_fields).reasons
    assert said.sentence == LEFT.sentence
    assert world.ask(DescribeQuorumRequest()).unknown_tagged_fields is None


def test_a_field_that_cannot_be_read_is_none():
    assert untagged(SaidReasons, {OWN_TAG: b"\xff\xff"}).reasons == []
    history = History()
    history.read([FeatureLevelRecord(name="a", unknown_tagged_fields={OWN_TAG: b"\xff"})])
    assert history.newest() == []
