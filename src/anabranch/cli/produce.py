"""`anabranch produce`: lines of text become records."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import click

from anabranch.cli.cluster_command import (
    ask,
    bootstrap_option,
    json_option,
    pairs,
    print_json,
    timeout_option,
    waiting_told,
)
from anabranch.cli.completion_names import complete_topics
from anabranch.cli.name_option import naming_option
from anabranch.core.sentences import number_of
from anabranch.core.settings.setting import is_true

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster
    from anabranch.core.wire.records import Record

BATCH_BYTES = 512 * 1024
"""Plain bytes of one batch, and of what is read at once: half of max.message.bytes' default, which
counts what is around the records, too. A longer line goes in a batch of its own."""
LONGEST_LINE_BYTES = 100 << 20
"""What a broker takes as one request by default (socket.request.max.bytes): no record is larger. It
bounds what is kept of a line whose end does not come."""
BATCH_RECORDS = 10_000
BEGIN_BYTES = 40
"""Of a line that is refused, so that it is found."""
LINGER_SECONDS = 0.05
"""A line that is typed is sent after this long, not when a batch is full."""
ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}
PROGRESS_AFTER_SECONDS = 1.0
GROWTH_SECONDS = 10.0
"""How often it looks for partitions that were added, while lines come."""


class Line(NamedTuple):
    """What a line says."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class LineFormat(NamedTuple):
    """How a line is cut into headers, key and value; names and order are those of Kafka's console
    producer."""

    parse_key: bool
    separator: bytes
    null_marker: bytes | None
    parse_headers: bool = False
    after_headers: bytes = b"\t"
    between_headers: bytes = b","
    after_name: bytes = b":"

    def cut(self, line: bytes, number: int) -> Line:
        """Headers, key and value of one line; raises a usage error that names the line."""
        key, value, headers = None, line, b""
        if self.parse_headers:
            headers, value = _parted(value, self.after_headers, number, "headers")
        if self.parse_key:
            key, value = _parted(value, self.separator, number, "key")
        named = [self._header(each, number) for each in headers.split(self.between_headers) if each]
        return Line(self._null(key), self._null(value), tuple(named))

    def _header(self, text: bytes, number: int) -> tuple[str, bytes | None]:
        name, value = _parted(text, self.after_name, number, "headers.key")
        return name.decode(errors="backslashreplace"), self._null(value)

    def _null(self, text: bytes | None) -> bytes | None:
        return None if text == self.null_marker else text


SEPARATORS = {
    "key": ("no key", "key.separator", ", or no parse.key"),
    "headers": ("no headers", "headers.delimiter", ", or no parse.headers"),
    "headers.key": ("a header without a value", "headers.key.separator", ""),
}
"""What a line lacks where a separator is not in it, and what to change."""


def _parted(text: bytes, separator: bytes, number: int, what: str) -> tuple[bytes, bytes]:
    before, found, after = text.partition(separator)
    if not found:
        lacks, setting, otherwise = SEPARATORS[what]
        raise click.ClickException(
            f"Line {number} has {lacks}: no {separator.decode()!r} in it. What came before was "
            f"sent. Give another --property {setting}{otherwise}."
        )
    return before, after


TYPING = "Type records, one a line; Ctrl-D ends."


@click.command(
    epilog="Example: anabranch produce --topic t --file lines.txt --property parse.key=true "
    "--property key.separator=:"
)
@bootstrap_option
@timeout_option
@naming_option(
    "--topic", required=True, metavar="NAME", help="The topic to write to.",
    shell_complete=complete_topics,
)  # fmt: skip
@click.option(
    "--file", "path", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
    help="Read lines from a file instead of standard input.",
)  # fmt: skip
@click.option("--partition", type=int, metavar="N", help="Send all records to this partition.")
@click.option(
    "--acks", type=click.Choice(sorted(ACKS)), default="all", show_default=True,
    help="The acknowledgement to wait for.",
)  # fmt: skip
@click.option(
    "--compression-codec", "codec_name",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="none", show_default=True,
    help="Compression of batches.",
)  # fmt: skip
@click.option(
    "--property", "properties", multiple=True, metavar="KEY=VALUE",
    help="parse.key=true, key.separator=TEXT (default: a tab), null.marker=TEXT; "
        "parse.headers=true for lines like a:1,b:2, a tab, and the rest, with "
        "headers.delimiter (tab), headers.separator (,) and headers.key.separator (:).",
)  # fmt: skip
@json_option
def command(
    bootstrap: str, timeout_seconds: float, topic: str, path: str | None, partition: int | None,
    acks: str, codec_name: str, properties: tuple[str, ...], as_json: bool,
) -> None:  # fmt: skip
    """Write lines of standard input or a file as records; keys choose partitions as in Kafka's Java
    client."""
    line_format = format_of(properties)
    if path is not None:
        source: BinaryIO = Path(path).open("rb")  # noqa: SIM115 - closed below, as is stdin
        size_bytes = Path(path).stat().st_size
    else:
        source, size_bytes = sys.stdin.buffer, 0

    async def work(cluster: Cluster) -> int:
        sender = Sender(cluster, topic, partition, ACKS[acks], codec_name)
        async with waiting_told(f"the partitions of {topic}"):
            await sender.prepare()
        if source.isatty():
            click.echo(TYPING, err=True)
        return await sender.send_all(source, line_format, size_bytes)

    with source:
        begin = time.perf_counter()
        count = ask(bootstrap, work, timeout_seconds=timeout_seconds, tells_itself=True)
    seconds = max(time.perf_counter() - begin, 1e-9)
    if as_json:
        print_json({"topic": topic, "records": count, "seconds": round(seconds, 6)})
        return
    click.echo(
        f"{number_of(count, 'record')} written to {topic}, {count / seconds:,.0f} a second.",
        err=True,
    )


def format_of(properties: Iterable[str]) -> LineFormat:
    """The line format that `--property` flags describe; unknown ones are refused."""
    values = pairs(list(properties), "--property", verbatim=True)
    known = {
        "parse.key", "key.separator", "null.marker", "parse.headers", "headers.delimiter",
        "headers.separator", "headers.key.separator",
    }  # fmt: skip
    unknown = sorted(set(values) - known)
    if unknown:
        raise click.UsageError(
            f"--property {unknown[0]} is not known; known are {', '.join(sorted(known))}."
        )
    marker = values.get("null.marker")
    return LineFormat(
        is_true(values.get("parse.key")),
        values.get("key.separator", "\t").encode() or b"\t",
        None if marker is None else marker.encode(),
        is_true(values.get("parse.headers")),
        values.get("headers.delimiter", "\t").encode() or b"\t",
        values.get("headers.separator", ",").encode() or b",",
        values.get("headers.key.separator", ":").encode() or b":",
    )


class Sender:
    """Collects records by partition and sends each partition's as one batch.

    Rule kept: with acks=all it is an idempotent producer (KIP-98), so that a batch whose
    acknowledgement was lost is not written twice; each partition has one batch under way.
    """

    def __init__(
        self, cluster: Cluster, topic: str, partition: int | None, acks: int, codec_name: str
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._acks = acks
        self._codec_name = codec_name
        self._partitions = 0
        self._counted_s = 0.0
        self._sticky = 0
        self._producer_id = self._producer_epoch = -1
        self._sequences: dict[int, int] = {}
        self._waiting: dict[int, list[Record]] = {}
        self._waiting_bytes = 0
        self._waiting_records = 0

    async def prepare(self) -> None:
        """Learn how many partitions there are; creates the topic when the broker does so."""
        from anabranch.core.errors import ApiError, ErrorCode
        from anabranch.core.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

        try:
            self._partitions = await self._count()
        except ApiError as fault:
            if fault.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=self._topic)])
            await self._cluster.send(asked)
            self._partitions = await self._cluster.retrying(self._count)
        self._counted_s = time.monotonic()
        if self._partition is not None:
            await self._cluster.partition(self._topic, self._partition)
        if self._acks == ACKS["all"]:
            await self._cluster.retrying(self._take_id)

    async def _count(self) -> int:
        return len((await self._cluster.topic(self._topic)).partitions)

    async def _count_again(self) -> None:
        """Learn of partitions that were added, now and then; a cluster that does not answer is told
        by what is sent."""
        from anabranch.client.connection import ConnectionLost
        from anabranch.core.errors import ApiError

        if time.monotonic() - self._counted_s < GROWTH_SECONDS:
            return
        self._counted_s = time.monotonic()
        with contextlib.suppress(ApiError, ConnectionLost):
            self._partitions = await self._count()

    async def _take_id(self) -> None:
        from anabranch.client.cluster import check
        from anabranch.core.wire.messages.init_producer_id import InitProducerIdRequest

        answer = await self._cluster.send(InitProducerIdRequest(transactional_id=None))
        check(answer.error_code)
        self._producer_id, self._producer_epoch = answer.producer_id, answer.producer_epoch

    async def send_all(self, source: BinaryIO, line_format: LineFormat, size_bytes: int) -> int:
        """Read lines until the end; returns how many records were acknowledged."""
        lines = Lines(source)
        count = done_bytes = 0
        with Progress(size_bytes) as progress:
            pending = lines.next_some()
            while True:
                linger = LINGER_SECONDS if self._waiting_records else None
                done, _ = await asyncio.wait([pending], timeout=linger)
                if not done:
                    await self.flush()
                    continue
                try:
                    piece = pending.result()
                except LineTooLong:
                    await self.flush()
                    raise _too_long(count + 1) from None
                if not piece:
                    break
                await self._count_again()
                for line in piece:
                    try:
                        said = line_format.cut(line.rstrip(b"\r\n"), count + 1)
                    except click.ClickException:
                        await self.flush()
                        raise
                    if not self.has_room(len(line)):
                        await self.flush()
                    self.add(said)
                    count += 1
                    done_bytes += len(line) + 1
                progress.show(done_bytes, count)
                pending = lines.next_some()
            await self.flush()
        return count

    def has_room(self, size_bytes: int) -> bool:
        """Whether one more record of that size may wait with the others; one alone always may."""
        return not self._waiting_records or (
            self._waiting_records < BATCH_RECORDS
            and self._waiting_bytes + size_bytes <= BATCH_BYTES
        )

    def add(self, said: Line) -> None:
        """Put a record with the others of its partition."""
        from anabranch.client.partitioner import partition_for
        from anabranch.core.wire.records import Record

        if self._partition is not None:
            partition = self._partition
        elif said.key is not None:
            partition = partition_for(said.key, self._partitions)
        else:
            partition = self._sticky
        records = self._waiting.setdefault(partition, [])
        now_ms = int(time.time() * 1000)
        records.append(Record(len(records), now_ms, said.key, said.value, said.headers))
        self._waiting_records += 1
        self._waiting_bytes += _size_bytes(said)

    async def flush(self) -> None:
        """Send what is waiting and wait for the acknowledgements."""
        waiting, self._waiting = self._waiting, {}
        self._waiting_bytes = self._waiting_records = 0
        self._sticky = (self._sticky + 1) % self._partitions
        async with waiting_told(f"acknowledgements of {self._topic}"):
            await asyncio.gather(
                *(self._send(partition, records) for partition, records in waiting.items())
            )

    async def _send(self, partition: int, records: Sequence[Record]) -> None:
        """Send records as one batch; as two where the topic takes no batch so large, and so on."""
        from anabranch.client.produce import produce
        from anabranch.core.errors import ApiError, ErrorCode
        from anabranch.core.log.producers import SEQUENCES
        from anabranch.core.wire.compression import Codec
        from anabranch.core.wire.records import build_batch

        is_idempotent = self._producer_id >= 0
        sequence = self._sequences.get(partition, 0)
        batch = build_batch(
            records, codec=Codec[self._codec_name.upper()], producer_id=self._producer_id,
            producer_epoch=self._producer_epoch, base_sequence=sequence if is_idempotent else -1,
        )  # fmt: skip
        try:
            await produce(self._cluster, self._topic, partition, batch, acks=self._acks)
            self._sequences[partition] = (sequence + len(records)) % SEQUENCES
        except ApiError as fault:
            if fault.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                self._sequences[partition] = (sequence + len(records)) % SEQUENCES
                return  # it is there, and its acknowledgement was lost
            if fault.code is not ErrorCode.MESSAGE_TOO_LARGE:
                raise
            if len(records) == 1:
                begins = bytes(records[0].value or b"")[:BEGIN_BYTES].decode(errors="replace")
                sentence = f"The line that begins with {begins!r}: {fault.message}"
                raise ApiError(fault.code, sentence) from fault
            half = len(records) // 2
            rest = [each._replace(offset=each.offset - half) for each in records[half:]]
            await self._send(partition, records[:half])
            await self._send(partition, rest)


def _size_bytes(said: Line) -> int:
    """What a record weighs, but for what is around it."""
    of_headers = sum(len(name) + len(value or b"") for name, value in said.headers)
    return len(said.key or b"") + len(said.value or b"") + of_headers


class LineTooLong(Exception):
    """No record can hold the line that has begun."""


def _too_long(number: int) -> click.ClickException:
    return click.ClickException(
        f"Line {number} is longer than {LONGEST_LINE_BYTES:,} bytes, and no record can be. What "
        "came before was sent. Split it, or store it elsewhere and send where it is."
    )


class Lines:
    """The lines of a source, as they come.

    Rules kept: a line is given as soon as it is whole, since it may be long until the next; and
    nothing waits for a source that says nothing, hence a thread that ends with the process, and
    reads without the buffer, whose lock it would keep. No more is kept than the longest line.
    """

    def __init__(self, source: BinaryIO) -> None:
        self._read: Callable[[int], bytes | None] = getattr(source, "raw", source).read
        self._begun: list[bytes] = []
        self._begun_bytes = 0

    def next_some(self) -> asyncio.Future[list[bytes]]:
        """The next lines, without their ends; none at the end of the source."""
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[bytes]] = loop.create_future()

        def run() -> None:
            told: Callable[[], None]
            try:
                told = partial(_settle, found, self._next_lines())
            except Exception as fault:  # the caller waits for the outcome, whatever it is
                told = partial(_settle, found, fault)
            with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits
                loop.call_soon_threadsafe(told)

        threading.Thread(target=run, name="lines", daemon=True).start()
        return found

    def _next_lines(self) -> list[bytes]:
        """Raises LineTooLong once that is sure; the lines before were given."""
        while self._begun_bytes <= LONGEST_LINE_BYTES and (piece := self._read(BATCH_BYTES)):
            first, *others = piece.split(b"\n")
            self._begun.append(first)
            self._begun_bytes += len(first)
            if others:
                lines = [b"".join(self._begun), *others[:-1]]
                self._begun, self._begun_bytes = [others[-1]], len(others[-1])
                return lines
        if self._begun_bytes > LONGEST_LINE_BYTES:
            raise LineTooLong
        last, self._begun, self._begun_bytes = b"".join(self._begun), [], 0
        return [last] if last else []


def _settle(found: asyncio.Future[list[bytes]], outcome: list[bytes] | Exception) -> None:
    if found.done():
        return
    if isinstance(outcome, Exception):
        found.set_exception(outcome)
    else:
        found.set_result(outcome)


class Progress:
    """A progress bar on standard error, once the work has taken a while and somebody looks."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._begin = time.monotonic()
        self._visible = sys.stderr.isatty()
        self._shown = False
        self._next = self._begin + PROGRESS_AFTER_SECONDS

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            click.echo("\r\033[K", nl=False, err=True)

    def show(self, done_bytes: int, count: int) -> None:
        """Say how far the work is, a few times a second."""
        now = time.monotonic()
        if not self._visible or now < self._next:
            return
        self._shown, self._next = True, now + 0.2
        share = f"{done_bytes / self._size_bytes:4.0%}  " if self._size_bytes else ""
        rate = count / (now - self._begin)
        click.echo(
            f"\r\033[K{share}{number_of(count, 'record')}, {rate:,.0f} a second", nl=False, err=True
        )
