"""A Spark session, here or of a cluster, with what Python sources need and Spark does not do.

Why: Spark runs its workers with the `python3` of the path, which may be another Python without
pyarrow; it reads times in the machine's zone; it refuses sources that take filters unless told; and
numba's compiled code needs a folder that can be written. Rule kept: what the user has set in the
environment or gives as `conf` stays; what is of this machine alone never goes to a cluster.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from anabranch.pipelines.cache import cache_folder, set_numba_folder
from anabranch.pipelines.datasource import AnabranchDataSource
from anabranch.pipelines.java import NoJava, java_home, no_start
from anabranch.pipelines.package_archive import package_archive
from anabranch.pipelines.requirements import check_executors
from anabranch.pipelines.spark_faults import refuse_unreachable, unusable

LOOPBACK = "127.0.0.1"
LOCAL_MASTER = re.compile(r"local(?:\[([1-9]\d*|\*)\])?")
NO_GATEWAY = "JAVA_GATEWAY_EXITED"
"""PySpark's code for a Java that has ended before it could be spoken to."""
OF_THIS_MACHINE = frozenset({"spark.driver.bindAddress", "spark.driver.host"})
"""Settings that executors on other machines could not live with."""
TELLS_FAILED_TASKS = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
)
TELLS_FAULTS = (
    *TELLS_FAILED_TASKS,
    "org.apache.spark.sql.execution.streaming",
    "org.apache.spark.sql.execution.datasources.v2",
    "org.apache.spark.util.Utils",
)
"""What of Spark logs that a task or a micro-batch failed, besides raising it."""
USUAL = {
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.host": LOOPBACK,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
"""What every local session has, unless `conf` says otherwise. Over TCP, Spark's own choice, each
task of a Python worker waits 40 ms for a delayed acknowledgement before it reads anything."""


def prepare_environment() -> None:
    """Set what Spark's JVM and its Python workers take from the environment. Raises NoJava."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    set_numba_folder()
    home = java_home(os.environ, cache_folder())
    if home is not None:
        os.environ["JAVA_HOME"] = home


def local_session(
    name: str = "anabranch", *, cores: int | str = "*", ui: bool = False,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:  # fmt: skip
    """The Spark session of this process: it is made on first use, on `cores` threads.

    `ui` serves Spark's web page on loopback; `conf` are settings of Spark's that go over `USUAL`.
    Where `PYSPARK_PYTHON` names another Python than this one, it is given this project, and its
    first task looks whether it has what the project needs. Raises NoJava when there is no Java to
    run it, and MissingPackage.
    """
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    prepare_environment()
    builder = SparkSession.builder.appName(name).master(f"local[{cores}]")
    settings = {**USUAL, "spark.ui.enabled": str(ui).lower(), **(conf or {})}
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = _started(builder)
    if os.environ["PYSPARK_PYTHON"] != sys.executable:
        ship(spark)
    return spark


def _started(builder: Any) -> SparkSession:
    """The session of a builder. Raises NoJava."""
    try:
        spark: SparkSession = builder.getOrCreate()
    except Exception as fault:
        if NO_GATEWAY in str(fault):
            raise no_start(os.environ) from None
        raise
    return spark


@contextmanager
def job_session(name: str, master: str) -> Iterator[SparkSession]:
    """The session of a job, ended with it: local for a `local…` master, else of that cluster, whose
    executors are given this project's Python. One that this process has already is used as it is,
    and stays. Raises NoJava, MissingPackage, NoMaster."""
    there = SparkSession.getActiveSession()
    spark = there or _made(name, master)
    try:
        yield spark
    finally:
        if there is None:
            spark.stop()


def _made(name: str, master: str) -> SparkSession:
    cores = LOCAL_MASTER.fullmatch(master)
    if cores is not None:
        return local_session(name, cores=cores[1] or 1)
    refuse_unreachable(master)
    prepare_environment()
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in USUAL.items():
        if key not in OF_THIS_MACHINE:
            builder = builder.config(key, value)
    try:
        spark = _started(builder)
    except NoJava:
        raise
    except Exception as fault:
        raise unusable(master, fault) from fault
    try:
        ship(spark)
    except BaseException:
        spark.stop()
        raise
    return spark


def leave_faults_to_the_job(spark: SparkSession) -> None:
    """Keep Spark's traces of failed tasks and micro-batches out of the log, for a job that tells
    its faults itself: a micro-batch that brings new fields to a table is none (table_query.py)."""
    jvm = spark._jvm
    assert jvm is not None
    log4j = jvm.org.apache.logging.log4j
    for package in TELLS_FAULTS:
        log4j.core.config.Configurator.setLevel(package, log4j.Level.OFF)


@contextmanager
def _no_traces_of_tasks(spark: SparkSession) -> Iterator[None]:
    """Keep what Spark logs of failed tasks out of the log for a while."""
    jvm = spark._jvm
    assert jvm is not None
    log4j = jvm.org.apache.logging.log4j
    before = {each: log4j.LogManager.getLogger(each).getLevel() for each in TELLS_FAILED_TASKS}
    for each in before:
        log4j.core.config.Configurator.setLevel(each, log4j.Level.OFF)
    try:
        yield
    finally:
        for each, level in before.items():
            log4j.core.config.Configurator.setLevel(each, level)


def ship(spark: SparkSession) -> None:
    """Give this project's Python to the executors of a session, as one that spark-submit started.

    Its first task looks whether their Python has what the project needs. The source is registered,
    as Spark gives one that it found by itself neither the archive nor `PYSPARK_PYTHON`. Raises
    MissingPackage.
    """
    spark.sparkContext.addPyFile(str(package_archive(cache_folder())))
    with _no_traces_of_tasks(spark):
        check_executors(spark)
    spark.dataSource.register(AnabranchDataSource)
