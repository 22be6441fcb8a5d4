"""Facts of remote segments compared with what a store lists."""

from __future__ import annotations

from random import Random

import pytest
from tests.core.log.support import batch
from tests.core.remote.remote_kit import KEY, remote
from tests.core.remote.test_restored_facts import CLUSTER, folder, stored

from anabranch.core.diskless.findings import Kind
from anabranch.core.errors import StorageFault
from anabranch.core.log.checkpoints import format_epochs
from anabranch.core.log.scan import BadBatch
from anabranch.core.remote.facts import HeldRemoteLog
from anabranch.core.remote.keys import SIDECAR, upload_names
from anabranch.core.remote.segment_check import SegmentCheck, check_batches, check_file
from anabranch.core.remote.segments import RemoteSegment, SegmentState
from anabranch.core.wire.batch import read_header

STATES = list(SegmentState)[:3]


def held(*segments: RemoteSegment) -> HeldRemoteLog:
    return HeldRemoteLog("creek", KEY, 4, 0, segments)


def found(listed, sidecars, *logs):
    check = SegmentCheck(CLUSTER, listed, sidecars)
    findings = [each for log in logs for each in check.look(log)]
    return [*findings, *check.unknown()]


@pytest.mark.parametrize("seed", range(60))
def test_any_store_is_compared_object_by_object(seed):
    """Each fault that is planted, and no other, is found at its segment."""
    random = Random(seed)
    segments = [
        remote(at * 10, at * 10 + 10, number=at, state=random.choice(STATES))._replace(
            has_aborted=random.random() < 0.5, event_ms=random.randrange(9)
        )
        for at in range(random.randrange(1, 8))
    ]
    listed, sidecars = stored(*segments)
    planted = set()
    for each in segments:
        place = f"creek-5 offsets {each.start_offset} to {each.end_offset - 1}"
        names = upload_names(each)
        fault = random.choice(("none", "missing", "changed", "sidecar", "differs", "unknown"))
        if fault == "unknown":
            segments = [other for other in segments if other is not each]
            planted.add((Kind.SEGMENT_UNKNOWN, folder(each)))
            continue
        if not each.is_finished:
            planted.add((Kind.SEGMENT_UNFINISHED, place))
        elif fault == "missing":
            del listed[folder(each) + random.choice(names)]
            planted.add((Kind.SEGMENT_MISSING, place))
        elif fault == "changed":
            listed[folder(each) + names[0]] += random.choice((-1, 1))
            planted.add((Kind.SEGMENT_CHANGED, place))
        elif fault == "sidecar":
            sidecars[folder(each) + SIDECAR] = StorageFault("it is nothing")
            planted.add((Kind.DESCRIPTION_DAMAGED, place))
        elif fault == "differs":
            key = folder(each) + SIDECAR
            told = sidecars[key].segment._replace(byte_size=each.byte_size + 1)
            sidecars[key] = sidecars[key]._replace(segment=told)
            planted.add((Kind.DESCRIPTION_DAMAGED, place))
    findings = found(listed, sidecars, held(*segments))
    assert {(each.kind, each.place) for each in findings} == planted
    assert len(findings) == len(planted)
    harmless = {Kind.SEGMENT_UNKNOWN, Kind.SEGMENT_UNFINISHED}
    assert {each.kind for each in findings if not each.kind.is_damage} <= harmless


def test_a_segment_of_a_deleted_topic_is_named_by_its_id():
    removed = remote(0, 9, state=SegmentState.DELETE_SEGMENT_STARTED)
    [finding] = found(*stored(removed), held(removed)._replace(topic=""))
    assert finding.kind is Kind.SEGMENT_UNFINISHED
    assert finding.place.startswith("AAECAwQFBgcICQoLDA0ODw-5 offsets 0 to 8")


def headers(*batches):
    position = 0
    for each in batches:
        yield position, read_header(memoryview(each), 0)
        position += len(each)


def test_batches_that_are_not_the_segments_are_refused():
    first, second = (at.to_bytes(8) + batch(5)[8:] for at in (10, 15))
    check_batches(remote(10, 20), headers(first, second))
    for segment, batches in (
        (remote(10, 18), [first, second]),
        (remote(11, 20), [first, second]),
        (remote(10, 20), [second, first]),
        (remote(10, 20), [first, first, second]),
    ):
        with pytest.raises(BadBatch):
            check_batches(segment, headers(*batches))


@pytest.mark.parametrize("epoch", [-2, 5, 1 << 30])
def test_a_batch_of_another_epoch_is_named(epoch):
    """The checksum of a batch does not cover its epoch."""
    [(position, header)] = headers((10).to_bytes(8) + batch(5)[8:])
    segment = remote(10, 15, (2, 10), (4, 12))
    for possible in (-1, 2, 4):
        check_batches(segment, [(position, header._replace(leader_epoch=possible))])
    with pytest.raises(BadBatch, match=f"leader epoch {epoch} is none"):
        check_batches(segment, [(position, header._replace(leader_epoch=epoch))])


def test_files_that_cannot_be_used_are_refused():
    segment = remote(0, 9, (2, 0), (4, 5))
    check_file(segment, "leader-epoch-checkpoint", format_epochs([(1, 0), (2, 0), (4, 5)]))
    check_file(segment, "00.index", b"")
    check_file(segment, "00.timeindex", b"")
    check_file(segment, "00.txnindex", b"")
    for name, content in (
        ("leader-epoch-checkpoint", format_epochs([(2, 0)])),
        ("leader-epoch-checkpoint", b"\xff"),
        ("00.index", b"123"),
        ("00.timeindex", b"123"),
        ("00.txnindex", b"123"),
        ("09.snapshot", b"123"),
    ):
        with pytest.raises(ValueError, match=r"."):
            check_file(segment, name, content)
