"""`anabranch partitions`: elect the leaders of partitions, move their replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from anabranch.cli import cluster_command, reassign
from anabranch.cli.cluster_command import (
    MOST_INT32,
    VerbGroup,
    ask,
    bootstrap_option,
    json_option,
    print_json,
    print_table,
    timeout_option,
)
from anabranch.cli.completion_names import complete_topics
from anabranch.cli.name_option import naming_option

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster
    from anabranch.client.elections import Elected

REMEDIES = {
    "PREFERRED_LEADER_NOT_AVAILABLE": "start the first replica, or wait until it is in sync again",
    "ELIGIBLE_LEADERS_NOT_AVAILABLE": "start one of the replicas",
}


@click.group(
    cls=VerbGroup,
    epilog="Example: anabranch partitions elect-leaders --topic flights --partition 0",
)
def command() -> None:
    """Elect leaders, and move replicas between brokers."""


command.add_command(reassign.command)


@command.command(
    "elect-leaders",
    epilog="Example: anabranch partitions elect-leaders --type preferred --all-topic-partitions",
)
@bootstrap_option
@timeout_option
@click.option(
    "--type", "kind", type=click.Choice(("preferred", "unclean")), default="preferred",
    show_default=True,
    help="preferred: the first replica; unclean: without a leader, a replica that may lack "
        "records.",
)  # fmt: skip
@naming_option(
    "--topic", metavar="NAME", help="The topic. Default: all its partitions.",
    shell_complete=complete_topics,
)  # fmt: skip
@click.option(
    "--partition", "indexes", type=click.IntRange(0, MOST_INT32), multiple=True, metavar="N",
    help="A partition of the topic; may be given more than once.",
)  # fmt: skip
@click.option(
    "--all-topic-partitions", "everywhere", is_flag=True,
    help="All partitions that need an election.",
)  # fmt: skip
@json_option
def elect(
    bootstrap: str, timeout_seconds: float, kind: str, topic: str | None,
    indexes: tuple[int, ...], everywhere: bool, as_json: bool,
) -> None:  # fmt: skip
    """Elect preferred leaders, or any replica if there is no leader."""
    from anabranch.client.elections import Election, elect_leaders

    _refuse_unclear(topic, indexes, everywhere=everywhere)

    async def work(cluster: Cluster) -> tuple[list[Elected], dict[str, list[str]]]:
        from anabranch.client.overview import why_ill
        from anabranch.client.partitions import describe_topics

        places = None
        if topic is not None:
            known = [each.partition_index for each in (await cluster.topic(topic)).partitions]
            places = {topic: sorted(indexes or known)}
        outcomes = await elect_leaders(cluster, Election[kind.upper()], places)
        known_topics = sorted({each.topic for each in outcomes if _is_of_a_topic(each)})
        ill = await describe_topics(cluster, known_topics) if known_topics else []
        return outcomes, await why_ill(ill, cluster)

    outcomes, why = ask(bootstrap, work, timeout_seconds=timeout_seconds)
    if as_json:
        from anabranch.client.views.elections import election_view

        print_json([election_view(each, why) for each in outcomes])
    elif not outcomes:
        click.echo(f"No partition needs {'a preferred' if kind == 'preferred' else 'an unclean'} "
            "leader election.")  # fmt: skip
    else:
        rows = [(each.topic, each.partition, _outcome(each)) for each in outcomes]
        print_table(("topic", "partition", "outcome"), rows)
    failed = [each for each in outcomes if each.is_failure]
    if failed and as_json:  # it says so
        raise click.exceptions.Exit(1)
    if failed:
        raise click.ClickException(_sentence(failed, why))


def _is_of_a_topic(each: Elected) -> bool:
    """Whether it failed for a topic that there is."""
    return each.is_failure and each.code.name != "UNKNOWN_TOPIC_OR_PARTITION"


def _refuse_unclear(topic: str | None, indexes: tuple[int, ...], *, everywhere: bool) -> None:
    if everywhere == (topic is not None):
        raise click.UsageError("Give either --topic NAME or --all-topic-partitions.")
    if indexes and topic is None:
        raise click.UsageError("--partition needs --topic NAME.")


def _outcome(each: Elected) -> str:
    if each.is_failure:
        return each.code.name
    return "not needed" if each.code else "elected"


def _sentence(failed: list[Elected], why: dict[str, list[str]]) -> str:
    """The first failure and why it came to it, how many more there are, and what helps."""
    first = failed[0]
    more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
    name = first.code.name
    remedy = REMEDIES.get(name) or cluster_command.REMEDIES.get(name, "").rstrip(".")
    said = "".join(f"; {each}" for each in why.get(f"{first.topic}-{first.partition}", []))
    return (
        f"No leader was elected for {first.topic}-{first.partition}{more}: "
        f"{first.sentence.rstrip('.')} ({first.code.name}){said}"
        + (f"; {remedy}." if remedy else ".")
    )
