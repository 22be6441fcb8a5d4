"""`anabranch spark`: jobs that run on Apache Spark, here on the cores of this machine.

Rule kept: the verbs only start what `anabranch.pipelines` has as plain functions, show how far it
is, and say in one line why it ended. Not here: clusters of Spark, where spark-submit runs a script
that calls the same functions.
"""

from __future__ import annotations

import re
import time
from importlib.util import find_spec
from typing import Any

import click

from anabranch.cli.running import VerbGroup, bootstrap_option, json_option, print_json

LOOK_SECONDS = 0.5
OURS = re.compile(
    r"^anabranch\.[\w.]+: (.+?)(?=\n\S*\n|\n\s+at |\n\n|\Z)", re.MULTILINE | re.DOTALL
)
"""A fault of ours within what Spark tells of it, with the traces around it."""


@click.group(
    cls=VerbGroup, epilog="Example: anabranch spark tables --topic flights --table ./flights"
)
def command() -> None:
    """Run jobs on Apache Spark, on the cores of this machine."""


@command.command(
    epilog="Example: anabranch spark tables --topic flights --table ./flights "
    "--schema 'carrier string, delay double'"
)
@bootstrap_option
@click.option("--topic", required=True, metavar="NAME", help="Whose records become rows.")
@click.option("--table", required=True, metavar="FOLDER", help="The Delta table; it is created.")
@click.option(
    "--schema", metavar="DDL",
    help="Names and types of the fields, as 'id bigint, name string'; without it, they are derived "
    "from the first records.",
)  # fmt: skip
@click.option(
    "--dead-letters", default="", metavar="FOLDER",
    help="The Delta table of records that do not fit; default: TABLE-dead-letters.",
)  # fmt: skip
@click.option(
    "--checkpoint", default="", metavar="FOLDER",
    help="Where the job keeps how far it is; default: TABLE-checkpoint.",
)  # fmt: skip
@click.option(
    "--max-records",
    type=click.IntRange(min=1),
    metavar="N",
    help="Records of a micro-batch at most; without it, all that there are.",
)
@click.option("--follow", is_flag=True, help="Go on with new records until Ctrl-C.")
@json_option
def tables(
    bootstrap: str, topic: str, table: str, schema: str | None, dead_letters: str,
    checkpoint: str, max_records: int | None, follow: bool, as_json: bool,
) -> None:  # fmt: skip
    """Keep a Delta table of the JSON records of a topic, each record exactly once.

    Started again, the job goes on where it stopped.
    """
    _need("pyspark", "spark")
    _need("deltalake", "delta")
    from anabranch.pipelines.tables import TableJob, counted, keep_table

    job = TableJob(
        bootstrap_servers=bootstrap, topic=topic, table=table, schema=schema,
        dead_letters=dead_letters, checkpoint=checkpoint,
        options={} if max_records is None else {"maxOffsetsPerTrigger": str(max_records)},
    )  # fmt: skip
    try:
        from anabranch.pipelines.session import local_session

        query = keep_table(local_session("anabranch spark tables"), job, follow=follow)
        _watch(query)
    except click.ClickException:
        raise
    except Exception as fault:
        raise click.ClickException(_sentence(fault)) from None
    done = counted(job)
    if as_json:
        print_json({"table": table, **done._asdict()})
    else:
        click.echo(
            f"{table} has {done.rows:,} row(s) at version {done.version}, and "
            f"{done.dead_letters:,} dead letter(s) lie beside it."
        )


def _watch(query: Any) -> None:
    """Show each micro-batch on standard error until the query ends or Ctrl-C stops it."""
    shown = -1
    try:
        while query.isActive:
            shown = _show(query.lastProgress, shown)
            time.sleep(LOOK_SECONDS)
        query.awaitTermination()
        _show(query.lastProgress, shown)
    except KeyboardInterrupt:
        query.stop()


def _show(progress: Any, shown: int) -> int:
    if progress is None or progress["batchId"] == shown or not progress["numInputRows"]:
        return shown
    rate = progress["processedRowsPerSecond"] or 0
    click.echo(
        f"micro-batch {progress['batchId']}: {progress['numInputRows']:,} record(s), "
        f"{rate:,.0f} a second",
        err=True,
    )
    return int(progress["batchId"])


def _need(package: str, extra: str) -> None:
    if find_spec(package) is None:
        raise click.ClickException(
            f"The package {package} is missing. Install it with: pip install 'anabranch[{extra}]'."
        )


def _sentence(fault: Exception) -> str:
    """What a fault says, without the traces that Spark puts around it."""
    found = OURS.search(str(fault))
    if found is not None:
        return found[1].strip()
    return str(fault).strip().split("\n")[0] or type(fault).__name__
