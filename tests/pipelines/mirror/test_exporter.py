"""`anabranch mirror run --metrics`: what Prometheus reads of a mirror that runs."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import threading
import time
import urllib.request
import zipfile
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families
from tests.pipelines.mirror.test_driver import commit
from tests.pipelines.mirror.test_faults import admin
from tests.pipelines.mirror.test_slot import MODES, batch
from tests.server.test_board import MIRRORED

from anabranch.cli.main import main
from anabranch.client.admin import ConfigOperation, ResourceKind, alter_configs
from anabranch.core.mirror.exported import GROUP, METRICS, PARTITION
from anabranch.core.wire.records import Record, build_batch
from anabranch.pipelines.mirror import exporter as module
from anabranch.pipelines.mirror.driver import run_mirror
from anabranch.pipelines.mirror.exporter import BadAddress, Exporter, address_of

SOURCE = "kafka_connect_mirror_mirrorsourceconnector_"
CHECKPOINT = "kafka_connect_mirror_mirrorcheckpointconnector_"
SECONDS = 60
MIRROR_MAKER = (
    Path(__file__).resolve().parents[3] / ".cache" / "mirror-maker" / "connect-mirror-4.1.0.jar"
)


class Page:
    """The samples of a scrape, by name and labels."""

    def __init__(self, exporter):
        with urllib.request.urlopen(f"http://{exporter.address}/metrics", timeout=10) as answer:
            self.text = answer.read().decode()
        self.samples = [
            each for family in text_string_to_metric_families(self.text) for each in family.samples
        ]

    def value(self, name, **labels):
        """The value of the one series with these labels among others; None without one."""
        found = [
            each.value
            for each in self.samples
            if each.name == name and labels.items() <= each.labels.items()
        ]
        assert len(found) < 2, found
        return found[0] if found else None


def watched(clusters, spark, during, *, seconds=2.0, **more):
    """Mirror while `during(exporter)` is called in a thread, and end after it."""
    exporter = Exporter.start("127.0.0.1", 0)
    config = clusters.config(**more)

    async def work():
        stop = asyncio.Event()
        job = asyncio.create_task(
            run_mirror(
                spark, config, tell=lambda _: None, stop=stop, wave_seconds=seconds,
                watch=exporter.watch,
            )
        )  # fmt: skip
        asking = asyncio.create_task(asyncio.to_thread(during, exporter))
        await asyncio.wait([job, asking], return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        await job
        return await asking

    return asyncio.run(work()), exporter


def until(exporter, condition):
    """The first page that fits."""
    deadline = time.monotonic() + SECONDS
    while True:
        page = Page(exporter)
        if condition(page):
            return page
        assert time.monotonic() < deadline, page.text
        time.sleep(0.2)


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Lags are measured often."""
    monkeypatch.setattr(module, "LAG_SECONDS", 0.2)


def aged(first, count, seconds):
    """A batch whose records are so old."""
    then_ms = time.time_ns() // 1_000_000 - 1000 * seconds
    return build_batch([Record(each, then_ms, b"", b"x" * 100) for each in range(count)])


@MODES
def test_the_page_of_a_mirror_says_what_was_moved_and_what_was_not(clusters, spark, more):
    topic = clusters.topic(partitions=2)
    clusters.produce(topic, 0, aged(0, 700, 600), aged(700, 300, 60))
    clusters.produce(topic, 1, aged(0, 5, 0))
    group = f"g-{topic}"
    commit(clusters.east, group, {(topic, 0): 400})
    place = {"source": "east", "target": "west", "topic": f"east.{topic}", "partition": "0"}

    def during(exporter):
        def settled(page):
            return (
                page.value(f"{SOURCE}record_count", **place) == 1_000
                and page.value("anabranch_mirror_lag_records", **place) == 0
                and page.value(f"{CHECKPOINT}checkpoint_latency_ms", group=group, **place)
                is not None
            )

        first = until(exporter, settled)
        idle = until(exporter, lambda page: page.value(f"{SOURCE}record_rate", **place) == 0)
        return first, idle

    (page, idle), exporter = watched(clusters, spark, during, topics=topic, groups=group, **more)
    names = {each.name for each in page.samples}
    assert {each.name for each in METRICS} <= names
    assert names >= MIRRORED, "the Grafana board's"
    size_bytes = page.value(f"{SOURCE}byte_count", **place)
    assert size_bytes > 1_000
    rate = page.value(f"{SOURCE}record_rate", **place)
    assert rate > 1
    assert page.value(f"{SOURCE}byte_rate", **place) == pytest.approx(rate * size_bytes / 1_000)
    oldest = page.value(f"{SOURCE}record_age_ms_max", **place)
    assert 600_000 <= oldest < 900_000
    assert 60_000 <= page.value(f"{SOURCE}record_age_ms_min", **place) < 300_000
    assert page.value(f"{SOURCE}record_age_ms_avg", **place) == pytest.approx(438_000, rel=0.3)
    assert page.value(f"{SOURCE}replication_latency_ms_max", **place) >= oldest
    behind = [each.value for each in page.samples if each.name == "anabranch_mirror_lag_records"]
    assert page.value("anabranch_mirror_flow_lag_records", source="east") == sum(behind)
    assert page.value("anabranch_mirror_stopped_partitions", source="east") == 0
    assert abs(page.value("anabranch_mirror_lived_timestamp_seconds") - time.time()) < SECONDS
    assert page.value("anabranch_mirror_duty_failing", duty="checkpoints") == 0
    assert idle.value(f"{SOURCE}record_age_ms_max", **place) is None
    assert idle.value(f"{SOURCE}record_count", **place) == 1_000
    after = Page(exporter)
    assert not [each for each in after.samples if "mirror" in each.name], "the mirror has ended"
    assert "process_cpu_seconds_total" in after.text


@pytest.mark.slow
def test_a_partition_that_stands_still_is_behind_by_records_bytes_and_seconds(clusters, spark):
    topic = clusters.topic(partitions=2)
    clusters.produce(topic, 0, batch(0, 10))

    def during(exporter):
        place = {"topic": f"east.{topic}", "partition": "0"}
        until(exporter, lambda page: page.value(f"{SOURCE}record_count", **place) == 10)
        limit = [(ConfigOperation.SET, "max.message.bytes", "100")]
        admin(
            clusters.west,
            lambda found: alter_configs(found, ResourceKind.TOPIC, f"east.{topic}", limit),
        )
        clusters.produce(topic, 0, aged(10, 5, 600))
        return until(
            exporter, lambda page: page.value("anabranch_mirror_stopped_partitions") == 1
        ), until(exporter, lambda page: page.value("anabranch_mirror_lag_records", **place) == 5)

    more = {"sync.topic.configs.enabled": "false", "refresh.topics.interval.seconds": "1"}
    (_, page), _ = watched(clusters, spark, during, topics=topic, **more)
    place = {"topic": f"east.{topic}", "partition": "0"}
    assert 600 <= page.value("anabranch_mirror_lag_seconds", **place) < 900
    assert 100 < page.value("anabranch_mirror_lag_bytes", **place) < 5_000
    assert page.value("anabranch_mirror_flow_lag_seconds") >= 600


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("9645", "--metrics: 9645 is not an address; write HOST:PORT, for example 127.0.0.1:9645"),
        ("127.0.0.1:http", "is not an address"),
        ("127.0.0.1:99999", "is not an address"),
        ("0.0.0.0:9645", "could be read by other machines"),
        (":9645", "could be read by other machines"),
        ("metrics.example:9645", "write 127.0.0.1:9645, and let a proxy on this machine"),
    ],
)
def test_addresses_that_cannot_be_are_refused_in_a_sentence(text, told):
    with pytest.raises(BadAddress) as refused:
        address_of(text)
    assert told in str(refused.value)


def test_a_bad_address_is_told_with_nothing_begun(clusters, tmp_path):
    path = tmp_path / "mm2.properties"
    path.write_text("\n".join(f"{key} = {text}" for key, text in clusters.keys().items()))
    words = ["mirror", "run", str(path), "--validate-only", "--metrics", "0.0.0.0:9645"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert "0.0.0.0:9645 could be read by other machines" in " ".join(result.output.split())


@pytest.mark.parametrize("host", ["localhost", "::1"])
def test_other_names_of_this_machine_are_served_too(host):
    exporter = Exporter.start(*address_of(f"[{host}]:0" if ":" in host else f"{host}:0"))
    assert "process_cpu_seconds_total" in Page(exporter).text, "before a mirror has begun"


@pytest.mark.skipif(not MIRROR_MAKER.exists(), reason="make compat brings MirrorMaker 2's jar")
def test_the_names_are_those_of_mirror_makers_own_classes():
    """Every metric and label of MirrorMaker 2, as the texts of its classes have them."""
    of_source, of_checkpoints = map(texts_of, ("MirrorSourceMetrics", "MirrorCheckpointMetrics"))
    names = {
        SOURCE: metric_names(of_source),
        CHECKPOINT: metric_names(of_checkpoints) - metric_names(of_source),  # constants, unused
    }
    for connector, labels, texts in (
        (SOURCE, PARTITION, of_source), (CHECKPOINT, GROUP, of_checkpoints),
    ):  # fmt: skip
        ours = {each.name for each in METRICS if each.name.startswith(connector)}
        assert ours == {connector + each.replace("-", "_") for each in names[connector]}
        assert set(labels) <= texts
        assert all(each.labels == labels for each in METRICS if each.name in ours)


def texts_of(name):
    """The words in the constants of a class of MirrorMaker 2."""
    with zipfile.ZipFile(MIRROR_MAKER) as jar:
        content = jar.read(f"org/apache/kafka/connect/mirror/{name}.class")
    return {each.decode() for each in re.findall(rb"\x01\x00[\x04-\x20]([a-z-]+)", content)}


def metric_names(texts):
    return {each for each in texts if re.search("-(ms|ms-min|ms-max|ms-avg|count|rate)$", each)}


def test_a_port_in_use_is_told_before_anything_begins(clusters, tmp_path):
    path = tmp_path / "mm2.properties"
    path.write_text("\n".join(f"{key} = {text}" for key, text in clusters.keys().items()))
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = CliRunner().invoke(main, ["mirror", "run", str(path), "--metrics", address])
    assert result.exit_code == 1
    assert f"metrics cannot use {address}: the port is in use; stop the other program" in (
        result.output
    )


@pytest.mark.parametrize("ending", ["closed", "cancelled", "busy"])
def test_a_page_while_the_mirror_ends_has_no_figures_and_no_trace(ending, monkeypatch, capsys):
    """The driver's loop has ended, ends with what is asked of it, or answers too late."""
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.2)
    exporter = Exporter.start("127.0.0.1", 0)
    begun, asked = threading.Event(), threading.Event()

    async def never():
        asked.set()
        await asyncio.Event().wait()

    async def ends():
        exporter._driver = SimpleNamespace(flows=())
        exporter._loop = asyncio.get_running_loop()
        begun.set()
        if ending == "busy":
            time.sleep(1)  # noqa: ASYNC251 - that is the case
        if ending == "cancelled":
            await asyncio.to_thread(asked.wait)

    monkeypatch.setattr(exporter, "_moment", never)
    thread = threading.Thread(target=lambda: asyncio.run(ends()))
    thread.start()
    begun.wait()
    if ending == "closed":
        thread.join()
    page = Page(exporter)
    thread.join()
    assert page.value("process_max_fds") and page.value("anabranch_mirror_waves_total") is None
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("sent", [b"", b"GET /met", b"GET /metrics HTTP/1.1\r\n\r\n", b"\x16\x03"])
def test_a_client_that_breaks_its_connection_leaves_no_trace(sent, capsys):
    exporter = Exporter.start("127.0.0.1", 0)
    host, port = exporter.address.split(":")
    for _ in range(10):
        client = socket.create_connection((host, int(port)))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.sendall(sent)
        client.close()
    assert Page(exporter).value("process_max_fds")
    assert capsys.readouterr().err == ""
