"""What the Python that Spark runs lacks is named, with the remedy."""

from __future__ import annotations

import subprocess
import sys

import pytest

from anabranch.pipelines import requirements, source
from anabranch.pipelines.requirements import MissingPackage, check_packages

WITHOUT_NUMBA = """
import sys
sys.modules["numba"] = None
from anabranch.pipelines import assembling
assert not assembling.numba_is_here()
print(assembling.assembler(None, "t", 0).__class__.__name__)
"""


def test_a_missing_package_is_named_with_the_python_and_the_remedy(monkeypatch):
    monkeypatch.setattr(
        requirements, "find_spec", lambda name: None if name == "pyarrow" else object()
    )
    with pytest.raises(MissingPackage) as caught:
        check_packages()
    assert f"({sys.executable}) has no pyarrow." in str(caught.value)
    assert "pip install 'anabranch[spark]'" in str(caught.value)
    with pytest.raises(MissingPackage):
        source.schema_of({"subscribe": "t"})


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
