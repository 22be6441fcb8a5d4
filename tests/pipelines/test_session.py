"""The Spark session that the package makes."""

from __future__ import annotations

import sys

import pytest

from anabranch.pipelines import cache, session


def test_workers_run_this_python(spark):
    def executable(batches):
        import pyarrow

        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict({"python": [sys.executable]})

    rows = spark.range(1).mapInArrow(executable, "python string").collect()
    assert [row.python for row in rows] == [sys.executable]


def test_times_are_utc_and_filters_reach_sources(spark):
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"


@pytest.mark.parametrize("is_writable", [True, False])
def test_a_cache_folder_is_found_where_the_home_cannot_be_written(
    tmp_path, monkeypatch, is_writable
):
    home = tmp_path / "cache"
    if is_writable:
        home.mkdir()
    else:
        home.write_text("a file where the folder would be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    monkeypatch.setattr(cache.tempfile, "gettempdir", lambda: str(tmp_path / "other"))
    folder = cache.cache_folder()
    assert folder.is_dir()
    assert (home in folder.parents) is is_writable


def test_what_the_user_has_set_stays(monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "a-python")
    monkeypatch.setenv("NUMBA_CACHE_DIR", "a-folder")
    session.prepare_environment()
    assert session.os.environ["PYSPARK_PYTHON"] == "a-python"
    assert session.os.environ["NUMBA_CACHE_DIR"] == "a-folder"
