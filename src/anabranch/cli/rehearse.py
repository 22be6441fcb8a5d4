"""`anabranch rehearse`: simulate the loss of a broker, a rack or a data centre."""

from __future__ import annotations

import signal
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from anabranch.cli.cluster_command import json_option, print_json, print_table
from anabranch.cli.progress import told_while

if TYPE_CHECKING:
    from anabranch.sim.rehearsal.answers import Answers
    from anabranch.sim.rehearsal.model import Rehearsal


T = TypeVar("T")

WIDTH = 96
"""Where sentences are wrapped."""
SENTENCES = textwrap.TextWrapper(
    WIDTH, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False
)
"""A command in a sentence is copied: its words stay whole."""

PLACES_SHOWN = 3


@click.command(epilog="Example: anabranch rehearse rack-loss")
@click.argument("rehearsal", required=False, metavar="[FILE.yaml|NAME]")
@click.option("--list", "lists", is_flag=True, help="List the included rehearsals.")
@click.option("--show", is_flag=True, help="Print the rehearsal's file instead of running it.")
@click.option("--transcript", is_flag=True, help="Show each step of one partition.")
@click.option(
    "--real",
    is_flag=True,
    help="Repeat the rehearsal on processes of this machine, and compare who leads, what is "
    "served and what is lost.",
)
@click.option("--seed", type=click.IntRange(0), metavar="N", help="Override the file's seed.")
@json_option
def command(
    rehearsal: str | None, lists: bool, show: bool, transcript: bool, real: bool,
    seed: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Simulate a cluster and its failures, and report what would be lost.

    A YAML file describes the cluster and the failures; some are included (--list). No node is
    started and nothing is written, except with --real, which runs the same on processes in a
    temporary folder.
    """
    if lists:
        _list(as_json)
        return
    if rehearsal is None:
        raise click.UsageError("Name a file or a rehearsal; --list lists the included ones.")
    text, source = _text(rehearsal)
    if show:
        _say_text("rehearsal", text, as_json=as_json)
        return
    plan = _plan(text, source, seed)
    if real:
        _perform(plan, as_json)
        return
    if transcript:
        from anabranch.sim.rehearsal.transcript import transcribe

        _say_text("transcript", _ready(transcribe, plan), as_json=as_json)
        return
    from anabranch.sim.rehearsal.stage import run

    answers = _ready(run, plan)
    if as_json:
        from anabranch.sim.rehearsal.answers import as_json as told

        print_json(told(answers))
    else:
        _print(plan, answers)
    if answers.violation:
        sys.exit(1)


def _say_text(what: str, text: str, *, as_json: bool) -> None:
    if as_json:
        print_json({what: text})
    else:
        click.echo(text, nl=False)


def _text(name: str) -> tuple[str, str]:
    """What the file or the shipped rehearsal says, and what its mistakes are told under."""
    from anabranch.sim.rehearsal.fields import FILE_SIZE_MOST, nearest
    from anabranch.sim.rehearsal.library import names, text_of

    shipped = text_of(name)
    if shipped is not None:
        return shipped, f"{name}.yaml"
    path = Path(name)
    if not path.exists():
        raise click.ClickException(
            f"There is no file and no rehearsal {name!r}.{nearest(name, names())} "
            "`anabranch rehearse --list` lists the included ones."
        )
    try:
        with path.open("rb") as file:
            return file.read(FILE_SIZE_MOST + 1).decode("utf-8-sig"), name
    except UnicodeDecodeError:
        raise click.ClickException(
            f"{name} is not text in UTF-8. Save it in that encoding."
        ) from None
    except OSError as fault:
        raise click.ClickException(
            f"{name} cannot be read: {fault.strerror}. Name a file, or a rehearsal of "
            "`anabranch rehearse --list`."
        ) from None


def _plan(text: str, source: str, seed: int | None) -> Rehearsal:
    from dataclasses import replace

    from anabranch.sim.rehearsal.fields import PlanError
    from anabranch.sim.rehearsal.rehearsal_file import read

    try:
        plan = read(text, source)
    except PlanError as fault:
        raise click.ClickException(str(fault)) from None
    return plan if seed is None else replace(plan, seed=seed)


def _ready(work: Callable[[Rehearsal], T], plan: Rehearsal) -> T:
    """Run a plan; a cluster that never got ready is the plan's fault, told in a sentence."""
    from anabranch.sim.rehearsal.checks import NotReady

    try:
        with told_while("Simulating"):
            return work(plan)
    except NotReady as fault:
        raise click.ClickException(f"{fault} Check the settings of the cluster.") from None


def _perform(plan: Rehearsal, as_json: bool) -> None:
    """Run a plan in the simulation and on processes; the exit code says whether they agree."""
    from anabranch.sim.rehearsal.outcome import TABLE, differences, rehearsed, table
    from anabranch.sim.rehearsal.outcome import as_json as outcome_json
    from anabranch.testing import ClusterError
    from anabranch.testing.rehearsal.actions import performable
    from anabranch.testing.rehearsal.stage import performed

    left_out = performable(plan) != plan
    plan = performable(plan)
    simulated = _ready(rehearsed, plan)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end_in_order)
    try:
        with told_while("Repeating it on processes"):
            seen = performed(plan, simulated)
    except ClusterError as fault:
        raise click.ClickException(str(fault)) from None
    found = differences(simulated, seen)
    if as_json:
        print_json(
            {
                "same": not found,
                "differences": [each._asdict() for each in found],
                "rehearsed": outcome_json(simulated),
                "real": outcome_json(seen),
            }
        )
    else:
        if left_out:
            click.echo("Steady producers and retained bytes are ignored on processes.\n")
        topic, index = plan.watch
        click.echo(f"{topic}-{index}\n")
        print_table(TABLE, table(simulated, seen))
        click.echo(f"\nAcknowledged records lost: {len(seen.lost)}\n")
        click.echo("Otherwise than rehearsed:" if found else "As rehearsed.")
        for each in found:
            click.echo(SENTENCES.fill(each.sentence))
    if found:
        sys.exit(1)


def _end_in_order(number: int, _frame: object) -> None:
    """A signal ends the run as Ctrl-C does: no process and no folder is left."""
    sys.exit(128 + number)


def _list(as_json: bool) -> None:
    from anabranch.sim.rehearsal.library import names, text_of
    from anabranch.sim.rehearsal.rehearsal_file import read

    plans = [(name, read(text_of(name) or "", f"{name}.yaml")) for name in names()]
    if as_json:
        keys = ("name", "title", "about", "source")
        print_json([dict(zip(keys, (name, p.name, p.about, p.source))) for name, p in plans])
        return
    print_table(("name", "what happens"), [(name, plan.name) for name, plan in plans])


def _print(plan: Rehearsal, answers: Answers) -> None:
    from anabranch.sim.rehearsal.units import SECOND_US, say_duration

    length = say_duration(answers.length_us / SECOND_US)
    click.echo(
        f"{plan.name} (brokers {len(plan.brokers)}, partitions {answers.partitions}, {length}, "
        f"seed {answers.seed})"
    )
    if plan.source:
        click.echo(f"After {plan.source.removesuffix('.')}.")
    click.echo()
    _print_conditions(answers)
    _print_writes(answers)
    _print_losses(answers)
    _print_rest(answers)
    click.echo("\nConclusions:")
    for sentence in answers.lessons:
        click.echo(SENTENCES.fill(sentence))


def _print_conditions(answers: Answers) -> None:
    from anabranch.sim.rehearsal.answers import Condition
    from anabranch.sim.rehearsal.units import SECOND_US, say_duration

    def cell(condition: Condition, topic: str) -> str:
        places = answers.places(condition, topic)
        if not places:
            return "-"
        longest = say_duration(answers.longest_us(condition, topic) / SECOND_US)
        at_end = len(answers.at_end(condition, topic))
        return f"{len(places)}, up to {longest}" + (f", {at_end} still" if at_end else "")

    headings = ("topic", "partitions", *(each.value for each in Condition))
    rows = [
        (topic, count, *(cell(each, topic) for each in Condition))
        for topic, count in answers.topics.items()
    ]
    print_table(headings, rows)


def _print_writes(answers: Answers) -> None:
    from anabranch.sim.rehearsal.answers import acks_text
    from anabranch.sim.rehearsal.units import SECOND_US, say_duration

    rows = [
        (
            each.topic,
            acks_text(each.acks),
            f"{each.sent:,}",
            f"{each.acknowledged:,}",
            ", ".join(f"{count:,} {name}" for name, count in sorted(each.refused.items())) or "0",
            f"{each.unanswered:,}",
            say_duration(each.median_us / SECOND_US) if each.acknowledged else "-",
            say_duration(each.longest_gap_us / SECOND_US),
        )
        for each in answers.writes
        if each.sent
    ]
    if rows:
        click.echo()
        headings = ("topic", "acks", "sent", "acknowledged", "refused", "unanswered")
        print_table((*headings, "half within", "longest pause"), rows)


def _print_losses(answers: Answers) -> None:
    from anabranch.sim.rehearsal.answers import acks_text

    click.echo(f"\nAcknowledged records lost: {answers.records_lost:,}")
    found: dict[tuple[str, int, str], list[str]] = {}
    for loss in answers.losses:
        topic, index = loss.place
        text = f"{topic}-{index} {len(loss.offsets)} of {loss.offsets[0]}-{loss.offsets[-1]}"
        found.setdefault((topic, loss.acks, loss.rule), []).append(text)
    for (topic, acks, rule), places in found.items():
        shown = ", ".join(places[:PLACES_SHOWN]) + (", …" if len(places) > PLACES_SHOWN else "")
        text = f"{topic}, acks={acks_text(acks)} ({shown}): {rule or 'NO RULE ALLOWS IT'}"
        click.echo(click.wrap_text(text, WIDTH, initial_indent="  ", subsequent_indent="    "))


def _print_rest(answers: Answers) -> None:
    from anabranch.sim.rehearsal.units import SECOND_US, say_bytes, say_duration

    away = sum(move.now >= 0 for move in answers.moves)
    hows = [move.how for move in answers.moves if move.how]
    odd = "".join(f", {hows.count(how):,} {how}" for how in sorted(set(hows)))
    click.echo(f"Leaders moved: {away:,}{odd}")
    leaders = ", ".join(f"{count} on {broker}" for broker, count in answers.leaders.items())
    click.echo(f"Leaders at the end: {leaders}")
    click.echo(
        f"To copy: {say_bytes(answers.copied_total)}, "
        f"{say_duration(answers.copy_us / SECOND_US)} at "
        f"{say_bytes(answers.bandwidth_bytes)}/s a broker"
    )
    click.echo(f"Invariants: {answers.violation or 'none broken'}")
    for verdict in answers.verdicts:
        word = "holds" if verdict.holds else "CONTRADICTED"
        measure = verdict.claim.measure.replace("_", " ")
        click.echo(
            f"Claim “{verdict.claim.says}”: {word} ({measure}: claimed "
            f"{verdict.claim.expected:,}, seen {verdict.seen:,})"
        )
