"""`anabranch consume`: records become lines of text."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import signal
import sys
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from anabranch.cli.cluster_command import (
    DEFAULT_TIMEOUT_SECONDS,
    MOST_INT64,
    REMEDIES,
    Refused,
    Seconds,
    ask,
    bootstrap_option,
    pairs,
    waiting_told,
)
from anabranch.cli.completion_names import complete_topics
from anabranch.cli.name_option import naming_option
from anabranch.cli.record_format import RecordFormat
from anabranch.cli.record_reader import Member, Reader, named
from anabranch.core.sentences import number_of
from anabranch.core.settings.setting import is_true

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster
    from anabranch.core.wire.records import Record

FLAGS = ("timestamp", "partition", "offset", "headers", "key")
"""What `--property print.…=true` puts before the value, in this order, as Kafka's console does."""


class Shape(NamedTuple):
    """What of a record is printed, and between what."""

    parts: frozenset[str]
    value: bool
    separator: str
    as_json: bool

    def line(self, partition: int, record: Record) -> str:
        """One record as one line."""
        if self.as_json:
            return json.dumps(as_json(partition, record), ensure_ascii=False)
        said = {
            "timestamp": f"CreateTime:{record.timestamp}",
            "partition": f"Partition:{partition}",
            "offset": f"Offset:{record.offset}",
            "headers": ",".join(f"{key}:{text(value)}" for key, value in record.headers)
            or "NO_HEADERS",
            "key": text(record.key),
        }
        fields = [said[part] for part in FLAGS if part in self.parts]
        return self.separator.join([*fields, *([text(record.value)] if self.value else [])])


def text(value: bytes | None) -> str:
    """Bytes for people: UTF-8 where they are, escaped where they are not."""
    return "null" if value is None else value.decode("utf-8", "backslashreplace")


def as_json(partition: int, record: Record) -> dict[str, Any]:
    """A record for programs; bytes that are not UTF-8 stand as {"base64": …}."""
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "headers": [[key, _plain(value)] for key, value in record.headers],
        "key": _plain(record.key),
        "value": _plain(record.value),
    }


def _plain(value: bytes | None) -> str | dict[str, str] | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


@click.command(epilog="Example: anabranch consume --topic t --from-beginning --max-messages 10")
@bootstrap_option
@naming_option(
    "--topic", required=True, metavar="NAME", help="The topic to read.",
    shell_complete=complete_topics,
)  # fmt: skip
@click.option("--from-beginning", is_flag=True, help="Start at the oldest record.")
@click.option(
    "--group",
    "group_id",
    metavar="NAME",
    help="Read as a member of this group: start at its committed offsets, and commit printed "
    "records.",
)
@click.option("--partition", type=int, metavar="N", help="Only this partition.")
@click.option(
    "--offset",
    metavar="N|earliest|latest",
    help="Offset to start at in --partition. Default: latest.",
)
@click.option(
    "--max-messages", type=click.IntRange(min=1), metavar="N", help="Stop after this many records."
)
@click.option(
    "--timeout",
    "timeout_seconds",
    type=Seconds(0),
    metavar="SECONDS",
    help="Stop when no record has come for so long; without it, wait forever. To reach the "
    f"cluster, {DEFAULT_TIMEOUT_SECONDS:.0f} s are allowed without it.",
)
@click.option(
    "--timeout-ms", type=click.IntRange(min=0), metavar="MS",
    help="Same as --timeout, in milliseconds, as in Kafka.",
)  # fmt: skip
@click.option(
    "--isolation-level", type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted", show_default=True,
    help="read_committed omits records of open and aborted transactions.",
)  # fmt: skip
@click.option(
    "--property", "properties", multiple=True, metavar="KEY=VALUE",
    help="print.key, print.offset, print.partition, print.timestamp, print.headers, print.value "
    "= true or false; key.separator=TEXT.",
)  # fmt: skip
@click.option(
    "--format", "template", metavar="TEXT",
    help="What to print for each record, as in kcat: %t topic, %p partition, %o offset, %k key, "
        "%s value, %K and %S their lengths, %T timestamp, %h headers; \\n is a newline.",
)  # fmt: skip
@click.option("--json", "as_json_lines", is_flag=True, help="Print one JSON object on each line.")
def command(
    bootstrap: str, timeout_seconds: float | None, topic: str, from_beginning: bool,
    partition: int | None, offset: str | None, max_messages: int | None, timeout_ms: int | None,
    isolation_level: str, properties: tuple[str, ...], template: str | None, as_json_lines: bool,
    group_id: str | None,
) -> None:  # fmt: skip
    """Print the records of a topic, one on each line, until Ctrl-C.

    Partitions without a leader are read as soon as they have one; if --timeout ends before, the
    exit code is 1 and standard error names them.
    """
    if sys.stdout is None:
        raise click.UsageError("Standard output is closed: no record can be printed.")
    if group_id is not None and partition is not None:
        raise click.UsageError("--group assigns partitions: omit --partition and --offset.")
    if offset is not None and partition is None:
        raise click.UsageError("--offset needs --partition.")
    start = offset if offset is not None else ("earliest" if from_beginning else "latest")
    is_number = start.isascii() and start.isdigit()
    if start not in ("earliest", "latest") and not is_number:
        raise click.UsageError(f"--offset {start!r} is neither a number nor earliest or latest.")
    if is_number and int(start) > MOST_INT64:
        raise click.UsageError(f"--offset {start!r} is more than any offset ({MOST_INT64}).")
    if timeout_seconds is not None and timeout_ms is not None:
        raise click.UsageError("--timeout and --timeout-ms have the same meaning: use one of them.")
    if template is not None and (properties or as_json_lines):
        raise click.UsageError("--format excludes --property and --json: omit them.")
    form = None if template is None else RecordFormat(template)
    idle_seconds = timeout_seconds if timeout_ms is None else timeout_ms / 1000
    shape = shape_of(properties, as_json=as_json_lines)
    seen, unread = 0, ""

    async def work(cluster: Cluster) -> None:
        from anabranch.client.membership import Membership

        reader = Reader(cluster, topic, 1 if isolation_level == "read_committed" else 0)
        if group_id is None:
            async with waiting_told(f"the partitions of {topic}"):
                await reader.begin(start, partition)
            await show(reader)
            return
        member = Member(reader, Membership(cluster, group_id, topic), group_id, start)
        _end_in_order_at_sigterm()
        try:
            await show(member)
        finally:
            await member.leave()

    async def show(reader: Reader | Member) -> None:
        from anabranch.client.every_broker import PASS_OVER_SECONDS

        nonlocal seen, unread
        idle_since = time.monotonic()
        while max_messages is None or seen < max_messages:
            records = await reader.poll()
            if records:
                idle_since = time.monotonic()
            elif idle_seconds is not None and time.monotonic() - idle_since >= idle_seconds:
                if not reader.waiting or time.monotonic() - idle_since >= PASS_OVER_SECONDS:
                    unread = named(topic, reader.waiting)
                    return
            shown = records if max_messages is None else records[: max_messages - seen]
            try:
                if shown and form is not None:
                    click.echo("".join(form.line(topic, *each) for each in shown), nl=False)
                elif shown:
                    click.echo("\n".join(shape.line(each, record) for each, record in shown))
            except BaseException:  # a full disk, a pipe that nobody reads: a group must get them
                reader.shown(records, 0)
                raise
            seen += len(shown)
            reader.shown(records, len(shown))

    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        ask(
            bootstrap,
            work,
            timeout_seconds=timeout_seconds or DEFAULT_TIMEOUT_SECONDS,
            tells_itself=True,
        )
    click.echo(f"Processed a total of {number_of(seen, 'record')}.", err=True)
    if unread:
        code = "LEADER_NOT_AVAILABLE"
        raise Refused(
            f"No leader is ready for {unread}: records may be missing.",
            code=code,
            remedy=REMEDIES[code],
        )


def _end_in_order_at_sigterm() -> None:
    """Let SIGTERM do what Ctrl-C does, so that a member commits what it printed, and leaves."""
    task = asyncio.current_task()
    if task is not None and threading.current_thread() is threading.main_thread():
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


def shape_of(properties: Iterable[str], *, as_json: bool) -> Shape:
    """The shape of a line that `--property` flags describe; unknown ones are refused."""
    values = pairs(list(properties), "--property", verbatim=True)
    separator = values.pop("key.separator", "\t")
    known = {f"print.{part}" for part in (*FLAGS, "value")}
    unknown = sorted(set(values) - known)
    if unknown:
        names = ", ".join(sorted([*known, "key.separator"]))
        raise click.UsageError(f"--property {unknown[0]} is not known; known are {names}.")
    wanted = {name.removeprefix("print.") for name, said in values.items() if is_true(said)}
    return Shape(frozenset(wanted), is_true(values.get("print.value", "true")), separator, as_json)
