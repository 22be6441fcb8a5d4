"""`anabranch remote`: list and check remote segments, rebuild their facts, and export them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from anabranch.cli.cluster_command import (
    VerbGroup,
    force_option,
    json_option,
    print_json,
    print_table,
)
from anabranch.cli.diskless import beside_brokers, exit_with, say
from anabranch.cli.name_option import naming_option
from anabranch.cli.progress import told_while
from anabranch.cli.stores import REMOTE, Check, Where, where_options, with_both
from anabranch.core.sentences import number_of

if TYPE_CHECKING:
    from anabranch.core.diskless.coordinator import Coordinator
    from anabranch.core.diskless.objects import ObjectStore
    from anabranch.core.remote.facts import HeldRemoteLog
    from anabranch.core.remote.segments import RemoteSegment

T = TypeVar("T")

ONLY_TOPIC: Any = {"metavar": "TOPIC", "help": "Only this topic."}


@click.group(cls=VerbGroup, epilog="Example: anabranch remote list --config server.properties")
def command() -> None:
    """List and verify the segments of remote logs; restore and export what is known of them."""


@command.command(
    "list", epilog="Example: anabranch remote list --config server.properties --topic flights"
)
@where_options(REMOTE)
@naming_option("--topic", **ONLY_TOPIC)
@json_option
def list_segments(where: Where, topic: str | None, as_json: bool) -> None:
    """List the segments that the coordinator knows, also of copies and removals under way.

    Nodes may run. Segments without a topic name belong to deleted topics.
    """

    async def work(_store: ObjectStore, coordinator: Coordinator, _id: str) -> list[HeldRemoteLog]:
        return await _logs(coordinator, topic)

    with told_while("Asking the coordinator"):
        logs = _run(where, work)
    if as_json:
        print_json({"partitions": [_log_json(each) for each in logs]})
        return
    rows = [
        (
            f"{log.topic or '(deleted)'}-{log.key.partition}", each.start_offset,
            each.end_offset - 1, each.byte_size, each.state.name,
            ",".join(str(epoch.epoch) for epoch in each.leader_epochs), each.broker_id,
            each.segment_id.hex(),
        )
        for log in logs
        for each in log.segments
    ]  # fmt: skip
    if rows:
        print_table(
            ("partition", "first", "last", "bytes", "state", "epochs", "broker", "segment"), rows
        )
    finished = [each for log in logs for each in log.segments if each.is_finished]
    size = sum(each.byte_size for each in finished)
    click.echo(
        f"{number_of(len(finished), 'finished segment')} of {number_of(len(logs), 'partition')}, "
        f"{number_of(size, 'byte')}."
    )


@command.command(
    epilog="Example: anabranch remote verify --config server.properties  # all nodes stopped"
)
@where_options(REMOTE)
@click.option(
    "--whole", "is_whole", is_flag=True, help="Read every byte of segments, and check batches."
)
@json_option
def verify(where: Where, is_whole: bool, as_json: bool) -> None:
    """Compare the objects in the store with the segments that the coordinator knows.

    Stop all nodes first: a copy or removal that ends meanwhile may be reported as damage. The exit
    code is 1 if objects of finished segments are missing or changed, and 0 otherwise.
    """
    from anabranch.stores.objects.remote_verification import verify as check

    async def work(store: ObjectStore, coordinator: Coordinator, cluster_id: str) -> Any:
        return await check(store, coordinator, cluster_id, is_whole=is_whole)

    with told_while("Comparing objects"):
        found = _run(where, work)
    say(found._asdict(), found.findings, as_json=as_json)
    if not as_json:
        damage = sum(each.kind.is_damage for each in found.findings)
        click.echo(
            f"{number_of(found.segments, 'finished segment')} "
            f"({number_of(found.byte_size, 'byte')}) of "
            f"{number_of(found.partitions, 'partition')}, "
            f"{number_of(found.objects, 'object')}: "
            + (f"{number_of(damage, 'fault')}. {DAMAGE}" if damage else "no faults.")
        )
    exit_with(found.findings)


DAMAGE = (
    "Put the named objects back from a copy of the store. Until then, consumers get "
    "KAFKA_STORAGE_ERROR at these offsets; kafka-delete-records.sh gives up all before an offset."
)


@command.command(
    epilog="Example: anabranch remote restore --config server.properties  # all nodes stopped"
)
@where_options(REMOTE)
@force_option
@json_option
def restore(where: Where, force: bool, as_json: bool) -> None:
    """Rebuild what a lost coordinator knew of remote segments, from the segments in the store.

    Stop all nodes first. The coordinator must know no remote segment. If the store also has records
    of diskless topics, run `anabranch diskless restore` before. Segments of which an object is
    missing or the description is damaged are listed, kept and not read: put the objects back, and
    restore again into an empty database. The exit code is 1 if there are any.

    The command refuses if it notices a running node, as `anabranch diskless restore` does.
    """
    from anabranch.stores.objects.remote_verification import restore as rebuild

    async def work(store: ObjectStore, coordinator: Coordinator, cluster_id: str) -> Any:
        with told_while("Restoring"):
            return await rebuild(store, coordinator, cluster_id)

    beside = None if force else beside_brokers(where)
    done = _run(where, work, makes=True, check=beside)
    segments = [each for log in done.logs for each in log.segments]
    finished = sum(each.is_finished for each in segments)
    fields = {
        "partitions": len(done.logs), "segments": finished,
        "removals": len(segments) - finished, "findings": done.findings,
    }  # fmt: skip
    if as_json:
        print_json(fields)
    else:
        for each in done.findings:
            click.echo(each)
        click.echo(
            f"The coordinator knows {number_of(finished, 'segment')} of "
            f"{number_of(len(done.logs), 'partition')} again. Leaders remove {fields['removals']} "
            "that were not copied whole."
        )
    if done.findings:
        raise click.exceptions.Exit(1)


@command.command(epilog="Example: anabranch remote export --config server.properties exported/")
@click.argument("folder", type=click.Path(path_type=Path), metavar="FOLDER")
@where_options(REMOTE)
@click.option("--topic", **ONLY_TOPIC)
@json_option
def export(where: Where, folder: Path, topic: str | None, as_json: bool) -> None:
    """Write what is known of remote segments as Kafka's records of `__remote_log_metadata`.

    FOLDER gets a folder for each partition of that topic, with a segment that Kafka's
    `kafka-dump-log.sh --remote-log-metadata-decoder` reads. It must be empty, or not exist.
    Segments of deleted topics are left out.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise click.ClickException(f"{folder} is not an empty folder; name a new one.")

    async def work(_store: ObjectStore, coordinator: Coordinator, _id: str) -> list[HeldRemoteLog]:
        return await _logs(coordinator, topic)

    with told_while("Asking the coordinator"):
        logs = _run(where, work)
    segments, files = _write(folder, [each for each in logs if each.topic])
    if as_json:
        print_json({"segments": segments, "files": [str(each) for each in files]})
    else:
        click.echo(
            f"{number_of(segments, 'segment')} in {number_of(len(files), 'file')} below {folder}."
        )


def _write(folder: Path, logs: list[HeldRemoteLog]) -> tuple[int, list[Path]]:
    """How many segments were written, and to which files."""
    from anabranch.client.partitioner import partition_for
    from anabranch.core.log.segment import LOG, offset_name
    from anabranch.core.remote.metadata_records import (
        PARTITIONS,
        TOPIC,
        metadata_batches,
        metadata_values,
        partition_hash,
    )

    values: dict[int, list[bytes]] = {}
    segments = 0
    for log in logs:
        at = partition_for(partition_hash(log.key), PARTITIONS)
        for each in log.segments:
            if each.leader_epochs:  # what a restore found incomplete has none, and Kafka needs some
                segments += 1
                values.setdefault(at, []).extend(metadata_values(log.topic, each))
    files = []
    for at, some in sorted(values.items()):
        home = folder / f"{TOPIC}-{at}"
        home.mkdir(parents=True)
        files.append(home / offset_name(0, LOG))
        files[-1].write_bytes(b"".join(metadata_batches(some, time.time_ns() // 1_000_000)))
    return segments, files


async def _logs(coordinator: Coordinator, topic: str | None) -> list[HeldRemoteLog]:
    from anabranch.stores.objects.remote_verification import logs_of

    found = [each async for each in logs_of(coordinator) if topic in (None, each.topic)]
    if topic is not None and not found:
        raise click.ClickException(f"Topic {topic} has no remote log.")
    return sorted(found, key=lambda each: (each.topic, each.key.partition))


def _log_json(log: HeldRemoteLog) -> dict[str, Any]:
    from anabranch.core.types import topic_id_text

    return {
        "topic": log.topic or None,
        "topic_id": topic_id_text(log.key.topic_id),
        "partition": log.key.partition,
        "leader_epoch": log.leader_epoch,
        "log_start_offset": log.log_start,
        "segments": [_segment_json(each) for each in log.segments],
    }


def _segment_json(segment: RemoteSegment) -> dict[str, Any]:
    return {
        "segment_id": segment.segment_id.hex(),
        "state": segment.state.name,
        "start_offset": segment.start_offset,
        "end_offset": segment.end_offset,
        "size_bytes": segment.byte_size,
        "max_timestamp_ms": segment.max_timestamp,
        "leader_epochs": [each._asdict() for each in segment.leader_epochs],
        "broker_id": segment.broker_id,
        "leader_epoch": segment.leader_epoch,
        "has_aborted_transactions": segment.has_aborted,
        "event_time_ms": segment.event_ms,
    }


def _run(
    where: Where,
    work: Callable[[ObjectStore, Coordinator, str], Awaitable[T]],
    *,
    makes: bool = False,
    check: Check | None = None,
) -> T:
    from anabranch.stores.objects.verification import owner_of

    return with_both(where, owner_of, str, work, makes=makes, check=check)
