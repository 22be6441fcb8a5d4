"""Each read is brought by what it names, and its request goes on once, when all have ended."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from anabranch.core.diskless.reads import FarRead, StateOf
from anabranch.core.diskless.rows import LogKey
from anabranch.core.log.files import Bringer, ColdRead
from anabranch.core.partition.bringers import Bringers, apart
from anabranch.core.types import TopicId


class Remote(ColdRead):
    bringer = Bringer.REMOTE

    def __init__(self) -> None:
        Exception.__init__(self)


def read_of(kind: Bringer) -> ColdRead:
    if kind is Bringer.DISKLESS:
        return FarRead(StateOf(LogKey(TopicId(bytes(16)), 0), 0))
    if kind is Bringer.REMOTE:
        return Remote()
    read = ColdRead.__new__(ColdRead)
    Exception.__init__(read)
    return read


@pytest.mark.parametrize("seed", range(50))
def test_a_request_goes_on_once_when_the_last_of_its_reads_has_ended(seed: int) -> None:
    random = Random(seed)
    asked: list[tuple[Bringer, list[ColdRead], Any]] = []
    bringers = Bringers()
    for kind in (Bringer.DISKLESS, Bringer.REMOTE):
        bringers.register(kind, lambda reads, done, kind=kind: asked.append((kind, reads, done)))
    reads = [read_of(random.choice(list(Bringer))) for _ in range(random.randrange(6))]
    warmed, others = apart(reads)
    assert [each.bringer for each in warmed] == [Bringer.PAGE_CACHE] * len(warmed)
    assert sorted(map(id, warmed + others)) == sorted(map(id, reads))
    ended: list[int] = []
    bringers.bring(others, lambda: ended.append(len(asked)))
    assert sorted(id(read) for _, group, _ in asked for read in group) == sorted(map(id, others))
    assert all(read.bringer is kind for kind, group, _ in asked for read in group)
    random.shuffle(asked)
    while asked:
        assert not ended
        asked.pop()[2]()
    assert ended == [0]
