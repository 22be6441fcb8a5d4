"""Reading a replica: one that is still being filled is waited for, and not called different."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from anabranch.client.fetch import Fetched
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.types import EARLIEST, LATEST
from anabranch.core.wire.records import Record, build_batch
from anabranch.pipelines import replicas
from anabranch.pipelines.comparison import BEHIND, EXPIRED, MISSING, UNREACHABLE, ReplicaEnds
from anabranch.pipelines.replicas import Replica, ReplicaReader

BATCH = bytes(build_batch([Record(3, 1, None, b"v")], base_offset=3))
FILLING = [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_NOT_AVAILABLE]


@pytest.fixture
def reader(monkeypatch):
    """A reader whose broker refuses with some codes, then gives a batch; the log begins at 2."""

    def made(*codes, patience_seconds=30.0):
        left = list(codes)

        async def fetch(*given, **named):
            if left:
                raise ApiError(left.pop(0))
            return [Fetched(0, BATCH, 4, 2, (), 4)]

        async def list_offsets(_cluster, _topic, time, _partitions):
            return {0: {EARLIEST: 2, LATEST: 4}[time]}

        monkeypatch.setattr(replicas, "fetch", fetch)
        monkeypatch.setattr(replicas, "list_offsets", list_offsets)
        return ReplicaReader(None, Replica("t", 0, 3, 4), patience_seconds=patience_seconds)

    return made


@pytest.mark.parametrize("code", FILLING)
async def test_a_replica_that_is_being_filled_is_waited_for(reader, code):
    assert await reader(code, code).read(3) == BATCH


@pytest.mark.parametrize("code", FILLING)
async def test_a_replica_that_stays_behind_is_told_as_that(reader, code):
    with pytest.raises(ReplicaEnds, match="broker 3") as end:
        await reader(*[code] * 9, patience_seconds=0).read(3)
    assert end.value.kind == BEHIND


@pytest.mark.parametrize(
    ("code", "kind"),
    [(ErrorCode.OFFSET_OUT_OF_RANGE, EXPIRED), (ErrorCode.NOT_LEADER_OR_FOLLOWER, UNREACHABLE)],
)
async def test_other_refusals_are_told_apart(reader, code, kind):
    with pytest.raises(ReplicaEnds) as end:
        await reader(*[code] * 9, patience_seconds=0).read(1)
    assert end.value.kind == kind


@pytest.mark.parametrize("until", [4, 9])
@pytest.mark.parametrize(
    ("policy", "limits", "kind"),
    [
        ("delete", (-1, -1), MISSING),
        ("compact", (1000, 1000), MISSING),
        ("compact,delete", (1000, -1), EXPIRED),
        ("delete", (-1, 1000), EXPIRED),
    ],
)
async def test_a_replica_whose_log_begins_later_than_the_leaders_lacks_offsets(
    monkeypatch, until, policy, limits, kind
):
    """But where retention may have removed them: each broker applies it at its own time."""

    async def fetch(_cluster, _topic, offsets, **named):
        if offsets[0] < 5:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return [Fetched(0, b"", 9, 5, (), 9)]

    async def list_offsets(_cluster, _topic, time, _partitions):
        return {0: {EARLIEST: 2, LATEST: 9}[time]}

    async def describe_configs(*_given):
        settings = ("cleanup.policy", "retention.ms", "retention.bytes")
        values = (policy, *map(str, limits))
        return [SimpleNamespace(name=name, value=value) for name, value in zip(settings, values)]

    monkeypatch.setattr(replicas, "fetch", fetch)
    monkeypatch.setattr(replicas, "list_offsets", list_offsets)
    monkeypatch.setattr(replicas, "describe_configs", describe_configs)
    with pytest.raises(ReplicaEnds, match="its log begins at 5") as end:
        await ReplicaReader(None, Replica("t", 0, 3, until), patience_seconds=0).read(3)
    assert end.value.kind == kind
