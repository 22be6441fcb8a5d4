"""Durations with a unit, where a setting takes milliseconds."""

from __future__ import annotations

import json
import re

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.test_name_option import ALL

from anabranch.cli.cluster_command import (
    UNITS_MS,
    Milliseconds,
    Minutes,
    Seconds,
    in_milliseconds,
)
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


@pytest.mark.parametrize(
    ("kind", "text", "number"),
    [
        (Seconds(0), "90", 90), (Seconds(0), "1.5m", 90), (Seconds(0), "250ms", 0.25),
        (Seconds(0), "1 h", 3600), (Minutes(0), "2", 2), (Minutes(0), "1h", 60),
        (Milliseconds(1, 2**63 - 1), "9223372036854775807", 2**63 - 1), (Milliseconds(), "7d", 604_800_000),
    ],
)  # fmt: skip
def test_options_that_take_a_time_take_a_unit(kind, text, number):
    assert kind.convert(text, None, None) == number


@pytest.mark.parametrize("text", ["1y", "h", "1h30m", "-1s", "nan", ""])
def test_a_time_that_is_none_is_refused(text):
    with pytest.raises(click.BadParameter):
        Seconds(0).convert(text, None, None)


TIMES = [
    (name, option)
    for name, verb in ALL.items()
    for option in verb.params
    if re.search("MS|SECONDS|MINUTES", str(option.metavar))
]


def test_the_search_for_times_finds_them():
    assert {"--timeout", "--every", "--max-lifetime-ms"} <= {each.opts[0] for _, each in TIMES}


@pytest.mark.parametrize(("name", "option"), TIMES, ids=lambda each: str(each))
def test_every_option_that_takes_a_time_takes_a_unit(name, option):
    """`--every 1h` and `--period-ms 7d` were refused."""
    assert option.type.convert("2h", option, None) in (7_200_000, 7200, 120)


def test_a_verb_takes_a_time_with_a_unit(cluster_verb):
    assert cluster_verb("topics", "list", "--timeout", "1m").exit_code == 0


def test_nodes_take_them(monkeypatch):
    seen = {}

    def load(_file, settings):
        seen.update(each.split("=") for each in settings)

    monkeypatch.setattr("anabranch.server.config.load_config", load)
    configured(None, ["log.retention.ms=10s", "num.partitions=6"])
    assert seen == {"log.retention.ms": "10000", "num.partitions": "6"}
