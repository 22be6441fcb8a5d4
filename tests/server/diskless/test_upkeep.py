"""What a broker does for diskless storage beside serving: its turn, its figures, its end."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace

import pytest
from tests.server.promql import fires
from tests.server.test_alerts import RULES
from tests.stores.coordinator.async_memory import AsyncMemoryCoordinator

from anabranch.core.diskless.manifests import decode_manifest, manifests_prefix
from anabranch.core.diskless.rows import (
    Batch,
    Change,
    Commit,
    CommitState,
    Committed,
    LogKey,
    LogState,
    Verdict,
)
from anabranch.core.errors import ErrorCode, StorageFault
from anabranch.core.types import TopicId
from anabranch.server import clocks
from anabranch.server.diskless import combiner
from anabranch.server.diskless import upkeep as upkeep_module
from anabranch.server.diskless.upkeep import DisklessUpkeep
from anabranch.server.exported import METRICS
from anabranch.stores.objects.engines import open_objects

NAMES = itertools.count()
KEY = LogKey(TopicId(bytes([7]) * 16), 0)


def new_broker(broker_id, fenced):
    """Of a cluster whose brokers are fenced or not."""
    brokers = {each: SimpleNamespace(fenced=is_fenced) for each, is_fenced in fenced.items()}
    image = SimpleNamespace(
        brokers=brokers,
        topic_by_id=lambda topic_id: (
            SimpleNamespace(name="t") if topic_id == KEY.topic_id else None
        ),
    )
    config = SimpleNamespace(diskless_producer_id_expiration_ms=1000)
    return SimpleNamespace(broker_id=broker_id, broker_epoch=5, image=image, config=config)


async def new_upkeep(broker_id=2, fenced=None):
    store = await open_objects(f"memory://upkeep-{next(NAMES)}")
    broker = new_broker(broker_id, fenced or {1: False, 2: False, 3: True, 4: False})
    return store, DisklessUpkeep(broker, AsyncMemoryCoordinator(), store, "c")


@pytest.mark.parametrize(
    ("broker_id", "turn"), [(1, (0, 3)), (2, (1, 3)), (4, (2, 3)), (3, (3, 3))]
)
async def test_living_brokers_take_turns_by_their_ids(broker_id, turn):
    _, upkeep = await new_upkeep(broker_id)
    assert upkeep._turn() == turn


async def test_what_was_noted_is_stored_when_the_broker_stops():
    store, upkeep = await new_upkeep()
    upkeep.start()
    commit = Commit(1, "o/1", 900, 2, 5, (Batch(KEY, 30, 100, 1, 5),))
    upkeep.committed(commit, Committed(CommitState.COMMITTED, (Verdict(ErrorCode.NONE, 40),)))
    upkeep.heard([Change(KEY, LogState(12, 40))])
    upkeep.heard([Change(LogKey(KEY.topic_id, 1), LogState(0, 4))])  # it was made
    await upkeep.stop()
    [key] = [each.key async for page in store.list(manifests_prefix("c")) for each in page]
    [held] = await store.read(key, [(0, await store.size(key))])
    manifest = decode_manifest(held, key)
    assert manifest.objects[0].batches[0].base_offset == 40
    assert (manifest.starts, manifest.names) == ([(KEY, 12)], {KEY.topic_id: "t"})


async def test_every_figure_is_an_exported_metric():
    _, upkeep = await new_upkeep()
    await upkeep._collector.round(0, 1)
    upkeep.heard([Change(KEY, None)])
    await upkeep.stop()
    figures = {f"anabranch_diskless_{name}" for name in upkeep.statistics()}
    assert figures <= {metric.name for metric in METRICS}
    assert {
        "anabranch_diskless_garbage_age_seconds",
        "anabranch_diskless_manifest_age_seconds",
    } <= figures


async def test_ages_are_of_one_clock_also_after_the_machine_slept(monkeypatch):
    """Linux stops only one of its steady clocks meanwhile: here they are years apart."""
    monkeypatch.setattr(clocks, "STEADY_CLOCK", time.CLOCK_REALTIME)
    _, upkeep = await new_upkeep()
    upkeep.start()
    await upkeep._collector.round(0, 1)
    await upkeep._combiner.round()
    upkeep.heard([Change(KEY, None)])
    await upkeep.stop()
    ages = {name: age for name, age in upkeep.statistics().items() if name.endswith("age_seconds")}
    assert len(ages) == 3 and all(0 <= age < 60 for age in ages.values()), ages


@pytest.mark.parametrize("has_succeeded", [True, False])
async def test_an_alert_fires_while_manifests_cannot_be_combined(monkeypatch, has_succeeded):
    """Also when they could not be since the broker started: then its restart may be the cause."""
    hours = [100.0]
    for module in (upkeep_module, combiner):
        monkeypatch.setattr(module, "steady_ms", lambda: int(hours[0] * 3_600_000))
    store, upkeep = await new_upkeep()

    def alerts() -> bool:
        age = upkeep.statistics()["combining_age_seconds"]
        page = f"anabranch_diskless_combining_age_seconds {age}\n"
        return fires(RULES["DisklessManifestsNotCombined"]["expr"], {"a": page})

    def away(_prefix):
        raise StorageFault("away")

    upkeep.start()
    if has_succeeded:
        await upkeep._combiner.round()
    with monkeypatch.context() as patched:
        patched.setattr(store, "list", away)
        for _ in range(13):
            assert not alerts()
            hours[0] += 1
            await upkeep._combiner.round()
        assert alerts()
    await upkeep._combiner.round()
    assert not alerts()
    await upkeep.stop()
