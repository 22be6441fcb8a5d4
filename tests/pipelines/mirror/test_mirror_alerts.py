"""Each alert of a mirror fires on the page of a real one, from the cause that it is for."""

from __future__ import annotations

import time

import pytest
from tests.pipelines.mirror.test_driver import commit
from tests.pipelines.mirror.test_exporter import SOURCE, Page, aged, until, watched
from tests.pipelines.mirror.test_faults import admin
from tests.server.promql import fires
from tests.server.test_alerts import GROUPS

from anabranch.client.admin import ConfigOperation, ResourceKind, alter_configs, delete_topic
from anabranch.pipelines.mirror import exporter as module

(RULES,) = ({each["alert"]: each["expr"] for each in group["rules"]} for group in GROUPS
            if group["name"] == "mirror")  # fmt: skip


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Lags are measured often."""
    monkeypatch.setattr(module, "LAG_SECONDS", 0.2)


def alerts(page, before=None, later=0):
    """The alerts of a page; with `later`, of so many seconds later if nothing happens until then."""
    pages, then = {"m": page.text}, {"m": (before or page).text}
    return {
        alert for alert, expression in RULES.items()
        if fires(expression, pages, then, now=time.time() + later)
    }  # fmt: skip


@pytest.mark.slow
def test_alerts_of_a_mirror(clusters, spark):
    topic = clusters.topic()
    clusters.produce(topic, 0, aged(0, 10, 0))
    group = f"g-{topic}"
    commit(clusters.east, group, {(topic, 0): 5})
    place = {"topic": f"east.{topic}", "partition": "0"}
    seen = {}

    def mirrored(count):
        return lambda page: page.value(f"{SOURCE}record_count", **place) == count

    def fired(exporter, alert):
        return until(exporter, lambda page: alert in alerts(page))

    def during(exporter):
        until(exporter, mirrored(10))
        seen["well"] = until(exporter, lambda page: alerts(page) == set())

        clusters.produce(topic, 0, aged(10, 5, 600))
        fired(exporter, "MirrorRecordAge")
        until(exporter, lambda page: mirrored(15)(page) and alerts(page) == set())

        limit = [(ConfigOperation.SET, "max.message.bytes", "100")]
        where = ResourceKind.TOPIC, f"east.{topic}"
        admin(clusters.west, lambda found: alter_configs(found, *where, limit))
        clusters.produce(topic, 0, aged(15, 5, 600))
        fired(exporter, "MirrorPartitionsStopped")
        fired(exporter, "MirrorLag")

        admin(clusters.west, lambda found: delete_topic(found, "east.checkpoints.internal"))
        commit(clusters.east, group, {(topic, 0): 8})
        failing = fired(exporter, "MirrorDutyFails")
        assert failing.value("anabranch_mirror_duty_failing", duty="checkpoints") == 1
        assert "MirrorCheckpointsLate" not in alerts(failing)
        assert "MirrorCheckpointsLate" in alerts(failing, later=601)
        seen["last"] = Page(exporter)

    more = {"sync.topic.configs.enabled": "false", "topics": topic, "groups": group}
    _, exporter = watched(clusters, spark, during, **more)
    after = Page(exporter)
    assert "MirrorStopped" not in alerts(after, seen["last"])
    assert "MirrorStopped" in alerts(after, seen["last"], later=301)
    assert "MirrorStopped" not in alerts(seen["last"])
