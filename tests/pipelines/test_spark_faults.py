"""What Spark says without a remedy is told with one, and a master that is not there is refused."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import click
import pytest

from anabranch.cli.demo import story
from anabranch.cli.spark import ALL_OF_IT, _sentence, _session, faults_with_remedies
from anabranch.client.connection import ConnectionLost
from anabranch.core.errors import ApiError, ErrorCode, StorageFault
from anabranch.pipelines import session, spark_faults
from anabranch.pipelines.faults import PipelineFault
from anabranch.pipelines.java import NoJava
from anabranch.pipelines.requirements import MissingPackage
from anabranch.pipelines.spark_faults import NoMaster, refuse_unreachable, remedy, unusable
from anabranch.pipelines.waves import NotesFault

BUSY = (
    "An error occurred while calling o31.collect.\n: org.apache.spark.SparkException: Job aborted "
    "due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent failure: "
    "org.apache.spark.SparkException: {}\n\tat org.apache.spark.api.python.PythonWorkerFactory\n"
)
WORDS = (
    "Python worker failed to connect back.",
    "Timed out while waiting for the Python worker to connect back after 10000ms.",
)
STREAM = "[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_EXCEPTION] "
TRACE = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\n'
TIMEOUT_SECONDS = 200
BOUND_SECONDS = 20.0
"""An unreachable master is told within this: no Spark is started."""


@pytest.mark.parametrize("words", WORDS)
def test_a_worker_that_does_not_connect_is_told_with_cause_and_remedy(words, monkeypatch):
    def job(*_args):
        raise RuntimeError(BUSY.format(words))

    with pytest.raises(click.ClickException) as told, faults_with_remedies():
        job()
    text = told.value.message
    assert "too busy" in text and "Try again" in text and "/etc/hosts" in text
    assert "org.apache" not in text
    monkeypatch.setattr(session.SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(session, "_made", job)
    with pytest.raises(click.ClickException) as told, _session("a job", "local[1]"):
        pass
    assert told.value.message == text


def test_the_demo_tells_it_too(monkeypatch, tmp_path):
    demo = story.Story(str(tmp_path), records=1, port=0, with_spark=True, as_json=False)
    for act in ("_load", "_read_back", "_carriers", "_sizes", "_crash", "_diskless"):
        monkeypatch.setattr(demo, act, lambda *_: None)

    def lake(*_args):
        raise RuntimeError(BUSY.format(WORDS[0]))

    monkeypatch.setattr(demo, "_lake", lake)
    with pytest.raises(click.ClickException, match="too busy"):
        demo.tell()


@pytest.mark.parametrize("kind", [NoJava, MissingPackage, NoMaster])
def test_what_has_a_remedy_already_is_told_as_it_is(kind):
    with pytest.raises(click.ClickException) as told, faults_with_remedies():
        raise kind("The cause. The remedy.")
    assert told.value.message == "The cause. The remedy."


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{STREAM}{TRACE}anabranch.pipelines.faults.PipelineFault: Do so.\n SQLSTATE: 1", "Do so."),
        ("[PARSE_SYNTAX_ERROR] Syntax error at 'x'. SQLSTATE: 42601 (line 1)\n\n== SQL ==\nx",
         "[PARSE_SYNTAX_ERROR] Syntax error at 'x'. (line 1)\nCorrect --schema: names with types of "
         "Spark SQL, such as 'id bigint, name string'."),
        (f"{STREAM}{TRACE}_internal.TableNotFoundError: gone\n SQLSTATE: 1",
         f"TableNotFoundError: gone\n{ALL_OF_IT}"),
        (f"{STREAM}{TRACE}ValueError\n\n\tat org.apache",  f"ValueError\n{ALL_OF_IT}"),
        (BUSY.format("no"), "SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 "
         "failed 1 times, most recent failure: org.apache.spark.SparkException: no"
         f"\n{ALL_OF_IT}"),
        ("[MALFORMED] a log\n\tat org", f"[MALFORMED] a log\n{ALL_OF_IT}"),
    ],
)  # fmt: skip
def test_a_fault_within_traces_is_told_in_a_sentence(text, said):
    assert _sentence(RuntimeError(text)) == said


@pytest.mark.parametrize(
    ("fault", "last"),
    [
        (StorageFault("file:///a: no folder; create it"), "file:///a: no folder; create it"),
        (PipelineFault("There is no field a. Name another."), "Name another."),
        (NotesFault("a is of another job; name another file"), "name another file"),
        (ConnectionLost("h:1 cannot be reached"), "or name another with --bootstrap-server."),
        (ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No t."), "shows what there is."),
        (OSError(20, "Not a directory", "a/b"), "or name another one."),
        (RuntimeError("Mkdirs failed to create file:/proc/a"), "or name another one."),
    ],
)
def test_the_last_line_is_the_remedy(fault, last):
    """Faults of ours that no task of Spark's raised ended with how to see more of Spark's words."""
    told = _sentence(fault)
    assert told.endswith(last) and ALL_OF_IT not in told


TOO_OLD = """#!/bin/sh
[ "$1" = -version ] && { echo 'openjdk version "11.0.2"' >&2; exit 0; }
echo "UnsupportedClassVersionError: class file version 61.0" >&2
exit 1
"""


def run_spark_job(topics, *words, **environment):
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "anabranch", "spark", *words, "--bootstrap-server", topics.bootstrap],
        capture_output=True, text=True, timeout=TIMEOUT_SECONDS, env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 1
    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert done.stderr.rstrip().endswith(sentence), done.stderr
    assert "Traceback" not in done.stderr and "\tat " not in done.stderr, done.stderr
    return sentence, time.monotonic() - begin


def test_a_java_that_is_too_old_is_named_with_its_version(topics, tmp_path):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(TOO_OLD)
    java.chmod(0o755)
    sentence, _ = run_spark_job(topics, "scrub", JAVA_HOME=str(tmp_path))
    assert f"The Java {java} ended" in sentence and 'openjdk version "11.0.2"' in sentence
    assert "17 or newer" in sentence


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["tables", "scrub"])
def test_a_python_that_is_not_there_is_told_also_on_this_machine(topics, tmp_path, verb):
    words = [verb, "--topic", topics.create()]
    if verb == "tables":
        words += ["--table", str(tmp_path / "t"), "--schema", "id int"]
    sentence, _ = run_spark_job(topics, *words, PYSPARK_PYTHON="/no/python")
    assert "cannot start the Python /no/python, which PYSPARK_PYTHON names" in sentence


@pytest.mark.slow
def test_a_python_without_packages_is_told_also_on_this_machine(topics, tmp_path):
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    sentence, _ = run_spark_job(
        topics, "scrub", "--topic", topics.create(), PYSPARK_PYTHON=str(bare)
    )
    assert "has no pyarrow and no numpy" in sentence and "pip install" in sentence


def test_another_fault_stays_as_it_is():
    assert remedy(RuntimeError("a table is missing")) == ""
    with pytest.raises(RuntimeError, match="a table is missing"), faults_with_remedies():
        raise RuntimeError("a table is missing")


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_one_address_of_a_master_is_enough_and_other_masters_are_sparks(listener):
    for master in (
        f"spark://127.0.0.1:1,127.0.0.1:{listener}",
        "yarn",
        "k8s://https://h:1",
        "local[2,3]",
        "local[*, 3]",
        "local-cluster[1,1,1024]",
    ):
        refuse_unreachable(master)


@pytest.mark.parametrize(
    ("addresses", "why"),
    [
        ("127.0.0.1:1", "127.0.0.1:1: nothing listens there"),
        ("127.0.0.1:1,[::1]:1", "127.0.0.1:1: nothing listens there; [::1]:1: "),
        ("127.0.0.1", "127.0.0.1: this is not HOST:PORT"),
        ("127.0.0.1:99999", "127.0.0.1:99999: "),
    ],
)
def test_an_address_that_cannot_be_dialled_is_told_with_its_reason(addresses, why):
    with pytest.raises(NoMaster) as told:
        refuse_unreachable(f"spark://{addresses}")
    assert f"({why}" in str(told.value) and "correct --master" in str(told.value)


@pytest.mark.parametrize(
    "master",
    ["local[x]", "local[0]", "local[]", "local[-1]", "local[2", "local 2", "Local", "", "sparc://h:1",
     "127.0.0.1:7077", "local[2,0]", "spark:/h:1"],
)  # fmt: skip
def test_what_is_no_master_is_refused_before_spark_tells_it_with_traces(master):
    with pytest.raises(NoMaster, match=r"is no Spark master; write local\[N\]"):
        refuse_unreachable(master)


def test_a_machine_that_does_not_answer_is_not_waited_for(monkeypatch):
    def silent(_address, timeout):
        assert timeout == spark_faults.DIAL_SECONDS < BOUND_SECONDS
        raise TimeoutError

    monkeypatch.setattr(spark_faults.socket, "create_connection", silent)
    with pytest.raises(NoMaster, match="no answer within 5 s"):
        refuse_unreachable("spark://198.51.100.1:7077")


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ("calling\n: a.b.SparkException: not so.\n\tat a.b", "not so"),
        (
            "calling\n: IllegalStateException: on a stopped SparkContext.",
            "no master answered there",
        ),
        ("[MASTER_URL_INVALID] bad", "[MASTER_URL_INVALID] bad"),
        ("", "RuntimeError"),
    ],
)
def test_what_is_no_master_is_told_in_a_line(told, why):
    text = str(unusable("spark://h:1", RuntimeError(told)))
    assert text.startswith(f"Spark did not start with the master spark://h:1: {why}. Check ")


def test_a_job_ends_soon_without_its_master(topics, tmp_path):
    table = ["--topic", topics.create(), "--table", str(tmp_path / "table")]
    for words in (["scrub"], ["tables", *table]):
        sentence, seconds = run_spark_job(topics, *words, "--master", "spark://127.0.0.1:1")
        assert sentence.startswith("Error: No Spark master can be reached")
        assert seconds < BOUND_SECONDS
