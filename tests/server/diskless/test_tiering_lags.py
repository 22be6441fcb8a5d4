"""How far tiering is behind, from the rows of a coordinator to an alert."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.core.tiering.test_lag import image
from tests.server.promql import fires
from tests.server.test_alerts import RULES
from tests.stores.coordinator.coordinator_kit import (
    BROKER,
    CLUSTER,
    DELTA,
    RIVER,
    TOPICS,
    batch,
    commit,
    make_river,
)

from anabranch.core.diskless.coordinator import CoordinatorAway
from anabranch.core.remote.segments import EpochStart, RemoteSegment, SegmentId
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.tiering.plan import Eligible, next_segment
from anabranch.server.diskless import tiering_lags as module
from anabranch.server.diskless.stores import Stores
from anabranch.server.diskless.tiering_lags import TieringLags
from anabranch.server.exported import METRICS
from anabranch.server.metrics import samples_of_tiering
from anabranch.stores.coordinator.sqlite import SqliteCoordinator

HOUR_MS = 3_600_000
RULE = RULES["DisklessTieringStopped"]["expr"]
SETTINGS = {"diskless.tiering.age.ms": str(HOUR_MS), "diskless.tiering.min.segment.bytes": "100"}


class River:
    """A topic with rows, a broker that leads both of its partitions, and a clock for both."""

    def __init__(self, on, clock):
        self.clock = clock
        self.stores = Stores(on, None, 0)
        of = image({"river": [BROKER, BROKER]}, river=SETTINGS)
        assert list(of.topics_by_id) == [TOPICS[0]]
        broker = SimpleNamespace(
            image=of, config=BrokerConfig({"node.id": "1"}, {}, {}), broker_id=BROKER
        )
        self.lags = TieringLags(broker, self.stores)

    async def tier(self, number):
        """A job that has one segment to make."""
        claims = self.stores.tiering
        await claims.claim(number, "job", [BROKER])
        wanted = Eligible(RIVER, HOUR_MS, 100, 1 << 30)
        (aged,) = await claims.aged(number, [wanted])
        planned = next_segment(aged.state, aged.runs, wanted, aged.now_ms)
        segment = RemoteSegment(
            SegmentId(bytes([number]) * 16), RIVER, planned.start_offset, planned.end_offset, 1000,
            (EpochStart(0, planned.start_offset),), planned.byte_size, BROKER, 0,
        )  # fmt: skip
        await claims.start(number, "river", segment)
        await claims.finish(RIVER, 0, segment.segment_id)
        await claims.release(number)

    def samples(self):
        found = list(samples_of_tiering(self.lags.newest()))
        assert {name for name, *_ in found} <= {each.name for each in METRICS}
        return {name.rpartition("_")[2]: value for name, _, value in found}

    def alerts(self):
        page = "".join(
            f'{name}{{topic="{labels[0]}"}} {value}\n'
            for name, labels, value in samples_of_tiering(self.lags.newest())
        )
        return fires(RULE, {"a": page})


@pytest.fixture
async def river(tmp_path, monkeypatch):
    clock = [1_700_000_000_000]
    monkeypatch.setattr(module, "steady_ms", lambda: clock[0])
    on = await SqliteCoordinator.open(
        str(tmp_path / "diskless.db"), CLUSTER, clock=lambda: clock[0]
    )
    await make_river(on)
    yield River(on, clock)
    await on.close()


async def test_an_alert_fires_when_a_job_that_ran_has_stopped_and_ends_when_it_runs(river):
    on = river.stores.coordinator
    await commit(on, batch())
    river.clock[0] += HOUR_MS
    await river.tier(1)
    await commit(on, batch())
    for _ in range(7):
        await river.lags.round()
        assert not river.alerts()
        river.clock[0] += HOUR_MS
    await river.lags.round()
    assert river.samples() == {"rows": 1, "bytes": 100, "seconds": 6 * 3600}
    river.clock[0] += 1000
    assert river.alerts(), "what waits, waits on between two rounds"
    await river.lags.round()
    assert river.alerts()
    await river.tier(2)
    await river.lags.round()
    assert not river.alerts()
    assert river.samples() == {"rows": 0, "bytes": 0, "seconds": 0}


async def test_a_cluster_without_a_job_has_figures_and_no_alert(river):
    await commit(river.stores.coordinator, batch(count=3), batch(DELTA, size=40))
    river.clock[0] += 100 * HOUR_MS
    await river.lags.round()
    assert river.samples() == {"rows": 2, "bytes": 140}
    assert not river.alerts()


async def test_what_is_too_little_for_a_segment_is_not_behind(river):
    on = river.stores.coordinator
    await commit(on, batch())
    river.clock[0] += HOUR_MS
    await river.tier(1)
    await commit(on, batch(size=99))
    river.clock[0] += 100 * HOUR_MS
    await river.lags.round()
    assert river.samples() == {"rows": 1, "bytes": 99, "seconds": 0}
    assert not river.alerts()


async def test_figures_stay_while_the_coordinator_is_away(river, monkeypatch):
    on = river.stores.coordinator
    await commit(on, batch())
    river.clock[0] += HOUR_MS
    await river.tier(1)
    await commit(on, batch())
    river.clock[0] += HOUR_MS + 5000
    await river.lags.round()

    async def away(*_):
        raise CoordinatorAway("away")

    monkeypatch.setattr(on, "call", away)
    river.clock[0] += 5000
    with pytest.raises(CoordinatorAway):
        await river.lags.round()
    assert river.samples() == {"rows": 1, "bytes": 100, "seconds": 10}
