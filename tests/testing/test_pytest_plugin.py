"""B6: the fixtures, in a test run of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"
PLUGIN = "anabranch.testing.pytest_plugin"


def run(folder, text, *words):
    """Run a test file in an empty project; the plugin as if its entry point were installed."""
    (folder / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    if "anabranch" not in entry_points():
        command += ["-p", PLUGIN]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100)


def entry_points():
    from importlib.metadata import entry_points

    return {each.name for each in entry_points(group="pytest11")}


@pytest.mark.slow
def test_both_fixtures_serve(tmp_path):
    text = """
seen = []

def test_one(anabranch_cluster, anabranch_session_cluster):
    assert anabranch_cluster.cluster_id != anabranch_session_cluster.cluster_id
    anabranch_session_cluster.create_topic("t")
    seen.append(anabranch_cluster.cluster_id)

def test_two(anabranch_cluster, anabranch_session_cluster):
    assert anabranch_cluster.cluster_id not in seen
    assert anabranch_session_cluster.topics() == ["t"]
"""
    ran = run(tmp_path, text)
    assert ran.returncode == 0, ran.stdout
    assert run(tmp_path, text.split("def test_two")[0], "-n", "2").returncode == 0


@pytest.mark.slow
def test_a_failing_test_shows_what_the_cluster_logged(tmp_path):
    text = """
import pytest

@pytest.fixture(scope="session")
def anabranch_config():
    return {"num.partitions": 7}

def test_fails(anabranch_cluster):
    anabranch_cluster.create_topic("t", partitions=-1)
    assert anabranch_cluster.config["num.partitions"] == "8"
"""
    ran = run(tmp_path, text)
    assert ran.returncode == 1
    assert "Log of anabranch_cluster" in ran.stdout
    assert re.search(r"INFO node: ready", ran.stdout)
    assert "'7' == '8'" in ran.stdout


@pytest.mark.slow
def test_settings_come_from_the_ini_file(tmp_path):
    text = """
def test_it(anabranch_cluster):
    assert anabranch_cluster.config["num.partitions"] == "3"
"""
    (tmp_path / "pytest.ini").write_text("[pytest]\nanabranch_config =\n  num.partitions = 3\n")
    ran = run(tmp_path, text)
    assert ran.returncode == 0, ran.stdout
    (tmp_path / "pytest.ini").write_text("[pytest]\nanabranch_config =\n  num.partitions 3\n")
    assert "'num.partitions 3' is not a line" in run(tmp_path, text).stdout


@pytest.mark.slow
def test_a_mark_says_what_one_test_needs(tmp_path):
    text = """
import pytest

@pytest.fixture(scope="session")
def anabranch_config():
    return {"num.partitions": 2, "auto.create.topics.enable": False}

@pytest.mark.anabranch(brokers=2, racks=["a", "b"], config={"num.partitions": 5})
class TestTwo:
    def test_two(self, anabranch_cluster):
        assert [each.rack for each in anabranch_cluster.brokers] == ["a", "b"]
        assert anabranch_cluster.config["num.partitions"] == "5"
        assert anabranch_cluster.config["auto.create.topics.enable"] == "false"

    @pytest.mark.anabranch(brokers=1, racks=None)
    def test_nearest(self, anabranch_cluster):
        assert len(anabranch_cluster.brokers) == 1

def test_without(anabranch_cluster):
    assert anabranch_cluster.config["num.partitions"] == "2"
"""
    ran = run(tmp_path, text, "--strict-markers")
    assert ran.returncode == 0, ran.stdout


def test_brokers_and_processes_come_from_the_ini_file(tmp_path):
    text = """
def test_it(anabranch_cluster, anabranch_session_cluster):
    for cluster in (anabranch_cluster, anabranch_session_cluster):
        assert sorted(cluster.pids) == [1, 2]
"""
    ini = "[pytest]\nanabranch_brokers = 2\nanabranch_processes = true\n"
    (tmp_path / "pytest.ini").write_text(ini)
    ran = run(tmp_path, text)
    assert ran.returncode == 0, ran.stdout
    (tmp_path / "pytest.ini").write_text("[pytest]\nanabranch_brokers = two\n")
    assert "'two' is not a number of brokers" in run(tmp_path, text).stdout


@pytest.mark.slow
def test_a_cluster_that_cannot_start_is_one_sentence(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nanabranch_config =\n  num.partitions = many\n")
    ran = run(tmp_path, "def test_it(anabranch_cluster): ...\n")
    assert ran.returncode == 1
    assert re.search(r"ClusterError: The cluster did not start: .*num\.partitions", ran.stdout)
    assert "The above exception" not in ran.stdout


@pytest.mark.slow
def test_a_cluster_of_the_tests_own_is_shown_too(tmp_path):
    text = """
import pytest
from anabranch.testing import LocalCluster

@pytest.fixture
def own():
    with LocalCluster() as cluster:
        yield cluster

def test_fails(own):
    assert own.topics()
"""
    ran = run(tmp_path, text)
    assert "Log of own" in ran.stdout
    assert ran.stdout.count("INFO node: ready") == 1


def test_the_readmes_examples_are_tests_that_pass(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    examples = [block for block in blocks if "anabranch_cluster" in block]
    assert len(examples) == 2
    for example in examples:
        assert len(example.strip().splitlines()) <= 15
        ran = run(tmp_path, example, "--strict-markers")
        assert ran.returncode == 0, ran.stdout + ran.stderr
