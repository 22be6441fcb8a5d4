"""How a pass of compaction ends whose log and worker go at once."""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace

import pytest

from anabranch.core.log.cleaner import PassEnd
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
