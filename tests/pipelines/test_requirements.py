"""What the Python that Spark runs lacks is named, with the remedy."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile

import pytest

from anabranch.pipelines import requirements, source
from anabranch.pipelines.package_archive import package_archive
from anabranch.pipelines.requirements import MissingPackage, check_executors, check_packages

IMPORTED = """
import sys
from anabranch.pipelines import compacted, compiled, compiled_encoder, scrub, sink_task, table_sink
from anabranch.pipelines import range_reader, assembler, decoder, encoder
for name, module in list(sys.modules.items()):
    if "." not in name and "site-packages" in (getattr(module, "__file__", None) or ""):
        print(name)
"""
NOT_ASKED_FOR = {"pyspark", "py4j", "numba", "llvmlite", "yaml", "colorama", "typing_extensions"}
"""Spark's own, what is done without, and what PySpark and numba import where it is there."""
WITHOUT_NUMBA = """
import sys
sys.modules["numba"] = None
from anabranch.pipelines import assembler
assert not assembler.numba_is_here()
print(assembler.assembler(None, "t", 0).__class__.__name__)
"""


def test_a_missing_package_is_named_with_the_python_and_the_remedy(monkeypatch):
    monkeypatch.setattr(
        requirements, "find_spec", lambda name: None if name == "pyarrow" else object()
    )
    with pytest.raises(MissingPackage) as caught:
        check_packages()
    assert f"({sys.executable}) has no pyarrow." in str(caught.value)
    assert "pip install pyarrow;" in str(caught.value)
    with pytest.raises(MissingPackage):
        source.schema_of({"subscribe": "t"})


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (
            'Job aborted.\njava.io.IOException: Cannot run program "python9": error=2, No such file',
            "cannot start the Python python9, which PYSPARK_PYTHON names",
        ),
        (
            "Traceback\n[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than "
            "that in driver: 3.11.\n\tat org",
            "3.11. Let PYSPARK_PYTHON name a Python of that version",
        ),
    ],
)
def test_executors_without_a_fitting_python_are_named(told, said):
    class Context:
        def parallelize(self, *_):
            raise RuntimeError(told)

    class Session:
        sparkContext = Context()  # noqa: N815

    with pytest.raises(MissingPackage, match=said):
        check_executors(Session())


def test_what_tasks_import_is_what_is_asked_for():
    answer = subprocess.run(
        [sys.executable, "-c", IMPORTED], capture_output=True, text=True, timeout=60, check=True
    )
    found = {name for name in answer.stdout.split() if not name.startswith("_")}
    assert found - NOT_ASKED_FOR == set(requirements.NEEDED)


def test_without_numba_records_are_decoded_in_python():
    answer = subprocess.run(
        [sys.executable, "-c", WITHOUT_NUMBA],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert answer.stdout.strip() == "PlainAssembler"


def test_a_second_query_on_one_checkpoint_ends_the_first(topics, spark, tmp_path):
    topic = topics.create()
    topics.fill(topic, 0, 5)
    frame = spark.readStream.format("anabranch").options(**topics.options(topic)).load()

    def start():
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
        return writer.trigger(processingTime="1 second").start()

    first, second = start(), start()
    try:
        assert first.awaitTermination(60)
        second.processAllAvailable()
    finally:
        second.stop()


def test_two_jobs_may_make_the_archive_at_the_same_time(tmp_path, monkeypatch):
    others = []
    write = zipfile.ZipFile.writestr

    def while_another_makes_it(archive, *file):
        if not others:
            others.append(None)
            others[0] = package_archive(tmp_path)
        write(archive, *file)

    monkeypatch.setattr(zipfile.ZipFile, "writestr", while_another_makes_it)
    assert [package_archive(tmp_path)] == others == list(tmp_path.iterdir())
    assert zipfile.ZipFile(others[0]).testzip() is None


def test_a_process_that_runs_from_an_archive_ships_that_archive(tmp_path):
    archive = package_archive(tmp_path)
    code = (
        "from pathlib import Path; from anabranch.pipelines.package_archive import package_archive; "
        f"print(package_archive(Path({str(tmp_path / 'other')!r})))"
    )
    path = os.pathsep.join([str(archive), sysconfig.get_paths()["purelib"]])
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": path}, cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout.strip() == str(archive)
    assert len(zipfile.ZipFile(archive).namelist()) > 100
