"""Appends whose outcome is unknown, leases lost meanwhile: what the controller then knows."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from controller_kit import CLUSTER, FEW_BYTES, eventually, topic

from anabranch.core.controller.result import Result
from anabranch.core.controller.tenure import events
from anabranch.core.controller.tenure.effects import WriteSnapshot
from anabranch.core.controller.tenure.lease import LeaseTimes
from anabranch.core.controller.tenure.snapshots import encoded
from anabranch.core.errors import ApiError, ErrorCode, StorageFault
from anabranch.core.metadata.store import (
    Appended,
    Deposed,
    Lease,
    Snapshot,
    StoreAway,
    Unknown,
)
from anabranch.core.outcome import Propose
from anabranch.core.settings.broker import BrokerConfig
from anabranch.server import controller as controller_module
from anabranch.server import logs
from anabranch.server.controller import ControllerShell
from anabranch.stores.metadata.sqlite import SqliteStore


class FaultyStore:
    """A store whose next append ends as `plan` says; everything else is the real one's.

    "lost answer": it is committed and nobody hears of it. "lost request": it never arrives. "slow":
    it waits for `go`. An exception is raised.
    """

    def __init__(self, store: SqliteStore) -> None:
        self.real = store
        self.plan: list[Any] = []
        self.arrived = asyncio.Event()
        self.go = asyncio.Event()
        self.renewals_fail = self.releases_fail = False
        self.answers: list[Appended] = []
        self.snapshots_wait = False
        self.snapshots: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    async def append(self, lease: Lease, end_offset: int, batches: Any) -> Appended:
        """One append, with the next planned fault."""
        fault = self.plan.pop(0) if self.plan else None
        if isinstance(fault, Exception):
            raise fault
        if fault == "lost request":
            return Unknown("no answer came")
        if fault == "slow":
            self.arrived.set()
            await self.go.wait()
        answer = await self.real.append(lease, end_offset, batches)
        self.answers.append(answer)
        return Unknown("no answer came") if fault == "lost answer" else answer

    async def save_snapshot(self, snapshot: Snapshot, *, keep_log_from: int) -> None:
        """Never ends while `snapshots_wait`; `snapshots` has the epochs of those under way."""
        self.snapshots.append(snapshot.epoch)
        try:
            if self.snapshots_wait:
                await asyncio.Event().wait()
            await self.real.save_snapshot(snapshot, keep_log_from=keep_log_from)
        finally:
            self.snapshots.remove(snapshot.epoch)

    async def renew_lease(self, lease: Lease) -> Lease | None:
        """The lease's row cannot be reached while `renewals_fail`."""
        if self.renewals_fail:
            raise StorageFault("the store is unreachable")
        return await self.real.renew_lease(lease)

    async def release_lease(self, lease: Lease) -> None:
        """As for renewals."""
        if self.releases_fail:
            raise StorageFault("the store is unreachable")
        await self.real.release_lease(lease)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FaultyStore]:
    opened = await SqliteStore.open(f"{tmp_path}/metadata.db")
    await opened.cluster_id(CLUSTER)
    yield FaultyStore(opened)
    await opened.close()


def new_shell(
    store: FaultyStore, node_id: int = 1, stops: list[str] | None = None, **settings: str
) -> ControllerShell:
    return ControllerShell(
        node_id,
        CLUSTER,
        store,  # type: ignore[arg-type]
        BrokerConfig.of(settings),
        on_changed=lambda _keys: None,
        on_stop=(stops if stops is not None else []).append,
    )


def commit(shell: ControllerShell, *numbers: int) -> asyncio.Future[Any]:
    return shell.submit(Propose(Result(tuple(map(topic, numbers)), "done")))


async def in_office(shell: ControllerShell, epoch: int) -> None:
    """Return when the shell is active in `epoch` and all that it planned is committed."""
    await eventually(lambda: shell.controller.active and shell.controller.epoch == epoch)
    await commit(shell)


def names(shell: ControllerShell) -> set[str]:
    return set(shell.controller.image.topic_ids_by_name)


@pytest.mark.parametrize(("fault", "kept"), [("lost answer", True), ("lost request", False)])
async def test_after_an_unknown_outcome_it_resigns_and_reads_again(
    store: FaultyStore, fault: str, kept: bool
) -> None:
    """The client is told NOT_CONTROLLER and the truth is what the store has, not what was hoped."""
    shell = new_shell(store)
    await shell.start()
    await commit(shell, 1)
    store.plan.append(fault)
    unknown = commit(shell, 2)
    on_top = commit(shell, 3)
    for future in (unknown, on_top):
        with pytest.raises(ApiError) as raised:
            await future
        assert raised.value.code == ErrorCode.NOT_CONTROLLER
    await in_office(shell, 2)
    assert names(shell) == {"t1", "t2"} - (set() if kept else {"t2"}) | ({"t3"} if kept else set())
    assert shell.controller.log.end_offset == (await store.end()).end_offset
    await commit(shell, 4)
    assert "t4" in names(shell)
    await shell.stop()


async def test_an_answer_never_leaves_before_its_append(store: FaultyStore) -> None:
    shell = new_shell(store)
    await shell.start()
    await commit(shell)
    store.plan.append("slow")
    future = commit(shell, 1)
    later = commit(shell)
    await store.arrived.wait()
    assert not future.done() and not later.done()
    assert shell.controller.log.end_offset == (await store.end()).end_offset
    store.go.set()
    assert await asyncio.gather(future, later) == ["done", "done"]
    await shell.stop()


async def test_a_lease_lost_while_an_append_is_under_way(store: FaultyStore) -> None:
    """The append of the deposed is refused, whatever it was, and its successor's log is whole."""
    old = new_shell(store)
    await old.start()
    await commit(old, 1)
    store.plan.append("slow")
    future = commit(old, 2)
    await store.arrived.wait()
    taken = await store.take_lease(await store.lease(), 2, "node-2", "there:1")
    assert taken is not None and taken.epoch == 2
    store.go.set()
    with pytest.raises(ApiError):
        await future
    assert isinstance(store.answers[-1], Deposed)
    assert not old.controller.active
    assert old.submit(Propose(Result((), None))).exception() is not None
    await store.release_lease(taken)
    await in_office(old, 3)
    assert names(old) == {"t1"}
    await old.stop()


async def test_two_controllers_on_one_store_never_both_commit(store: FaultyStore) -> None:
    first = new_shell(store, 1)
    await first.start()
    await commit(first, 1)
    second = new_shell(store, 2)
    await second.start()
    assert not second.controller.active
    second._step(events.HolderGone(1))  # it takes the lease early: that is safe
    await in_office(second, 2)
    await commit(second, 2)
    stale = commit(first, 3)
    with pytest.raises(ApiError):
        await stale
    assert names(second) == {"t1", "t2"}
    assert not first.controller.active
    await second.stop()
    await first.stop()


async def test_a_twin_takes_over_once_and_the_first_stops(
    store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes with one node.id on one store do not take turns."""
    monkeypatch.setattr(controller_module, "TIMING", LeaseTimes(renew_ms=10, watch_ms=10))
    stops: list[str] = []
    others: list[str] = []
    first = new_shell(store, stops=stops)
    await first.start()
    await commit(first, 1)
    twin = new_shell(store, stops=others)
    await twin.start()
    await eventually(lambda: twin.controller.active)
    await commit(twin, 2)
    await eventually(lambda: stops)
    assert "another process is controller with node.id=1" in stops[0]
    await commit(twin, 3)
    assert twin.controller.active and twin.controller.epoch == 2
    assert not first.controller.active and others == []
    await first.stop()
    await twin.stop()


async def test_a_snapshot_is_stored_by_time_too(store: FaultyStore) -> None:
    """`metadata.log.max.snapshot.interval.ms`, when anything was committed since."""
    shell = new_shell(store, **{"metadata.log.max.snapshot.interval.ms": "1"})
    await shell.start()
    await commit(shell, 1)
    await eventually(lambda: shell.controller.log.snapshot is not None)
    snapshot = await store.load_snapshot()
    assert snapshot is not None and snapshot.end_offset <= (await store.end()).end_offset
    await shell.stop()


async def test_a_lease_that_cannot_be_confirmed_ends_the_office(
    store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_module, "TIMING", LeaseTimes(renew_ms=10, watch_ms=10))
    shell = new_shell(store)
    await shell.start()
    await commit(shell, 1)
    store.renewals_fail = True
    await eventually(lambda: not shell.controller.active or shell.controller.epoch > 1)
    store.renewals_fail = False
    await eventually(lambda: shell.controller.active and shell.controller.epoch > 1)
    assert names(shell) == {"t1"}
    await shell.stop()


async def test_a_lease_that_was_given_back_is_left_to_others_first(
    store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who hears nobody gives way to those who look; when nobody does, it goes on."""
    monkeypatch.setattr(controller_module, "TIMING", LeaseTimes(renew_ms=50, watch_ms=10))
    first, other = new_shell(store), new_shell(store, 2)
    await first.start()
    await commit(first, 1)
    first._step(events.GiveWay("it hears nobody"))
    await other.start()
    await in_office(other, 2)
    assert not first.controller.active
    assert names(other) == {"t1"}
    first.tenure.state.timing = other.tenure.state.timing = LeaseTimes(
        1_000, renew_ms=50, watch_ms=10
    )
    begun_s = time.monotonic()
    other._step(events.GiveWay("it hears nobody"))
    await in_office(first, 3)
    first._step(events.GiveWay("it hears nobody"))
    await other.stop()
    await in_office(first, 4)
    assert time.monotonic() - begun_s >= 1.0
    await first.stop()


async def test_a_stop_without_the_store_is_in_order_all_the_same(store: FaultyStore) -> None:
    shell = new_shell(store)
    await shell.start()
    await commit(shell, 1)
    store.releases_fail = True
    await shell.stop()
    lease = await store.lease()
    assert lease is not None
    assert lease.holder == 1, "whoever comes next waits for the lease's time"


async def test_a_process_that_slept_through_its_lease_decides_nothing(store: FaultyStore) -> None:
    """It was frozen: before any timer of its own runs, a request arrives."""
    shell = new_shell(store)
    await shell.start()
    await commit(shell, 1)
    assert shell.tenure.state.holding is not None
    shell.tenure.state.holding.confirmed_ms -= shell.tenure.state.timing.lease_timeout_ms + 1
    refused = commit(shell, 2)
    assert refused.done()
    with pytest.raises(ApiError):
        refused.result()
    await in_office(shell, 2)
    assert names(shell) == {"t1"}
    await shell.stop()


async def test_a_failure_nobody_expected_stops_the_node(store: FaultyStore) -> None:
    """Rather than leave a controller that looks active and commits nothing."""
    stops: list[str] = []
    shell = new_shell(store, stops=stops)
    await shell.start()
    await commit(shell)
    store.plan.append(RuntimeError("out of threads"))
    with pytest.raises(ApiError):
        await commit(shell, 1)
    await eventually(lambda: stops)
    (why,) = stops
    assert re.fullmatch(r"the controller failed: RuntimeError at \w+\.py:\d+: out of threads", why)
    await shell.stop()


async def test_what_is_read_again_includes_the_snapshot(store: FaultyStore) -> None:
    shell = new_shell(store, **{FEW_BYTES: "1000"})
    await shell.start()
    for number in range(0, 100, 10):
        await commit(shell, *range(number, number + 10))
        await eventually(lambda: shell.controller.log.bytes_since_snapshot < 1000)
    assert shell.controller.log.start_offset > 0
    expected = names(shell)
    store.plan.append("lost answer")
    with pytest.raises(ApiError):
        await commit(shell, 500)
    await in_office(shell, 2)
    assert names(shell) == expected | {"t500"}
    assert shell.controller.log.snapshot is not None
    await shell.stop()


async def test_a_snapshot_ends_with_its_term(store: FaultyStore) -> None:
    """A connection and a copy of all metadata would be left behind in each term."""
    shell = new_shell(store, **{FEW_BYTES: "200"})
    store.snapshots_wait = True
    await shell.start()
    for epoch in (1, 2):
        await in_office(shell, epoch)
        await commit(shell, *range(10 * epoch, 10 * epoch + 5))
        await eventually(lambda now=epoch: now in store.snapshots)
        assert store.snapshots == [epoch]
        store.plan.append("lost answer")
        with pytest.raises(ApiError):
            await commit(shell, 100 + epoch)
    store.snapshots_wait = False
    await in_office(shell, 3)
    await commit(shell, *range(30, 35))
    await eventually(lambda: shell.controller.log.snapshot is not None)
    await shell.stop()


@pytest.mark.parametrize("starts", [False, True], ids=["running", "starting"])
async def test_a_log_that_is_trimmed_while_it_is_read_is_read_again(
    store: FaultyStore, starts: bool
) -> None:
    """Another controller, which is deposed meanwhile, may store a snapshot between two reads."""
    stops: list[str] = []
    shell = new_shell(store, stops=stops)
    await shell.start()
    for number in (1, 2, 3):
        await commit(shell, number)
    image, log = shell.controller.image, shell.controller.log
    newer = encoded(WriteSnapshot(log, image, (), 0), wall_ms=0)

    async def outrun() -> Snapshot | None:
        found = await store.real.load_snapshot()
        await store.save_snapshot(newer, keep_log_from=image.next_offset - 1)
        return found

    store.load_snapshot = outrun
    if starts:
        await shell.stop()
        shell = new_shell(store, stops=stops)
        await shell.start()
    else:
        store.plan.append("lost request")
        with pytest.raises(ApiError):
            await commit(shell, 4)
    await eventually(lambda: stops or shell.controller.active)
    assert not stops
    assert names(shell) == {"t1", "t2", "t3"}
    await shell.stop()


def fails_once(store: FaultyStore, name: str, fault: StorageFault) -> None:
    """The next call of that name is refused, and those after it are the real store's."""
    real, faults = getattr(store, name), [fault]

    async def call(*arguments: Any) -> Any:
        if faults:
            raise faults.pop()
        return await real(*arguments)

    setattr(store, name, call)


STARTS_CALL = ["lease", "take_lease", "load_snapshot", "read"]


@pytest.mark.parametrize("name", STARTS_CALL)
async def test_a_start_waits_for_a_store_that_goes_away_meanwhile(
    store: FaultyStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    said: list[str] = []
    heard = [lambda record: said.append(f"{record.getMessage()}: {record.anabranch_fields}")]
    monkeypatch.setattr(logs, "WATCHERS", heard)
    fails_once(store, name, StoreAway("metadata store s: nobody answers"))
    shell = new_shell(store)
    await shell.start()
    assert shell.controller.active
    (waits,) = [each for each in said if "waiting for the metadata store" in each]
    assert "metadata store s: nobody answers" in waits
    await shell.stop()


@pytest.mark.parametrize("name", STARTS_CALL)
async def test_a_start_does_not_wait_for_a_store_that_refuses(
    store: FaultyStore, name: str
) -> None:
    fails_once(store, name, StorageFault("metadata store s: permission denied"))
    shell = new_shell(store)
    with pytest.raises(StorageFault, match="permission denied"):
        await shell.start()
    await shell.stop()


async def test_a_start_waits_for_a_store_that_is_away_no_longer_than_its_time(
    store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_module, "TIMING", LeaseTimes(watch_ms=10))
    said: list[str] = []
    monkeypatch.setattr(logs, "WATCHERS", [lambda record: said.append(record.levelname)])
    asked: list[str] = []

    async def away() -> None:
        asked.append("lease")
        raise StoreAway("metadata store s: nobody answers")

    store.lease = away
    shell = new_shell(store, **{"initial.broker.registration.timeout.ms": "100"})
    async with asyncio.timeout(10):
        with pytest.raises(StoreAway):
            await shell.start()
    assert len(asked) > 1
    assert said.count("WARNING") == 1
    assert said.count("ERROR") <= 1, "at its end"
    await shell.stop()
