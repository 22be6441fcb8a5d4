"""The metrics of a running mirror, as text for Prometheus over HTTP.

What: `Exporter.start` binds the address, `Exporter.watch` measures the lag of all flows every
LAG_SECONDS and answers scrapes until the mirror ends. Rules kept: it reads, and holds up no wave;
the driver's figures are read in its own loop; what cannot be told has no series. Not here: what the
figures are (`core.mirror.figures`, `core.mirror.exported`, `lag`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from anabranch.core.metric import COUNTER
from anabranch.core.mirror.exported import (
    CHECKPOINTS,
    LAGS,
    METRICS,
    MOVED,
    PREFIX,
    Sample,
    checkpoint_samples,
    movement_samples,
)
from anabranch.core.mirror.figures import kept
from anabranch.core.settings.listeners import (
    bind_sentence,
    host_text,
    is_loopback,
    parse_listeners,
)
from anabranch.core.settings.setting import ConfigFault
from anabranch.pipelines.mirror.duties import TROUBLE
from anabranch.pipelines.mirror.lag import FlowLag, PartitionLag, lag_of

if TYPE_CHECKING:
    from anabranch.pipelines.mirror.driver import Driver

OPTION = "--metrics"
LAG_SECONDS = 10.0
"""Between two measurements of lags."""
ANSWER_SECONDS = 5.0
"""The driver's loop answers in milliseconds, unless the mirror is ending."""
BY_NAME = {each.name: each for each in METRICS}


class BadAddress(Exception):
    """An address that metrics cannot be served at; the text says why, and what to write."""


def address_of(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`. Raises BadAddress."""
    try:
        (listener,) = parse_listeners(OPTION, f"PLAINTEXT://{text}", {"PLAINTEXT": "PLAINTEXT"})
    except (ConfigFault, ValueError):
        raise BadAddress(
            f"{OPTION}: {text} is not an address; write HOST:PORT, for example 127.0.0.1:9645"
        ) from None
    if not is_loopback(listener.host):
        raise BadAddress(
            f"{OPTION}: {text} could be read by other machines, and metrics are not encrypted; "
            f"write 127.0.0.1:{listener.port}, and let a proxy on this machine pass them on"
        )
    return listener.host, listener.port


def _nothing(request: object, address: object) -> None:
    """What becomes of a connection that a client broke: it is no concern of the mirror's user."""


class Exporter(Collector):
    """Serves the metrics of one mirror."""

    def __init__(self) -> None:
        self.address = ""
        self._driver: Driver | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lags: dict[str, FlowLag] = {}

    @classmethod
    def start(cls, host: str, port: int) -> Exporter:
        """Bind and serve; what there is to tell comes with `watch`. Raises BadAddress."""
        exporter = cls()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(exporter)
        ProcessCollector(registry=registry)
        try:
            server, _ = start_http_server(port, host, registry)
        except (OSError, OverflowError) as fault:
            where = f"metrics cannot use {host_text(host)}:{port}"
            raise BadAddress(bind_sentence(where, fault, OPTION)) from None
        server.handle_error = _nothing  # type: ignore[assignment]
        exporter.address = f"{host_text(host)}:{server.server_port}"
        return exporter

    async def watch(self, driver: Driver) -> None:
        """Measure lags until cancelled."""
        self._driver, self._loop = driver, asyncio.get_running_loop()
        try:
            while True:
                for flow in driver.flows:
                    if flow.is_open:
                        await self._measure(driver, flow.flow.name)
                    else:
                        self._lags.pop(flow.flow.name, None)
                await asyncio.sleep(LAG_SECONDS)
        finally:
            self._driver = None

    async def _measure(self, driver: Driver, name: str) -> None:
        flow = next(each for each in driver.flows if each.flow.name == name)
        try:
            self._lags[name] = await lag_of(
                flow.flow, flow.source, flow.ledger, flow.topics.mirrored
            )
        except TROUBLE:  # the duties say so, and the flow no longer lives
            self._lags.pop(name, None)

    # Scrapes, which come in threads of their own.

    def collect(self) -> Iterable[Metric]:
        """What holds now; nothing before the mirror has begun and after it has ended."""
        if self._driver is None or self._loop is None:
            return []
        moment = self._moment()
        try:
            asked = asyncio.run_coroutine_threadsafe(moment, self._loop)
            return _families(asked.result(ANSWER_SECONDS))
        except TimeoutError:
            asked.cancel()
        except CancelledError:  # the mirror ends
            pass
        except RuntimeError:  # its loop has ended
            moment.close()
        return []

    async def _moment(self) -> list[Sample]:
        return [] if self._driver is None else list(samples(self._driver, self._lags.values()))


def samples(driver: Driver, lags: Iterable[FlowLag]) -> Iterator[Sample]:
    """All that a mirror exports."""
    yield f"{PREFIX}waves_total", (), driver.totals.waves
    yield f"{PREFIX}failed_waves_total", (), driver.totals.failed_waves
    yield from _flow_samples(driver)
    moved, left_out = kept(driver.movements.all(), lambda each: each[0])
    for place, movement in moved:
        labels = place.source, place.target, place.topic, str(place.partition)
        yield from movement_samples(labels, movement)
    yield f"{PREFIX}left_out_series", (MOVED,), left_out
    yield from _checkpoint_samples(driver)
    yield from _lag_samples(driver, list(lags))


def _flow_samples(driver: Driver) -> Iterator[Sample]:
    for flow in driver.flows:
        labels = flow.flow.source, flow.flow.target
        name = flow.flow.name
        yield f"{PREFIX}stopped_partitions", labels, driver.stopped.get(name, 0)
        if name in driver.lived_at:
            yield f"{PREFIX}lived_timestamp_seconds", labels, driver.lived_at[name]
        if name in driver.duties:
            for duty, state in driver.duties[name].statistics().items():
                yield f"{PREFIX}duty_failing", (*labels, duty), int(state.failed)
                if state.done_at is not None:
                    yield f"{PREFIX}duty_timestamp_seconds", (*labels, duty), state.done_at


def _checkpoint_samples(driver: Driver) -> Iterator[Sample]:
    now_ms = time.time_ns() // 1_000_000
    found = (
        ((state.flow.source, state.flow.target, group, *place), latency)
        for state in driver.flows
        if state.flow.name in driver.duties
        for (group, place), latency in driver.duties[state.flow.name].groups.latencies.items()
    )
    shown, left_out = kept(found, lambda each: each[0])
    for labels, latency in shown:
        yield from checkpoint_samples(tuple(map(str, labels)), latency.at(now_ms))
    yield f"{PREFIX}left_out_series", (CHECKPOINTS,), left_out


def _lag_samples(driver: Driver, lags: list[FlowLag]) -> Iterator[Sample]:
    """Of flows in all, and of the partitions that are most behind."""
    ends = {each.flow.name: (each.flow.source, each.flow.target) for each in driver.flows}
    for each in lags:
        labels = ends[each.flow]
        yield f"{PREFIX}flow_lag_records", labels, each.records
        yield f"{PREFIX}flow_lag_bytes", labels, each.size_bytes
        yield f"{PREFIX}flow_lag_seconds", labels, each.seconds
        yield f"{PREFIX}unknown_partitions", labels, each.unknown
    partitions = [one for each in lags for one in each.partitions if one.records is not None]
    shown, left_out = kept(partitions, _most_behind)
    for one in shown:
        place = (*ends[one.flow], one.remote, str(one.partition))
        for what in ("records", "size_bytes", "seconds"):
            value = getattr(one, what)
            if value is not None:
                yield f"{PREFIX}lag_{what.removeprefix('size_')}", place, value
    yield f"{PREFIX}left_out_series", (LAGS,), left_out


def _most_behind(lag: PartitionLag) -> tuple[int, str, str, int]:
    return -(lag.records or 0), lag.flow, lag.remote, lag.partition


def _families(found: Iterable[Sample]) -> Iterable[Metric]:
    families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
    for name, labels, value in found:
        if name not in families:
            metric = BY_NAME[name]
            kind = CounterMetricFamily if metric.kind == COUNTER else GaugeMetricFamily
            bare = name.removesuffix("_total")
            families[name] = kind(bare, metric.sentence, labels=metric.labels)
        families[name].add_metric(labels, value)
    return families.values()
