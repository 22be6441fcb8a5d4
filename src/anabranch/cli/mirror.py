"""`anabranch mirror`: mirror clusters as an mm2.properties says, and see how far that is.

Rule kept: the verbs start what `anabranch.pipelines.mirror` has as plain functions, and show it.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from anabranch.cli.cluster_command import (
    VerbGroup,
    json_option,
    lost,
    print_json,
    print_table,
    refused,
    watch_option,
)
from anabranch.cli.progress import told_while
from anabranch.cli.spark import LOCAL, faults_with_remedies, need_package
from anabranch.core.sentences import number_of

if TYPE_CHECKING:
    from anabranch.core.mirror.config import Config, Flow
    from anabranch.pipelines.mirror.driver import Totals
    from anabranch.pipelines.mirror.exporter import Exporter
    from anabranch.pipelines.mirror.failover import Plan
    from anabranch.pipelines.mirror.lag import FlowLag

T = TypeVar("T")
SIGNALS = {signal.SIGINT}
"""Held back while Spark starts, which takes seconds: one that interrupts PySpark then is told with
traces, and leaves a Java process behind."""
MOST_SHOWN = 20
"""Topics of a flow that are named one by one."""

properties_argument = click.argument(
    "properties", metavar="MM2.PROPERTIES", type=click.Path(dir_okay=False, path_type=Path)
)
flow_option = click.option(
    "--flow", "flow_name", metavar="A->B", help="The flow. Default: the only one of the file."
)


@click.group(cls=VerbGroup, epilog="Example: anabranch mirror run mm2.properties")
def command() -> None:
    """Mirror topics and groups of one cluster to another."""


@command.command(epilog="Example: anabranch mirror run mm2.properties --validate-only")
@properties_argument
@click.option(
    "--validate-only", is_flag=True,
    help="Say what each flow would do, and change nothing. Exits with code 1 if one could not run.",
)  # fmt: skip
@click.option(
    "--waves", type=click.IntRange(min=1), metavar="N",
    help="End after so many waves of tasks. Default: run until Ctrl-C.",
)  # fmt: skip
@click.option(
    "--master", default=LOCAL, show_default=True, metavar="URL",
    help="The Spark master: local[N] for this process, or spark://HOST:PORT.",
)  # fmt: skip
@click.option(
    "--metrics", metavar="HOST:PORT",
    help="Serve metrics for Prometheus there, under MirrorMaker 2's names: 127.0.0.1:9645.",
)  # fmt: skip
@json_option
def run(
    properties: Path, validate_only: bool, waves: int | None, master: str, metrics: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Mirror all enabled flows of an mm2.properties of MirrorMaker 2, until Ctrl-C.

    The next run continues where the previous one stopped; so does MirrorMaker 2 itself.
    """
    config = _config(properties)
    address = None if metrics is None else _address(metrics)
    if validate_only:
        _validate(config, as_json=as_json)
        return
    need_package("pyspark", "pyspark>=4.3,<4.4")
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until `_mirror` can stop in order
    try:
        totals = _run_jobs(config, waves, master, address)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    if as_json:
        print_json(vars(totals))
    else:
        click.echo(
            f"{number_of(totals.records, 'record')}, {totals.size_bytes / 1e6:,.1f} MB mirrored in "
            f"{number_of(totals.waves, 'whole wave')}."
            + (" The wave that was stopped is not counted." if totals.cut_waves else "")
        )


def _run_jobs(
    config: Config, waves: int | None, master: str, address: tuple[str, int] | None
) -> Totals:
    exporter = None if address is None else _exporter(*address)
    from anabranch.pipelines.session import job_session, leave_faults_to_the_job

    with (
        told_while("Starting Spark") as started,
        faults_with_remedies(),
        job_session("anabranch mirror", master) as spark,
    ):
        leave_faults_to_the_job(spark)
        started()
        return _run(_mirror(spark, config, waves, exporter), telling=False)


def _config(path: Path) -> Config:
    from anabranch.core.mirror.config import BadConfig
    from anabranch.pipelines.mirror.properties import load_config

    try:
        config = load_config(path)
    except BadConfig as fault:
        raise click.ClickException("\n".join(fault.faults)) from None
    for note in config.notes:
        click.echo(f"{path}: {note}", err=True)
    return config


def _address(text: str) -> tuple[str, int]:
    from anabranch.pipelines.mirror.exporter import BadAddress, address_of

    try:
        return address_of(text)
    except BadAddress as fault:
        raise click.UsageError(str(fault)) from None


def _exporter(host: str, port: int) -> Exporter:
    from anabranch.pipelines.mirror.exporter import BadAddress, Exporter

    try:
        exporter = Exporter.start(host, port)
    except BadAddress as fault:
        raise click.ClickException(str(fault)) from None
    click.echo(f"metrics at http://{exporter.address}/metrics", err=True)
    return exporter


async def _mirror(
    spark: Any, config: Config, waves: int | None, exporter: Exporter | None
) -> Totals:
    from anabranch.pipelines.mirror.driver import run_mirror

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stop.set)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    return await run_mirror(
        spark, config, tell=lambda line: click.echo(line, err=True), stop=stop, most_waves=waves,
        progress=_say_progress, watch=None if exporter is None else exporter.watch,
    )  # fmt: skip


def _say_progress(totals: Totals) -> None:
    rounds = max(1, totals.rounds)
    click.echo(
        f"wave {totals.waves:,}: {number_of(totals.records, 'record')}, "
        f"{totals.size_bytes / 1e6:,.1f} MB so far, {totals.latency_ms / rounds:,.0f} ms a round",
        err=True,
    )


def _run(work: Awaitable[T], *, telling: bool = True) -> T:
    """Run something that talks to clusters; what stops it becomes one line. `telling`: it says
    nothing itself of how far it is."""
    from anabranch.client.connection import ConnectionLost
    from anabranch.core.errors import ApiError
    from anabranch.core.mirror.config import BadConfig
    from anabranch.pipelines.mirror.driver_flow import Replaced, SameCluster

    async def doing() -> T:
        return await work

    try:
        with told_while("Asking the clusters") if telling else nullcontext():
            return asyncio.run(doing())
    except ConnectionLost as fault:
        raise lost(fault, "correct bootstrap.servers in the file") from None
    except (SameCluster, Replaced, BadConfig) as fault:
        raise click.ClickException(str(fault)) from None
    except ApiError as fault:
        raise refused(fault) from None


def _validate(config: Config, *, as_json: bool) -> None:
    from anabranch.pipelines.mirror.validation import FlowReport, look_at

    async def work() -> list[FlowReport]:
        return [await look_at(each) for each in config.flows]

    reports = _run(work())
    if as_json:
        print_json([each._asdict() for each in reports])
    else:
        for report in reports:
            _say_report(report)
    if any(each.faults for each in reports):
        raise click.exceptions.Exit(1)


def _say_report(report: Any) -> None:
    click.echo(f"{report.flow}: {report.mode}")
    for source, remote, partitions, what in report.topics[:MOST_SHOWN]:
        click.echo(f"  {source} -> {remote}: {number_of(partitions, 'partition')}, {what}")
    if len(report.topics) > MOST_SHOWN:
        click.echo(f"  and {number_of(len(report.topics) - MOST_SHOWN, 'more topic')}")
    if not report.topics and not report.faults:
        click.echo("  no topic of the source matches `topics`")
    for sentence in (*report.notes, *report.faults):
        click.echo(f"  {sentence}")


@command.command(epilog="Example: anabranch mirror status mm2.properties --watch")
@properties_argument
@json_option
@watch_option
def status(properties: Path, as_json: bool) -> None:
    """Show how far each partition and flow is behind: records, bytes and seconds."""
    _say_lags(_lags(_config(properties)), as_json=as_json)


def _lags(config: Config) -> list[FlowLag]:
    from anabranch.pipelines.mirror.lag import flow_lag

    async def work() -> list[FlowLag]:
        return [await flow_lag(each) for each in config.flows]

    return _run(work())


def _say_lags(lags: list[FlowLag], *, as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {**each._asdict(), "partitions": [one._asdict() for one in each.partitions]}
                for each in lags
            ]
        )
        return
    rows: list[tuple[object, ...]] = []
    for lag in lags:
        rows += [
            (each.flow, each.topic, each.partition, each.remote, _shown(each.position),
             _shown(each.source_end), _shown(each.records), _shown(each.size_bytes),
             _seconds(each.seconds))
            for each in lag.partitions
        ]  # fmt: skip
        rows.append(
            (lag.flow, "all", len(lag.partitions), "", "", "", f"{lag.records:,}",
             f"{lag.size_bytes:,}", _seconds(lag.seconds))
        )  # fmt: skip
    print_table(
        ("FLOW", "TOPIC", "PARTITION", "ON TARGET", "POSITION", "SOURCE END", "RECORDS", "BYTES",
         "SECONDS"),
        rows,
    )  # fmt: skip
    for lag in lags:
        for each in lag.partitions:
            if each.why:
                click.echo(f"{each.flow}: {each.topic}-{each.partition}: {each.why}", err=True)


def _shown(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:,.1f}"


@command.command(epilog="Example: anabranch mirror translate mm2.properties --group readers")
@properties_argument
@click.option("--group", required=True, metavar="NAME", help="The group at the source.")
@flow_option
@json_option
def translate(properties: Path, group: str, flow_name: str | None, as_json: bool) -> None:
    """Show where a group of the source continues on the target.

    If the source does not answer, its last checkpoints on the target are shown.
    """
    from anabranch.pipelines.mirror.translation import translated

    flow = _flow(_config(properties), flow_name)
    found = _run(translated(flow, group))
    if as_json:
        print_json(
            {
                "flow": found.flow,
                "source_fault": found.source_fault or None,
                "offsets": [each._asdict() for each in found.offsets],
            }
        )
        return
    if found.source_fault:
        click.echo(f"{flow.source} does not answer: {found.source_fault}", err=True)
        click.echo("These are the group's last checkpoints.", err=True)
    if not found.offsets:
        click.echo(
            f"{group!r} has no offset that can be translated: {flow.source} has no such group, or "
            f"the group has no offset in a topic that {flow.name} has mirrored.",
            err=True,
        )
    print_table(
        ("TOPIC", "PARTITION", "SOURCE OFFSET", "TARGET OFFSET"),
        [(each.topic, each.partition, each.upstream, each.downstream) for each in found.offsets],
    )


def _flow(config: Config, name: str | None) -> Flow:
    from anabranch.pipelines.mirror.translation import flow_of

    try:
        return flow_of(config, name)
    except LookupError as fault:
        raise click.UsageError(str(fault)) from None


plan_option = click.option("--plan", "only_plan", is_flag=True, help="Only show it: the default.")
execute_option = click.option("--execute", is_flag=True, help="Do the steps marked with *.")


@command.command(epilog="Example: anabranch mirror failover mm2.properties --plan")
@properties_argument
@flow_option
@plan_option
@execute_option
@json_option
def failover(
    properties: Path, flow_name: str | None, only_plan: bool, execute: bool, as_json: bool
) -> None:
    """Plan or execute the move of groups from the source of a flow to its target.

    Shows what each group would read again, which records never arrived, which topics have other
    records, and each step with how to undo it.
    """
    from anabranch.pipelines.mirror.failover import failover_plan

    config = _config(properties)
    flow = _flow(config, flow_name)
    _go(config, flow, failover_plan(flow), execute=execute and not only_plan, as_json=as_json)


@command.command(epilog="Example: anabranch mirror failback mm2.properties --plan")
@properties_argument
@flow_option
@plan_option
@execute_option
@json_option
def failback(
    properties: Path, flow_name: str | None, only_plan: bool, execute: bool, as_json: bool
) -> None:
    """Plan or execute the move of groups from the target of a flow back to its source."""
    from anabranch.pipelines.mirror.failover import failback_plan

    config = _config(properties)
    flow = _flow(config, flow_name)
    plan = failback_plan(config, flow)
    _go(config, flow, plan, execute=execute and not only_plan, as_json=as_json)


def _go(
    config: Config, flow: Flow, planning: Awaitable[Plan], *, execute: bool, as_json: bool
) -> None:
    import msgspec

    from anabranch.pipelines.mirror.failover import execute as carry_out

    async def work() -> Plan:
        plan = await planning
        if execute and not plan.blocked:
            await carry_out(plan, config, flow)
        return plan

    plan = _run(work())
    if as_json:
        print_json(msgspec.to_builtins(plan))
    else:
        _say_plan(plan)
    if execute and plan.blocked:
        raise click.exceptions.Exit(1)


def _say_plan(plan: Plan) -> None:
    click.echo(f"{plan.kind} of {plan.flow}: to {plan.to}")
    if plan.groups:
        print_table(
            ("GROUP", "FROM", "AT", "TO", "AT", "NOW", "READ AGAIN"),
            [
                (each.group, f"{each.from_topic}-{each.partition}", each.from_offset,
                 f"{each.topic}-{each.partition}", each.offset,
                 "-" if each.now < 0 else each.now,
                 "unknown" if each.read_again is None else each.read_again)
                for each in plan.groups
            ],
        )  # fmt: skip
    for missing in plan.missing:
        click.echo(
            f"{missing.topic}-{missing.partition}: {number_of(missing.records, 'record')} from "
            "offset "
            f"{missing.first} on have not arrived."
        )
    for ahead in plan.ahead:
        click.echo(
            f"{ahead.topic}-{ahead.partition} is ahead: {number_of(ahead.records, 'record')} "
            f"from offset {ahead.first} on are not from the mirror."
        )
    for number, step in enumerate(plan.steps, 1):
        mark = "done" if step.done else "*" if step.is_ours else " "
        click.echo(f"{number}. {mark} {step.what}")
        click.echo(f"     undo: {step.undo}")
    for sentence in (*plan.notes, *plan.blocked):
        click.echo(sentence)
