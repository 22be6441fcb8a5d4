"""`anabranch sim`: run a simulated cluster through a schedule of faults, or thousands of them."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import click

from anabranch.cli.cluster_command import Seconds, json_option, print_json
from anabranch.cli.progress import told_while
from anabranch.core.sentences import number_of

if TYPE_CHECKING:
    from anabranch.sim.schedule import Outcome


@click.command(epilog="Example: anabranch sim --seed 42")
@click.option(
    "--seed", type=click.IntRange(0), default=None, help="Replay the schedule of this seed."
)
@click.option("--mirror", is_flag=True, help="With --seed: a schedule of mirrors between clusters.")
@click.option("--migration", is_flag=True, help="With --seed: a classic topic becomes diskless.")
@click.option("--shrink", is_flag=True, help="Reduce a failing schedule to the necessary faults.")
@click.option("--verdict", is_flag=True, help="Print only the result, without the trace.")
@click.option(
    "--seconds",
    type=Seconds(0, min_open=True),
    default=60.0,
    envvar="SECONDS",
    show_default=True,
    help="Without --seed: time to run random schedules.",
)
@click.option(
    "--first", type=click.IntRange(0), default=None, help="First seed of random schedules."
)
@click.option(
    "--processes", type=click.IntRange(1), default=None,
    help="Number of processes for random schedules. Default: one for each core.",
)  # fmt: skip
@json_option
def command(
    seed: int | None,
    mirror: bool,
    migration: bool,
    shrink: bool,
    verdict: bool,
    seconds: float,
    first: int | None,
    processes: int | None,
    as_json: bool,
) -> None:
    """Simulate a cluster with random faults and check its invariants."""
    if (mirror or migration) and seed is None:
        raise click.UsageError(f"--{'mirror' if mirror else 'migration'} needs --seed.")
    if seed is None:
        from anabranch.sim.campaign import Campaign

        campaign = Campaign(first=first, processes=processes)
        report = campaign.run(seconds, echo=partial(click.echo, err=as_json))
        if as_json:
            print_json(_plain(asdict(report)))
        sys.exit(0 if report.ok else 1)
    if mirror:
        _mirror(seed, verdict=verdict, as_json=as_json)
    if migration:
        _migration(seed, verdict=verdict, as_json=as_json)
    with told_while("Simulating"):
        outcome = _replay(seed, shrinks=shrink)
    if as_json:
        print_json(_document(outcome, trace=not verdict))
    else:
        if not verdict:
            click.echo("\n".join(outcome.lines))
        click.echo(_sentence(outcome))
    sys.exit(0 if outcome.ok else 1)


def _mirror(seed: int, *, verdict: bool, as_json: bool) -> NoReturn:
    from anabranch.sim.mirror.run import run_mirror

    with told_while("Simulating"):
        outcome = run_mirror(seed)
    if as_json:
        print_json({**_plain(asdict(outcome)), "ok": outcome.ok})
    else:
        for line in () if verdict else outcome.lines:
            click.echo(line)
        guarantee = "exactly once" if outcome.is_exactly_once else "at least once"
        click.echo(f"seed {seed}: {outcome.shape}, {guarantee}: {outcome.sentence or 'clean'}")
    sys.exit(0 if outcome.ok else 1)


def _migration(seed: int, *, verdict: bool, as_json: bool) -> NoReturn:
    from anabranch.sim.migration.run import run_migration

    with told_while("Simulating"):
        outcome = run_migration(seed, keeps_trace=not verdict)
    if as_json:
        print_json({**_plain(asdict(outcome)), "ok": outcome.ok})
    else:
        for line in outcome.lines:
            click.echo(line)
        click.echo(
            f"seed {seed}: the topic is {outcome.kind}: {outcome.sentence or 'clean'}, "
            f"digest {outcome.digest}"
        )
    sys.exit(0 if outcome.ok else 1)


def _replay(seed: int, *, shrinks: bool) -> Outcome:
    from anabranch.sim.life import draw_plan
    from anabranch.sim.schedule import run_plan
    from anabranch.sim.shrink import shrink

    plan = draw_plan(seed)
    outcome = run_plan(plan, keeps_trace=True)
    if outcome.ok or not shrinks:
        return outcome
    found = shrink(plan, outcome.violation, lambda each: run_plan(each).violation)
    return run_plan(found.plan, keeps_trace=True)


def _plain(found: Any) -> Any:
    """The same with names of what was counted as other fields are written: `isr_shrink`."""
    if isinstance(found, dict):
        return {re.sub(r"[^a-z0-9]+", "_", str(key).lower()): _plain(found[key]) for key in found}
    return [_plain(each) for each in found] if isinstance(found, list | tuple) else found


def _document(outcome: Outcome, *, trace: bool) -> dict[str, Any]:
    document: dict[str, Any] = _plain(asdict(outcome))
    document["ok"] = outcome.ok
    if not trace:
        del document["lines"]
    return document


def _sentence(outcome: Outcome) -> str:
    verdict = "clean" if outcome.ok else f"{outcome.violation}: {outcome.sentence}"
    counts = "" if outcome.counts else ", does not count"
    return (
        f"seed {outcome.seed}: {verdict}\n"
        f"{number_of(outcome.operations, 'operation')}, {number_of(outcome.faults, 'fault')}, "
        f"{outcome.virtual_us / 1e6:.1f} virtual seconds{counts}, digest {outcome.digest}"
    )
