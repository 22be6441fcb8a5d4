"""A Spark session on this machine, with what Python data sources need and Spark does not do itself.

Why: Spark runs its workers with the `python3` of the path, which may be another Python without
pyarrow; it reads times in the machine's zone; it refuses sources that take filters unless told; and
numba's compiled code needs a folder that can be written. Rule kept: what the user has set in the
environment or gives as `conf` stays. Not here: sessions of a cluster, which spark-submit makes.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from anabranch.pipelines.java import java_home

LOOPBACK = "127.0.0.1"
USUAL = {
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.host": LOOPBACK,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
"""What every local session has, unless `conf` says otherwise."""


def cache_folder() -> Path:
    """A folder for what can be made again: the user's cache, else one in the temporary folder."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    for folder in (Path(base) / "anabranch", Path(tempfile.gettempdir()) / _own_name()):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    return Path(tempfile.mkdtemp(prefix="anabranch-"))


def _own_name() -> str:
    return f"anabranch-{os.getuid()}"


def prepare_environment() -> None:
    """Set what Spark's JVM and its Python workers take from the environment. Raises NoJava."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    cache = cache_folder()
    os.environ.setdefault("NUMBA_CACHE_DIR", str(cache / "numba"))
    home = java_home(os.environ, cache)
    if home is not None:
        os.environ["JAVA_HOME"] = home


def local_session(
    name: str = "anabranch", *, cores: int | str = "*", ui: bool = False,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:  # fmt: skip
    """The Spark session of this process: it is made on first use, on `cores` threads.

    `ui` serves Spark's web page on loopback; `conf` are settings of Spark's that go over `USUAL`.
    Raises NoJava when there is no Java to run it.
    """
    prepare_environment()
    builder = SparkSession.builder.appName(name).master(f"local[{cores}]")
    settings = {**USUAL, "spark.ui.enabled": str(ui).lower(), **(conf or {})}
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
