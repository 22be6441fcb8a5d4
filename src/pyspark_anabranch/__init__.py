"""What Spark finds for `format("anabranch")`, without a jar and without being told.

Spark looks for top-level packages whose names begin with `pyspark_`, and takes `DefaultSource`
from the one that the format names. The work is done in `anabranch.pipelines`.
"""

from anabranch.pipelines.datasource import AnabranchDataSource as DefaultSource

__all__ = ["DefaultSource"]
