"""`anabranch metadata`: look into the metadata log, and give a lost store its content back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click

from anabranch.cli.cluster_command import VerbGroup, force_option, json_option, say_unseen, tell
from anabranch.cli.progress import told_while

PARTITION = "__cluster_metadata-0"

HIDDEN = "(hidden)"


@click.group(cls=VerbGroup, epilog="Example: anabranch metadata dump anabranch-data")
def command() -> None:
    """Dump the metadata log; restore a lost metadata store."""


@command.command(epilog="Example: anabranch metadata dump anabranch-data --json")
@click.argument("folder", type=click.Path(exists=True), metavar="FOLDER|FILE")
@json_option
def dump(folder: str, as_json: bool) -> None:
    """Show every record of a node's copy, or of one segment or snapshot file."""
    for path in metadata_files(Path(folder)):
        if not as_json:
            click.echo(str(path))
        for line in records_of(path):
            if as_json:
                click.echo(json.dumps({"file": str(path), **line}, ensure_ascii=False))
            else:
                fields = ", ".join(f"{key}={value}" for key, value in line["fields"].items())
                click.echo(f"  {line['offset']} epoch {line['epoch']} {line['type']} {fields}")


def metadata_files(path: Path) -> list[Path]:
    """Snapshots and segments of a copy, oldest first; or the one file that is named."""
    if path.is_file():
        return [path]
    folder = path / PARTITION if (path / PARTITION).is_dir() else path
    found = sorted(
        each
        for each in folder.iterdir()
        if each.suffix in (".log", ".checkpoint") and each.stem[:20].isdigit()
    )
    if not found:
        raise click.ClickException(
            f"{folder} contains no metadata log: give the log folder of a node."
        )
    return found


def records_of(path: Path) -> Any:
    """Every record as offset, epoch, type and fields; control records by their kind."""
    from anabranch.core.errors import ProtocolError
    from anabranch.core.wire.batch import walk
    from anabranch.core.wire.control import ControlType, control_type
    from anabranch.core.wire.metadata_records import decode_record
    from anabranch.core.wire.records import decode_records

    data = path.read_bytes()
    try:
        batches = list(walk(data))
        if data and not batches:
            raise click.ClickException(
                f"{path}: it contains no record batch; give a segment or a snapshot."
            )
        for position, header in batches:
            for record in decode_records(data, position):
                said = {"offset": record.offset, "epoch": header.leader_epoch}
                if header.is_control:
                    kind = ControlType(control_type(record.key or b"")).name
                    yield {**said, "type": kind, "fields": {}}
                else:
                    decoded = decode_record(record.value or b"")
                    yield {**said, "type": type(decoded).__name__, "fields": _shown(decoded)}
    except ProtocolError as fault:
        raise click.ClickException(
            f"{path}: {fault}. Is it a topic's log? `anabranch log dump` shows those."
        ) from None


def _shown(record: Any) -> dict[str, Any]:
    """The fields of a record, without secrets: passwords in settings of brokers, and what logins of
    users are checked against."""
    from anabranch.core.settings.validation import Resource, is_sensitive
    from anabranch.core.wire.metadata_records import ConfigRecord, UserScramCredentialRecord

    fields = _fields(record)
    if isinstance(record, UserScramCredentialRecord):
        return {**fields, "stored_key": HIDDEN, "server_key": HIDDEN}
    if isinstance(record, ConfigRecord) and record.resource_type == Resource.BROKER:
        if record.value is not None and is_sensitive(Resource.BROKER, record.name):
            return {**fields, "value": HIDDEN}
    return fields


def _fields(struct: Any) -> dict[str, Any]:
    return {
        name: _plain(getattr(struct, name))
        for name in struct.__struct_fields__
        if name != "unknown_tagged_fields"
    }


def _plain(value: Any) -> Any:
    from anabranch.core.types import topic_id_text

    if isinstance(value, bytes):
        return topic_id_text(value) if len(value) == 16 else value.hex()
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if hasattr(value, "__struct_fields__"):
        return _fields(value)
    return value


@command.command(
    epilog="Example: anabranch metadata restore --config server.properties  # all nodes stopped"
)
@click.option(
    "--config", "properties_file", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
    help="The node's server.properties with log.dirs and metadata.store.url.",
)  # fmt: skip
@click.option(
    "--dir", "folders", multiple=True, metavar="DIR",
    help="The node's log folder, instead of --config; with several, the longest copy is used.",
)  # fmt: skip
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE",
    help="A setting that overrides the file's, such as metadata.store.url.",
)  # fmt: skip
@force_option
@json_option
def restore(
    properties_file: str | None, folders: tuple[str, ...], settings: tuple[str, ...], force: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Fill a lost metadata store from a node's copy of the metadata log.

    Stop all nodes first, and run the command on the node with the longest copy. A store that has
    records that the copy lacks, or belongs to another cluster, is not changed.

    The command refuses if a node holds one of the folders, or answers at an address in the copies
    or in --config. It cannot notice a node at another address, or one that cannot be reached from
    this machine.
    """
    from anabranch.cli.serve import configured, shorthand
    from anabranch.server.files import RealFiles
    from anabranch.server.metadata_restore import restore_store
    from anabranch.server.running_nodes import addresses_told

    if properties_file is None and not folders:
        raise click.UsageError("Name the node: --config FILE, or --dir DIR.")
    configs = [
        configured(properties_file, [*shorthand(folder, None), *settings])
        for folder in folders or (None,)
    ]
    urls = {config.metadata_store_url for config in configs}
    if len(urls) > 1:
        raise click.UsageError("Name the store of these nodes: --set metadata.store.url=URL.")
    copies = [config.metadata_log_dir for config in configs]
    told = [] if properties_file is None else addresses_told(configs[0])
    with told_while("Restoring"):
        done = asyncio.run(
            restore_store(
                RealFiles(), copies, urls.pop(), addresses=told, is_sure=force, tell=say_unseen
            )
        )
    longest = f"The longest copy is that in {done.folder}.\n" if len(copies) > 1 else ""
    tell(
        f"{longest}The store of cluster {done.cluster_id} holds the copy's records up to offset "
        f"{done.end_offset} again.",
        as_json=as_json,
        cluster_id=done.cluster_id,
        end_offset=done.end_offset,
        copy=str(done.folder),
    )
