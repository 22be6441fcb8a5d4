"""A connection to PostgreSQL that ends after any byte of the server's answers to an append."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from anabranch.core.metadata.store import Committed, StoredBatch, Unknown
from anabranch.stores.metadata.engines import open_store


def fatal(code: bytes, said: bytes) -> bytes:
    """What a server says before it closes a connection."""
    fields = b"SFATAL\0VFATAL\0C" + code + b"\0M" + said + b"\0\0"
    return b"E" + (len(fields) + 4).to_bytes(4, "big") + fields


LAST_WORDS = {
    "nothing": b"",
    "a-shutdown": fatal(b"57P01", b"terminating connection due to administrator command"),
}


STEP = 17
"""Bytes between two cuts: no message of the server's is longer, but for its last."""


class Ending:
    """Passes bytes on; when armed, only so many more of the server's, then last words, then ends."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.left: int | None = None
        self.words = b""
        self.passed = 0

    async def listen(self) -> Ending:
        self._server = await asyncio.start_server(self._took, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def _took(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to_there = await asyncio.open_connection("127.0.0.1", self.target)
        asking = asyncio.create_task(self._ask(reader, to_there))
        try:
            while piece := await there.read(1 << 16):
                if self.left is not None:
                    piece = piece[: self.left]
                    self.left -= len(piece)
                self.passed += len(piece)
                writer.write(piece)
                if self.left == 0:
                    self.left = None
                    writer.write(self.words)
                    break
        finally:
            asking.cancel()
            to_there.close()
            writer.close()

    async def _ask(self, reader: asyncio.StreamReader, to_there: asyncio.StreamWriter) -> None:
        while piece := await reader.read(1 << 16):
            to_there.write(piece)

    def close(self) -> None:
        self._server.close()


@pytest.fixture
async def ending(postgres: Any) -> AsyncIterator[Ending]:
    ending = await Ending(postgres.port).listen()
    yield ending
    ending.close()


@pytest.mark.parametrize("words", LAST_WORDS.values(), ids=LAST_WORDS)
async def test_an_append_whose_answers_end_anywhere_is_unknown(
    postgres: Any, ending: Ending, words: bytes
) -> None:
    server, _, database = postgres.new_database().rpartition("/")
    store = await open_store(f"{server.rpartition(':')[0]}:{ending.port}/{database}")
    lease = await store.take_lease(None, 1, "first", "")
    assert lease is not None
    end, offset = 0, 0
    ending.words = words

    async def append() -> Any:
        batches = [StoredBatch(end + each, end + each + 1, lease.epoch, b"x") for each in range(3)]
        return await store.append(lease, end, batches)

    before = ending.passed
    assert await append() == Committed(3)
    for offset in range(1, ending.passed - before, STEP):
        end = (await store.end()).end_offset
        ending.left = offset
        assert isinstance(await append(), Unknown), f"cut after {offset} bytes"
    await store.close()


async def test_what_psycopg_did_not_expect_is_a_lost_connection(
    postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(postgres.new_database())
    lease = await store.take_lease(None, 1, "first", "")
    assert lease is not None
    theirs: dict[str, Any] = {"__name__": "psycopg.generators"}
    exec("async def fail(*_):\n    assert not 'a result'", theirs)  # noqa: S102  # as in their code
    with monkeypatch.context() as broken:
        broken.setattr(psycopg.AsyncCursor, "executemany", theirs["fail"])
        answer = await store.append(lease, 0, [StoredBatch(0, 1, lease.epoch, b"x")])
        assert isinstance(answer, Unknown)
    assert await store.append(lease, 0, [StoredBatch(0, 1, lease.epoch, b"x")]) == Committed(1)
    await store.close()
