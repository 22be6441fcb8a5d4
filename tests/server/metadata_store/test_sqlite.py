"""What only a file can do to a metadata store: be locked by another program."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import pytest

from anabranch.core.errors import StorageFault
from anabranch.core.metadata.store import StoreAway
from anabranch.server import sqlite_file
from anabranch.server.metadata_store.engines import Patience, open_for_start, open_store


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
