"""Readers of a diskless topic that was classic, with transactions: what they see is what was
committed, whatever end of the classic log they begin at."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from tests.core.diskless.diskless_node import Cluster, batch
from tests.core.diskless.test_data_path import produced
from tests.core.log.support import append, marker, new_log
from tests.core.log.support import batch as classic_batch

from anabranch.core.diskless import effects as does
from anabranch.core.diskless.rows import LogKey, LogState, NewLogs
from anabranch.core.errors import ErrorCode
from anabranch.core.remote.segments import EpochStart, RemoteSegment, SegmentId
from anabranch.core.tiering.seals import Seal, carried
from anabranch.core.wire.batch import walk
from anabranch.core.wire.control import end_marker
from anabranch.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

READ_COMMITTED = 1
EPOCH = 3
PRODUCERS = (5, 6)


class Tail:
    """Remote segments that hold all of a classic log."""

    def __init__(self, log):
        self.log, self.end_offset = log, log.end_offset

    def read(self, offset, **how):
        return self.log.read(offset, **how)

    def aborted_transactions(self, first, upto):
        return self.log.aborted_transactions(first, upto)

    def epoch_of(self, offset):
        return self.log.epochs.epoch_of(offset)


def written(acts):
    """A log with transactions, none of them open; offsets of committed records."""
    log, open_ones, committed = new_log(), {}, []
    sequences = dict.fromkeys(PRODUCERS, 0)

    def end(producer, *, commits):
        append_marker = marker(producer, committed=commits)
        log.append_as_leader(append_marker, leader_epoch=EPOCH, now_ms=0, client=False)
        committed.extend(open_ones.pop(producer) if commits else ())
        open_ones.pop(producer, None)

    for producer, act in acts:
        if producer is None:
            at = append(log, classic_batch(2), leader_epoch=EPOCH)
            committed.extend(range(at, at + 2))
        elif act == "write":
            records = classic_batch(
                2, producer_id=producer, producer_epoch=0, base_sequence=sequences[producer],
                transactional=True,
            )  # fmt: skip
            sequences[producer] += 2
            at = append(log, records, leader_epoch=EPOCH)
            open_ones.setdefault(producer, []).extend(range(at, at + 2))
        elif producer in open_ones:
            end(producer, commits=act == "commit")
    for producer in list(open_ones):
        end(producer, commits=False)
    return log, sorted(committed)


def migrated(log):
    """A node with the diskless topic that the log became."""
    cluster = Cluster()
    node = cluster.node()
    node.fails[does.LookAtFacts] = lambda _: ()
    node.diskless.make_tail = lambda _facts, _start: Tail(log)
    topic_id = cluster.topic(rows=False)
    key, on = LogKey(topic_id, 0), cluster.coordinator
    end = log.end_offset
    on.remote.lead(key, "t", EPOCH)
    kept = ()
    if end:
        whole = RemoteSegment(
            SegmentId(b"s" * 16), key, 0, end, 1, (EpochStart(EPOCH, 0),), 100, 1, EPOCH
        )
        on.remote.start(whole)
        on.remote.finish(whole)
        kept = (whole.segment_id,)
    on.seals.seal(Seal(key, "t", 9, EPOCH, 0, end, kept, carried(log.producers), 10))
    on.create_logs(1, [NewLogs(topic_id, "t", 0, 1)])
    assert on.states([key]) == [LogState(0, end, 100 if end else 0, end, EPOCH)]
    return node


def answer_at(node, offset, max_bytes):
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, isolation_level=READ_COMMITTED,
        topics=[FetchTopic(topic="t", partitions=[wanted])],
    )  # fmt: skip
    ((answer,),) = (each.partitions for each in node.ask(request, 12).responses)
    assert answer.error_code == ErrorCode.NONE
    return answer


def seen(node, offset, max_bytes):
    """Offsets that a consumer of committed records is given, by the rule of all clients."""
    found, end = [], 1 << 40
    while offset < end:
        answer = answer_at(node, offset, max_bytes)
        end = answer.high_watermark
        waiting = sorted((one.first_offset, one.producer_id) for one in answer.aborted_transactions)
        aborted = set()
        if offset < end:
            assert answer.records
        for position, header in walk(answer.records or b""):
            while waiting and waiting[0][0] <= header.last_offset:
                aborted.add(waiting.pop(0)[1])
            if header.is_control:
                view = memoryview(answer.records)[position : position + header.size_bytes]
                if not end_marker(view).committed:
                    aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                found += [at for at in range(header.base_offset, header.next_offset)
                          if at >= offset]  # fmt: skip
            offset = header.next_offset
    return found


ACTS = st.lists(
    st.tuples(
        st.sampled_from([None, *PRODUCERS]), st.sampled_from(["write", "write", "commit", "abort"])
    ),
    max_size=14,
)


@example(acts=[(5, "write"), (6, "write"), (5, "abort"), (6, "commit")], first=0, max_bytes=1 << 20)
@given(acts=ACTS, first=st.integers(0, 40), max_bytes=st.sampled_from([1, 200, 500, 1 << 20]))
def test_a_reader_of_committed_records_sees_no_aborted_one(acts, first, max_bytes):
    log, committed = written(acts)
    node = migrated(log)
    end = log.end_offset
    for _ in range(2):
        assert produced(node, batch(b"a", b"b"))[0] is ErrorCode.NONE
    first = min(first, end)
    expected = [at for at in (*committed, *range(end, end + 4)) if at >= first]
    assert seen(node, first, max_bytes) == expected
