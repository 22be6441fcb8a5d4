"""A standalone cluster of Spark on loopback: a master and two workers of PySpark's own classes.

The executors run another Python than the driver: it has the packages of this one, and neither this
project nor what its editable install adds to the path; the Python `bare` has no packages at all.
Everything ends by process id.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pyspark

from anabranch.pipelines.cache import cache_folder
from anabranch.pipelines.java import java_home

SPARK_HOME = Path(pyspark.__file__).parent
LOOPBACK = "127.0.0.1"
START_SECONDS = 90
"""On a machine that may be busy; a quiet one needs three."""
DEFAULTS = """
spark.driver.memory 600m
spark.driver.host 127.0.0.1
spark.executor.memory 512m
spark.sql.shuffle.partitions 2
spark.ui.enabled false
"""
PYTHON = """#!/bin/sh
# A directory of PYTHONPATH has its .pth files ignored: the editable install is out of sight.
PYTHONPATH="$PYTHONPATH:{packages}" exec "{python}" -S "$@"
"""


def end(process: psutil.Process) -> None:
    """Kill a process and all that it has started, and wait until they are gone."""
    family = [process]
    with suppress(psutil.NoSuchProcess):
        family += process.children(recursive=True)
    for each in family:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    psutil.wait_procs(family, timeout=30)


class Daemon:
    """A master or a worker, with its log in a file."""

    def __init__(self, folder: Path, name: str, environment: dict[str, str], *words: str) -> None:
        self._log = folder / f"{name}.log"
        with open(self._log, "wb") as log:
            started = subprocess.Popen(
                [str(SPARK_HOME / "bin" / "spark-class"), *words],
                env=environment,
                stdout=log,
                stderr=log,
                cwd=folder,
            )
        self.process = psutil.Process(started.pid)
        self._started = started

    def wait_for(self, pattern: str) -> str:
        """What the log says; raises when it does not within START_SECONDS."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            text = self._log.read_text()
            found = re.search(pattern, text)
            if found is not None:
                return found[0]
            assert self._started.poll() is None and time.monotonic() < deadline, text
            time.sleep(0.1)

    def has_executor(self) -> bool:
        """Whether a job runs on it."""
        return bool(self.process.children())

    def end(self) -> None:
        """Kill it with its executors."""
        end(self.process)
        self._started.wait()


class Standalone:
    """A master and its workers; `environment` is the one of a user who starts jobs on it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "conf").mkdir()
        (folder / "conf" / "spark-defaults.conf").write_text(DEFAULTS)
        common = {
            **os.environ,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_CONF_DIR": str(folder / "conf"),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_DAEMON_MEMORY": "128m",
            "PYSPARK_PYTHON": "python3",  # each finds its own on its path
        }
        home = java_home(os.environ, cache_folder())
        if home is not None:
            common["JAVA_HOME"] = home
        common.pop("PYTHONPATH", None)
        path = common["PATH"]
        self.environment = {**common, "PATH": f"{Path(sys.executable).parent}:{path}"}
        self._of_workers = {**common, "PATH": f"{self._python()}:{path}"}
        self._master: Daemon | None = None
        self.workers: list[Daemon] = []
        self._started = 0
        self.url = ""

    def _python(self) -> Path:
        folder = self._folder / "bin"
        folder.mkdir()
        for name, packages in (("python3", sysconfig.get_paths()["purelib"]), ("bare", "")):
            script = folder / name
            script.write_text(PYTHON.format(packages=packages, python=sys.executable))
            script.chmod(0o755)
        return folder

    def start(self, workers: int = 2) -> None:
        """Start the master and its workers, and wait until they know each other."""
        self._master = Daemon(
            self._folder, "master", self._of_workers, "org.apache.spark.deploy.master.Master",
            "--host", LOOPBACK, "--port", "0", "--webui-port", "0",
        )  # fmt: skip
        self.url = self._master.wait_for(r"spark://[\d.]+:\d+")
        for _ in range(workers):
            self.add_worker()
        for each in self.workers:
            each.wait_for("Successfully registered with master")

    def add_worker(self) -> None:
        """One more worker, of one core."""
        self._started += 1
        name = f"worker-{self._started}"
        worker = Daemon(
            self._folder, name, self._of_workers, "org.apache.spark.deploy.worker.Worker",
            "--host", LOOPBACK, "--port", "0", "--webui-port", "0", "--cores", "1",
            "--memory", "600m", "--work-dir", str(self._folder / name), self.url,
        )  # fmt: skip
        self.workers.append(worker)

    def kill_busy_worker(self) -> None:
        """SIGKILL a worker that has an executor, and the executor, and its Pythons."""
        (worker, *_) = [each for each in self.workers if each.has_executor()]
        self.workers.remove(worker)
        worker.end()

    def end(self) -> None:
        """End everything."""
        for each in self.workers:
            each.end()
        if self._master is not None:
            self._master.end()
