"""`anabranch transactions`: list and describe them, find those that hang, abort one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from anabranch.cli.cluster_command import (
    MOST_INT16,
    MOST_INT32,
    MOST_INT64,
    Minutes,
    Seconds,
    VerbGroup,
    ask,
    bootstrap_option,
    end_incomplete,
    json_option,
    print_json,
    print_table,
    tell,
    timeout_option,
)
from anabranch.cli.completion_names import complete_topics
from anabranch.cli.name_option import naming_option

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster
    from anabranch.client.partition_producers import Open

MOST_SECONDS = 1e12
MOST_MINUTES = 1e12
"""What a field of a request can hold as milliseconds, rounded down."""
STATES = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort",
    "PrepareEpochFence", "Dead",
)  # fmt: skip
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
"""In the others no transaction is open, but a coordinator's filter by duration lets them pass."""
MINUTE_MS = 60_000
LONGEST_MINUTES = 15
"""Kafka's `transaction.max.timeout.ms`: by then each transaction is over, or hangs."""

topic_option = naming_option(
    "--topic", required=True, metavar="NAME", help="The topic.", shell_complete=complete_topics,
)  # fmt: skip
partition_option = click.option(
    "--partition", required=True, type=click.IntRange(0), metavar="N", help="The partition."
)
broker_option = click.option(
    "--broker", "--broker-id", "broker_id", type=click.IntRange(0), metavar="N",
    help="Ask this broker for its replicas. Default: ask the leaders.",
)  # fmt: skip


@click.group(cls=VerbGroup, epilog="Example: anabranch transactions find-hanging --topic transfers")
def command() -> None:
    """List and describe transactions; find and abort hanging ones."""


@command.command("list", epilog="Example: anabranch transactions list --state Ongoing")
@bootstrap_option
@timeout_option
@click.option("--state", metavar="NAME", help="Only transactions in this state, such as Ongoing.")
@click.option(
    "--longer-than", "seconds", type=Seconds(0, MOST_SECONDS), metavar="SECONDS",
    help="Only transactions that have been open for longer or, with --state, that began earlier.",
)  # fmt: skip
@click.option(
    "--transactional-id-pattern", "pattern", metavar="REGEX",
    help="Only ids that match this regular expression as a whole, such as 'transfers-.*'.",
)  # fmt: skip
@json_option
def list_(
    bootstrap: str,
    timeout_seconds: float,
    state: str | None,
    seconds: float | None,
    pattern: str | None,
    as_json: bool,
) -> None:
    """List the transactional ids of a cluster with the states of their transactions.

    Exits with 1 if a coordinator could not answer for 5 seconds; standard error names its broker or
    partition.
    """
    from anabranch.client import transactions
    from anabranch.client.every_broker import said

    states = [each for each in STATES if state is not None and each.lower() == state.lower()]
    if state is not None and not states:
        raise click.UsageError(f"--state {state!r} is none of {', '.join(STATES)}.")
    if seconds is not None and not states:
        states = list(OPEN_STATES)
    longer_than_ms = transactions.ANY_AGE if seconds is None else int(seconds * 1000)

    async def work(cluster: Cluster) -> Any:
        found = await transactions.list_transactions(
            cluster, states=states, longer_than_ms=longer_than_ms, pattern=pattern
        )
        return found, await transactions.silent_coordinators(cluster, found)

    (found, faults), silent = ask(bootstrap, work, timeout_seconds=timeout_seconds)
    if as_json:
        print_json([each._asdict() for each in found])
    else:
        print_table(("transactional id", "coordinator", "producer", "state"), found)
    named = [(f"broker {broker_id}", fault) for broker_id, fault in sorted(faults.items())]
    named += [(f"{topic}-{index}", fault) for (topic, index), fault in sorted(silent.items())]
    end_incomplete([f"Transactional ids are missing: {said(fault, name)}" for name, fault in named])


@command.command(epilog="Example: anabranch transactions describe --id transfers-1")
@bootstrap_option
@timeout_option
@naming_option("--id", "name", required=True, metavar="NAME", help="The transactional id.")
@json_option
def describe(bootstrap: str, timeout_seconds: float, name: str, as_json: bool) -> None:
    """Show the last transaction of a transactional id."""
    from anabranch.client import transactions

    async def work(cluster: Cluster) -> Any:
        return await transactions.describe_transaction(cluster, name)

    found = ask(bootstrap, work, timeout_seconds=timeout_seconds)
    places = [f"{topic}-{index}" for topic, index in found.partitions]
    if as_json:
        print_json({**found._asdict(), "partitions": places})
        return
    from anabranch.client.views.times import time_text

    began = "-" if found.start_ms < 0 else time_text(found.start_ms)
    rows = [
        ("state", found.state), ("coordinator", found.coordinator),
        ("producer", f"{found.producer_id}, epoch {found.producer_epoch}"),
        ("timeout", f"{found.timeout_ms} ms"), ("began", began),
        ("partitions", " ".join(places) or "-"),
    ]  # fmt: skip
    print_table((name, ""), rows)


@command.command(epilog="Example: anabranch transactions producers --topic t --partition 0")
@bootstrap_option
@timeout_option
@topic_option
@partition_option
@broker_option
@json_option
def producers(
    bootstrap: str,
    timeout_seconds: float,
    topic: str,
    partition: int,
    broker_id: int | None,
    as_json: bool,
) -> None:
    """Show the producers of a partition and their open transactions."""
    from anabranch.client import partition_producers

    async def work(cluster: Cluster) -> Any:
        await cluster.partition(topic, partition)
        await _check_broker(cluster, broker_id)
        return await partition_producers.producers(
            cluster, [(topic, partition)], broker_id=broker_id
        )

    found = ask(bootstrap, work, timeout_seconds=timeout_seconds)
    _print(found, as_json=as_json)


@command.command(
    "find-hanging", epilog="Example: anabranch transactions find-hanging --topic transfers"
)
@bootstrap_option
@timeout_option
@naming_option(
    "--topic", metavar="NAME", help="Only this topic. Default: all topics.",
    shell_complete=complete_topics,
)  # fmt: skip
@click.option(
    "--partition", type=click.IntRange(0), metavar="N", help="Only this partition of the topic."
)
@click.option(
    "--broker", "--broker-id", "broker_id", type=click.IntRange(0), metavar="N",
    help="Only partitions with a replica on this broker, as this broker knows them. "
        "Default: all partitions, as their leaders know them.",
)  # fmt: skip
@click.option(
    "--max-transaction-timeout", "minutes", type=Minutes(0, MOST_MINUTES), default=LONGEST_MINUTES,
    show_default=True, metavar="MINUTES",
    help="The longest time that a transaction may be open, as in transaction.max.timeout.ms of "
        "the brokers.",
)  # fmt: skip
@json_option
def find_hanging(
    bootstrap: str,
    timeout_seconds: float,
    topic: str | None,
    partition: int | None,
    broker_id: int | None,
    minutes: float,
    as_json: bool,
) -> None:
    """Find transactions that are open in a partition but unknown to their coordinator.

    Exits with 1 if a partition could not be asked; standard error names it.
    """
    from anabranch.client import transactions

    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic NAME.")

    async def work(cluster: Cluster) -> Any:
        known = await cluster.metadata(None if topic is None else [topic])
        if topic is not None and partition is not None:
            await cluster.partition(topic, partition)
        elif topic is not None:
            await cluster.topic(topic)
        await _check_broker(cluster, broker_id)
        places = [
            (each.name or "", found.partition_index)
            for each in known.topics
            for found in each.partitions
            if partition in (None, found.partition_index)
            and (broker_id is None or broker_id in found.replica_nodes)
        ]
        return await transactions.find_hanging(
            cluster,
            places,
            now_ms=int(time.time() * 1000),
            longest_ms=int(minutes * MINUTE_MS),
            broker_id=broker_id,
            pass_over=lambda said: passed.append(f"Passed over: {said}"),
        )

    passed: list[str] = []
    _print(ask(bootstrap, work, timeout_seconds=timeout_seconds), as_json=as_json)
    end_incomplete(passed)


@command.command(
    epilog="Example: anabranch transactions abort --topic t --partition 0 --start-offset 42"
)
@bootstrap_option
@timeout_option
@topic_option
@partition_option
@click.option(
    "--start-offset", type=click.IntRange(0), metavar="N",
    help="The first offset of the transaction; other values are read from the partition.",
)  # fmt: skip
@click.option(
    "--producer-id", type=click.IntRange(0, MOST_INT64), metavar="N",
    help="The producer id, instead of the offset.",
)  # fmt: skip
@click.option(
    "--producer-epoch", type=click.IntRange(0, MOST_INT16), metavar="N", help="Its epoch."
)
@click.option(
    "--coordinator-epoch", type=click.IntRange(-1, MOST_INT32), metavar="N",
    help="The epoch of its coordinator, or -1.",
)  # fmt: skip
@json_option
def abort(
    bootstrap: str, timeout_seconds: float, topic: str, partition: int,
    start_offset: int | None, producer_id: int | None, producer_epoch: int | None,
    coordinator_epoch: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Abort a hanging transaction in one partition."""
    from anabranch.client import transactions

    who = (producer_id, producer_epoch, coordinator_epoch)
    said = [each is not None for each in who]
    if (start_offset is not None) == all(said) or any(said) != all(said):
        raise click.UsageError(
            "Say --start-offset, or all of --producer-id, --producer-epoch and --coordinator-epoch."
        )

    async def work(cluster: Cluster) -> int:
        await cluster.partition(topic, partition)
        place = topic, partition
        if start_offset is not None:
            return (await transactions.abort_at(cluster, place, start_offset)).producer_id
        await transactions.abort_of(
            cluster,
            place,
            producer_id=producer_id or 0,
            producer_epoch=producer_epoch or 0,
            coordinator_epoch=-1 if coordinator_epoch is None else coordinator_epoch,
        )
        return producer_id or 0

    aborted = ask(bootstrap, work, timeout_seconds=timeout_seconds)
    tell(
        f"The transaction of producer {aborted} in {topic}-{partition} is aborted.",
        as_json=as_json,
        topic=topic,
        partition=partition,
        producer_id=aborted,
        aborted=True,
    )


async def _check_broker(cluster: Cluster, broker_id: int | None) -> None:
    """Refuse a broker that is not there."""
    if broker_id is not None:
        await cluster.connection_to(broker_id)


def _print(found: list[Open], *, as_json: bool) -> None:
    if as_json:
        print_json([each._asdict() for each in found])
        return
    from anabranch.client.views.times import time_text

    print_table(
        (
            "topic", "partition", "producer", "epoch", "coordinator epoch", "open since offset",
            "last record", "sequence",
        ),
        [
            (
                each.topic, each.partition, each.producer_id, each.producer_epoch,
                each.coordinator_epoch, "-" if each.start_offset < 0 else each.start_offset,
                "-" if each.last_timestamp < 0 else time_text(each.last_timestamp),
                each.last_sequence,
            )
            for each in found
        ],
    )  # fmt: skip
