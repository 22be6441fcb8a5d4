"""`anabranch log`: look into segments on a disk, and check them, without a node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from anabranch.cli.cluster_command import (
    Alarming,
    VerbGroup,
    json_option,
    print_json,
    print_table,
)
from anabranch.cli.progress import told_while
from anabranch.core.sentences import number_of

if TYPE_CHECKING:
    from anabranch.core.wire.batch import BatchHeader

LOG_SUFFIX = ".log"
CHECKSUM_FAULT = "the checksum does not match"
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

paths_argument = click.argument(
    "paths", nargs=-1, required=True, type=click.Path(exists=True), metavar="FOLDER|FILE…"
)


@click.group(cls=VerbGroup, epilog="Example: anabranch log verify anabranch-data/flights-0")
def command() -> None:
    """Dump and verify the segments of a log."""


class Found(NamedTuple):
    """A batch in a file. With a `fault`: one that is not as it was written, or, without a header,
    the place from where nothing can be read."""

    path: str
    position: int
    header: BatchHeader | None
    fault: str = ""


def segments_in(paths: tuple[str, ...]) -> list[Path]:
    """The segment files that the arguments name, folders opened, in order."""
    found: list[Path] = []
    for name in paths:
        path = Path(name)
        inside = sorted(path.rglob(f"*{LOG_SUFFIX}")) if path.is_dir() else [path]
        found += [each for each in inside if each.stem.isdigit() and not is_deleted(each)]
    if not found:
        raise click.ClickException(
            f"No segment (a file such as {0:020d}{LOG_SUFFIX}) in {', '.join(paths)}."
        )
    return found


def is_deleted(path: Path) -> bool:
    """Whether the segment belongs to a partition that was deleted and only waits to be removed."""
    return path.parent.name.endswith("-delete")


def batches_of(path: Path) -> Iterator[Found]:
    """Every batch of a segment with its checksum checked.

    A batch whose checksum does not match is found with its fault, and what follows it is read on;
    any other fault ends the segment.
    """
    from anabranch.core.log.scan import BadBatch, scan
    from anabranch.core.wire.batch import BATCH_OVERHEAD, crc_is_valid
    from anabranch.server.files import RealFiles

    file = RealFiles().open(str(path), write=False)
    try:
        for position, header in scan(file, file.size(), check_crc=False):
            batch = file.read_blocking(position, max(header.size_bytes, BATCH_OVERHEAD))
            sound = crc_is_valid(batch, 0, header.size_bytes)
            yield Found(str(path), position, header, "" if sound else CHECKSUM_FAULT)
    except BadBatch as bad:
        yield Found(str(path), bad.position, None, bad.why)
    finally:
        file.close()


@command.command(epilog="Example: anabranch log dump anabranch-data/flights-0 --print-data-log")
@paths_argument
@click.option("--print-data-log", "with_records", is_flag=True, help="Also show the records.")
@click.option(
    "--from-offset", type=int, default=0, metavar="N", help="Skip batches before this offset."
)
@click.option("--to-offset", type=int, metavar="N", help="Stop before this offset.")
@json_option
def dump(
    paths: tuple[str, ...], with_records: bool, from_offset: int, to_offset: int | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Show the batches of segments and, optionally, their records."""
    faults = 0
    for path in segments_in(paths):
        if not as_json:
            click.echo(f"{path}")
        for found in batches_of(path):
            if found.fault:
                faults += 1
                _say_fault(found, as_json=as_json)
            elif is_wanted(found.header, from_offset, to_offset):
                _say_batch(found, with_records=with_records, as_json=as_json)
    if faults:
        raise click.exceptions.Exit(1)


def is_wanted(header: BatchHeader | None, from_offset: int, to_offset: int | None) -> bool:
    """Whether any of a batch's offsets lies in `[from_offset, to_offset)`."""
    return (
        header is not None
        and header.last_offset >= from_offset
        and (to_offset is None or header.base_offset < to_offset)
    )


def _say_fault(found: Found, *, as_json: bool) -> None:
    if as_json:
        print_json({"file": found.path, "position": found.position, "fault": found.fault})
    else:
        click.echo(f"{found.path}: at position {found.position}: {found.fault}", err=True)


def described(found: Found) -> dict[str, Any]:
    """A batch for programs."""
    header = found.header
    assert header is not None
    return {
        "file": found.path,
        "position": found.position,
        "size_bytes": header.size_bytes,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "leader_epoch": header.leader_epoch,
        "max_timestamp": header.max_timestamp,
        "codec": CODEC_NAMES[header.codec] if header.codec < len(CODEC_NAMES) else header.codec,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
    }


def _say_batch(found: Found, *, with_records: bool, as_json: bool) -> None:
    said = described(found)
    if as_json:
        if with_records:
            from anabranch.cli.consume import as_json as record_json

            said["data"] = [record_json(-1, record) for record in records_of(found)]
            for each in said["data"]:
                del each["partition"]
        click.echo(json.dumps(said, ensure_ascii=False))
        return
    producer = f" producer {said['producer_id']}" if said["producer_id"] >= 0 else ""
    kind = " control" if said["control"] else ""
    click.echo(
        f"  {said['base_offset']}-{said['last_offset']} at {said['position']}: "
        f"{number_of(said['records'], 'record')}, {said['size_bytes']} bytes, {said['codec']}, "
        f"epoch {said['leader_epoch']}, timestamp {said['max_timestamp']}{producer}{kind}"
    )
    if with_records:
        from anabranch.cli.consume import text

        for record in records_of(found):
            headers = "".join(f" {key}={text(value)}" for key, value in record.headers)
            click.echo(
                f"    {record.offset} {record.timestamp} key {text(record.key)} "
                f"value {text(record.value)}{headers}"
            )


def records_of(found: Found) -> list[Any]:
    """The records of a batch; one that cannot be decoded is a fault of its file."""
    from anabranch.core.errors import ProtocolError
    from anabranch.core.wire.records import decode_records

    assert found.header is not None
    with Path(found.path).open("rb") as file:
        file.seek(found.position)
        batch = file.read(found.header.size_bytes)
    try:
        return decode_records(batch)
    except ProtocolError as fault:
        raise click.ClickException(f"{found.path}: at position {found.position}: {fault}") from None


@command.command(epilog="Example: anabranch log verify anabranch-data")
@paths_argument
@json_option
def verify(paths: tuple[str, ...], as_json: bool) -> None:
    """Check every batch and index of segments; exit with code 1 if any is damaged.

    An incomplete batch at the end of a killed node's segment is also reported; the node removes it
    when it starts.
    """
    segments = segments_in(paths)
    checked: list[dict[str, Any]] = []
    with told_while(
        "Verifying", lambda: f"{len(checked)} of {number_of(len(segments), 'segment')}"
    ):
        previous: dict[Path, tuple[Path, int]] = {}
        for path in segments:
            before = previous.get(path.parent)
            checked.append(check_segment(path, before[1] if before else None))
            previous[path.parent] = (path, checked[-1]["next_offset"])
    faults = [fault for each in checked for fault in each["faults"]]
    if as_json:
        print_json({"segments": checked, "faults": len(faults)})
    else:
        print_table(
            ("segment", "batches", "records", "bytes", "offsets", "state"),
            [
                (
                    each["file"], f"{each['batches']:,}", f"{each['records']:,}",
                    f"{each['size_bytes']:,}", offsets_text(each),
                    Alarming("FAULT") if each["faults"] else "sound",
                )
                for each in checked
            ],
        )  # fmt: skip
        for fault in faults:
            click.echo(fault, err=True)
    if faults:
        raise click.exceptions.Exit(1)


def offsets_text(segment: dict[str, Any]) -> str:
    """The offsets of a segment; a dash for one without any."""
    first, end = segment["first_offset"], segment["next_offset"]
    return f"{first}-{end - 1}" if end > first else "-"


def check_segment(path: Path, expected_offset: int | None) -> dict[str, Any]:
    """What a segment holds, and every fault as a sentence that names file and position."""
    base = int(path.stem)
    state: dict[str, Any] = {
        "file": str(path), "batches": 0, "records": 0, "size_bytes": path.stat().st_size,
        "first_offset": base, "next_offset": base, "faults": [],
    }  # fmt: skip
    starts: dict[int, int] = {}
    if expected_offset is not None and base < expected_offset:
        state["faults"].append(
            f"{path}: begins at offset {base}, but the segment before it ends at "
            f"{expected_offset - 1}"
        )
    for found in batches_of(path):
        header = found.header
        if header is None:
            state["faults"].append(
                f"{path}: at position {found.position}: {found.fault}; offsets from "
                f"{state['next_offset']} on are not readable here"
            )
            break
        if header.base_offset < state["next_offset"]:
            state["faults"].append(
                f"{path}: at position {found.position}: offset {header.base_offset} follows "
                f"{state['next_offset'] - 1}"
            )
        starts[found.position] = header.last_offset
        state["batches"] += 1
        state["records"] += header.record_count
        if found.fault:
            state["faults"].append(
                f"{path}: at position {found.position}: {found.fault}; offsets "
                f"{header.base_offset} to {header.last_offset} are not as they were written"
            )
        state["next_offset"] = header.next_offset
    if state["faults"]:
        return state
    state["faults"] += check_indexes(path, base, starts, state["next_offset"])
    return state


def check_indexes(path: Path, base: int, starts: dict[int, int], end: int) -> list[str]:
    """Faults of the two indexes beside a segment; a missing one is none, as it is rebuilt."""
    from anabranch.core.log.indexes import InvalidIndex, OffsetIndex, TimeIndex

    faults = []
    offsets, times = path.with_suffix(".index"), path.with_suffix(".timeindex")
    try:
        if offsets.exists():
            index = OffsetIndex.decode(offsets.read_bytes(), path.stat().st_size)
            for relative, position in zip(index.offsets, index.positions, strict=True):
                if starts.get(position) != base + relative:
                    faults.append(
                        f"{offsets}: offset {base + relative} does not lie at position {position}"
                    )
    except InvalidIndex as fault:
        faults.append(f"{offsets}: {fault}")
    try:
        if times.exists():
            found = TimeIndex.decode(times.read_bytes())
            faults += [
                f"{times}: offset {base + relative} lies beyond the segment"
                for relative in found.offsets
                if base + relative >= end
            ]
    except InvalidIndex as fault:
        faults.append(f"{times}: {fault}")
    return faults
