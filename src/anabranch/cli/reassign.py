"""`anabranch partitions reassign`: move replicas by the files that Kafka's tool reads.

What: one action a call: propose, begin, look how far, take back, list. Rule kept: what was printed
is what is done; `--execute` first writes down how to go back. Source: Kafka's
kafka-reassign-partitions. Not here: what would be a good move (`anabranch plan`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from anabranch.cli.cluster_command import (
    MOST_INT64,
    ask,
    bootstrap_option,
    json_option,
    print_json,
    print_table,
    text_of,
    timeout_option,
)
from anabranch.core.sentences import number_of

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster
    from anabranch.client.move_costs import Cost
    from anabranch.client.reassignments import Asked, Progress
    from anabranch.core.controller.moves.reassignment import Move
    from anabranch.core.placement.reassignment_file import Moves
    from anabranch.core.types import TopicPartition

F = TypeVar("F", bound=Callable[..., Any])
BROKER_ID = re.compile("[0-9]{1,10}")
ACTIONS = ("generate", "execute", "verify", "cancel", "list")


def _action(name: str, sentence: str) -> Callable[[F], F]:
    return click.option(f"--{name}", name, is_flag=True, help=sentence)


@click.command(
    "reassign",
    epilog="Example: anabranch partitions reassign --execute --file moves.json",
)
@bootstrap_option
@timeout_option
@_action(
    "generate",
    "Propose replica lists for the topics of --topics-file on --brokers; change nothing.",
)
@_action("execute", "Print the current replica lists, then start the moves of --file.")
@_action(
    "verify", "Show the progress of the moves of --file; remove the throttle when no replica moves."
)
@_action("cancel", "Cancel the moves of --file that are not complete.")
@_action("list", "List all moves that are not complete.")
@click.option(
    "--file", "--reassignment-json-file", "path", metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help='Moves: {"version": 1, "partitions": [{"topic": …, "partition": …, "replicas": […]}]}.',
)  # fmt: skip
@click.option(
    "--topics-file", "--topics-to-move-json-file", "topics_path", metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help='Topics to move: {"version": 1, "topics": [{"topic": …}]}.',
)  # fmt: skip
@click.option(
    "--brokers", "--broker-list", "brokers", metavar="IDS",
    help="Target brokers, separated by commas, such as 1,2,4.",
)  # fmt: skip
@click.option("--disable-rack-aware", "ignore_racks", is_flag=True, help="Ignore racks.")
@click.option(
    "--throttle", "rate", type=click.IntRange(1, MOST_INT64), metavar="BYTES",
    help="Copy at most this many bytes a second at each broker.",
)  # fmt: skip
@click.option(
    "--preserve-throttles",
    "keeps_throttle",
    is_flag=True,
    help="Do not remove the throttle.",
)
@click.option(
    "--disallow-replication-factor-change", "holds_factor", is_flag=True,
    help="Refuse moves that change the replication factor.",
)  # fmt: skip
@json_option
def command(
    bootstrap: str, timeout_seconds: float, path: Path | None, topics_path: Path | None,
    brokers: str | None, ignore_racks: bool, rate: int | None, keeps_throttle: bool,
    holds_factor: bool, as_json: bool, **actions: bool,
) -> None:  # fmt: skip
    """Move replicas between brokers."""

    def run(work: Any) -> Any:
        return ask(bootstrap, work, timeout_seconds=timeout_seconds)

    chosen = [name for name in ACTIONS if actions[name]]
    if len(chosen) != 1:
        raise click.UsageError(f"Say one of {', '.join('--' + each for each in ACTIONS)}.")
    action = chosen[0]
    if action == "list":
        _list(run, as_json)
    elif action == "generate":
        _generate(run, topics_path, brokers, ignore_racks, as_json)
    elif path is None:
        raise click.UsageError(f"--{action} needs --file FILE.")
    elif action == "execute":
        _execute(run, _read(path), rate, holds_factor, as_json)
    elif action == "verify":
        _verify(run, _read(path), keeps_throttle, as_json)
    else:
        _cancel(run, _read(path), keeps_throttle, as_json)


def _read(path: Path) -> Moves:
    from anabranch.core.placement.json_places import InputFault
    from anabranch.core.placement.reassignment_file import read_moves

    try:
        return read_moves(text_of(path))
    except InputFault as fault:
        raise click.ClickException(f"{path}: {fault}") from None


def _list(run: Any, as_json: bool) -> None:
    from anabranch.client.reassignments import under_way

    found: dict[TopicPartition, Move] = run(under_way)
    if as_json:
        print_json([{"partition": str(place), **each._asdict()} for place, each in found.items()])
    elif not found:
        click.echo("No replica is moving.")
    else:
        rows = [(place, *map(_ids, each)) for place, each in sorted(found.items())]
        print_table(("partition", "replicas", "adding", "removing"), rows)


def _generate(
    run: Any, topics_path: Path | None, brokers: str | None, ignore_racks: bool, as_json: bool
) -> None:
    from anabranch.client.proposals import propose
    from anabranch.core.placement.json_places import InputFault
    from anabranch.core.placement.reassignment_file import read_topics, write_moves

    if topics_path is None or brokers is None:
        raise click.UsageError("--generate needs --topics-file FILE and --brokers IDS.")
    ids = [each.strip() for each in brokers.split(",")]
    if not all(map(BROKER_ID.fullmatch, ids)) or len(set(map(int, ids))) < len(ids):
        raise click.UsageError(
            f"--brokers: expected different ids separated by commas, not {brokers}."
        )
    try:
        topics = read_topics(text_of(topics_path))
    except InputFault as fault:
        raise click.ClickException(f"{topics_path}: {fault}") from None

    async def work(cluster: Cluster) -> tuple[Moves, Moves]:
        return await propose(cluster, topics, list(map(int, ids)), ignore_racks=ignore_racks)

    now, proposed = run(work)
    if as_json:
        from anabranch.client.views.reassignments import moves_view

        print_json({"before": moves_view(now), "proposed": moves_view(proposed)})
        return
    click.echo("Replicas now:")
    click.echo(write_moves(now))
    click.echo("Proposed:")
    click.echo(write_moves(proposed), nl=False)


def _execute(run: Any, moves: Moves, rate: int | None, holds_factor: bool, as_json: bool) -> None:
    from anabranch.client.move_costs import cost_of
    from anabranch.client.reassignments import before, reassign, throttle
    from anabranch.core.placement.reassignment_file import write_moves

    async def work(cluster: Cluster) -> tuple[Moves, Cost, list[Asked]]:
        has = await before(cluster, moves)
        cost = await cost_of(cluster, moves, has)
        if has and not as_json:
            click.echo("Current replicas; save this to be able to move back:")
            click.echo(write_moves(has))
            click.echo(_cost_sentence(cost, rate))
        try:
            if rate is not None:
                await throttle(cluster, {place: moves[place] for place in has}, has, rate)
            outcomes = await reassign(cluster, moves, may_change_factor=not holds_factor)
        except BaseException:  # they may have begun all the same, and JSON tells only the fault
            if has and as_json:
                click.echo(write_moves(has), err=True)
            raise
        return has, cost, outcomes

    had, cost, outcomes = run(work)
    failed = [each for each in outcomes if each.code]
    if as_json:
        from anabranch.client.views.reassignments import moves_view, outcome_view

        print_json(
            {
                "before": moves_view(had),
                "bytes": cost.copied_bytes,
                "unknown_sizes": cost.unknown,
                "least_seconds": None if rate is None else cost.seconds(rate),
                "outcomes": [outcome_view(each) for each in outcomes],
            }
        )
    elif had:
        click.echo(
            f"{number_of(len(outcomes) - len(failed), 'move')} started; --verify shows their "
            "progress."
        )
    _fail(failed)


def _cost_sentence(cost: Cost, rate: int | None) -> str:
    """What is copied, and how long that takes at least where a throttle tells."""
    said = f"{cost.copied_bytes:,} bytes are copied"
    if rate is not None:
        said += f", in {cost.seconds(rate):,.0f} s or more at {rate:,} bytes/s a broker"
    if cost.unknown:
        said += f"; the sizes of {number_of(cost.unknown, 'partition')} could not be read"
    return f"{said}."


def _verify(run: Any, moves: Moves, keeps_throttle: bool, as_json: bool) -> None:
    from anabranch.client.reassignments import Progress, progress, unthrottle

    async def work(cluster: Cluster) -> dict[TopicPartition, Progress]:
        found = await progress(cluster, moves)
        if not keeps_throttle and Progress.MOVING not in found.values():
            known = [place.topic for place, each in found.items() if each is not Progress.UNKNOWN]
            await unthrottle(cluster, known)
        return found

    found = run(work)
    if as_json:
        print_json([{"partition": str(place), "progress": each} for place, each in found.items()])
    else:
        rows = [(place, _ids(moves[place]), each) for place, each in found.items()]
        print_table(("partition", "wanted", "progress"), rows)
    lost = [
        place for place, each in found.items() if each in (Progress.ELSEWHERE, Progress.UNKNOWN)
    ]
    if lost:
        raise click.ClickException(
            "Neither with these replicas nor on the way to them: "
            f"{number_of(len(lost), 'partition')}, "
            f"{', '.join(map(str, lost[:5]))}."
        )


def _cancel(run: Any, moves: Moves, keeps_throttle: bool, as_json: bool) -> None:
    from anabranch.client.reassignments import reassign, under_way, unthrottle

    async def work(cluster: Cluster) -> list[Asked]:
        moving = await under_way(cluster)
        wanted = {place: None for place in moves if place in moving}
        outcomes = await reassign(cluster, wanted) if wanted else []
        if not keeps_throttle:
            await unthrottle(cluster, {place.topic for place in wanted})
        return outcomes

    outcomes = run(work)
    if as_json:
        from anabranch.client.views.reassignments import outcome_view

        print_json([outcome_view(each) for each in outcomes])
    else:
        done = sum(not each.code for each in outcomes)
        click.echo(
            f"{number_of(done, 'move')} cancelled, {len(moves) - len(outcomes)} not under way."
        )
    _fail([each for each in outcomes if each.code])


def _fail(failed: list[Asked]) -> None:
    if failed:
        first = failed[0]
        more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
        raise click.ClickException(
            f"{first.place} was refused{more}: {first.sentence.rstrip('.')} ({first.code.name})."
        )


def _ids(row: tuple[int, ...]) -> str:
    return ",".join(map(str, row)) or "-"
