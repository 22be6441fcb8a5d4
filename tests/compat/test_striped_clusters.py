"""Striped placement is Kafka's over thousands of clusters, as its jar once said: without Java."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KAFKAS = "817870595f5c9ac5"
"""Of what `compat/Placements.java` gave with Kafka 4.1.0; the row placement-striped asks it anew."""


@pytest.fixture
def clusters(monkeypatch):
    """compat/striped_clusters.py."""
    monkeypatch.syspath_prepend(str(ROOT))
    import compat.striped_clusters as module  # noqa: PLC0415

    return module


def test_the_source_of_chance_is_java_s(clusters):
    """The first draws of java.util.Random with seed 0 below 100."""
    chance = clusters.JavaRandom(0)
    assert [chance.randrange(100) for _ in range(8)] == [60, 48, 29, 47, 15, 53, 91, 61]


def test_lists_and_refusals_are_those_of_kafkas_class(clusters):
    answers = [clusters.ours(each) for each in clusters.questions()]
    found = clusters.summary(answers)
    assert sum(each["lists"] for each in found) > 50_000
    assert sum(each["refused"] for each in found) > 500
    assert hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16] == KAFKAS
