"""One Spark session for each pytest worker, and tests that have the time to start it."""

from __future__ import annotations

import os
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LONGEST_TEST_SECONDS = 300
"""The first test of a worker starts a JVM and compiles the decoder, on a machine that may be busy."""

if find_spec("pyspark") is None:
    if os.environ.get("SPARK") != "0":
        raise pytest.UsageError(
            "tests/pipelines need Spark: run scripts/venv spark, or leave them out with SPARK=0."
        )
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONGEST_TEST_SECONDS))


@pytest.fixture(scope="session")
def spark():
    """The Spark session of this pytest worker."""
    from anabranch.pipelines.session import local_session

    with tempfile.TemporaryDirectory(prefix="anabranch-spark-") as folder:
        session = local_session(
            "tests",
            cores=2,
            conf={
                "spark.local.dir": folder,
                "spark.sql.warehouse.dir": f"{folder}/warehouse",
                "spark.driver.memory": "700m",
                "spark.sql.shuffle.partitions": "2",
                "spark.default.parallelism": "2",
            },
        )
        yield session
        session.stop()
