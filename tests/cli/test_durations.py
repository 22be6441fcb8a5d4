"""Durations with a unit, where a setting takes milliseconds."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.cli.cluster_command import UNITS_MS, in_milliseconds
from anabranch.cli.serve import configured


@given(st.integers(0, 10**6), st.sampled_from(sorted(UNITS_MS)), st.sampled_from(["", " "]))
def test_each_unit_is_told_in_milliseconds(number, unit, space):
    said = in_milliseconds("retention.ms", f"{number}{space}{unit}")
    assert said == str(number * UNITS_MS[unit])
    assert in_milliseconds("cleanup.policy", f"{number}{unit}") == f"{number}{unit}"


@pytest.mark.parametrize(
    ("text", "said"),
    [("1.5h", "5400000"), ("0.1ms", "0.1ms"), ("-1", "-1"), ("7", "7"), ("1y", "1y"), ("", "")],
)
def test_what_is_no_whole_number_of_milliseconds_stays_for_the_broker_to_refuse(text, said):
    assert in_milliseconds("retention.ms", text) == said


def test_verbs_take_them(cluster_verb):
    cluster_verb("topics", "create", "timed", "--config", "retention.ms=1h")
    cluster_verb("configs", "alter", "--topic", "timed", "--add-config", "segment.ms=2d")
    said = cluster_verb("configs", "describe", "--topic", "timed", "--json")
    found = {each["name"]: each["value"] for each in json.loads(said.stdout)}
    assert (found["retention.ms"], found["segment.ms"]) == ("3600000", "172800000")
    refused = cluster_verb("configs", "alter", "--topic", "timed", "--broker", "1")
    assert refused.exit_code == 2 and "Name one thing" in refused.stderr
    assert cluster_verb("configs", "describe").exit_code == 2


def test_nodes_take_them(monkeypatch):
    seen = {}

    def load(_file, settings):
        seen.update(each.split("=") for each in settings)

    monkeypatch.setattr("anabranch.server.config.load_config", load)
    configured(None, ["log.retention.ms=10s", "num.partitions=6"])
    assert seen == {"log.retention.ms": "10000", "num.partitions": "6"}
