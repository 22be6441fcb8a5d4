"""The data pipeline on Apache Spark, through PySpark: a source and a sink of DataFrames, and jobs.

Needs the extra `spark`. May use `core` and `client`, and talks to a cluster only over the wire, so
that it works on Apache Kafka too. The code that runs in Spark's Python workers is imported by name
there: the package must be installed, or shipped, where they run. Importing it changes how such a
worker ends, and nothing in any other process.
"""

from anabranch.pipelines.worker import end_silently

end_silently()
