"""Where the objects of a run lie, and how that fails: a folder, or an S3 server behind a link.

What: every place can refuse; a folder that is a file system of its own (`Volume`) and the S3 server
can also be slow and stand still, and the file system can be full. S3 has one failure more: it does
what it was asked, and the answer is lost. Rule kept: nothing here removes or changes an object.
Not here: the coordinator (`diskless`), when what fails (`plan`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from bench.s3_server import LOCAL, S3Server
from bench.slow_link import WELL, Condition

from anabranch.server.one_machine import OBJECTS
from chaos.network import Host
from chaos.stores import Nothing, Turn
from chaos.volume import Volume

LONGEST_DELAY_MS = 3_000
FASTEST, SLOWEST = 2_000_000, 50_000
"""Bytes a second of a slow store."""


OF_VOLUMES = frozenset({"objects-slow", "objects-cut", "objects-full"})


class FolderObjects:
    """A folder on the machine's disk, or on a file system of its own."""

    name = "folder"

    def __init__(self, folder: Path, *, has_mounts: bool) -> None:
        self._volume = Volume(folder / "objects-volume") if has_mounts else None
        self._folder = folder
        self._path = (folder if self._volume is None else self._volume.path) / OBJECTS
        self._path.mkdir()
        self._turn = Turn()
        self.url = f"file://{self._path}"
        self.place = "a folder" if self._volume is None else "a file system of its own"
        self.kinds = frozenset({"objects-away"}) | (OF_VOLUMES if has_mounts else frozenset())

    @contextlib.contextmanager
    def away(self) -> Iterator[str]:
        """No broker finds its objects, or stores any."""
        aside = self._path.with_name("objects-away")
        with self._turn:
            os.rename(self._path, aside)
            try:
                yield "take the objects away"
            finally:
                os.rename(aside, self._path)

    @contextlib.contextmanager
    def slow(self, strength: float) -> Iterator[str]:
        """The file system stands still most of the time."""
        assert self._volume is not None
        still_s = 0.1 + strength
        with self._turn, self._volume.still(still_s, 0.05):
            yield f"have the objects' disk stand still for {still_s:.1f} s again and again"

    @contextlib.contextmanager
    def cut(self, _strength: float) -> Iterator[str]:
        """The file system stands still."""
        assert self._volume is not None
        with self._turn, self._volume.still():
            yield "have the objects' disk stand still"

    @contextlib.contextmanager
    def full(self) -> Iterator[str]:
        """There is no room for another object."""
        assert self._volume is not None
        with self._turn, self._volume.full():
            yield "fill the objects' disk"

    def close(self) -> None:
        """Leave the objects on the machine's disk."""
        if self._volume is not None:
            self._volume.close(self._folder)


class S3Objects:
    """An S3 server, on a host of its own where there is one."""

    name = "s3"
    place = "S3"
    kinds = frozenset({"objects-away", "objects-slow", "objects-cut"})

    def __init__(self, host: Host | None = None) -> None:
        self._server = S3Server(host.address, host.prefix) if host else S3Server(LOCAL)
        self._turn = Turn()
        self.url = self._server.url("chaos")

    def away(self) -> contextlib.AbstractContextManager[str]:
        """Connections are reset."""
        return self._being(Condition(is_broken=True), "reset all connections to S3")

    def slow(self, strength: float) -> contextlib.AbstractContextManager[str]:
        """Answers come late, and bytes pass slowly."""
        delay_ms = int(20 + strength**2 * LONGEST_DELAY_MS)
        rate = int(FASTEST - strength * (FASTEST - SLOWEST))
        said = f"delay S3 by {delay_ms} ms, {rate // 1000} KB/s"
        return self._being(Condition(delay_ms=delay_ms, bytes_per_second=rate), said)

    def cut(self, strength: float) -> contextlib.AbstractContextManager[str]:
        """No byte passes, or no answer does."""
        if strength < 0.5:
            return self._being(Condition(is_silent=True), "let no byte to S3 pass")
        return self._being(Condition(is_deaf=True), "lose the answers of S3")

    def full(self) -> contextlib.AbstractContextManager[str]:
        """Memory has room."""
        raise Nothing("an S3 server has room")

    @contextlib.contextmanager
    def _being(self, condition: Condition, said: str) -> Iterator[str]:
        with self._turn:
            self._server.become(condition)
            try:
                yield said
            finally:
                self._server.become(WELL)

    def close(self) -> None:
        """End the server."""
        self._server.stop()
