"""`anabranch diskless`: check the store of diskless topics, and rebuild a lost coordinator."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

import click

from anabranch.cli.cluster_command import (
    VerbGroup,
    force_option,
    json_option,
    print_json,
    print_table,
    say_unseen,
)
from anabranch.cli.progress import told_while
from anabranch.cli.stores import DISKLESS, Check, Where, where_options, with_both
from anabranch.core.sentences import number_of

if TYPE_CHECKING:
    from anabranch.core.diskless.coordinator import Coordinator
    from anabranch.core.diskless.findings import Finding
    from anabranch.core.diskless.objects import ObjectStore
    from anabranch.stores.objects.verification import Held


T = TypeVar("T")


@click.group(cls=VerbGroup, epilog="Example: anabranch diskless verify --config server.properties")
def command() -> None:
    """Verify the objects of diskless topics; restore a lost coordinator."""


@command.command(
    epilog="Example: anabranch diskless verify --config server.properties  # all nodes stopped"
)
@where_options(DISKLESS)
@click.option(
    "--whole", "is_whole", is_flag=True, help="Read every byte of objects, not only their indexes."
)
@json_option
def verify(where: Where, is_whole: bool, as_json: bool) -> None:
    """Compare objects, the coordinator's rows and manifests with one another.

    Stop all nodes first, because concurrent writes would be reported as damage. The exit code is 1
    if records or manifests are missing, damaged or do not agree, and 0 otherwise.
    """
    from anabranch.stores.objects.verification import verify as check

    async def work(store: ObjectStore, coordinator: Coordinator, held: Held) -> Any:
        return await check(store, coordinator, held, is_whole=is_whole)

    with told_while("Comparing objects"):
        found = _run(where, work, makes=False)
    say(found._asdict(), found.findings, as_json=as_json)
    if not as_json:
        damage = sum(each.kind.is_damage for each in found.findings)
        click.echo(
            f"{number_of(found.objects, 'object')} ({number_of(found.byte_size, 'byte')}), "
            f"{number_of(found.rows, 'row')} of "
            f"{number_of(found.partitions, 'partition')} and {_noting(found)}: "
            + (f"{number_of(damage, 'fault')}." if damage else "no faults.")
        )
    exit_with(found.findings)


@command.command(
    epilog="Example: anabranch diskless restore --config server.properties  # all nodes stopped"
)
@where_options(DISKLESS)
@click.option(
    "--append-unknown", is_flag=True,
    help="Include objects that are in no manifest; the order of their records is a guess.",
)  # fmt: skip
@force_option
@json_option
def restore(where: Where, append_unknown: bool, force: bool, as_json: bool) -> None:
    """Rebuild a lost coordinator from the checkpoint and the manifests in the store.

    Stop all nodes first: what they commit while or after this runs is not in the new coordinator.
    The coordinator must be empty: a new database, or a file that does not exist. Objects that are
    in no manifest are listed, and their records are omitted without --append-unknown. The exit code
    is 1 if records are lost or damaged; what is left is restored.

    The command refuses if it notices a running node: one that holds a folder of --config or beside
    a store or coordinator that is a file, that answers at an address in --config or in the metadata
    log of these folders, or that writes to the store within 12 seconds. It cannot notice a broker
    without writes whose address is in neither, or cannot be reached from this machine.
    """
    from anabranch.stores.objects.remote_segments import has_segments
    from anabranch.stores.objects.verification import restore as rebuild

    has_remote = False

    async def work(store: ObjectStore, coordinator: Coordinator, held: Held) -> Any:
        nonlocal has_remote
        has_remote = await has_segments(store, held.cluster_id)
        now_ms = time.time_ns() // 1_000_000
        with told_while("Restoring"):
            return await rebuild(
                store, coordinator, held, with_unknown=append_unknown, now_ms=now_ms
            )

    beside = None if force else beside_brokers(where)
    done = _run(where, work, makes=True, check=beside)
    say({**done._asdict(), "has_remote_segments": has_remote}, done.findings, as_json=as_json)
    if not as_json:
        _say_restored(done)
        if has_remote:
            click.echo(
                "The store also has segments of remote logs. Before a node starts, run "
                "`anabranch remote restore` with the same settings."
            )
    exit_with(done.findings)


def _say_restored(done: Any) -> None:
    if done.later and not done.is_appended:
        print_table(("object that is in no manifest",), [(key,) for key in done.later])
        click.echo(
            f"In no manifest: {number_of(len(done.later), 'object')}. The records were omitted. To "
            "include them, restore again into an empty coordinator with --append-unknown."
        )
    click.echo(
        f"The coordinator of cluster {done.cluster_id} holds "
        f"{number_of(done.partitions, 'partition')} and "
        f"{number_of(done.rows, 'row')} of {number_of(done.objects, 'object')} again, from "
        f"{_noting(done)}."
    )


def _noting(read: Any) -> str:
    """What was read of manifests and checkpoints."""
    before = "" if read.checkpoint is None else f"checkpoint {read.checkpoint} and "
    return f"{before}{number_of(read.manifests, 'manifest')}"


def _run(
    where: Where,
    work: Callable[[ObjectStore, Coordinator, Held], Awaitable[T]],
    *,
    makes: bool,
    check: Check | None = None,
) -> T:
    from anabranch.stores.objects.verification import read_store

    return with_both(
        where, read_store, lambda held: held.cluster_id, work, makes=makes, check=check
    )


def beside_brokers(where: Where) -> Check:
    """What refuses to restore while brokers are noticed."""
    from anabranch.cli.serve import configured
    from anabranch.server import running_nodes as nodes
    from anabranch.stores.objects.verification import owner_of

    folders = nodes.folders_beside(*where.urls)
    told = []
    if where.properties_file is not None:
        config = configured(where.properties_file, [])
        folders += nodes.folders_of(config)
        told = nodes.addresses_told(config)

    async def check(store: ObjectStore, held: ExitStack) -> None:
        cluster_id = await owner_of(store)
        await nodes.refuse_beside_brokers(
            store, cluster_id, folders, told, held, say_unseen, _watching
        )

    return check


async def _watching(seconds: float) -> None:
    click.echo(f"Watching for {seconds:g} s whether brokers write to the store.", err=True)
    await asyncio.sleep(seconds)


def say(fields: dict[str, Any], findings: list[Finding], *, as_json: bool) -> None:
    """Print findings, and in JSON with other fields."""
    rows = [(each.kind.value, each.place, each.detail) for each in findings]
    if as_json:
        told = [
            {"kind": kind, "place": place, "detail": detail, "is_damage": each.kind.is_damage}
            for each, (kind, place, detail) in zip(findings, rows)
        ]
        print_json({**fields, "findings": told})
    elif rows:
        print_table(("found", "place", "detail"), rows)


def exit_with(findings: list[Finding]) -> None:
    """1 where something is damaged."""
    if any(each.kind.is_damage for each in findings):
        raise click.exceptions.Exit(1)
