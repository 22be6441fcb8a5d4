"""What counts of the records of both topics."""

from __future__ import annotations

from anabranch.core.mirror.formats import Position, position_record
from anabranch.core.mirror.index import PLAN_KEY, Chunk, IndexRun, chunk_value
from anabranch.core.mirror.ledger import Ledger
from anabranch.core.mirror.policy import Policy
from anabranch.core.wire.records import Record

OLD, NEW = b"1" * 16, b"2" * 16
PLACE = ("orders", 0)


def index_records(*chunks):
    return [Record(at, 0, each.key, chunk_value(each)) for at, each in enumerate(chunks)]


def test_the_newest_chunk_is_of_the_topics_that_are_there_now():
    ledger = Ledger(Policy(source="east"))
    old = Chunk(*PLACE, (IndexRun(0, 50, 9),), True, OLD, OLD)
    new = Chunk(*PLACE, (IndexRun(0, 3, 9),), True, OLD, NEW)
    ledger.take_index(index_records(old, new))
    assert ledger.newest(PLACE, source_id=OLD, target_id=NEW) == new
    assert ledger.newest(PLACE, source_id=NEW, target_id=NEW) == old, "so that it is told"
    assert ledger.newest(("other", 0)) is None


def test_the_name_of_the_newest_plan_is_no_chunk():
    ledger = Ledger(Policy(source="east"))
    ledger.take_index([Record(0, 0, PLAN_KEY, b"first"), Record(1, 0, PLAN_KEY, b"second")])
    assert ledger.plan == b"second" and ledger.foreign == 0 and not ledger.chunks


def test_positions_of_other_sources_and_foreign_records_are_passed_over():
    ledger = Ledger(Policy(source="east"))
    records = [position_record(Position(each, *PLACE, 7)) for each in ("east", "south")]
    read = [Record(at, 0, *pair) for at, pair in enumerate([*records, (b"{", b"")])]
    ledger.take_positions(read)
    assert ledger.positions == {PLACE: 7} and ledger.foreign == 1
