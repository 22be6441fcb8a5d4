"""Every row of the benchmark of the DataFrame source and sink does its work, on a few records."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
PART = 4_000

sys.path.insert(0, str(BENCH))
try:
    ROWS = importlib.import_module("spark_rows")
    SIDE = importlib.import_module("spark_side")
    SCALE = importlib.import_module("scale").Scale
finally:
    sys.path.remove(str(BENCH))


@pytest.fixture(scope="module")
def session(spark):
    """The tests' session as that of the benchmark."""
    sys.path.insert(0, str(BENCH))
    SIDE.session.cache_clear()
    SIDE.session()
    before, SCALE.divisor = SCALE.divisor, PART
    yield spark
    SCALE.divisor = before
    sys.path.remove(str(BENCH))
    spark.catalog.clearCache()


@pytest.mark.slow
@pytest.mark.usefixtures("session")
@pytest.mark.parametrize(
    "row", [each for each in ROWS.SPARK_ROWS if "tables" not in each.name], ids=lambda row: row.name
)
def test_a_row_measures_what_needs_no_jar(row, topics, monkeypatch):
    monkeypatch.setattr(ROWS, "_topic", lambda codec, size: f"{row.name}-{codec}-{size}")
    prepare = row.prepare
    for kind in row.servers.values():
        if kind.connector == "kafka":
            continue
        server = SimpleNamespace(
            name=kind.name, connector=kind.connector, bootstrap=topics.bootstrap,
            shape=getattr(kind, "shape", ""), replicas=1, acks=1, client={},
        )  # fmt: skip
        if prepare is not None:
            prepare(server)
            prepare = None  # here all sides have the same broker
        figures = row.measure(server).figures
        assert figures.keys() >= row.targets.keys()
        assert all(figures[each] > 0 for each in row.targets)
