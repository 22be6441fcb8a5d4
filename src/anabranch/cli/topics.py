"""`anabranch topics`: create, list, describe, alter, migrate and delete topics."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from anabranch.cli.cluster_command import (
    MOST_INT16,
    MOST_INT32,
    Alarming,
    VerbGroup,
    ask,
    bootstrap_option,
    json_option,
    print_json,
    print_table,
    setting_pairs,
    tell,
    timeout_option,
    watch_option,
)
from anabranch.cli.completion_names import complete_topics
from anabranch.cli.name_option import naming_option
from anabranch.cli.replica_placement import placement_of, placement_option
from anabranch.cli.topic_migration import migrate
from anabranch.core.sentences import number_of

if TYPE_CHECKING:
    from anabranch.client.admin import NewTopic
    from anabranch.client.cluster import Cluster

F = TypeVar("F", bound=Callable[..., Any])
LISTS = ("replicas", "isr", "offline")
ILL_LISTS = ("replicas", "isr", "eligible")
SAID_OF = {"missing-replicas": "misses a replica", "rack-violation": "violates racks"}
"""How it is said of a partition that it is ill that way; of others: "is under-replicated"."""
ASSIGNMENT_LIST = re.compile(r"\d+(:\d+)*(,\d+(:\d+)*)*")
CONSTRAINTS_SETTING = "confluent.placement.constraints"
PLACER_SETTING = "replica.placer.class.name"
MOST_ROWS = 20
"""Partitions whose replicas are printed for people."""

topic_option = naming_option(
    "--topic", required=True, metavar="NAME", help="The topic's name.",
    shell_complete=complete_topics,
)  # fmt: skip


@click.group(
    cls=VerbGroup,
    epilog="Example: anabranch topics create --topic flights --partitions 6",
)
def command() -> None:
    """Create, list, describe, alter and delete topics."""


command.add_command(migrate)


@command.command(epilog="Example: anabranch topics create --topic t --config retention.ms=60000")
@bootstrap_option
@timeout_option
@topic_option
@click.option(
    "--partitions", type=click.IntRange(max=MOST_INT32), metavar="N",
    help="Default: num.partitions of the broker.",
)  # fmt: skip
@click.option(
    "--replication-factor", type=click.IntRange(max=MOST_INT16), metavar="N",
    help="Default: default.replication.factor of the broker.",
)  # fmt: skip
@click.option(
    "--replica-assignment", metavar="LIST|FILE",
    help="Brokers of each partition, such as 1:2,2:3 for two partitions; or a JSON file, "
    '[{"id": 0, "replicas": [1, 2]}, …].',
)  # fmt: skip
@placement_option
@click.option(
    "--placer", metavar="NAME", help="Placer that chooses the brokers: striped, computed or spread."
)
@click.option(
    "--config", "configs", multiple=True, metavar="KEY=VALUE",
    help="A setting of the topic; may be given more than once. Durations may have a unit: "
        "retention.ms=7d.",
)  # fmt: skip
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the topic exists.")
@click.option("--validate-only", is_flag=True, help="Check the request without creating the topic.")
@json_option
def create(
    bootstrap: str, timeout_seconds: float, topic: str, partitions: int | None,
    replication_factor: int | None, replica_assignment: str | None, placement: str | None,
    placer: str | None,
    configs: tuple[str, ...], if_not_exists: bool, validate_only: bool, as_json: bool,
) -> None:  # fmt: skip
    """Create a topic."""
    from anabranch.client import admin
    from anabranch.core.errors import ApiError, ErrorCode

    assignment = parse_assignment(replica_assignment)
    if assignment and (partitions is not None or replication_factor is not None):
        raise click.UsageError(
            "--replica-assignment excludes --partitions and --replication-factor: omit them."
        )
    settings = setting_pairs(configs, "--config")
    if placer is not None:
        settings[PLACER_SETTING] = placer
    if placement is not None:
        settings[CONSTRAINTS_SETTING] = placement_of(placement)

    async def work(cluster: Cluster) -> tuple[NewTopic, dict[int, str]] | None:
        try:
            created = await admin.create_topic(
                cluster, topic,
                partitions=admin.NO_COUNT if partitions is None else partitions,
                replication_factor=(
                    admin.NO_COUNT if replication_factor is None else replication_factor
                ),
                configs=settings, assignment=assignment, validate_only=validate_only,
            )  # fmt: skip
        except ApiError as fault:
            if if_not_exists and fault.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                return None
            raise
        brokers = (await admin.describe_cluster(cluster)).brokers
        return created, {each.broker_id: each.rack or "" for each in brokers}

    created = ask(bootstrap, work, timeout_seconds=timeout_seconds)
    _say_created(topic, created, only_checked=validate_only, as_json=as_json)


def _say_created(
    topic: str, found: tuple[NewTopic, dict[int, str]] | None, *, only_checked: bool, as_json: bool
) -> None:
    """What was created, or would be, and where; None where the topic was there before."""
    from anabranch.client.views.topics import created_view

    created, racks = found or (None, {})
    view = created_view(topic, created, racks, only_checked=only_checked)
    if as_json:
        print_json(view)
        return
    if created is None:
        click.echo(f"Topic {topic} already exists.")
        return
    sharing = view["sharing_racks"]
    said = "would be created" if only_checked else "created"
    click.echo(
        f"Topic {topic} {said}: {number_of(created.num_partitions, 'partition')}, replication "
        "factor "
        f"{created.replication_factor}."
    )
    for index, row in enumerate(created.replicas[:MOST_ROWS]):
        click.echo(f"  partition {index}: {_brokers_in_racks(row, racks)}")
    if len(created.replicas) > MOST_ROWS:
        click.echo(f"  … and {len(created.replicas) - MOST_ROWS} more; --json lists all.")
    if sharing:
        named = ", ".join(map(str, sharing[:MOST_ROWS])) + (", …" if sharing[MOST_ROWS:] else "")
        click.echo(f"Replicas share a rack in {number_of(len(sharing), 'partition')}: {named}.")


def _brokers_in_racks(row: Sequence[int], racks: Mapping[int, str]) -> str:
    brokers = f"brokers {', '.join(map(str, row))}"
    if not any(racks.get(each) for each in row):
        return brokers
    return f"{brokers} (racks {', '.join(racks.get(each) or '-' for each in row)})"


def parse_assignment(text: str | None) -> list[list[int]] | None:
    """`1:2,2:3`, or a file of JSON, as [[1, 2], [2, 3]]."""
    if text is None:
        return None
    from anabranch.core.placement.json_places import InputFault

    if ASSIGNMENT_LIST.fullmatch(text):
        rows = [[int(each) for each in part.split(":")] for part in text.split(",")]
        if max(map(max, rows)) > MOST_INT32:
            raise click.UsageError(
                f"--replica-assignment: {max(map(max, rows))} is no broker id: the largest is "
                f"{MOST_INT32}."
            )
        return rows
    from anabranch.core.placement.manual import read_assignment

    try:
        return [list(row) for row in read_assignment(Path(text).read_text("utf-8-sig"))]
    except InputFault as fault:
        raise click.ClickException(f"{text}: {fault}") from None
    except (OSError, UnicodeDecodeError) as fault:
        why = fault.strerror if isinstance(fault, OSError) else "it is not text"
        raise click.UsageError(
            f"--replica-assignment {text!r} is neither a list such as 1:2,2:3 nor a file that can "
            f"be read ({why})."
        ) from None


@command.command("list", epilog="Example: anabranch topics list --exclude-internal")
@bootstrap_option
@timeout_option
@click.option("--exclude-internal", is_flag=True, help="Omit internal topics.")
@json_option
def list_topics(
    bootstrap: str, timeout_seconds: float, exclude_internal: bool, as_json: bool
) -> None:
    """List the names of all topics."""
    response = ask(
        bootstrap, lambda cluster: cluster.metadata(None), timeout_seconds=timeout_seconds
    )
    names = sorted(
        each.name or "" for each in response.topics if not (exclude_internal and each.is_internal)
    )
    if as_json:
        print_json(names)
    else:
        for name in names:
            click.echo(name)


def illness_option(illness: str, sentence: str) -> Callable[[F], F]:
    """`--under-replicated-partitions` and its like: show only what is wrong in this way."""
    return click.option(
        f"--{illness}-partitions", f"{illness.replace('-', '_')}", is_flag=True, help=sentence
    )


@command.command(epilog="Example: anabranch topics describe --under-replicated-partitions")
@bootstrap_option
@timeout_option
@naming_option(
    "--topic", metavar="NAME", help="Only this topic. Default: all topics.",
    shell_complete=complete_topics,
)  # fmt: skip
@illness_option("under-replicated", "Only partitions with fewer in-sync replicas than replicas.")
@illness_option(
    "under-min-isr",
    "Only partitions with fewer in-sync replicas than min.insync.replicas, or without a leader.",
)
@illness_option("at-min-isr", "Only partitions with exactly min.insync.replicas in-sync replicas.")
@illness_option("unavailable", "Only partitions without a leader.")
@click.option(
    "--rack-violations", "rack_violation", is_flag=True,
    help="Only partitions in fewer racks than possible; topics that ignore racks are left out.",
)  # fmt: skip
@click.option("--missing-replicas", is_flag=True, help="Only partitions with missing replicas.")
@json_option
@watch_option
def describe(
    bootstrap: str, timeout_seconds: float, topic: str | None, as_json: bool, **asked: bool
) -> None:
    """Show topics with their settings and partitions, or only partitions with problems."""
    wanted = [name.replace("_", "-") for name, is_asked in asked.items() if is_asked]

    async def work(cluster: Cluster) -> tuple[list[dict[str, Any]], int]:
        from anabranch.client.views.topics import topics_view

        return await topics_view(cluster, topic, wanted)

    described, shared = ask(bootstrap, work, timeout_seconds=timeout_seconds)
    if as_json:
        print_json(described)
    elif wanted:
        _print_ill(described, wanted)
    else:
        _print_described(described)
    if shared and "rack-violation" in wanted:
        click.echo(
            f"Left out: {number_of(shared, 'partition')} of topics with "
            "ignore.rack.assignment=true, which may share racks.",
            err=as_json,
        )


def _print_described(described: list[dict[str, Any]]) -> None:
    """A line a topic, and a table of its partitions."""
    for each in described:
        configs = ", ".join(f"{key}={value}" for key, value in each["configs"].items())
        click.echo(
            f"{each['topic']}  id {each['topic_id']}  "
            f"{number_of(len(each['partitions']), 'partition')}  "
            f"{_said_of_diskless(each)}"
            f"{configs or 'no settings of its own'}"
        )
        sometimes = ("observers", "adding", "removing")
        lists = [*LISTS, *(n for n in sometimes if any(p[n] for p in each["partitions"]))]
        heads = ["partition", "leader", *("in sync" if name == "isr" else name for name in lists)]
        rows = [_row(part, lists) for part in each["partitions"]]
        if each["has_remote_log"]:
            heads += ["remote offsets", "local offsets"]
            rows = [(*row, *_remote(part)) for row, part in zip(rows, each["partitions"])]
        print_table(heads, rows)


def _remote(part: dict[str, Any]) -> tuple[str, str]:
    """The offsets in the remote store, and those on the leader's disk."""
    told = part["remote_log"]
    if told is None:
        return "unknown", "unknown"
    return (
        _range(told["log_start_offset"], told["last_remote_offset"]),
        _range(told["local_start_offset"], told["high_watermark"] - 1),
    )


def _range(first: int, last: int) -> str:
    return f"{first} to {last}" if first <= last else "none"


def _said_of_diskless(told: dict[str, Any]) -> str:
    if not told["is_diskless"]:
        return ""
    return f"diskless, effective replication factor {told['effective_rf']}  "


def _print_ill(described: list[dict[str, Any]], wanted: list[str]) -> None:
    """One table of all that is wrong in the ways that were asked for."""
    rows = [
        (each["topic"], *_row(part, ILL_LISTS), each["min_insync_replicas"],
         " ".join(part["health"]))
        for each in described
        for part in each["partitions"]
    ]  # fmt: skip
    if not rows:
        said_of = " or ".join(SAID_OF.get(name, f"is {name}") for name in wanted)
        click.echo(f"No partition {said_of}.")
        return
    heads = ("topic", "partition", "leader", "replicas", "in sync", "eligible", "minimum", "state")
    print_table(heads, rows)
    said = [why for each in described for part in each["partitions"] for why in part["reasons"]]
    for sentence in dict.fromkeys(said):
        click.echo(sentence)


def _row(part: dict[str, Any], lists: Sequence[str]) -> tuple[object, ...]:
    leader = Alarming("none") if part["leader"] < 0 else part["leader"]
    keys = {"offline": "offline_replicas", "eligible": "elr"}
    texts = {name: ",".join(map(str, part[keys.get(name, name)])) or "-" for name in lists}
    if part["missing_replicas"]:
        texts["replicas"] = Alarming(f"{texts['replicas']} +{part['missing_replicas']} missing")
    if part["offline_replicas"] and "offline" in texts:
        texts["offline"] = Alarming(texts["offline"])
    return part["partition"], leader, *texts.values()


@command.command(epilog="Example: anabranch topics alter --topic flights --partitions 12")
@bootstrap_option
@timeout_option
@topic_option
@click.option(
    "--partitions", type=click.IntRange(max=MOST_INT32), required=True, metavar="N",
    help="The new number of partitions.",
)  # fmt: skip
@json_option
def alter(
    bootstrap: str, timeout_seconds: float, topic: str, partitions: int, as_json: bool
) -> None:
    """Increase the number of partitions of a topic."""
    from anabranch.client.admin import create_partitions

    ask(
        bootstrap,
        lambda cluster: create_partitions(cluster, topic, partitions),
        timeout_seconds=timeout_seconds,
    )
    sentence = f"Topic {topic} has {number_of(partitions, 'partition')} now."
    tell(sentence, as_json=as_json, topic=topic, partitions=partitions)


@command.command(epilog="Example: anabranch topics delete --topic flights")
@bootstrap_option
@timeout_option
@topic_option
@click.option("--if-exists", is_flag=True, help="Do nothing if the topic does not exist.")
@click.option("--force", is_flag=True, help="Delete also what the cluster itself keeps in topics.")
@json_option
def delete(
    bootstrap: str, timeout_seconds: float, topic: str, if_exists: bool, force: bool, as_json: bool
) -> None:
    """Delete a topic and its records."""
    from anabranch.client.admin import delete_topic
    from anabranch.core.errors import ApiError, ErrorCode

    async def work(cluster: Cluster) -> bool:
        if not force and (await cluster.metadata([topic])).topics[0].is_internal:
            raise click.ClickException(
                f"{topic} belongs to the cluster: committed offsets or transactions of every "
                "client would go with it. Add --force to delete it nevertheless."
            )
        try:
            await delete_topic(cluster, topic)
        except ApiError as fault:
            if if_exists and fault.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return False
            raise
        return True

    deleted = ask(bootstrap, work, timeout_seconds=timeout_seconds)
    sentence = f"Topic {topic} deleted." if deleted else f"There is no topic {topic!r}."
    tell(sentence, as_json=as_json, topic=topic, deleted=deleted)
