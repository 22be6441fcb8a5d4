"""A simulated partition ends where its last batch does, whatever happens to it."""

from __future__ import annotations

from random import Random

import pytest

from anabranch.core.wire.records import Record, build_batch
from anabranch.sim.mirror.log import Log


def written(random: Random) -> bytearray:
    keys = [b"k%d" % random.randrange(3) for _ in range(random.randint(1, 4))]
    return build_batch([Record(at, 0, key, b"value") for at, key in enumerate(keys)])


@pytest.mark.parametrize("seed", range(50))
def test_a_reader_comes_to_the_end(seed: int) -> None:
    """Offsets that compaction left out before what an election lost belong to no batch."""
    random, log = Random(seed), Log()
    for _ in range(60):
        act = random.choice(["append", "append", "begin", "end", "compact", "lose", "delete"])
        if act == "append":
            log.append(written(random))
        elif act == "begin":
            log.append(written(random), 7, transactional=True)
        elif act == "end":
            log.end_transaction(7, commits=random.random() < 0.5)
        elif act == "compact":
            log.compact(lambda: True)
        elif act == "lose":
            log.lose_end(log.end - random.randrange(8))
        else:
            log.delete_before(random.randint(log.start, log.end))
        *_, last = [
            log.start - 1,
            *(each.last_offset for each in log.shown(log.start, committed=False)),
        ]
        assert last == log.end - 1
