"""What only a file can do to a metadata store: be locked by another program."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from anabranch.core.errors import StorageFault
from anabranch.core.metadata.store import Deposed, StoreAway
from anabranch.server.store_patience import Patience, open_for_start
from anabranch.stores import sqlite_file
from anabranch.stores.metadata.engines import open_store


async def test_a_file_that_another_program_has_locked_is_waited_for(tmp_path, monkeypatch):
    """As a backup does: it passes, and ends neither a start nor one that is under way."""
    monkeypatch.setattr(sqlite_file, "BUSY_TIMEOUT_S", 0.05)
    url = f"sqlite://{tmp_path}/metadata.db"
    store = await open_store(url)
    with closing(sqlite3.connect(tmp_path / "metadata.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreAway, match="another program has locked it"):
            await store.lease()
        starting = asyncio.create_task(open_for_start(url, Patience(60_000)))
        await asyncio.wait((starting,), timeout=0.2)
        assert not starting.done()
    again = await starting
    assert await again.lease() is None
    await again.close()
    await store.close()


@pytest.mark.parametrize("path", ["", ":memory:", "m.db"])
async def test_a_file_is_named_by_its_whole_path(path, tmp_path, monkeypatch):
    """Else nothing is kept, or it depends on where the node is started."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StorageFault, match=r"write sqlite:///path/to/metadata\.db"):
        await open_store(f"sqlite://{path}")
    assert not list(tmp_path.iterdir())


FROZEN = """
import asyncio, os, signal, sys, time
from contextlib import contextmanager
from anabranch.core.metadata.store import StoredBatch
from anabranch.stores.metadata.sqlite import SqliteStore

class FreezesInItsAppend(SqliteStore):
    begin = "BEGIN IMMEDIATE"

    @contextmanager
    def _transaction(self):
        self._open.execute(self.begin)
        yield self._open
        self._open.execute("COMMIT")

    def _end(self):
        if self.begin == sys.argv[2]:
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(0.5)  # this thread may run on until the signal has reached it
        return super()._end()

async def main():
    store = await FreezesInItsAppend.open(sys.argv[1])
    lease = await store.take_lease(None, 1, "first", "")
    FreezesInItsAppend.begin = sys.argv[2]
    print(await store.append(lease, 0, [StoredBatch(0, 3, lease.epoch, b"three")]))
    await store.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("lock", ["BEGIN  IMMEDIATE", "BEGIN  EXCLUSIVE"])
@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_controller_that_is_frozen_in_its_append_costs_nothing_but_time(
    tmp_path, monkeypatch, lock, is_killed
):
    """It keeps SQLite's lock, which no process can take from it: others wait, and say for what. What it
    was about to append is whole or not there, and its lease is taken in order afterwards."""
    monkeypatch.setattr(sqlite_file, "BUSY_TIMEOUT_S", 0.05)
    path = tmp_path / "metadata.db"
    command = [sys.executable, "-c", FROZEN, str(path), lock]
    frozen = subprocess.Popen(command)  # noqa: ASYNC220 - it starts in the background
    try:
        _, status = await asyncio.to_thread(os.waitpid, frozen.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        starting = asyncio.create_task(open_for_start(f"sqlite://{path}", Patience(60_000)))
        reads_only = "IMMEDIATE" in lock
        await asyncio.wait((starting,), timeout=30 if reads_only else 0.2)
        assert starting.done() == reads_only, "who only reads is let in"
        if starting.done():
            store = await starting
            seen = await store.lease()
            for _ in range(2):
                with pytest.raises(StoreAway, match="resume or end a node that is suspended"):
                    await store.take_lease(seen, 2, "second", "")
        os.kill(frozen.pid, signal.SIGKILL if is_killed else signal.SIGCONT)
        await asyncio.to_thread(frozen.wait)
    finally:
        frozen.kill()
    store = await starting
    seen = await store.lease()
    assert seen is not None and seen.holder == 1
    taken = await store.take_lease(seen, 2, "second", "")
    assert taken is not None and taken.epoch == seen.epoch + 1
    assert (await store.end()).end_offset == (0 if is_killed else 3)
    refused = await store.append(seen, 0 if is_killed else 3, [])
    assert isinstance(refused, Deposed)
    await store.close()
