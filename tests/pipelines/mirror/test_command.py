"""`anabranch mirror`: run, bad files, what a flow would do, lag, and translated offsets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner
from tests.pipelines.mirror.test_driver import commit
from tests.pipelines.mirror.test_slot import batch, mirror, seen

from anabranch.cli.main import main
from anabranch.client.cluster import Cluster
from anabranch.core.errors import ApiError
from anabranch.pipelines.mirror import lag as module
from anabranch.pipelines.mirror.driver_flow import FlowState
from anabranch.pipelines.mirror.failover import failback_plan, failover_plan
from anabranch.pipelines.mirror.lag import flow_lag
from anabranch.pipelines.mirror.properties import load_config
from anabranch.pipelines.mirror.remote_topics import shapes
from anabranch.pipelines.mirror.translation import translate, translated

LIMIT_SECONDS = 200


@pytest.fixture
def file(clusters, tmp_path):
    """Writes an mm2.properties; gives its path."""

    def write(**more):
        path = tmp_path / "mm2.properties"
        lines = [f"{key} = {text}" for key, text in clusters.keys(**more).items()]
        path.write_text("\n".join(lines))
        return str(path)

    return write


@pytest.fixture
def other_name(clusters, tmp_path):
    """Writes the file of a mirror from the same source under a name that no mirror had before."""

    def write(name, **more):
        path = tmp_path / f"{name}.properties"
        keys = {
            key.replace("east", name): text
            for key, text in clusters.keys().items()
        } | {"clusters": f"{name}, west"} | more  # fmt: skip
        path.write_text("\n".join(f"{key} = {text}" for key, text in keys.items()))
        return str(path)

    return write


def verb(*words, code=0):
    """The output of a verb."""
    result = CliRunner().invoke(main, ["mirror", *words])
    assert result.exit_code == code, result.output
    return result.output


def test_what_a_flow_would_do_is_told_and_not_done(clusters, file):
    topic = clusters.topic(partitions=3)
    output = verb("run", file(topics=topic, topcis="x"), "--validate-only")
    assert "east->west: at least once" in output
    assert f"{topic} -> east.{topic}: 3 partitions, would be created" in output
    assert "topcis is not a key of a mirror and is ignored; did you mean topics?" in output


def test_clusters_that_cannot_be_used_are_named(clusters, file):
    away = {"west.bootstrap.servers": "127.0.0.1:1"}
    output = verb("run", file(**away), "--validate-only", code=1)
    assert "Cluster west (west.bootstrap.servers) cannot be used: 127.0.0.1:1" in output
    same = {"west.bootstrap.servers": clusters.east.bootstrap_servers}
    assert "lead to the same cluster" in verb("run", file(**same), "--validate-only", code=1)


def test_replication_factors_beyond_the_brokers_are_told_together(clusters, other_name):
    """All keys at once, so that nobody starts Spark once for each; before a first run of a mirror
    with these names."""
    keys = ("replication.factor", "offset.storage.replication.factor",
            "checkpoints.topic.replication.factor", "heartbeats.topic.replication.factor",
            "offset-syncs.topic.replication.factor")  # fmt: skip
    topic = clusters.topic()
    path = other_name("early", topics=topic, **{"offset-syncs.topic.location": "target"},
                      **dict.fromkeys(keys, "3"))  # fmt: skip
    output = verb("run", path, "--validate-only", code=1)
    for key in keys:
        assert (f"{key} = 3: west has 1 broker. Set it to at most 1, or to -1" in output) != (
            key.startswith("heartbeats") and "heartbeats" in existing(clusters.west)
        )
    fine = other_name("early", topics=topic, **dict.fromkeys(keys, "-1"))
    assert "brokers." not in verb("run", fine, "--validate-only")


def existing(cluster):
    """The topics of a cluster."""

    async def look():
        async with Cluster(cluster.bootstrap_servers) as found:
            return await shapes(found)

    return asyncio.run(look())


def test_before_a_first_run_commands_answer_without_waiting_for_its_topics(
    clusters, other_name, monkeypatch
):
    """The deadline of the clients is longer than the test may take."""
    monkeypatch.setattr("anabranch.pipelines.mirror.clusters.DEADLINE_SECONDS", 3_600.0)
    topic = clusters.topic()
    clusters.produce(topic, 0, batch(0, 10))
    path = other_name("new", topics=topic)
    config = load_config(path)

    async def look():
        async with asyncio.timeout(60):
            lag = await flow_lag(config.flows[0])
            offsets = await translated(config.flows[0], "nobody")
            plan = await failover_plan(config.flows[0])
            return lag, offsets, plan, await failback_plan(config, config.flows[0])

    lag, offsets, plan, back = asyncio.run(look())
    assert (lag.records, offsets.offsets, back.groups) == (10, [], [])
    assert [(each.first, each.records) for each in plan.missing] == [(0, 10)]
    assert "'nobody' has no offset that can be translated" in verb(
        "translate", path, "--group", "nobody"
    )
    away = other_name("new", topics=topic, **{"new.bootstrap.servers": "127.0.0.1:1"})
    flow = load_config(away).flows[0]
    assert asyncio.run(asyncio.wait_for(translated(flow, "nobody"), 60)).offsets == []


def test_mistakes_in_the_file_are_told_with_its_name(file, tmp_path):
    output = verb("status", file(**{"offset.lag.max": "many"}), code=1)
    assert "mm2.properties: offset.lag.max = many: write a whole number" in output
    assert "Name another file" in verb("status", str(tmp_path / "none"), code=1)


def lag_of(path, topic):
    """What status says of the first partition of a topic."""
    (lag,) = json.loads(verb("status", path, "--json"))
    return next(each for each in lag["partitions"] if each["topic"] == topic)


@pytest.mark.slow
def test_lag_and_translation(clusters, file):
    topic = clusters.topic(partitions=2)
    clusters.produce(topic, 0, batch(0, 100))
    commit(clusters.east, f"g-{topic}", {(topic, 0): 40})
    path = file(topics=topic)
    before = lag_of(path, topic)
    assert before["records"] == 100 and before["size_bytes"] > 0 and before["seconds"] > 0
    mirror(clusters, topic, {})
    after = lag_of(path, topic)
    assert (after["records"], after["size_bytes"], after["seconds"]) == (0, 0, 0.0)
    assert after["position"] == 99
    assert f"east.{topic}" in verb("status", path)
    found = json.loads(verb("translate", path, "--group", f"g-{topic}", "--json"))
    assert [each["downstream"] for each in found["offsets"]] == [40]
    assert translate(path, f"g-{topic}") == {(f"east.{topic}", 0): 40}
    assert "There is no flow 'x->y'" in verb("translate", path, "--group", "g", "--flow", "x->y",
                                              code=2)  # fmt: skip


def test_a_topic_that_is_deleted_costs_no_other_its_lag(clusters, monkeypatch):
    """A running mirror learns of it with the next refresh, which may be ten minutes away."""
    monkeypatch.setattr("anabranch.pipelines.mirror.clusters.DEADLINE_SECONDS", 3_600.0)
    gone, stays = clusters.topic(), clusters.topic()
    clusters.produce(stays, 0, batch(0, 10))
    config = clusters.config(topics=f"{gone},{stays}")

    async def look():
        state = FlowState(config.flows[0], lambda _: None)
        try:
            mirrored = state.topics.wanted(await shapes(state.source))
            await asyncio.to_thread(clusters.east.delete_topic, gone)
            async with asyncio.timeout(60):
                return await module.lag_of(state.flow, state.source, state.ledger, mirrored)
        finally:
            await state.close()

    found = {each.topic: each for each in asyncio.run(look()).partitions}
    assert gone not in found
    assert found[stays].records == 10 and found[stays].size_bytes > 0


@pytest.mark.slow
def test_the_command_mirrors_and_ends_on_a_signal(clusters, file):
    topic = clusters.topic()
    clusters.produce(topic, 0, batch(0, 1_000))
    path = file(topics=topic, **{"wave.seconds": "2"})
    words = [sys.executable, "-m", "anabranch", "mirror", "run", path, "--waves", "1"]
    done = subprocess.run(
        [*words, "--master", "local[2]"], capture_output=True, text=True, timeout=200,
        env=os.environ, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "records, " in done.stdout and "Traceback" not in done.stderr
    target = clusters.read(clusters.west, f"east.{topic}")
    assert seen(target) == seen(clusters.read(clusters.east, topic))


@pytest.mark.slow
@pytest.mark.parametrize("wait_seconds", [1.0, 2.0, 4.0, 7.0])
def test_a_signal_while_spark_starts_ends_the_command_without_a_trace(clusters, file, wait_seconds):
    path = file(topics=clusters.topic())
    words = [sys.executable, "-m", "anabranch", "mirror", "run", path, "--master", "local[1]",
             "--metrics", "127.0.0.1:0"]  # fmt: skip
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ,
        start_new_session=True,
    )  # fmt: skip
    try:
        assert "metrics at" in process.stderr.readline()
        time.sleep(wait_seconds)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT_SECONDS)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert "\tat " not in err and "Traceback" not in err


def arrived(clusters, topic):
    """What has arrived in partition 0."""
    with contextlib.suppress(ApiError):
        return clusters.read(clusters.west, f"east.{topic}")
    return []


@pytest.mark.slow
def test_a_signal_ends_a_wave_without_a_trace(clusters, file):
    topic = clusters.topic()
    clusters.produce(topic, 0, batch(0, 100))
    path = file(topics=topic)
    words = [sys.executable, "-m", "anabranch", "mirror", "run", path, "--master", "local[2]"]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    try:
        deadline = time.monotonic() + LIMIT_SECONDS
        while not arrived(clusters, topic):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT_SECONDS)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert "The wave that was stopped is not counted." in out
    assert "\tat " not in err and "Traceback" not in err
