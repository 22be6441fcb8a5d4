"""How a pass of compaction ends whose log and worker go at once."""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace

import pytest

from anabranch.core.log.cleaner import PassEnd
from anabranch.core.log.files import ColdRead
from anabranch.core.log.memory_files import MemoryFiles
from anabranch.core.settings.broker import BrokerConfig
from anabranch.server.cleaner import Cleaner
from anabranch.server.cleaner_process import PassFailed


class LogGone(Exception):
    """Its partition moved away under the pass."""


def refuse():
    raise LogGone


def fail(_order):
    raise PassFailed(PassEnd.GIVEN_UP, "the file is gone")


async def test_a_worker_that_fails_as_its_log_goes_leaves_no_complaint():
    """Else the loop writes a traceback into the log: of a future that nobody asked."""
    complaints = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, told: complaints.append(told["message"])
    )
    shell = SimpleNamespace(hosting=SimpleNamespace(cleaner=None))
    cleaner = Cleaner(SimpleNamespace(), shell, clock_ms=lambda: 0)
    worker = SimpleNamespace(run=fail, kill=lambda: None)
    with pytest.raises(LogGone):
        await cleaner._outcome(SimpleNamespace(check=refuse), worker, None)
    gc.collect()
    assert complaints == []
    await cleaner.stop()


def cleaner_with(config):
    shell = SimpleNamespace(hosting=SimpleNamespace(cleaner=None))
    return Cleaner(SimpleNamespace(config=config), shell, clock_ms=lambda: 0)


@pytest.mark.parametrize("factor", ["1", "2.5", "1e308"])
async def test_a_key_map_gets_no_more_than_its_share(factor):
    """Kafka takes any factor; more than the whole is none, and no number that a worker is told."""
    name = "log.cleaner.dedupe.buffer.size"
    settings = {name: "4194304", "log.cleaner.io.buffer.load.factor": factor}
    cleaner = cleaner_with(BrokerConfig.of({**settings, "log.cleaner.threads": "2"}))
    assert cleaner._share().map_bytes == 2 << 20
    await cleaner.stop()


async def test_a_pass_waits_for_each_segment_that_lacks_its_index():
    """Else it would begin anew, after a rest, as often as there are such segments."""
    missing = [ColdRead(MemoryFiles().open("a", create=True), 0, 0) for _ in range(3)]
    warmed = []

    class Begun:
        def job(self, **_limits):
            if len(warmed) < len(missing):
                cold = missing[len(warmed)]
                cold.warm = lambda: warmed.append(cold)
                raise cold
            return "the job"

    cleaner = cleaner_with(BrokerConfig.of())
    assert await cleaner._job(Begun(), cleaner._share()) == "the job"
    assert warmed == missing
    await cleaner.stop()
