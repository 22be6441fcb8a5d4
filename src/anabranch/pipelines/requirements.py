"""What the Python that Spark runs must have, and what to do where it has not."""

from __future__ import annotations

import sys
from importlib.util import find_spec

NEEDED = ("pyarrow", "numpy")


class MissingPackage(ImportError):
    """A package that Spark's Python lacks; the text says which Python, and what to do."""


def check_packages() -> None:
    """Raise MissingPackage unless this Python can move Arrow batches."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise MissingPackage(
            f"The Python that Spark runs here ({sys.executable}) has no "
            f"{' and no '.join(missing)}. Install it there with: pip install 'anabranch[spark]'; "
            "or let PYSPARK_PYTHON name the Python that has it."
        )
