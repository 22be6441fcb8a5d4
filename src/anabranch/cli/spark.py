"""`anabranch spark`: jobs that run on Apache Spark, on the cores of this machine or on a cluster.

Rule kept: the verbs only start what `anabranch.pipelines` has as plain functions, show how far it
is, and say in one line why it ended.
"""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from anabranch.cli.cluster_command import (
    SILENCE_SECONDS,
    TRACEBACK_VARIABLE,
    Refused,
    Seconds,
    VerbGroup,
    address_option,
    ask,
    json_option,
    lost,
    print_json,
    refused,
)
from anabranch.cli.name_option import naming_option
from anabranch.cli.progress import told_while
from anabranch.core.sentences import number_of

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster
    from anabranch.pipelines.compaction import Compacted, Waiting
    from anabranch.pipelines.scrub import Report
    from anabranch.pipelines.tiering import Tiered

SIGNALS = {signal.SIGINT}
"""Held back while Spark starts: one that interrupts PySpark then is told with traces, and leaves a
Java process behind."""
LOOK_SECONDS = 0.5
PAUSE_SECONDS = 1.0
"""Between two lines of progress."""
LOCAL = "local[*]"
OURS = re.compile(
    r"^anabranch\.[\w.]+: (.+?)(?=\n\S*\n|\n\s+at |\n\s*SQLSTATE: |\n\n|\Z)",
    re.MULTILINE | re.DOTALL,
)
"""A fault of ours within what Spark tells of it, with the traces around it."""
PYTHONS = re.compile(
    r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)+(?:\w+\.)*(\w+(?:: .+)?)"
)
JAVAS = re.compile(r"^: (?:\w+\.)*(\w+: .+)", re.MULTILINE)
"""The fault of some library in Python or Java."""
SQL_STATE = re.compile(r"\s*\bSQLSTATE: \w+")
REMEDIES = (
    (re.compile(r"PARSE_SYNTAX_ERROR|UNSUPPORTED_DATATYPE"),
     "Correct --schema: names with types of Spark SQL, such as 'id bigint, name string'."),
    (re.compile(r"OutOfMemoryError|GC overhead"),
     "Read less at once: give a smaller --max-records."),
    (re.compile(r"No space left on device"),
     "Free space on the disk, and run the same command again."),
    (re.compile(r"Permission denied|AccessDenied|Read-only file system|Not a directory|"
                r"Mkdirs failed|ParentNotDirectory"),
     "Let this user read and write the folder, or name another one."),
)  # fmt: skip
"""What helps, by words of a fault of Spark or of a library."""
ALL_OF_IT = f"Set {TRACEBACK_VARIABLE}=1 to see all that Spark said of it."


master_option = click.option(
    "--master", default=LOCAL, show_default=True, metavar="URL",
    help="The Spark master: local[N] for this process, or spark://HOST:PORT.",
)  # fmt: skip


@click.group(cls=VerbGroup, epilog="Example: anabranch spark scrub --topic flights")
def command() -> None:
    """Run Apache Spark jobs on whole topics."""


@command.command(
    epilog="Example: anabranch spark tables --topic flights --table ./flights "
    "--schema 'carrier string, delay double'"
)
@address_option
@naming_option("--topic", required=True, metavar="NAME", help="The topic to read.")
@click.option(
    "--table", required=True, metavar="FOLDER", help="The Delta table; created if missing."
)
@click.option(
    "--schema", metavar="DDL",
    help="Names and types of the fields, such as 'id bigint, name string'. Default: derived from "
        "the records.",
)  # fmt: skip
@click.option(
    "--dead-letters", default="", metavar="FOLDER",
    help="The Delta table for records that do not fit. Default: TABLE-dead-letters.",
)  # fmt: skip
@click.option(
    "--checkpoint", default="", metavar="FOLDER",
    help="The folder for the job's progress. Default: TABLE-checkpoint.",
)  # fmt: skip
@click.option(
    "--max-records",
    type=click.IntRange(min=1),
    metavar="N",
    help="Maximum number of records in a micro-batch. Default: all available.",
)
@click.option(
    "--json-lines",
    is_flag=True,
    help="Make a row of each line of a value. Default: a value is one JSON document.",
)
@click.option("--follow", is_flag=True, help="Continue with new records until Ctrl-C.")
@master_option
@json_option
def tables(
    bootstrap: str, topic: str, table: str, schema: str | None, dead_letters: str,
    checkpoint: str, max_records: int | None, json_lines: bool, follow: bool, master: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Keep a Delta table of the JSON records of a topic, each record exactly once.

    The next run continues where the previous one stopped.
    """
    need_package("pyspark", "pyspark>=4.3,<4.4")
    need_package("deltalake", "deltalake>=1.1")
    _refuse_absent(bootstrap, topic)
    from anabranch.pipelines.session import leave_faults_to_the_job
    from anabranch.pipelines.tables import TableJob, counted, keep_table

    job = TableJob(
        bootstrap_servers=bootstrap, topic=topic, table=table, schema=schema,
        dead_letters=dead_letters, checkpoint=checkpoint, json_lines=json_lines,
        options={} if max_records is None else {"maxOffsetsPerTrigger": str(max_records)},
    )  # fmt: skip
    try:
        with _session("anabranch spark tables", master) as spark:
            leave_faults_to_the_job(spark)
            with told_while(f"Reading {topic}"):
                query = keep_table(spark, job, follow=follow)
            _watch(query)
        with told_while("Counting rows"):
            done = counted(job)
    except click.ClickException:
        raise
    except Exception as fault:
        raise _told(fault) from None
    if as_json:
        print_json({"table": table, **done._asdict()})
    else:
        click.echo(
            f"{table} has {number_of(done.rows, 'row')} at version {done.version}, and "
            f"{number_of(done.dead_letters, 'dead letter')} beside it."
        )


def _watch(query: Any) -> None:
    """Show each micro-batch on standard error until the query ends or Ctrl-C stops it."""
    shown, said_s = -1, time.monotonic()
    try:
        while query.isActive:
            before, shown = shown, _show(query.lastProgress, shown)
            if shown != before or not query.status["isTriggerActive"]:
                said_s = time.monotonic()
            elif time.monotonic() - said_s >= SILENCE_SECONDS:
                said_s = time.monotonic()
                click.echo(f"micro-batch {shown + 1} is under way", err=True)
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
        f"micro-batch {progress['batchId']}: {number_of(progress['numInputRows'], 'record')}, "
        f"{rate:,.0f} a second",
        err=True,
    )
    return int(progress["batchId"])


@command.command(epilog="Example: anabranch spark scrub --topic flights --notes scrub.jsonl")
@address_option
@naming_option(
    "--topic", "topics", multiple=True, metavar="NAME",
    help="Only this topic; may be given more than once. Default: all except internal ones.",
)  # fmt: skip
@click.option(
    "--config", "properties_file", metavar="FILE", type=click.Path(exists=True, dir_okay=False),
    help="A broker's properties file, for the URL of the object store: check its segments, too.",
)  # fmt: skip
@click.option("--storage-url", metavar="URL", help="The store, if there is no such file.")
@click.option(
    "--notes", "notes_path", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
    help="Store progress in this file; an interrupted scrub continues from it.",
)  # fmt: skip
@master_option
@json_option
def scrub(
    bootstrap: str, topics: tuple[str, ...], properties_file: str | None, storage_url: str | None,
    notes_path: Path | None, master: str, as_json: bool,
) -> None:  # fmt: skip
    """Read every replica of every partition and compare them, byte for byte.

    Exits with code 1 if replicas differ, or if some could not be compared. Compacted topics are
    compared by record, and by the latest record of each key. With an object store, its segments of
    remote logs and of tiered diskless topics are read and checked, too.
    """
    need_package("pyspark", "pyspark>=4.3,<4.4")
    url = storage_url or (_storage_url(properties_file) if properties_file else "")
    _refuse_absent(bootstrap, *topics)
    with _session("anabranch spark scrub", master) as spark:
        from anabranch.pipelines.scrub import scrub as work
        from anabranch.pipelines.session import leave_faults_to_the_job

        leave_faults_to_the_job(spark)
        try:
            with told_while("Comparing replicas"):
                report = work(
                    spark, bootstrap, list(topics) or None, storage_url=url,
                    notes_path=notes_path, tell=_teller(),
                )  # fmt: skip
        except Exception as fault:
            raise _told(fault) from None
    _say_scrubbed(report, as_json=as_json)
    if not report.is_clean:
        raise click.exceptions.Exit(1)


def _say_scrubbed(report: Report, *, as_json: bool) -> None:
    if as_json:
        print_json(dataclasses.asdict(report))
        return
    rate = report.bytes_read / 1e6 / max(report.seconds, 1e-9)
    segments = f"{number_of(report.segments, 'segment')} of tiers, " if report.segments else ""
    click.echo(
        f"{number_of(report.partitions, 'partition')}, {number_of(report.replicas, 'replica')}, "
        f"{segments}"
        f"{report.bytes_read / 1e6:,.1f} MB read in {report.seconds:.1f} s ({rate:,.0f} MB/s)"
    )
    for each in (*report.differences, *report.not_compared):
        click.echo(f"{each['topic']}-{each['partition']} at {each['offset']}: {each['sentence']}")
    if report.differing:
        click.echo(f"{number_of(report.differing, 'difference')}.")
    elif report.not_compared:
        click.echo("No replica that could be compared differs; some could not be compared.")
    else:
        sound = ", and all segments of tiers are sound" if report.segments else ""
        click.echo(f"All replicas are equal{sound}.")


Done = TypeVar("Done", "Tiered", "Compacted")
"""The report of a wave."""


def wave_options(job: Callable[..., None]) -> Callable[..., None]:
    """What a job that runs in waves is told."""
    for option in (
        click.option(
            "--every", type=Seconds(1), metavar="SECONDS",
            help="Repeat at this interval until Ctrl-C. Default: once.",
        ),
        click.option("--storage-url", metavar="URL", help="The store, if there is no such file."),
        click.option(
            "--config", "properties_file", metavar="FILE",
            type=click.Path(exists=True, dir_okay=False),
            help="A broker's properties file, for diskless.storage.url.",
        ),
        address_option,
    ):  # fmt: skip
        job = option(job)
    return job


@command.command(epilog="Example: anabranch spark tier --config server.properties")
@wave_options
@master_option
@json_option
def tier(
    bootstrap: str, properties_file: str | None, storage_url: str | None, every: float | None,
    master: str, as_json: bool,
) -> None:  # fmt: skip
    """Move aged records of diskless topics into segments and delete their database rows.

    Topics decide at which age (diskless.tiering.age.ms). Exits with code 1 if some partition could
    not be tiered. It may be interrupted at any time.
    """
    need_package("pyspark", "pyspark>=4.3,<4.4")
    url = storage_url or _storage_url(properties_file)
    _refuse_absent(bootstrap)
    with _session("anabranch spark tier", master) as spark:
        from anabranch.pipelines.session import leave_faults_to_the_job
        from anabranch.pipelines.tiering import Where, told
        from anabranch.pipelines.tiering import tier as work

        leave_faults_to_the_job(spark)
        say = _say_tiered if not as_json else lambda done: print_json(told(done))
        _waves("Tiering", lambda: work(spark, Where(bootstrap, url), _teller()), say, every)


@command.command(epilog="Example: anabranch spark compact --config server.properties")
@wave_options
@click.option("--dry-run", is_flag=True, help="Only tell which partitions would be compacted.")
@master_option
@json_option
def compact(
    bootstrap: str, properties_file: str | None, storage_url: str | None, every: float | None,
    dry_run: bool, master: str, as_json: bool,
) -> None:  # fmt: skip
    """Keep only the latest record of each key in the tiered part of compacted diskless topics.

    Topics decide when (min.cleanable.dirty.ratio and others). Exits with code 1 if some partition
    could not be compacted. It may be interrupted at any time.
    """
    if dry_run:
        _say_waiting(bootstrap, as_json=as_json)
        return
    need_package("pyspark", "pyspark>=4.3,<4.4")
    url = storage_url or _storage_url(properties_file)
    _refuse_absent(bootstrap)
    with _session("anabranch spark compact", master) as spark:
        from anabranch.pipelines.compaction import compact as work
        from anabranch.pipelines.session import leave_faults_to_the_job
        from anabranch.pipelines.tiering import Where

        leave_faults_to_the_job(spark)
        say = _say_compacted if not as_json else _print_compacted
        _waves("Compacting", lambda: work(spark, Where(bootstrap, url), _teller()), say, every)


def _waves(
    what: str, work: Callable[[], Done], say: Callable[[Done], None], every: float | None
) -> None:
    """Run a job's waves and tell each one's report. A single wave with faults exits with code 1."""
    while True:
        try:
            with told_while(what):
                done = work()
        except Exception as fault:
            if every is None:
                raise click.ClickException(_sentence(fault)) from None
            click.echo(_sentence(fault), err=True)
        else:
            say(done)
            if every is None and done.faults:
                raise click.exceptions.Exit(1)
        if every is None:
            return
        time.sleep(every)


def _print_compacted(done: Compacted) -> None:
    print_json({**dataclasses.asdict(done), "waiting": _as_json(done.waiting)})


def _say_waiting(bootstrap: str, *, as_json: bool) -> None:
    from anabranch.pipelines.compaction import waiting_of

    found = ask(bootstrap, waiting_of)
    if as_json:
        print_json({"waiting": _as_json(found)})
        return
    for each in found:
        if not each.tiered_bytes:
            what = f"nothing is tiered; {number_of(each.untiered_records, 'record')} not tiered"
        else:
            dirty = f"{each.dirty_bytes / 1e6:,.1f} of {each.tiered_bytes / 1e6:,.1f} MB dirty"
            what = f"{dirty}; {'would be compacted' if each.is_due else 'not compacted yet'}"
        click.echo(f"{each.name}: {what}")
    if not found:
        click.echo(NO_COMPACTED)


NO_COMPACTED = "There are no diskless topics with cleanup.policy=compact."


def _as_json(found: list[Waiting]) -> list[dict[str, Any]]:
    return [each._asdict() for each in found]


def _say_compacted(done: Compacted) -> None:
    before, after = done.bytes_before / 1e6, done.bytes_after / 1e6
    click.echo(
        f"{number_of(done.partitions, 'partition')} compacted in {done.seconds:.1f} s: "
        f"{before:,.1f} MB became {after:,.1f} MB; {number_of(done.segments, 'segment')} took the "
        f"place of {done.replaced:,}."
    )
    if not done.waiting:
        click.echo(NO_COMPACTED)
    elif not any(each.tiered_bytes for each in done.waiting):
        click.echo("Nothing of these topics is tiered: run `anabranch spark tier` first.")
    if done.given_up:
        lost = number_of(done.given_up, "partition")
        click.echo(f"Given up to another job, retention or a deletion: {lost}.")
    for name, why in done.faults.items():
        click.echo(f"{name}: {why}")


def _storage_url(properties_file: str | None) -> str:
    from anabranch.cli.serve import configured

    broker = configured(properties_file, []).broker if properties_file else None
    url = "" if broker is None else broker.diskless_storage_url or broker.remote_storage_url
    if not url:
        raise click.UsageError(
            "Give the store: --config FILE with diskless.storage.url, or --storage-url URL."
        )
    return url


def _say_tiered(done: Tiered) -> None:
    rate = done.bytes_tiered / 1e6 / max(done.seconds, 1e-9)
    click.echo(
        f"{number_of(done.segments, 'segment')}, {done.bytes_tiered / 1e6:,.1f} MB "
        f"in {done.seconds:.1f} s ({rate:,.0f} MB/s); {number_of(done.rows_freed, 'row')} deleted."
    )
    if done.given_up:
        click.echo(f"Given up to another job or a deletion: {number_of(done.given_up, 'segment')}.")
    for name, why in done.faults.items():
        click.echo(f"{name}: {why}")
    if done.faults:
        click.echo(
            "Records of these partitions stay where they are, and the next run tries again. If "
            "objects are damaged or missing, put them back from a copy of the store; `anabranch "
            "diskless verify` lists them."
        )


@contextmanager
def _session(name: str, master: str) -> Iterator[Any]:
    """A session for one job. Raises ClickException without a Java, without what jobs need or
    without a master, and for what Spark tells without a remedy."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        with told_while("Starting Spark") as started:
            from anabranch.pipelines.session import job_session

            with faults_with_remedies(), job_session(name, master) as spark:
                started()
                signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
                yield spark
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


@contextmanager
def faults_with_remedies() -> Iterator[None]:
    """What Spark tells without a remedy becomes a ClickException that has one, and so does what is
    told with one already: no Java, no fitting Python, no master."""
    from anabranch.pipelines.java import NoJava
    from anabranch.pipelines.requirements import MissingPackage
    from anabranch.pipelines.spark_faults import NoMaster, remedy

    try:
        yield
    except (NoJava, MissingPackage, NoMaster) as fault:
        raise click.ClickException(str(fault)) from None
    except Exception as fault:
        text = remedy(fault)
        if not text:
            raise
        raise click.ClickException(text) from fault


def _teller() -> Callable[[str], None]:
    """Prints progress on standard error, at most once in PAUSE_SECONDS."""
    last = [0.0]

    def tell(line: str) -> None:
        now = time.monotonic()
        if now - last[0] >= PAUSE_SECONDS:
            last[0] = now
            click.echo(line, err=True)

    return tell


def need_package(package: str, requirement: str) -> None:
    """Raises Refused, with the command that installs it, for a package that is missing."""
    if find_spec(package) is None:
        raise Refused(
            f"The package {package} is missing.",
            code="MISSING_PACKAGE",
            remedy=f"Install it with: pip install '{requirement}'.",
        )


def _refuse_absent(bootstrap: str, *topics: str) -> None:
    """Refuse what is not there before Spark takes its seconds to start."""

    async def work(cluster: Cluster) -> None:
        for each in topics:
            await cluster.topic(each)

    ask(bootstrap, work)


def _told(fault: Exception) -> Exception:
    """What a user is told of a fault: what happened, and as the last line what to do about it; the
    fault itself where all of it is asked for."""
    from anabranch.pipelines.spark_faults import remedy

    if os.environ.get(TRACEBACK_VARIABLE):
        return fault
    return click.ClickException(remedy(fault) or _sentence(fault))


def _sentence(fault: Exception) -> str:
    """What a fault says, without the traces and the codes that Spark puts around it; then a line
    with a remedy, unless the fault is one of ours, whose sentence has it."""
    from anabranch.client.connection import ConnectionLost
    from anabranch.core.errors import ApiError

    if isinstance(fault, ApiError):
        return refused(fault).message
    if isinstance(fault, ConnectionLost):
        return lost(fault).message
    text = str(fault)
    if type(fault).__module__.startswith("anabranch."):
        return text
    ours = OURS.search(text)
    if ours is not None:
        return ours[1].strip()
    found = PYTHONS.search(text) or JAVAS.search(text)
    first = found[1] if found is not None else text.strip().split("\n")[0]
    said = SQL_STATE.sub("", first).strip() or type(fault).__name__
    remedies = (sentence for words, sentence in REMEDIES if words.search(text))
    return f"{said}\n{next(remedies, ALL_OF_IT)}"
