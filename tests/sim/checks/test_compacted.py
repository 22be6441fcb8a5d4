"""What compaction may not take, planted by hand, is caught; what it may take is not complained of."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest
from tests.core.log.compacting import batches_of, compact
from tests.core.log.support import sync
from tests.sim.checks.stage import KEY, PLACE, TOPIC_ID, Stage

from anabranch.core.coordination.transactions.topic import TRANSACTION_TOPIC
from anabranch.core.log import compaction
from anabranch.core.log.config import LogConfig
from anabranch.core.types import TopicId, TopicPartition
from anabranch.core.wire import metadata_records as records
from anabranch.core.wire.batch import walk
from anabranch.sim.checks.entries import Entry
from anabranch.sim.checks.metadata import UNCLEAN
from anabranch.sim.checks.truth import Loss, Truth
from anabranch.sim.checks.violation import Violation

STAYS_MS = LogConfig().delete_retention_ms


def stage_with(*keys: bytes, tombstone: bytes = b"", stays_ms: int = STAYS_MS) -> Stage:
    """A committed record a key, in two segments, on all nodes; then a tombstone for one key."""
    stage = Stage(cleanup_policy="compact", delete_retention_ms=str(stays_ms))
    for key in keys:
        stage.append(1, key=key)
    if tombstone:
        stage.append(1, key=tombstone, tombstone=True)
    stage.share(1, 2, 3)
    return stage


def compacted(stage: Stage, node_id: int, now_ms: int = 0, ahead_ms: int = 0) -> None:
    """Compact a node's log by a clock that may be ahead, and let the checks look."""
    log, node = stage.log(node_id), stage.nodes[node_id]
    log.roll(now_ms)
    sync(log)
    upto = compact(log, now_ms + ahead_ms)
    node.now_ms = now_ms
    stage.logs.compacted(node, PLACE, upto)
    stage.look(node_id)


def violated(act) -> str:
    with pytest.raises(Violation) as caught:
        act()
    return caught.value.id


def test_a_compacted_log_is_compared_as_what_it_was():
    stage = stage_with(b"a", b"b", b"a", b"b", b"c")
    compacted(stage, 2)
    assert stage.logs.compacted_logs[KEY].taken_out > 0
    assert len(stage.log(2).read(0, max_bytes=1 << 20, upto=5, at_least_one=True)) < len(
        stage.log(1).read(0, max_bytes=1 << 20, upto=5, at_least_one=True)
    )
    entries = [stage.logs.seats[node_id].copies[KEY].entries for node_id in (1, 2)]
    assert entries[0] == entries[1] == stage.logs.truths[KEY].entries
    stage.elect(2, [2, 3], 1)
    stage.follow(2, 3)  # a compacted log may lead: it lacks nothing


def test_c1_the_newest_record_of_a_key(monkeypatch):
    stage = stage_with(b"a", b"b", b"a")
    monkeypatch.setattr(compaction, "survivors", lambda *_, **__: [])
    assert violated(lambda: compacted(stage, 1)) == "C1"


def test_c1_a_newer_record_that_is_not_committed_does_not_count():
    stage = stage_with(b"a", b"b")
    stage.append(1, key=b"a")
    stage.look(1)
    assert violated(lambda: compacted(stage, 1)) == "C1"


def transactional_stage(*, committed: bool) -> Stage:
    """A committed record of a key, and a later one of a transaction that has ended."""
    stage = Stage(cleanup_policy="compact", delete_retention_ms=str(STAYS_MS))
    stage.append(1, key=b"a")
    stage.append(1, key=b"a", producer=(7, 0, 0), transactional=True)
    stage.end_transaction(1, 7, committed=committed)
    stage.append(1, key=b"b")
    stage.share(1, 2, 3)
    return stage


def aborted_stage(*, is_compacted: bool, is_marker_lost: bool) -> Stage:
    """A transaction was aborted in the next epoch of its producer; node 1 leads without others."""
    stage = Stage(cleanup_policy="compact", unclean_leader_election_enable="true", min_isr=1)
    stage.append(1, key=b"a")
    stage.append(1, key=b"a", producer=(7, 0, 0), transactional=True)
    stage.append(1, key=b"b")
    log, node = stage.log(1), stage.nodes[1]
    log.roll(0)
    node.disk.sync_all()
    stage.end_transaction(1, 7, committed=False, epoch=1)
    stage.share(1, 2, 3)
    if is_compacted:
        log.decided_offset = 3
        compact(log, 0)
        stage.logs.seats[1].copies[KEY].is_exchanged = True  # C6 would have something to say
        stage.look(1)
    if not is_marker_lost:
        node.disk.sync_all()
    stage.elect(2, [2, 3], 1)
    stage.restart(1, "power")
    assert stage.log(1).end_offset == (3 if is_marker_lost else 4)
    stage.commit(records.UnfenceBrokerRecord(id=1, epoch=stage.image.brokers[1].epoch))
    stage.elect(1, [1], 2, 3, leader_recovery_state=1)
    stage.follow(1)
    return stage


@pytest.mark.parametrize(
    ("amiss", "found"),
    [
        ("", ""),
        ("no loss", "L8"),
        ("not compacted", "L8"),
        ("not compacted, forgotten", ""),
        ("marker", "L8"),
        ("no transaction", "L8"),
    ],
)
def test_a_lost_coordinator_gives_a_sequence_again_that_no_log_knows(amiss, found):
    """Of what a producer wrote nothing is left, not even a marker, or it was silent so long that
    its state is forgotten; and a loss of power took most of the coordinator's log: it gave the
    epoch again."""
    stage = aborted_stage(
        is_compacted="not compacted" not in amiss, is_marker_lost=amiss != "marker"
    )
    stage.nodes[1].now_ms = 86_400_000 if "forgotten" in amiss else 86_399_999
    if amiss != "no loss":
        place = TopicPartition(TRANSACTION_TOPIC, 0)
        state = stage.logs.places[place] = Truth((bytes(16), 0))
        state.losses.append(Loss(Entry(0, 1, 0, 0, -1, -1, -1), UNCLEAN, 1))
    for again in (False, True):
        stage.append(1, epoch=1, producer=(7, 0, 0), transactional=amiss != "no transaction")
        if found or again:
            assert violated(lambda: stage.look(1)) == "L8"
            return
        stage.look(1)


def undecided_stage(decided_offset: int, *, is_stored: bool, passed_upto: int = 0) -> Stage:
    """Node 1 compacts a key's record and one of a transaction, whose marker is stored or not; other
    copies were compacted up to an offset."""
    stage = Stage(cleanup_policy="compact")
    node = stage.nodes[1]
    stage.append(1, key=b"a")
    stage.append(1, key=b"a", producer=(7, 0, 0), transactional=True)
    log = stage.log(1)
    log.roll(0)
    sync(log)
    stage.end_transaction(1, 7, committed=True)
    stage.share(1, 2, 3)
    if is_stored:
        sync(log)
    log.decided_offset = decided_offset
    stage.logs.compacted_logs[KEY].passed_upto = passed_upto
    stage.logs.compacted(node, PLACE, compact(log, 0))
    stage.look(1)
    return stage


def test_c6_a_marker_that_is_not_stored_decides_nothing():
    assert violated(lambda: undecided_stage(2, is_stored=False)) == "C6"
    assert undecided_stage(2, is_stored=True).logs.compacted_logs[KEY].taken_out == 1
    assert undecided_stage(1, is_stored=False).logs.compacted_logs[KEY].taken_out == 0


def test_c6_asks_nothing_of_what_another_pass_may_have_emptied():
    assert (
        undecided_stage(2, is_stored=False, passed_upto=2).logs.compacted_logs[KEY].passed_upto == 2
    )
    assert violated(lambda: undecided_stage(2, is_stored=False, passed_upto=1)) == "C6"


@pytest.mark.parametrize("committed", [False, True])
def test_what_a_transaction_wrote_counts_when_it_is_committed(committed):
    stage = transactional_stage(committed=committed)
    compacted(stage, 1)
    assert stage.logs.compacted_logs[KEY].taken_out > 0


def test_c1_the_newest_record_of_a_key_is_not_one_that_was_aborted(monkeypatch):
    stage = transactional_stage(committed=False)
    monkeypatch.setattr(compaction, "survivors", lambda *_, **__: [])
    assert violated(lambda: compacted(stage, 1)) == "C1"


def test_c2_a_tombstone_stays_for_its_time():
    stage = stage_with(b"a", b"b", tombstone=b"a")
    compacted(stage, 1)
    compacted(stage, 1, now_ms=STAYS_MS + 1)
    early = stage_with(b"a", b"b", tombstone=b"a")
    compacted(early, 1)
    half_ms = STAYS_MS // 2
    assert violated(lambda: compacted(early, 1, half_ms, ahead_ms=half_ms + 1)) == "C2"


def without_tombstones(survivors, *args, keep_deletes: bool) -> list[Any]:
    """What stays of a batch when no tombstone waits for its horizon."""
    return survivors(*args, keep_deletes=False)


def test_c2_a_first_pass_takes_no_tombstone_however_old(monkeypatch):
    stage = stage_with(b"a", b"b", tombstone=b"a")
    dropping = partial(without_tombstones, compaction.survivors)
    monkeypatch.setattr(compaction, "survivors", dropping)
    assert violated(lambda: compacted(stage, 1, now_ms=2 * STAYS_MS)) == "C2"


def test_c2_a_horizon_counts_from_the_pass_that_sets_it():
    stage = stage_with(b"a", b"b", tombstone=b"a")
    log = stage.log(1)
    log.config = msgspec.structs.replace(log.config, delete_retention_ms=0)
    compacted(stage, 1)
    assert violated(lambda: compacted(stage, 1, now_ms=2 * STAYS_MS)) == "C2"


@pytest.mark.parametrize("is_rotten", [False, True])
def test_c2_a_follower_that_comes_late_never_saw_the_horizon(is_rotten):
    stage = Stage(cleanup_policy="compact", delete_retention_ms=str(STAYS_MS))
    stage.change(isr=[1, 2])
    stage.follow(1, 2, 3)
    for tombstone in (False, True):
        stage.append(1, tombstone=tombstone)
    stage.look(1)
    stage.copy(1, 2)
    stage.tell(1, 2)
    stage.logs.seats[1].copies[KEY].is_rotten = is_rotten
    compacted(stage, 1)
    compacted(stage, 1, now_ms=STAYS_MS + 1)
    stage.nodes[3].now_ms = STAYS_MS + 1
    taken_out = stage.logs.compacted_logs[KEY].taken_out
    stage.copy(1, 3)
    assert stage.logs.compacted_logs[KEY].taken_out > taken_out


def namesake(retention_ms: int) -> tuple[Any, ...]:
    """The records of a new topic that has the name of a deleted one, and a setting of its own."""
    topic_id = TopicId(bytes(range(1, 17)))
    value, name = str(retention_ms), "delete.retention.ms"
    return (
        records.TopicRecord(name=PLACE.topic, topic_id=topic_id),
        records.ConfigRecord(resource_type=2, resource_name=PLACE.topic, name=name, value=value),
    )


@pytest.mark.parametrize("later", [(), namesake(0), namesake(2 * STAYS_MS)])
def test_c2_goes_by_what_a_deleted_topic_had_until_its_brokers_know(later):
    stays_ms = STAYS_MS // 4
    stage = stage_with(b"a", b"b", tombstone=b"a", stays_ms=stays_ms)
    for node_id in (1, 2):
        log = stage.log(node_id)
        log.config = msgspec.structs.replace(log.config, delete_retention_ms=stays_ms)
        compacted(stage, node_id)
    stage.commit(records.RemoveTopicRecord(topic_id=TOPIC_ID), *later)
    compacted(stage, 1, now_ms=stays_ms + 1)
    assert violated(lambda: compacted(stage, 2, stays_ms - 1, ahead_ms=2)) == "C2"


@pytest.mark.parametrize(("deleted_to", "name"), [(0, "C3"), (1, "C3"), (2, None), (99, None)])
def test_c3_where_a_leader_epoch_began_unless_that_was_deleted(monkeypatch, deleted_to, name):
    stage = stage_with(b"a", b"b")
    stage.elect(1, [1, 2, 3])
    stage.change(leader=1)
    stage.follow(1, 2, 3)
    for key in (b"a", b"b", b"a", b"b"):
        stage.append(1, key=key)
    stage.share(1, 2, 3)
    monkeypatch.setattr(compaction.LeaderEpochs, "assign", lambda *_: False)
    stage.logs.truths[KEY].deleted_to = deleted_to
    if name is None:
        compacted(stage, 1)
    else:
        assert violated(lambda: compacted(stage, 1)) == name


def test_c3_a_log_that_was_left_behind_had_other_batches_than_those_committed():
    """The first batch of an epoch that it never had need not stay in it."""
    stage = stage_with(b"a", b"a", b"a")
    log, truth = stage.logs.compacted_logs[KEY], stage.logs.truths[KEY]
    first, second, third = truth.entries
    truth.entries[1] = second._replace(epoch=1)
    log._by_base[second.base].append(truth.entries[1])
    gone = partial(log._gone, first, first.end, third._replace(epoch=2), 0, {})
    assert gone() == [second]
    log._by_base[second.base].remove(second)
    assert violated(gone) == "C3"


def test_compaction_leaves_a_log_the_history_that_it_was_seen_to_have():
    """Another one that fits as well is of replicas that an unclean election left behind."""
    stage = stage_with(b"a", b"a", b"a")
    log, truth = stage.logs.compacted_logs[KEY], stage.logs.truths[KEY]
    first, second, third = truth.entries
    other = second._replace(crc=second.crc + 1)
    log._by_base[second.base].append(other)
    gone = partial(log._gone, first, first.end, third, 0, {})
    assert gone() == [second]
    assert gone(had={first, other, third}) == [other]


def test_c4_what_nobody_has_written():
    stage = stage_with(b"a", b"b", b"c")
    log = stage.logs.compacted_logs[KEY]
    first, second, third = stage.logs.truths[KEY].entries
    lost = log._by_base.pop(second.base)
    assert lost == [second]
    read = log.read
    assert violated(lambda: read(third, b"", first, 0, 0, {})) == "C4"


def test_a_rotten_log_may_begin_within_a_batch_that_is_gone():
    stage = Stage(cleanup_policy="compact")
    for count in (3, 1, 1):
        stage.append(1, count=count)
    stage.share(1, 2, 3)
    _first, second, third = stage.logs.truths[KEY].entries
    held = stage.log(1).read(third.base, max_bytes=1 << 20, upto=third.end, at_least_one=True)
    log = stage.logs.compacted_logs[KEY]
    assert log.read_rotten(third, held, None, 1, 0) == [second, third]


def behind_an_unclean_leader() -> Stage:
    """Node 2 begins within a batch; node 3, which has one record less, leads from 0 on."""
    stage = Stage(cleanup_policy="compact", unclean_leader_election_enable="true")
    stage.append(1, count=3)
    stage.share(1, 2, 3)
    stage.change(isr=[1, 2])
    stage.write(followers=(2,))
    for node_id in (1, 2):
        stage.log(node_id).delete_records_before(2)
        stage.look(node_id)
    stage.elect(3, [3], 1, 2, leader_recovery_state=1)
    stage.follow(3)
    return stage


def test_a_compacted_log_may_begin_anew_within_a_batch():
    stage = behind_an_unclean_leader()
    stage.log(2).truncate_fully(2)
    stage.replica(2).high_watermark = 2
    stage.look(2)
    assert stage.logs.seats[2].copies[KEY].entries == []


def test_l6_a_compacted_log_that_has_grown_again_was_cut():
    stage = behind_an_unclean_leader()
    stage.log(2).truncate_fully(2)
    stage.append(2, epoch=7)
    stage.replica(2).high_watermark = 2
    assert violated(lambda: stage.look(2)) == "L6"


def cut_in_a_hole(*, takes_more: int) -> Stage:
    """What took a record out of node 2's log is cut, since node 3 leads uncleanly without it."""
    stage = Stage(cleanup_policy="compact", unclean_leader_election_enable="true")
    for key in (b"a", b"b"):
        stage.append(1, key=key)
    stage.share(1, 2, 3)
    stage.change(isr=[1, 2])
    for _ in range(2):
        stage.append(1, key=b"b")
    stage.share(1, 2)
    compacted(stage, 2)
    stage.elect(3, [3], 1, 2, leader_recovery_state=1)
    stage.follow(3)
    stage.log(2).truncate_to(2 - takes_more)
    stage.replica(2).high_watermark = stage.log(2).end_offset
    return stage


def test_a_log_that_is_cut_loses_nothing_that_compaction_had_taken_before():
    stage = cut_in_a_hole(takes_more=0)
    assert stage.log(2).end_offset == 1
    stage.look(2)
    assert [each.base for each in stage.logs.seats[2].copies[KEY].entries] == [0]


def test_l6_what_stood_below_the_hole_is_not_cut():
    stage = cut_in_a_hole(takes_more=2)
    assert stage.log(2).end_offset == 0
    stage.append(2, epoch=7)
    assert violated(lambda: stage.look(2)) == "L6"


def away_from(stage: Stage, *, has_begun: bool) -> None:
    """Node 3 is away while a transaction is written, or ends; its records are superseded, and
    compaction takes them and its marker from the leader's log."""
    if has_begun:
        begin_transaction(stage)
        stage.copy(1, 2, 3)
    stage.change(isr=[1, 2])
    if not has_begun:
        begin_transaction(stage)
    stage.end_transaction(1, 7, committed=True)
    stage.append(1, key=b"c", producer=(7, 0, 1), transactional=True)
    stage.end_transaction(1, 7, committed=True)
    for key in (b"a", b"b"):
        stage.append(1, key=key)
    stage.look(1)
    stage.copy(1, 2)
    for node_id in (1, 2):
        stage.tell(node_id, stage.log(1).end_offset)
    for number in range(3):
        compacted(stage, 1, now_ms=number * (STAYS_MS + 1))


def bases(log: Any) -> list[int]:
    """Where the batches of a log begin."""
    return [header.base_offset for each in batches_of(log) for _, header in walk(each)]


def begin_transaction(stage: Stage) -> None:
    stage.append(1, key=b"a", producer=(7, 0, 0), transactional=True)
    stage.look(1)


def test_a_mark_tells_who_comes_back_after_compaction_took_a_marker():
    stage = stage_with(b"x")
    away_from(stage, has_begun=False)
    stage.copy(1, 3)
    stage.tell(3, stage.log(3).end_offset)
    assert not stage.marks["marker-gone-while-away"]
    stage.change(isr=[1, 2, 3])
    assert stage.marks["marker-gone-while-away"] == 1
    stage.change(isr=[1, 2])
    stage.change(isr=[1, 2, 3])
    assert stage.marks["marker-gone-while-away"] == 1


def test_a_mark_tells_who_copies_a_transaction_again():
    stage = stage_with(b"x")
    away_from(stage, has_begun=True)
    log = stage.log(3)
    stage.logs.truncated(stage.nodes[3], PLACE, log.end_offset - 1)
    log.truncate_to(log.end_offset - 1)
    stage.look(3)
    assert stage.marks["transaction-copied-again"] == 1


@pytest.mark.parametrize(
    ("ends", "high", "found"), [(False, 1, ""), (True, 1, "L6"), (False, 0, "L6")]
)
def test_a_transaction_that_began_before_the_log_is_copied_again(ends, high, found):
    """Node 3 has records of a transaction that began before its log does, and goes back to its
    start: the leader's compaction may have taken the marker that it lacks."""
    stage = stage_with(b"x")
    begin_transaction(stage)
    if ends:
        stage.end_transaction(1, 7, committed=True)
    stage.share(1, 2, 3)
    start = stage.log(1).end_offset
    for node_id in (1, 2, 3):
        stage.log(node_id).delete_records_before(start)
        stage.look(node_id)
    stage.change(isr=[1, 2])
    stage.append(1, key=b"a")
    stage.share(1, 2, 3)
    for _ in range(high):
        stage.append(1, key=b"b")
        stage.share(1, 2)
    stage.log(3).truncate_to(start)
    stage.replica(3).truncated()
    if found:
        assert violated(lambda: stage.look(3)) == found
    else:
        stage.look(3)


@pytest.mark.parametrize(("is_transactional", "found"), [(True, ""), (False, "L6")])
def test_a_transaction_that_only_compaction_has_seen_is_copied_again(is_transactional, found):
    """Node 3's compaction took what a transaction wrote, since its marker was there; the leader's
    log begins later by now."""
    stage = stage_with(b"x")
    begun = stage.log(1).end_offset
    if is_transactional:
        begin_transaction(stage)
    else:
        stage.append(1, key=b"c")
    stage.append(1, key=b"c")
    kept = stage.log(1).end_offset
    if is_transactional:
        stage.append(1, key=b"d", producer=(7, 0, 1), transactional=True)
        stage.end_transaction(1, 7, committed=False)
    stage.append(1, key=b"d")
    stage.share(1, 2, 3)
    compacted(stage, 3)
    assert begun not in bases(stage.log(3))
    stage.change(isr=[1, 2])
    for node_id in (1, 2):
        stage.log(node_id).delete_records_before(kept)
        stage.look(node_id)
    for key in (b"e", b"f"):
        stage.append(1, key=key)
        stage.share(1, 2)
    stage.log(3).truncate_to(begun)
    stage.replica(3).truncated()
    if found:
        assert violated(lambda: stage.look(3)) == found
    else:
        stage.look(3)


def test_c5_what_is_open_may_be_open():
    stage = stage_with(b"x")
    stage.change(isr=[1, 2])
    begin_transaction(stage)
    stage.copy(1, 2, 3)
    for node_id in (1, 2, 3):
        stage.tell(node_id, stage.log(1).end_offset)
    stage.change(isr=[1, 2, 3])
    stage.restart(3, "crash", high=stage.log(1).end_offset)
    stage.elect(2, [2, 3], 1)
    stage.follow(2, 3)
