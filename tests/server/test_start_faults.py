"""A start that fails anywhere leaves nothing of the node behind: the next one begins as if alone."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading
import weakref

import pytest
from node_kit import settings_of

from anabranch.core.errors import StorageFault
from anabranch.server import folders, main
from anabranch.server.config import load_config
from anabranch.server.node import Node


class Stepped:
    """Work that is thrown faults where it waits: `faults` by the number of the wait, from 1."""

    def __init__(self, work, faults):
        self.places = []
        """Where it waited each time: functions and lines, from the outermost."""
        self._work = work
        self._faults = dict(faults)

    def __await__(self):
        steps, thrown = self._work.__await__(), None
        while True:
            try:
                waited = steps.send(None) if thrown is None else steps.throw(thrown)
            except StopIteration as end:
                return end.value
            self.places.append(place_of(self._work))
            thrown = self._faults.pop(len(self.places), None)
            if thrown is None:
                try:
                    yield waited
                except BaseException as fault:
                    thrown = fault
            elif waited is not None:
                waited._asyncio_future_blocking = False  # nobody waits for it

    async def run(self):
        """As work of a task."""
        await self


def place_of(work):
    """Where a coroutine waits."""
    found = []
    while getattr(work, "cr_frame", None) is not None:
        found.append((work.cr_code.co_qualname, work.cr_frame.f_lineno))
        work = work.cr_await
    return tuple(found)


OPENED = weakref.WeakSet()
"""The sockets made by the thread of these tests: other tests' clusters and clients may open theirs."""


@pytest.fixture(scope="module", autouse=True)
def _sockets_are_noted():
    make, here = socket.socket.__init__, threading.get_ident()

    def note(self, *arguments, **options):
        make(self, *arguments, **options)
        if threading.get_ident() == here:
            OPENED.add(self)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(socket.socket, "__init__", note)
        yield


def held(folder):
    """What this thread holds of a node: files of its folder, and sockets."""
    gc.collect()
    for thread in threading.enumerate():
        if thread.name.startswith(f"objects of {folder}"):  # not of other tests' clusters
            thread.join(1)  # its call of the disk ends by itself
    found = [str(each) for each in OPENED if each.fileno() >= 0]
    for number in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:  # the listing's own
            continue
        if path.startswith(str(folder)):
            found.append(path)
    return sorted(found)


def attempt(folder, faults=()):
    """Start a node and stop it; where its start waited, and whether it started."""

    async def work():
        node = Node(load_config(None, settings_of(folder, **SETTINGS, **diskless(folder))))
        start = Stepped(node.start(), faults)
        started = True
        try:
            await start
        except (OSError, StorageFault, asyncio.CancelledError):
            started = False
        finally:
            await node.stop()
        return start.places, started

    with asyncio.Runner() as runner:
        return runner.run(work())


KINDS = OSError, asyncio.CancelledError
SETTINGS = {"http.listener": "127.0.0.1:0"}


def diskless(folder):
    return {
        "diskless.storage.system.enable": "true",
        "diskless.storage.url": f"file://{folder}/objects",
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("node")
    (found / "objects").mkdir()
    return found


@pytest.fixture(scope="module")
def waits(folder):
    """The number of the first wait at each place where a start waits."""
    places, started = attempt(folder)
    assert started
    return [places.index(each) + 1 for each in dict.fromkeys(places)]


@pytest.mark.slow
def test_a_start_that_fails_anywhere_leaves_nothing(folder, waits):
    """By a fault at every other place, and cancelled at those between."""
    before = held(folder)
    assert len(waits) >= 10
    for number, wait in enumerate(waits):
        places, _ = attempt(folder, {wait: KINDS[number % 2]("the start fails here")})
        assert held(folder) == before, f"{places[wait - 1]} left this"
    assert attempt(folder)[1]


@pytest.mark.slow
def test_a_failed_start_that_is_cancelled_while_it_is_undone_leaves_nothing(folder, waits):
    """As where a cluster gives up, of which every node fails at the same time."""
    before = held(folder)
    last = waits[-1]
    for later in range(last + 1, last + 40):
        faults = {last: OSError("it fails here"), later: asyncio.CancelledError("and is undone")}
        places, _ = attempt(folder, faults)
        assert held(folder) == before, f"{places[-1]} left this"
        if len(places) < later:
            break


@pytest.mark.slow
@pytest.mark.own_faults
def test_a_part_that_cannot_be_stopped_keeps_no_other_from_it(folder, monkeypatch):
    """Its fault is raised when the folder is free again."""
    before = held(folder)

    async def refuse(self):
        raise RuntimeError("it does not stop")

    with monkeypatch.context() as patched:
        patched.setattr("anabranch.server.roles.BrokerRole.leave", refuse)
        with pytest.raises(RuntimeError, match="it does not stop"):
            attempt(folder)
    assert held(folder) == before
    os.close(folders.lock(str(folder)))


async def test_a_stop_that_fails_is_one_line(tmp_path, monkeypatch):
    told = []

    async def refuse(self):
        raise StorageFault("the folder\nis gone")

    monkeypatch.setattr("anabranch.server.roles.BrokerRole.leave", refuse)
    monkeypatch.setattr(main, "settle_memory", lambda: None)  # it is the process's, and for good
    monkeypatch.setattr(main.gc, "set_threshold", lambda *_: None)
    code = await main.serve(
        load_config(None, settings_of(tmp_path)),
        lambda node: node.stopped.set_result(""),
        tell_failure=told.append,
    )
    assert (code, told) == (1, ["the folder is gone"])


@pytest.mark.slow
def test_who_stops_a_node_that_is_being_stopped_waits_for_the_end(folder):
    async def work():
        before = held(folder)
        node = Node(load_config(None, settings_of(folder, **SETTINGS)))
        await node.start()
        first = asyncio.ensure_future(node.stop())
        await asyncio.sleep(0)
        await node.stop()
        assert [each for each in held(folder) if each not in before] == []
        await first

    with asyncio.Runner() as runner:
        runner.run(work())


def test_why_a_start_failed_is_known_when_the_node_has_stopped(folder):
    """Whoever waits for either of the two finds the fault, and no orderly end."""

    async def work():
        node = Node(load_config(None, settings_of(folder, **SETTINGS)))
        starting = asyncio.ensure_future(Stepped(node.start(), {1: OSError("it fails")}).run())
        await asyncio.wait((starting, node.stopped), return_when=asyncio.FIRST_COMPLETED)
        assert starting.done() and isinstance(starting.exception(), OSError)

    with asyncio.Runner() as runner:
        runner.run(work())
