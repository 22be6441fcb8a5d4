"""`anabranch explain`: why a partition's replicas are here and not there, and why nothing moves.

What: the state of each replica, each other broker with what it would take for it to get the next
replica, moves and plans that concern the partition, and what the controller said of it lately.
Not here: what speaks for and against brokers (`core/placement/explanation.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from anabranch.cli.cluster_command import (
    ask,
    bootstrap_option,
    json_option,
    print_json,
    print_table,
    timeout_option,
)
from anabranch.cli.name_option import naming_option

if TYPE_CHECKING:
    from anabranch.client.explanations import Explained


@click.command("explain", epilog="Example: anabranch explain flights-3")
@naming_option("--topic", "place", metavar="TOPIC-PARTITION", required=True, stands_alone=True)
@click.option("--partition", "index", type=click.IntRange(0), metavar="N", hidden=True)
@bootstrap_option
@timeout_option
@json_option
def command(
    place: str, index: int | None, bootstrap: str, timeout_seconds: float, as_json: bool
) -> None:
    """Explain why the replicas of a partition are on their brokers and not on others."""
    from anabranch.client.explanations import explained
    from anabranch.core.types import TopicPartition

    topic, dash, digits = (place, "-", str(index)) if index is not None else place.rpartition("-")
    if not dash or not topic or not (digits.isascii() and digits.isdigit()):
        raise click.UsageError(f"{place!r} is not a partition: write it as flights-3.")
    wanted = TopicPartition(topic, int(digits))
    found: Explained = ask(
        bootstrap, lambda cluster: explained(cluster, wanted), timeout_seconds=timeout_seconds
    )
    if as_json:
        from anabranch.client.views.explanations import explanation_view

        print_json(explanation_view(found))
    else:
        _print(found)


def _print(found: Explained) -> None:
    from anabranch.client.views.explanations import replica_state
    from anabranch.client.views.times import time_text

    state = found.state
    leader = f"led by broker {state.leader}" if state.leader >= 0 else "without a leader"
    observed = f", observed by {_ids(state.observers)}" if state.observers else ""
    click.echo(f"{found.place}: {leader}, in sync {_ids(state.isr)}{observed}")
    if found.no_leader is not None:
        click.echo(f"No leader: {found.no_leader}")
    click.echo("Why here:")
    rows = [(each.broker_id, each.rack or "-", replica_state(found, each), each.sentence)
            for each in found.explanation.here]  # fmt: skip
    print_table(("broker", "rack", "state", "why"), rows)
    if found.explanation.not_there:
        click.echo("Why these brokers would not get the next replica:")
        print_table(
            ("broker", "rack", "why not", "it would take"),
            [
                (each.broker_id, each.rack or "-", each.sentence, _takes(each.changes))
                for each in found.explanation.not_there
            ],
        )
    click.echo("What moves:")
    for sentence in found.moves:
        click.echo(f"  {sentence}")
    if found.said:
        click.echo("Recent decisions:")
        for told in found.said:
            click.echo(f"  {time_text(told.at_ms)} {told.sentence}")


def _takes(changes: tuple[Any, ...]) -> str:
    return ", and ".join(each.sentence for each in changes) or "-"


def _ids(row: tuple[int, ...]) -> str:
    return ", ".join(map(str, row)) or "none"
