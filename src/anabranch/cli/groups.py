"""`anabranch groups`: list and describe consumer groups, reset their offsets, delete them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from anabranch.cli.cluster_command import (
    REMEDIES,
    VerbGroup,
    ask,
    bootstrap_option,
    end_incomplete,
    json_option,
    print_json,
    print_table,
    printable,
    tell,
    timeout_option,
    watch_option,
)
from anabranch.cli.completion_names import complete_groups
from anabranch.cli.name_option import naming_option
from anabranch.core.sentences import number_of

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster
    from anabranch.client.groups import Progress
    from anabranch.core.wire.messages.describe_groups import DescribedGroup

    Described = tuple[DescribedGroup, list[Progress]]

V = TypeVar("V", bound=Callable[..., Any])
AT_ONCE = 8
"""Groups that are described at the same time."""
Place = tuple[str, int]
STATES = (
    "Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead",
    "Assigning", "Reconciling",
)  # fmt: skip
"""Of groups of the classic protocol, then those that only KIP-848 has (a cluster of Kafka's)."""


def group_option(verb: V, *, required: bool = True) -> V:
    """The group that a verb is about."""
    return naming_option(
        "--group", required=required, metavar="NAME", help="The group's name.",
        shell_complete=complete_groups,
    )(verb)  # fmt: skip


@click.group(cls=VerbGroup, epilog="Example: anabranch groups describe --group reports")
def command() -> None:
    """List, describe and delete consumer groups; reset their offsets."""


@command.command("list", epilog="Example: anabranch groups list --state stable")
@bootstrap_option
@timeout_option
@click.option("--state", metavar="NAME", help="Only groups in this state, such as Stable.")
@json_option
def list_(bootstrap: str, timeout_seconds: float, state: str | None, as_json: bool) -> None:
    """List the groups of a cluster.

    Exits with 1 if a coordinator could not answer for 5 seconds; standard error names its broker or
    partition.
    """
    from anabranch.client import groups
    from anabranch.client.every_broker import said
    from anabranch.client.views.groups import groups_view

    if state is not None and state.lower() not in map(str.lower, STATES):
        raise click.UsageError(f"--state {state!r} is none of {', '.join(STATES)}.")
    found = ask(bootstrap, groups.list_groups, timeout_seconds=timeout_seconds)
    rows = groups_view(found.groups, state)
    if as_json:
        print_json(rows)
    else:
        print_table(("group", "state", "protocol", "type"), [tuple(each.values()) for each in rows])
    end_incomplete(
        [f"Groups are missing: {said(fault, name)}" for name, fault in found.missing.items()]
    )


@command.command(epilog="Example: anabranch groups describe --group reports --members")
@bootstrap_option
@timeout_option
@partial(group_option, required=False)
@click.option("--all-groups", "everything", is_flag=True, help="All groups (the default).")
@click.option("--members", is_flag=True, help="Show the members instead of the offsets.")
@json_option
@watch_option
def describe(
    bootstrap: str, timeout_seconds: float, group: str | None, everything: bool, members: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Show a group's committed offset, lag and member for each partition, or those of all groups.

    Exits with 1 if a coordinator could not answer for 5 seconds; standard error names its broker or
    partition.
    """
    from anabranch.client import groups
    from anabranch.client.every_broker import said
    from anabranch.client.views.groups import group_view

    if everything and group is not None:
        raise click.UsageError("Give either --group NAME or --all-groups.")

    async def work(cluster: Cluster) -> tuple[list[Described], list[str]]:
        if group is not None:
            return [await groups.progress(cluster, group)], []
        found = await groups.list_groups(cluster)
        described = await _each_described(cluster, [each.group_id for each in found.groups])
        return described, [
            f"Groups are missing: {said(fault, name)}" for name, fault in found.missing.items()
        ]

    found, missing = ask(bootstrap, work, timeout_seconds=timeout_seconds)
    views = [group_view(*each) for each in found]
    if as_json:
        print_json(views if group is None else views[0])
    elif not views:
        click.echo("There are no groups.")
    else:
        for (_, rows), view in zip(found, views, strict=True):
            _print_described(view, rows, members=members)
    end_incomplete(missing)


async def _each_described(cluster: Cluster, names: Sequence[str]) -> list[Described]:
    """The groups, a few at a time; without those that were deleted meanwhile."""
    from anabranch.client import groups
    from anabranch.core.errors import ApiError, ErrorCode

    turn = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> Described | None:
        async with turn:
            try:
                return await groups.progress(cluster, name)
            except ApiError as fault:
                if fault.code is ErrorCode.GROUP_ID_NOT_FOUND:
                    return None
                raise

    found = await asyncio.gather(*map(one, sorted(names)))
    return [each for each in found if each is not None]


def _print_described(view: dict[str, Any], rows: list[Progress], *, members: bool) -> None:
    told, group = view["members"], printable(view["group"])
    click.echo(f"Group {group}: {view['state']}, {number_of(len(told), 'member')}.")
    if members:
        shown = [
            (each["member"], each["instance"] or "-", each["client"], each["host"],
             " ".join(each["partitions"]) or "-")
            for each in told
        ]  # fmt: skip
        print_table(("member", "instance", "client", "host", "partitions"), shown)
    else:
        print_table(
            ("topic", "partition", "committed", "end", "lag", "member", "host"),
            [_row(each) for each in rows],
        )


def _row(each: Progress) -> tuple[object, ...]:
    lag = "-" if each.lag is None else each.lag
    committed = "-" if each.committed < 0 else each.committed
    end = "-" if each.end < 0 else each.end
    member, host = each.member_id or "-", each.client_host or "-"
    return each.topic, each.partition, committed, end, lag, member, host


@command.command(epilog="Example: anabranch groups delete --group reports")
@bootstrap_option
@timeout_option
@group_option
@json_option
def delete(bootstrap: str, timeout_seconds: float, group: str, as_json: bool) -> None:
    """Delete a group without members, with its offsets."""
    from anabranch.client import groups

    async def work(cluster: Cluster) -> None:
        await groups.delete_group(cluster, group)

    ask(bootstrap, work, timeout_seconds=timeout_seconds)
    tell(f"Group {group} deleted.", as_json=as_json, group=group, deleted=True)


@command.command(
    "reset-offsets",
    epilog="Example: anabranch groups reset-offsets --group reports --topic t --to-earliest",
)
@bootstrap_option
@timeout_option
@group_option
@click.option(
    "--topic", "topics", multiple=True, metavar="NAME[:PARTITIONS]",
    help="A topic, such as flights or flights:0,1. Default: all topics with committed offsets.",
)  # fmt: skip
@click.option("--to-earliest", is_flag=True, help="To the first record.")
@click.option("--to-latest", is_flag=True, help="To the end of the log.")
@click.option("--to-offset", type=click.IntRange(0), metavar="N", help="To this offset.")
@click.option("--shift-by", type=int, metavar="N", help="Forward by N, or back if negative.")
@click.option(
    "--to-datetime", metavar="TIME",
    help="To the first record at or after a time, such as 2026-11-21T08:00:00 (UTC).",
)  # fmt: skip
@click.option("--execute", is_flag=True, help="Apply the change instead of only showing it.")
@json_option
def reset_offsets(
    bootstrap: str, timeout_seconds: float, group: str, topics: tuple[str, ...],
    to_earliest: bool, to_latest: bool, to_offset: int | None, shift_by: int | None,
    to_datetime: str | None, execute: bool, as_json: bool,
) -> None:  # fmt: skip
    """Reset the offsets of a group without members; without --execute, only show the change."""
    chosen = [to_earliest or None, to_latest or None, to_offset, shift_by, to_datetime]
    if sum(each is not None for each in chosen) != 1:
        raise click.UsageError(
            "Say where to: one of --to-earliest, --to-latest, --to-offset, --shift-by or "
            "--to-datetime."
        )
    wanted = _wanted(topics)
    timestamp = None if to_datetime is None else _milliseconds(to_datetime)

    async def work(cluster: Cluster) -> list[tuple[Place, int, int]]:
        from anabranch.client import groups

        committed = await groups.committed_offsets(cluster, group)
        places = await _places(cluster, committed, wanted)
        starts, ends = await _bounds(cluster, places)
        places = [place for place in places if place in starts and place in ends]
        if timestamp is not None:
            found = await groups.offsets_at(cluster, places, timestamp)
            moved = {place: found[place] if found[place] >= 0 else ends[place] for place in places}
        elif to_earliest or to_latest:
            moved = {place: (starts if to_earliest else ends)[place] for place in places}
        else:
            moved = {
                place: _chosen(place, to_offset, shift_by, committed, starts) for place in places
            }
        moved = {
            place: min(max(offset, starts[place]), ends[place]) for place, offset in moved.items()
        }
        if execute and moved:
            await groups.commit_offsets(cluster, group, moved)
        return [(place, committed.get(place, -1), offset) for place, offset in moved.items()]

    rows = ask(bootstrap, work, timeout_seconds=timeout_seconds)
    if not rows:
        raise click.ClickException(
            f"Group {group} has committed no offsets: name its topics with --topic."
        )
    if as_json:
        from anabranch.client.views.groups import reset_view

        print_json(reset_view(group, rows, executed=execute))
        return
    print_table(
        ("topic", "partition", "from", "to"),
        [(*place, "-" if was < 0 else was, to) for place, was, to in rows],
    )
    if not execute:
        click.echo("Nothing was changed: add --execute to do it.")


def _wanted(topics: Sequence[str]) -> dict[str, list[int] | None]:
    """The partitions of each topic that was named; None for all. A topic may be named again."""
    wanted: dict[str, list[int] | None] = {}
    for name, indexes in map(_topic, topics):
        before = wanted.get(name, [])
        wanted[name] = None if indexes is None or before is None else [*before, *indexes]
    return wanted


def _topic(text: str) -> tuple[str, list[int] | None]:
    name, colon, indexes = text.partition(":")
    if not colon:
        return name, None
    try:
        return name, [int(each) for each in indexes.split(",")]
    except ValueError:
        raise click.UsageError(f"--topic {text!r} is not NAME or NAME:0,1.") from None


def _milliseconds(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"--to-datetime {text!r} is not a time such as 2026-11-21T08:00:00."
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    milliseconds = int(moment.timestamp() * 1000)
    if milliseconds < 0:  # to a broker -1 is the end of the log, and others are special too
        raise click.UsageError(
            f"--to-datetime {text!r} is before 1970: --to-earliest is the first record."
        )
    return milliseconds


async def _places(
    cluster: Cluster, committed: dict[Place, int], wanted: dict[str, list[int] | None]
) -> list[Place]:
    if not wanted:
        return sorted(committed)
    places: list[Place] = []
    for topic, indexes in wanted.items():
        known = [each.partition_index for each in (await cluster.topic(topic)).partitions]
        for index in indexes or ():
            if index not in known:
                raise click.ClickException(
                    f"There is no partition {topic}-{index}. "
                    f"{REMEDIES['UNKNOWN_TOPIC_OR_PARTITION']}"
                )
        places += [(topic, index) for index in (known if indexes is None else indexes)]
    return sorted(set(places))


async def _bounds(
    cluster: Cluster, places: list[Place]
) -> tuple[dict[Place, int], dict[Place, int]]:
    from anabranch.client import groups
    from anabranch.core.types import EARLIEST, LATEST

    starts = await groups.offsets_at(cluster, places, EARLIEST)
    return starts, await groups.offsets_at(cluster, places, LATEST)


def _chosen(
    place: Place,
    to_offset: int | None,
    shift_by: int | None,
    committed: dict[Place, int],
    starts: dict[Place, int],
) -> int:
    if to_offset is not None:
        return to_offset
    return committed.get(place, starts[place]) + (shift_by or 0)
