"""Much metadata is read without the garbage collector, which goes on afterwards whatever happens."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.access.acls import ALLOW, LITERAL, Acl
from anabranch.core.errors import ProtocolError
from anabranch.core.metadata.concerns import acls
from anabranch.core.metadata.following.copy import image_parts
from anabranch.core.metadata.following.replayer import PLAIN
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.replay import replay_batch
from anabranch.server import collector
from anabranch.server.collector import QUIET, without_collector


@pytest.fixture(autouse=True)
def _as_before():
    yield
    gc.enable()


def image_with(count: int) -> MetadataImage:
    rules = (Acl(2, LITERAL, f"t-{number}", "User:a", "*", 3, ALLOW) for number in range(count))
    entries = [acls.entry(number.to_bytes(16), rule) for number, rule in enumerate(rules)]
    return replay_batch(MetadataImage.empty(), entries, count - 1, 1)[0]


def test_a_snapshot_is_read_without_it_as_with_it(monkeypatch):
    image, seen = image_with(50), []
    payload = b"".join(image_parts(image, 0))

    plainly = collector.PlainBatchReader.image_of

    def image_of(self, *given: object):
        seen.append(gc.isenabled())
        return plainly(self, *given)

    monkeypatch.setattr(collector.PlainBatchReader, "image_of", image_of)
    assert QUIET.image_of(payload, 50, 1) == PLAIN.image_of(payload, 50, 1) == image
    assert seen == [False, True]


def test_it_goes_on_after_bytes_that_are_no_snapshot():
    with pytest.raises(ProtocolError):
        QUIET.image_of(b"\0" * 100, 1, 1)
    assert gc.isenabled()


def test_who_runs_without_it_stays_so():
    gc.disable()
    with without_collector():
        pass
    assert not gc.isenabled()


@given(st.integers(1, 6))
def test_threads_hold_it_off_together(count):
    meet = Barrier(count)

    def hold(_number: int) -> bool:
        with without_collector():
            meet.wait(10)
            return gc.isenabled()

    with ThreadPoolExecutor(count) as pool:
        assert not any(pool.map(hold, range(count)))
    assert gc.isenabled()
