"""What the Python that Spark runs must have, and what to do where it has not."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEEDED = ("pyarrow", "numpy", "msgspec", "cramjam", "fastcrc", "immutables", "lz4")
"""What source, sink and jobs import; numba makes them faster, and they do without it."""
NO_PYTHON = re.compile(r'Cannot run program "([^"]+)"')
OTHER_PYTHON = re.compile(r"\[PYTHON_VERSION_MISMATCH\] [^\n]+")


class MissingPackage(ImportError):
    """A package that Spark's Python lacks; the text says which Python, and what to do."""


def complaint() -> str:
    """What this Python lacks and the remedy; empty when it has everything."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if not missing:
        return ""
    return (
        f"The Python that Spark runs here ({sys.executable}) has no "
        f"{' and no '.join(missing)}. Install it there with: pip install {' '.join(missing)}; "
        "or set PYSPARK_PYTHON to a Python that has it."
    )


def check_packages() -> None:
    """Raise MissingPackage unless this Python can move Arrow batches."""
    text = complaint()
    if text:
        raise MissingPackage(text)


def check_executors(spark: SparkSession) -> None:
    """One task looks at the Python of the executors, before a job depends on it.

    It needs nothing but PySpark, while a task that moves Arrow batches fails without a sentence.
    Raises MissingPackage.
    """
    try:
        found = spark.sparkContext.parallelize([0], 1).map(lambda _: complaint()).collect()
    except Exception as fault:
        text = _of_python(str(fault))
        if text is None:
            raise
        raise MissingPackage(text) from None
    if found[0]:
        raise MissingPackage(found[0])


def _of_python(fault: str) -> str | None:
    """The sentence for a task that had no Python, or another than the driver's."""
    other = OTHER_PYTHON.search(fault)
    if other is not None:
        return f"{other[0]} Let PYSPARK_PYTHON name a Python of that version on the executors."
    absent = NO_PYTHON.search(fault)
    if absent is None:
        return None
    return (
        f"The executors cannot start the Python {absent[1]}, which PYSPARK_PYTHON names or which "
        "is the driver's: let PYSPARK_PYTHON name the Python that they have."
    )
