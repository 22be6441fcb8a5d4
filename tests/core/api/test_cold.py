"""An answer that waits for the disk holds on to nothing else."""

from __future__ import annotations

import gc
import weakref

from anabranch.core.log.files import ColdRead
from anabranch.core.log.memory_files import MemoryFiles
from anabranch.core.outcome import Cold


class Megabyte:
    """Stands for what was read before the cold part was met."""


def test_what_was_read_before_is_let_go_without_the_collector() -> None:
    read: list[weakref.ref[Megabyte]] = []

    def try_to_read() -> Cold:
        held = Megabyte()
        read.append(weakref.ref(held))
        try:
            try:
                raise BlockingIOError
            except BlockingIOError:
                raise ColdRead(MemoryFiles().open("a", create=True), 0, 1) from None
        except ColdRead as cold:
            return Cold((cold,), lambda _now_ms: None)

    gc.disable()
    try:
        waiting = try_to_read()
        assert read[0]() is None
        assert waiting.reads[0].length == 1
    finally:
        gc.enable()
