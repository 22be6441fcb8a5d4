"""`anabranch consume`: records become lines of text."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from anabranch.cli.cluster_command import (
    DEFAULT_TIMEOUT_SECONDS,
    MOST_INT64,
    REMEDIES,
    Milliseconds,
    Refused,
    Seconds,
    ask,
    bootstrap_option,
    pairs,
    waiting_told,
)
from anabranch.cli.completion_names import complete_topics
from anabranch.cli.group_reader import Group, Member
from anabranch.cli.name_option import naming_option
from anabranch.cli.record_format import RecordFormat
from anabranch.cli.record_reader import GROWTH_SECONDS, Reader, named
from anabranch.core.sentences import number_of
from anabranch.core.settings.setting import is_true

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster
    from anabranch.core.wire.records import Record

FLAGS = ("timestamp", "partition", "offset", "headers", "key")
"""What `--property print.…=true` puts before the value, in this order, as Kafka's console does."""
POLL_SECONDS = 0.5
"""How often it looks whether it is time to stop."""


class Shape(NamedTuple):
    """What of a record is printed, and between what."""

    parts: frozenset[str]
    value: bool
    separator: str
    as_json: bool

    def line(self, topic: str, partition: int, record: Record) -> str:
        """One record as one line."""
        if self.as_json:
            told = {"topic": topic, **as_json(partition, record)}
            return json.dumps(told, ensure_ascii=False) + "\n"
        said = {
            "timestamp": f"CreateTime:{record.timestamp}",
            "partition": f"Partition:{partition}",
            "offset": f"Offset:{record.offset}",
            "headers": ",".join(f"{key}:{text(value)}" for key, value in record.headers)
            or "NO_HEADERS",
            "key": text(record.key),
        }
        fields = [said[part] for part in FLAGS if part in self.parts]
        values = [text(record.value)] if self.value else []
        return self.separator.join([*fields, *values]) + "\n"


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
    "--topic", "topics", multiple=True, metavar="NAME",
    help="The topic to read; may be given more than once.", shell_complete=complete_topics,
)  # fmt: skip
@click.option(
    "--include", metavar="REGEX",
    help="Read all topics whose whole name matches, such as 'flights-.*'; also those created "
        "later. Internal topics are left out.",
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
    "--timeout-ms", type=Milliseconds(0), metavar="MS",
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
    bootstrap: str, timeout_seconds: float | None, topics: tuple[str, ...], include: str | None,
    from_beginning: bool, partition: int | None, offset: str | None, max_messages: int | None,
    timeout_ms: int | None, isolation_level: str, properties: tuple[str, ...],
    template: str | None, as_json_lines: bool, group_id: str | None,
) -> None:  # fmt: skip
    """Print the records of topics, one on each line, until Ctrl-C.

    Partitions without a leader are read as soon as they have one; if --timeout ends before, the
    exit code is 1 and standard error names them.
    """
    if sys.stdout is None:
        raise click.UsageError("Standard output is closed: no record can be printed.")
    pattern = _pattern(topics, include)
    if partition is not None and (pattern is not None or len(topics) > 1):
        raise click.UsageError("--partition is of one topic: name one with --topic.")
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
    printer = Printer(shape if form is None else form, max_messages)
    idle = Idle(idle_seconds)

    async def work(cluster: Cluster) -> None:
        from anabranch.client.membership import Membership

        names = await _topics(cluster, topics, pattern)
        level = 1 if isolation_level == "read_committed" else 0

        group: Group | None = None
        if group_id is not None:
            group = Group(cluster, group_id, Membership(cluster, group_id, ()))
            _end_in_order_at_sigterm()

        async def reader_of(topic: str, begin: str) -> Reader | Member:
            reader = Reader(cluster, topic, level)
            if group is not None:
                return group.read(reader, begin)
            async with waiting_told(f"the partitions of {topic}"):
                await reader.begin(begin, partition)
            return reader

        readers = [await reader_of(each, start) for each in names]
        watch = None if pattern is None else NewTopics(cluster, pattern, names)
        try:
            await printer.run(readers, idle, watch, reader_of)
        finally:
            if group is not None:
                await group.leave()

    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        ask(
            bootstrap,
            work,
            timeout_seconds=timeout_seconds or DEFAULT_TIMEOUT_SECONDS,
            tells_itself=True,
        )
    click.echo(f"Processed a total of {number_of(printer.seen, 'record')}.", err=True)
    if unread := "; ".join(idle.unread):
        code = "LEADER_NOT_AVAILABLE"
        raise Refused(
            f"No leader is ready for {unread}: records may be missing.",
            code=code,
            remedy=REMEDIES[code],
        )


def _pattern(topics: Sequence[str], include: str | None) -> re.Pattern[str] | None:
    """The pattern that topics have to match, if it is that. Raises UsageError."""
    if bool(topics) == (include is not None):
        raise click.UsageError("Give either --topic NAME or --include REGEX.")
    try:
        return None if include is None else re.compile(include)
    except re.error as fault:
        raise click.UsageError(
            f"--include {include!r} is no regular expression: {fault}."
        ) from None


class Idle:
    """Since when no record has come, and what could not be read meanwhile."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._since = time.monotonic()
        self._unheard: set[Reader | Member] | None = None
        self.unread: list[str] = []

    def heard(self, readers: Iterable[Reader | Member], reader: Reader | Member) -> None:
        """The reader has looked for records; time counts once each of those that there were at the
        start has."""
        if self._unheard is None:
            self._unheard = set(readers)
        if reader in self._unheard:
            self._unheard.discard(reader)
            self._since = time.monotonic() if self._unheard else self._since

    def is_over(self, readers: Sequence[Reader | Member], *, has_records: bool) -> bool:
        """Whether it is time to stop; partitions without a leader are waited for a while."""
        from anabranch.client.every_broker import PASS_OVER_SECONDS

        now = time.monotonic()
        if has_records:
            self._since = now
        if self._seconds is None or self._unheard is None or self._unheard:
            return False
        if now - self._since < self._seconds:
            return False
        waiting = [named(each.topic, each.waiting) for each in readers if each.waiting]
        if waiting and now - self._since < PASS_OVER_SECONDS:
            return False
        self.unread = waiting
        return True


class NewTopics:
    """Looks now and then for topics that match a pattern."""

    def __init__(self, cluster: Cluster, pattern: re.Pattern[str], known: Iterable[str]) -> None:
        self._cluster, self._pattern, self._known = cluster, pattern, set(known)
        self._looked_s = time.monotonic()

    async def found(self) -> list[str]:
        """Those that came since the last look."""
        if time.monotonic() - self._looked_s < GROWTH_SECONDS:
            return []
        names = await _matching(self._cluster, self._pattern)
        self._looked_s = time.monotonic()
        news = [each for each in names if each not in self._known]
        self._known.update(news)
        return news


class Printer:
    """Prints what several readers find, each record as it comes."""

    def __init__(self, form: Shape | RecordFormat, most: int | None) -> None:
        self._form, self._most = form, most
        self.seen = 0

    async def run(
        self, readers: list[Reader | Member], idle: Idle, news: NewTopics | None,
        reader_of: Callable[[str, str], Awaitable[Reader | Member]],
    ) -> None:  # fmt: skip
        """Until enough are printed or none came for long; readers of new topics are added."""
        polls = {asyncio.ensure_future(each.poll()): each for each in readers}
        try:
            while self._most is None or self.seen < self._most:
                done, _ = await asyncio.wait(
                    polls, timeout=POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                found = [(polls.pop(each), each.result()) for each in done]
                for reader, records in found:
                    idle.heard(readers, reader)
                    self._show(reader, records)
                    polls[asyncio.ensure_future(reader.poll())] = reader
                if idle.is_over(readers, has_records=any(records for _, records in found)):
                    return
                for topic in () if news is None else await news.found():
                    readers.append(await reader_of(topic, "earliest"))
                    polls[asyncio.ensure_future(readers[-1].poll())] = readers[-1]
        finally:
            for poll in polls:
                poll.cancel()
            await asyncio.gather(*polls, return_exceptions=True)

    def _show(self, reader: Reader | Member, records: Sequence[tuple[int, Record]]) -> None:
        shown = records if self._most is None else records[: self._most - self.seen]
        try:
            if shown:
                click.echo("".join(self._form.line(reader.topic, *e) for e in shown), nl=False)
        except BaseException:  # a full disk, a pipe that nobody reads: a group must get them
            reader.shown(records, 0)
            raise
        self.seen += len(shown)
        reader.shown(records, len(shown))


async def _topics(
    cluster: Cluster, topics: Sequence[str], pattern: re.Pattern[str] | None
) -> list[str]:
    """What is to be read; raises UsageError for a pattern that no topic matches."""
    if pattern is None:
        return list(dict.fromkeys(topics))
    names = await _matching(cluster, pattern)
    if not names:
        raise click.UsageError(f"--include {pattern.pattern!r} matches no topic.")
    return names


async def _matching(cluster: Cluster, pattern: re.Pattern[str]) -> list[str]:
    found = (await cluster.metadata(None)).topics
    names = (each.name or "" for each in found if not each.is_internal)
    return sorted(each for each in names if pattern.fullmatch(each))


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
