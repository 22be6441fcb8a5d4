"""R15: the verbs against a real node: what they print, for people and for programs; exit codes."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from tests.clients.members import until

import anabranch.client.produce
from anabranch.cli import cluster_command, group_reader, produce, record_reader
from anabranch.client import membership
from anabranch.client.cluster import Cluster
from anabranch.client.connection import ConnectionLost
from anabranch.client.fetch import list_offsets
from anabranch.core.types import LATEST
from anabranch.core.wire import batch

ROOT = Path(__file__).parents[2]
ABORT = ("transactions", "abort", "--topic", "t", "--partition", "0", "--producer-id")


def lines(result) -> list[str]:
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def refused(result, *words: str) -> None:
    assert result.exit_code in (1, 2)
    assert "Traceback" not in result.output
    for word in words:
        assert word in result.output


def test_a_topic_is_created_listed_described_grown_and_deleted(verb):
    created = verb("topics", "create", "--topic", "river", "--partitions", "2",
                   "--config", "retention.ms=1000")  # fmt: skip
    assert lines(created) == [
        "Topic river created: 2 partitions, replication factor 1.",
        "  partition 0: brokers 1",
        "  partition 1: brokers 1",
    ]
    assert "river" in lines(verb("topics", "list"))
    described = json.loads(verb("topics", "describe", "--topic", "river", "--json").stdout)
    assert described[0]["configs"]["retention.ms"] == "1000"
    assert [each["leader"] for each in described[0]["partitions"]] == [1, 1]
    assert "partition  leader" in verb("topics", "describe", "--topic", "river").stdout
    lines(verb("topics", "alter", "--topic", "river", "--partitions", "3"))
    described = json.loads(verb("topics", "describe", "--topic", "river", "--json").stdout)
    assert len(described[0]["partitions"]) == 3
    assert lines(verb("topics", "delete", "--topic", "river")) == ["Topic river deleted."]
    assert "river" not in lines(verb("topics", "list"))


def test_what_cannot_be_is_one_line_with_kafkas_code(verb):
    lines(verb("topics", "create", "--topic", "twice"))
    refused(verb("topics", "create", "--topic", "twice"), "already exists", "TOPIC_ALREADY_EXISTS")
    again = verb("topics", "create", "--topic", "twice", "--if-not-exists")
    assert lines(again) == ["Topic twice already exists."]
    gone = verb("topics", "delete", "--topic", "nowhere", "--if-exists")
    assert lines(gone) == ["There is no topic 'nowhere'."]
    refused(verb("topics", "create", "--topic", "a/b"), "INVALID_TOPIC_EXCEPTION")
    refused(verb("topics", "create", "--topic", "x", "--config", "nonsense"), "KEY=VALUE")
    refused(verb("topics", "create", "--topic", "x", "--replica-assignment", "1:x"), "1:2,2:3")
    refused(
        verb("topics", "create", "--topic", "x", "--replica-assignment", "1", "--partitions", "1"),
        "--replica-assignment",
    )


ABSENT = [
    "topics describe --topic nowhere",
    "topics alter --topic nowhere --partitions 9",
    "topics delete --topic nowhere",
    "configs describe --entity-type topics --entity-name nowhere",
    "configs alter --entity-type topics --entity-name nowhere --add-config retention.ms=5",
    "consume --topic nowhere --timeout 1",
    "placement nowhere",
    "partitions elect-leaders --topic nowhere",
    "plan observers --topic nowhere",
    "plan factor --topic nowhere --replication-factor 1",
    "groups reset-offsets --group g --topic nowhere --to-earliest",
]


@pytest.mark.parametrize("words", ABSENT)
def test_every_command_says_alike_that_a_topic_is_not_there(verb, words):
    refused(verb(*words.split()), "There is no topic 'nowhere'", "UNKNOWN_TOPIC_OR_PARTITION")


def test_validate_only_creates_nothing(verb):
    said = verb("topics", "create", "--topic", "perhaps", "--partitions", "4", "--validate-only")
    assert lines(said) == [
        "Topic perhaps would be created: 4 partitions, replication factor 1.",
        *(f"  partition {index}: brokers 1" for index in range(4)),
    ]
    assert "perhaps" not in lines(verb("topics", "list"))


def test_settings_are_set_described_and_returned_to_their_default(verb):
    lines(verb("topics", "create", "--topic", "tuned"))
    entity = ("--entity-type", "topics", "--entity-name", "tuned")
    changed = verb("configs", "alter", *entity, "--add-config",
                   "cleanup.policy=[compact,delete],retention.ms=7")  # fmt: skip
    assert lines(changed) == ["2 settings of topic tuned changed."]
    found = {
        each["name"]: each
        for each in json.loads(verb("configs", "describe", *entity, "--json").stdout)
    }
    assert found["cleanup.policy"]["value"] == "compact,delete"
    assert found["retention.ms"]["source"] == "topic"
    lines(verb("configs", "alter", *entity, "--delete-config", "cleanup.policy,retention.ms"))
    left = json.loads(verb("configs", "describe", *entity, "--json").stdout)
    assert not {each["name"] for each in left} & {"cleanup.policy", "retention.ms"}
    everything = json.loads(
        verb("configs", "describe", *entity, "--all", "--documentation", "--json").stdout
    )
    assert len(everything) > 25
    assert all(each["documentation"] for each in everything)
    refused(verb("configs", "alter", *entity, "--add-config", "retention.ms=x"), "INVALID_CONFIG")
    refused(verb("configs", "alter", *entity), "Nothing to change")
    refused(verb("configs", "alter", *entity, "--delete-config", "retention"), "mean retention")
    refused(verb("configs", "alter", *entity, "--add-config", "retention.ms=[1"), "without its")
    refused(verb("configs", "describe", "--entity-type", "topics"), "--entity-name")
    refused(verb("configs", "describe", "--entity-type", "brokers"), "--entity-default")


@pytest.mark.parametrize(
    "entity", [("--broker", "1"), ("--entity-type", "brokers", "--entity-default")]
)
def test_a_setting_that_nobody_knows_is_told_seen_and_removed(verb, entity):
    """Brokers keep it, as Kafka's do: another version may know it."""
    name = "log.retention.mss"
    added = verb("configs", "alter", *entity, "--add-config", f"{name}=7")
    assert lines(added)[-1].endswith("changed.")
    assert name in added.stderr and "mean log.retention.ms" in added.stderr
    found = {
        each["name"]: each
        for each in json.loads(verb("configs", "describe", *entity, "--json").stdout)
    }
    assert found[name]["value"] is None
    assert found[name]["source"] != "default"
    known = verb("configs", "alter", *entity, "--add-config", "log.retention.ms=7")
    assert lines(known) and not known.stderr
    lines(verb("configs", "alter", *entity, "--delete-config", f"{name},log.retention.ms"))
    assert name not in verb("configs", "describe", *entity, "--json").stdout
    refused(verb("configs", "alter", *entity, "--delete-config", name), "mean log.retention.ms")


def test_a_password_is_never_shown(verb):
    said = verb("configs", "describe", "--entity-type", "brokers", "--entity-name", "1", "--all")
    assert "ssl.keystore.password" in said.stdout
    row = next(line for line in lines(said) if line.startswith("ssl.keystore.password "))
    assert "(hidden)" in row


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_become_records_and_lines_again(verb, codec):
    topic = f"lines-{codec}"
    lines(verb("topics", "create", "--topic", topic, "--partitions", "3"))
    text = "".join(f"key{n % 7}:value {n}\n" for n in range(500))
    properties = ("--property", "parse.key=true", "--property", "key.separator=:")
    done = verb("produce", "--topic", topic, "--compression-codec", codec, *properties, input=text)
    assert done.exit_code == 0, done.output
    assert "500 records written" in done.stderr
    read = verb("consume", "--topic", topic, "--from-beginning", "--max-messages", "500", "--json")
    records = [json.loads(line) for line in lines(read)]
    for key in range(7):
        values = [each["value"] for each in records if each["key"] == f"key{key}"]
        assert values == [f"value {n}" for n in range(500) if n % 7 == key]


def test_consume_prints_what_it_is_asked_for_and_stops(verb):
    lines(verb("topics", "create", "--topic", "shown"))
    verb("produce", "--topic", "shown", input="one\ntwo\nthree\n")
    flags = [f"--property=print.{part}=true" for part in ("offset", "partition", "key", "headers")]
    read = verb("consume", "--topic", "shown", "--from-beginning", "--timeout-ms", "200", *flags)
    assert lines(read)[1] == "Partition:0\tOffset:1\tNO_HEADERS\tnull\ttwo"
    assert "Processed a total of 3 records." in read.stderr
    tail = verb("consume", "--topic", "shown", "--partition", "0", "--offset", "2",
                "--max-messages", "1")  # fmt: skip
    assert lines(tail) == ["three"]
    beyond = verb("consume", "--topic", "shown", "--partition", "0", "--offset", "99",
                  "--timeout-ms", "200")  # fmt: skip
    refused(beyond, "shown-0: The offset is outside", "OFFSET_OUT_OF_RANGE")
    refused(verb("consume", "--topic", "shown", "--offset", "2"), "--partition")
    refused(verb("consume", "--topic", "shown", "--property", "print.colour=true"), "print.colour")


@pytest.mark.slow
def test_consume_continues_where_its_group_stopped(verb):
    verb("topics", "create", "--topic", "grouped", "--partitions", "2")
    verb("produce", "--topic", "grouped", input="".join(f"r{each}\n" for each in range(9)))
    words = ("consume", "--topic", "grouped", "--group", "readers", "--from-beginning")
    first = verb(*words, "--max-messages", "4").stdout.split()
    rest = verb(*words, "--timeout", "1").stdout.split()
    assert len(first) == 4
    assert sorted(first + rest) == [f"r{each}" for each in range(9)]
    assert verb(*words, "--timeout", "1").stdout == ""
    told = json.loads(verb("groups", "describe", "--group", "readers", "--json").stdout)
    assert "readers" in str(told)
    refused(verb(*words, "--partition", "0"), "--group assigns partitions")


@pytest.mark.slow
def test_a_group_gets_again_what_could_not_be_printed(verb, node):
    verb("topics", "create", "--topic", "unprinted")
    verb("produce", "--topic", "unprinted", input="a\nb\n")
    words = ("consume", "--topic", "unprinted", "--group", "careful", "--from-beginning")
    reader, writer = os.pipe()
    os.close(reader)
    place = ("--bootstrap-server", node.bootstrap)
    broken = subprocess.run(
        [sys.executable, "-m", "anabranch", *words, *place, "--timeout", "20"],
        stdout=writer, stderr=subprocess.DEVNULL, check=False, timeout=60,
    )  # fmt: skip
    os.close(writer)
    assert broken.returncode != 0
    assert lines(verb(*words, "--timeout", "1")) == ["a", "b"]


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["too large", "checksum"])
def test_a_batch_that_cannot_be_read_hides_no_record_of_the_others(verb, monkeypatch, damage):
    """The group's offsets were committed for records of other partitions, which nobody had seen."""
    topic = f"damaged-{damage[0]}"
    verb("topics", "create", "--topic", topic, "--partitions", "3")
    first = {0: "a", 1: "a" * 1000, 2: "a"}
    codec = "gzip" if damage == "too large" else "none"
    for partition, text in first.items():
        for line in (text, "b"):
            place = ("--topic", topic, "--partition", str(partition))
            verb("produce", *place, "--compression-codec", codec, input=f"{line}{partition}\n")
    words = ("consume", "--topic", topic, "--group", topic, "--from-beginning", "--timeout", "1")
    if damage == "too large":
        monkeypatch.setattr(record_reader, "BATCH_LIMIT_BYTES", 500)
    else:
        real = batch.crc_is_valid

        def is_valid(records, position, size):
            return real(records, position, size) and size < 1000

        monkeypatch.setattr(batch, "crc_is_valid", is_valid)
    seen = []
    for _ in range(2):
        result = verb(*words)
        refused(result, f"{topic}-1: the batch with the offsets 0 to 0 cannot be read")
        refused(result, "`--partition 1 --offset 1` begins after it")
        seen += [line for line in result.stdout.splitlines() if line[1:] in "02"]
    assert sorted(seen) == ["a0", "a2", "b0", "b2"]
    after = verb("consume", "--topic", topic, "--partition", "1", "--offset", "1", "--timeout", "1")
    assert after.stdout == "b1\n"


@pytest.mark.parametrize(
    ("words", "closed", "code", "said"),
    [
        ("topics describe --topic closed", ">&-", 0, ""),
        ("topics describe --topic closed", "2>&-", 0, ""),
        ("topics list --json", ">/dev/full", 1, "No space left on device"),
        ("produce --topic closed", "<&-", 0, "0 records written"),
        ("produce --topic closed --file README.md", "2>&-", 0, ""),
        ("produce --topic closed --file README.md", ">&- 2>&-", 0, ""),
        ("consume --topic closed --group g --timeout 1", ">&-", 2, "Standard output is closed"),
    ],
)
def test_a_stream_that_is_closed_or_full_ends_in_no_traceback(
    verb, node, words, closed, code, said
):
    verb("topics", "create", "--topic", "closed", "--if-not-exists")
    command = f"{sys.executable} -m anabranch {words} --bootstrap-server {node.bootstrap} {closed}"
    done = subprocess.run(
        ["sh", "-c", command], stderr=subprocess.PIPE, text=True, timeout=60, cwd=ROOT
    )
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr


def test_a_line_is_sent_before_the_next_one_comes_and_an_interrupt_ends_it(verb, node):
    verb("topics", "create", "--topic", "slowly")
    producing = subprocess.Popen(
        [sys.executable, "-m", "anabranch", "produce", "--topic", "slowly",
         "--bootstrap-server", node.bootstrap],
        stdin=subprocess.PIPE, stderr=subprocess.PIPE,
        # a shell starts what is in the background with SIGINT ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        assert producing.stdin is not None
        producing.stdin.write(b"first\nsec")
        producing.stdin.flush()
        read = ("consume", "--topic", "slowly", "--from-beginning", "--max-messages", "1")
        assert lines(verb(*read, "--timeout", "20")) == ["first"]
        producing.send_signal(signal.SIGINT)
        assert producing.wait(10) == 1
        assert producing.stderr is not None
        assert producing.stderr.read().split() == [b"Aborted!"]
    finally:
        producing.kill()
        producing.communicate()


@pytest.mark.parametrize("lost", range(1, 4))
def test_lines_whose_acknowledgement_was_lost_are_written_once(verb, monkeypatch, lost):
    topic = f"once-{lost}"
    verb("topics", "create", "--topic", topic, "--config", "max.message.bytes=10000")
    produce_on = anabranch.client.produce.produce_on
    calls = itertools.count(1)

    async def losing(*args, **words):
        done = await produce_on(*args, **words)
        if next(calls) == lost:
            raise ConnectionLost("the connection ended")
        return done

    monkeypatch.setattr(anabranch.client.produce, "produce_on", losing)
    sent = [f"{number:090}" for number in range(200)]
    assert verb("produce", "--topic", topic, input="\n".join(sent)).exit_code == 0
    read = verb("consume", "--topic", topic, "--from-beginning", "--timeout", "0.5")
    assert lines(read) == sent


def test_consume_shares_a_topic_with_members_of_another_client(verb, node):
    verb("topics", "create", "--topic", "halved", "--partitions", "4")
    other = Consumer(
        {"bootstrap.servers": node.bootstrap, "group.id": "halves",
         "partition.assignment.strategy": "range", "auto.offset.reset": "earliest"}
    )  # fmt: skip
    read = []

    def has(partitions=None, records=None):
        found = other.poll(0.1)
        if found is not None and found.error() is None:
            read.append(found.value().decode())
        return len(read) == records or len(other.assignment()) == partitions

    words = ("consume", "--topic", "halved", "--group", "halves", "--from-beginning")
    produced = [f"r{each}" for each in range(40)]
    producer = Producer({"bootstrap.servers": node.bootstrap})
    other.subscribe(["halved"])
    until(lambda: has(partitions=4))
    with ThreadPoolExecutor(1) as thread:
        printed = thread.submit(lambda: verb(*words, "--max-messages", "20").stdout.split())
        until(lambda: has(partitions=2))
        for number, each in enumerate(produced):
            producer.produce("halved", each, partition=number % 4)
        producer.flush(10)
        until(lambda: has(records=20))
        assert sorted(read + printed.result()) == sorted(produced)
    other.close()


def test_consume_prints_in_kcats_letters(verb):
    verb("topics", "create", "--topic", "letters", "--partitions", "1")
    verb("produce", "--topic", "letters", "--property", "parse.key=true", input="k\tgrüße\n")
    read = ("consume", "--topic", "letters", "--from-beginning", "--max-messages", "1")
    told = verb(*read, "--format", r"%t/%p@%o %k(%K)=%s(%S) 100%%\x21\n")
    assert told.stdout == "letters/0@0 k(1)=grüße(7) 100%!\n"


@pytest.mark.parametrize("separator", [" ", ": ", "\t", " = "])
def test_a_separator_may_be_or_hold_spaces(verb, separator):
    topic = f"separated-{separator.encode().hex()}"
    keyed = ("--property", "parse.key=true", "--property", f"key.separator={separator}")
    result = verb("produce", "--topic", topic, *keyed, input=f"key{separator}some value\n")
    assert result.exit_code == 0, result.output
    shown = ("--property", "print.key=true", "--property", f"key.separator={separator}")
    words = ("consume", "--topic", topic, "--from-beginning", "--max-messages", "1")
    assert verb(*words, *shown).stdout == f"key{separator}some value\n"
    told = json.loads(verb(*words, "--json").stdout)
    assert (told["key"], told["value"]) == ("key", "some value")


@pytest.mark.slow
@pytest.mark.parametrize("group", [None, "growing"])
@pytest.mark.parametrize("start", ["earliest", "latest"])
async def test_partitions_that_are_added_are_read_from_their_beginning(
    verb, node, monkeypatch, group, start
):
    """They were not read at all before consume was started again."""
    monkeypatch.setattr(record_reader, "GROWTH_SECONDS", 0.0)
    monkeypatch.setattr(membership, "GROWTH_SECONDS", 0.0)
    monkeypatch.setattr(membership, "HEARTBEAT_SECONDS", 0.0)
    topic = f"growing-{start}-{group}"

    async def run(*words: str, lines: str = "") -> None:
        result = await asyncio.to_thread(verb, *words, input=lines)
        assert result.exit_code == 0, result.output

    await run("topics", "create", "--topic", topic, "--partitions", "1")
    async with asyncio.timeout(60), Cluster(node.bootstrap) as cluster:
        reader = record_reader.Reader(cluster, topic, 0)
        if group is None:
            await reader.begin(start, None)
        else:
            member = membership.Membership(cluster, topic, ())
            reader = group_reader.Group(cluster, topic, member).read(reader, start)
        await reader.poll()
        await run("topics", "alter", "--topic", topic, "--partitions", "3")
        for partition in ("0", "2"):
            place = ("--topic", topic, "--partition", partition)
            await run("produce", *place, lines=f"r{partition}\n")
        seen = set()
        while len(seen) < 2:
            records = await reader.poll()
            seen |= {(partition, bytes(record.value)) for partition, record in records}
            reader.shown(records, len(records))
    assert seen == {(0, b"r0"), (2, b"r2")}


@pytest.mark.slow
@pytest.mark.parametrize("group", [None, "anew"])
@pytest.mark.parametrize("start", ["earliest", "latest"])
async def test_a_topic_that_is_made_again_is_read_from_its_beginning(
    verb, node, monkeypatch, capsys, group, start
):
    """The old offset was held against the new topic: its first records were never printed."""
    monkeypatch.setattr(membership, "HEARTBEAT_SECONDS", 0.0)
    topic = f"anew-{start}-{group}"

    async def run(*words: str, lines: str = "") -> None:
        result = await asyncio.to_thread(verb, *words, input=lines)
        assert result.exit_code == 0, result.output

    async with asyncio.timeout(60), Cluster(node.bootstrap) as cluster:
        await run("topics", "create", "--topic", topic, "--partitions", "2")
        reader = record_reader.Reader(cluster, topic, 0)
        if group is None:
            await reader.begin(start, None)
        else:
            member = membership.Membership(cluster, topic, ())
            reader = group_reader.Group(cluster, topic, member).read(reader, start)
        await reader.poll()
        for text in ("old", "new"):
            for partition in ("0", "1"):
                place = ("--topic", topic, "--partition", partition)
                await run("produce", *place, lines=f"{text}{partition}\n" * 3)
            seen = []
            while len(seen) < 6:
                records = await reader.poll()
                seen += [bytes(record.value).decode() for _, record in records]
                reader.shown(records, len(records))
            assert sorted(seen) == [f"{text}0"] * 3 + [f"{text}1"] * 3
            if text == "old":
                await run("topics", "delete", "--topic", topic)
                await run("topics", "create", "--topic", topic, "--partitions", "2")
    said = f"Topic {topic} was deleted and created again: it is read from its beginning."
    assert capsys.readouterr().err.count(said) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--format", "%q"), "%q is not known; known are %t"),
        (("--format", r"\q"), r"\q is not known"),
        (("--format", "100%"), "% is not known"),
        (("--format", "%s", "--json"), "--format excludes --property and --json"),
    ],
)
def test_a_format_that_cannot_be_is_refused_before_anything_is_read(verb, words, said):
    refused = verb("consume", "--topic", "nothing-is-asked", *words)
    assert refused.exit_code == 2
    assert said in refused.output


def test_a_line_without_its_key_is_named_and_what_came_before_is_kept(verb):
    lines(verb("topics", "create", "--topic", "keys"))
    done = verb("produce", "--topic", "keys", "--property", "parse.key=true",
                "--property", "key.separator=:", input="a:1\nb:2\nnothing\n")  # fmt: skip
    refused(done, "Line 3 has no key")
    read = verb("consume", "--topic", "keys", "--from-beginning", "--timeout-ms", "200")
    assert lines(read) == ["1", "2"]


def test_a_line_without_an_end_is_refused_where_no_record_could_hold_it(verb, monkeypatch):
    """It was held in memory for as long as it came: `produce < /dev/zero` took all there was."""
    monkeypatch.setattr(produce, "LONGEST_LINE_BYTES", 3 << 20)
    lines(verb("topics", "create", "--topic", "endless"))
    read_bytes = 0

    class Endless(io.RawIOBase):
        def readable(self):
            return True

        def readinto(self, buffer):
            nonlocal read_bytes
            assert read_bytes < 64 << 20, "it is read on and on"
            text = b"" if read_bytes else b"first\nsecond\n"
            buffer[:] = text.ljust(len(buffer), b"x")
            read_bytes += len(buffer)
            return len(buffer)

    source = io.BufferedReader(Endless())
    monkeypatch.setattr("click.testing.make_input_stream", lambda *_: source)
    done = verb("produce", "--topic", "endless")
    refused(done, "Line 3 is longer than 3,145,728 bytes", "What came before was sent", "Split")
    read = verb("consume", "--topic", "endless", "--from-beginning", "--timeout-ms", "200")
    assert lines(read) == ["first", "second"]


def test_lines_that_are_typed_are_asked_for(verb, monkeypatch):
    """On a terminal it said nothing, as if it hung."""
    lines(verb("topics", "create", "--topic", "typed"))
    source = io.BytesIO(b"a\n")
    monkeypatch.setattr("click.testing.make_input_stream", lambda *_: source)
    assert "Type records" not in verb("produce", "typed").stderr
    source = io.BytesIO(b"a\n")
    source.isatty = lambda: True
    assert "Type records, one a line; Ctrl-D ends." in verb("produce", "typed").stderr


@pytest.mark.parametrize("is_keyed", [True, False])
async def test_partitions_that_are_added_while_lines_come_are_written_to(
    node, verb, monkeypatch, is_keyed
):
    """Only those of the first moment were, however long the command ran."""
    monkeypatch.setattr(produce, "GROWTH_SECONDS", 0.0)
    topic = f"widened-{is_keyed}"

    async def run(*words: str) -> None:
        assert (await asyncio.to_thread(verb, *words)).exit_code == 0

    await run("topics", "create", "--topic", topic, "--partitions", "1")
    reader, writer = os.pipe()
    form = produce.LineFormat(is_keyed, b":", None)
    async with asyncio.timeout(60), Cluster(node.bootstrap) as cluster:
        sender = produce.Sender(cluster, topic, None, -1, "none")
        await sender.prepare()
        with open(reader, "rb") as source:  # noqa: ASYNC230 - a pipe
            sending = asyncio.create_task(sender.send_all(source, form, 0))
            os.write(writer, b"".join(b"k%d:old\n" % each for each in range(9)))
            await _holds(cluster, topic, 9)
            await run("topics", "alter", "--topic", topic, "--partitions", "3")
            for each in range(9):
                os.write(writer, b"k%d:new\n" % each)
                await _holds(cluster, topic, 10 + each)
            os.close(writer)
            assert await sending == 18
        ends = await list_offsets(cluster, topic, LATEST)
    assert all(ends.values()), ends


async def _holds(cluster, topic, count):
    while sum((await list_offsets(cluster, topic, LATEST)).values()) < count:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("size", [60, 300, 700_000])
def test_megabytes_of_lines_go_in_batches_that_the_broker_takes(verb, size):
    topic = f"long-{size}"
    lines(verb("topics", "create", "--topic", topic))
    count = 3_000_000 // size
    text = "".join(f"{number:0{size}}\n" for number in range(count))
    done = verb("produce", "--topic", topic, input=text)
    assert done.exit_code == 0, done.output
    read = verb("consume", "--topic", topic, "--from-beginning", "--max-messages", str(count))
    assert [int(line[-9:]) for line in lines(read)] == list(range(count))


def test_a_topic_of_small_batches_takes_many_lines_and_names_one_that_is_too_long(verb):
    lines(verb("topics", "create", "--topic", "small", "--config", "max.message.bytes=10000"))
    text = "".join(f"{number:090}\n" for number in range(2_000))
    assert verb("produce", "--topic", "small", input=text).exit_code == 0
    read = verb("consume", "--topic", "small", "--from-beginning", "--max-messages", "2000")
    assert [int(line) for line in lines(read)] == list(range(2_000))
    refused(verb("produce", "--topic", "small", input="long" * 5_000), "longlong", "max.message")


def test_the_cluster_says_who_is_there(verb):
    described = json.loads(verb("cluster", "describe", "--json").stdout)
    assert described["cluster_id"] == lines(verb("cluster", "id"))[0]
    assert [(each["id"], each["fenced"]) for each in described["brokers"]] == [(1, False)]
    assert "controller 1" in lines(verb("cluster", "describe"))[0]


@pytest.mark.parametrize("words", [("produce",), ("consume", "--from-beginning")])
def test_a_partition_that_is_not_there_is_refused_at_once(verb, words):
    lines(verb("topics", "create", "--topic", "three", "--partitions", "3", "--if-not-exists"))
    begin = time.monotonic()
    refused(verb(*words, "--topic", "three", "--partition", "3", input="a\n"), "counted from 0")
    assert time.monotonic() - begin < 5, "nothing is waited for"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("topics", "describe", "--topic", "no"),
            "no topic 'no'. (UNKNOWN_TOPIC_OR_PARTITION) `anab",
        ),
        (("explain", "no-0"), "`anabranch topics describe` shows what there is."),
        (("transactions", "describe", "--id", "no"), "`anabranch transactions list` shows"),
        (("groups", "describe", "--group", "no"), "`anabranch groups list` shows"),
        (("topics", "create", "--topic", "x", "--config", "retention.m=1"), "mean retention.ms?"),
        (
            ("topics", "create", "--topic", "x", "--config", "zzz=1"),
            "--all` lists them.",
        ),
        (
            ("topics", "create", "--topic", "x", "--replication-factor", "2"),
            "because only 1 broker is registered. (INVALID_REPLICATION_FACTOR) `anabranch cluster",
        ),
        (("configs", "alter", "x", "--add-config", "retention.ms=1y"), "a number with a unit: ms,"),
        (("quotas", "set", "--user", "x", "no=1"), "no quota 'no'; there are producer_byte_rate,"),
        (("acls", "list"), "Set authorizer.class.name in the properties of every node."),
        (("tokens", "list"), "Log in with SASL"),
        (("users", "list", "no"), "`anabranch users list` shows"),
        (("plan", "cancel"), "`anabranch apply FILE` carries out a plan."),
        (
            ("cluster", "upgrade", "--feature", "metadata.version=99"),
            "`anabranch cluster features`",
        ),
        (("topics", "create", "--topic", "x", "--partitions", "9" * 11), "x<=2147483647"),
        (("topics", "create", "--topic", "x", "--replication-factor", "40000"), "x<=32767"),
        (("topics", "create", "--topic", "x", "--replica-assignment", "9" * 11), "no broker id"),
        (("topics", "alter", "--topic", "x", "--partitions", "9" * 11), "x<=2147483647"),
        (("partitions", "elect-leaders", "--topic", "x", "--partition", "9" * 11), "x<=2147483647"),
        (("consume", "--topic", "x", "--partition", "0", "--offset", "9" * 20), "more than any"),
        (("consume", "--topic", "x", "--partition", "0", "--offset", "²"), "neither a number nor"),
        (("cluster", "upgrade", "--feature", "metadata.version=²"), "the level is a number"),
        (("cluster", "upgrade", "--feature", "metadata.version=99999"), "at most 32767"),
        (
            ("configs", "describe", "--entity-type", "brokers", "--entity-name", "²"),
            "is not a broker id",
        ),
        (("transactions", "list", "--longer-than", "inf"), "inf is not in the range"),
        (("transactions", "list", "--longer-than", "9" * 20), "not in the range"),
        ((*ABORT, "1", "--producer-epoch", "99999", "--coordinator-epoch", "0"), "x<=32767"),
        ((*ABORT, "1", "--producer-epoch", "0", "--coordinator-epoch", "9" * 11), "x<=2147483647"),
        ((*ABORT, "9" * 20, "--producer-epoch", "0", "--coordinator-epoch", "0"), "not in the"),
        (("topics", "list", "--timeout", "nan"), "'nan' is not a number of seconds."),
        (("topics", "list", "--timeout", "-1"), "-1.0 is not in the range x>0."),
        (("consume", "--topic", "t", "--timeout", "nan"), "'nan' is not a number of seconds."),
        (("cluster", "roll", "--dry-run", "--wait", "nan"), "'nan' is not a number of seconds."),
        (("topics", "create", "--topic", "a\udcff"), "Error: 'a\\udcff' is not text in UTF-8."),
        (("produce", "--topic", "a\udcff"), "Error: 'a\\udcff' is not text in UTF-8."),
        (("apply", "{no_text}"), "cannot be read: it is not text in UTF-8. Name another file."),
        (("partitions", "reassign", "--execute", "--file", "{no_text}"), "it is not text in UTF-8"),
        (
            (
                "partitions",
                "reassign",
                "--generate",
                "--brokers",
                "1",
                "--topics-file",
                "{no_text}",
            ),
            "it is not text in UTF-8",
        ),
    ],
)
def test_an_error_says_what_helps(verb, tmp_path, words, said):
    no_text = tmp_path / "no-text"
    no_text.write_bytes(b"\xff\xfe")
    refused(verb(*(each.format(no_text=no_text) for each in words)), said)


def test_what_there_is_is_not_made_again_or_made_smaller(verb):
    lines(verb("topics", "create", "there", "--partitions", "2"))
    refused(verb("topics", "create", "there"), "already exists", "With --if-not-exists it is kept")
    smaller = verb("topics", "alter", "there", "--partitions", "1")
    refused(smaller, "has 2 partitions; 1 would not be an increase", "are never taken away")


def test_a_file_may_begin_with_the_mark_that_editors_put_there(verb, tmp_path):
    lines(verb("topics", "create", "--topic", "marked"))
    for name, text in (
        ("moves", '{"partitions": [{"topic": "marked", "partition": 0, "replicas": [1]}]}'),
        ("topics", '{"topics": [{"topic": "marked"}]}'),
        ("assignment", '[{"id": 0, "replicas": [1]}]'),
    ):
        (tmp_path / name).write_text(text, "utf-8-sig")
    lines(verb("partitions", "reassign", "--verify", "--file", str(tmp_path / "moves")))
    topics = ("--topics-file", str(tmp_path / "topics"), "--brokers", "1")
    lines(verb("partitions", "reassign", "--generate", *topics))
    written = ("--replica-assignment", str(tmp_path / "assignment"))
    lines(verb("topics", "create", "--topic", "written-by-hand", *written))


def test_a_topic_of_the_cluster_is_deleted_by_force_alone(verb):
    lines(verb("topics", "create", "--topic", "counted"))
    place = ("--group", "counting", "--topic", "counted", "--to-earliest", "--execute")
    lines(verb("groups", "reset-offsets", *place))
    refused(verb("topics", "delete", "--topic", "__consumer_offsets"), "Add --force")
    assert "__consumer_offsets" in lines(verb("topics", "list"))
    lines(verb("topics", "delete", "--topic", "__consumer_offsets", "--force"))


def test_nobody_there_is_one_line_with_what_to_do(verb):
    for words in (("topics", "list"), ("cluster", "id"), ("consume", "--topic", "t")):
        result = verb(*words, "--bootstrap-server", "127.0.0.1:1", "--timeout", "1")
        refused(result, "127.0.0.1:1", "anabranch up")
    refused(verb("topics", "list", "--bootstrap-server", "nonsense"), "host:port")


@pytest.fixture
def silent():
    """The address of one who takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def test_a_verb_that_waits_says_so_again_and_again(verb, silent, monkeypatch):
    monkeypatch.setattr(cluster_command, "SILENCE_SECONDS", 0.1)
    for words in (("topics", "list", "--json"), ("consume", "--topic", "t")):
        result = verb(*words, "--bootstrap-server", silent, "--timeout", "0.5")
        assert result.stderr.count(f"Waiting for {silent}: 0 s so far.\n") >= 3
    assert verb("topics", "list").stderr == "", "an answer came at once"


def test_a_verb_that_waits_for_records_is_quiet(verb, monkeypatch):
    lines(verb("topics", "create", "--topic", "still"))
    monkeypatch.setattr(cluster_command, "SILENCE_SECONDS", 0.1)
    result = verb("consume", "--topic", "still", "--timeout", "0.5")
    assert result.stderr == "Processed a total of 0 records.\n"


def test_a_verb_that_waits_for_acknowledgements_says_so(verb, monkeypatch):
    lines(verb("topics", "create", "--topic", "slow"))
    monkeypatch.setattr(cluster_command, "SILENCE_SECONDS", 0.1)

    async def later(*_words, **_named):
        await asyncio.sleep(0.35)

    monkeypatch.setattr(anabranch.client.produce, "produce", later)
    result = verb("produce", "--topic", "slow", input="a\n")
    assert result.stderr.count("Waiting for acknowledgements of slow: 0 s so far.\n") >= 2


def completed(words, incomplete, **environment):
    """What a shell is told of an incomplete line."""
    from click.shell_completion import ShellComplete

    from anabranch.cli.main import main

    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        found = ShellComplete(main, {}, "anabranch", "_X").get_completions([*words], incomplete)
    return [each.value for each in found]


def test_a_shell_completes_names_of_the_cluster(verb, node):
    verb("topics", "create", "--topic", "complete-me", "--partitions", "1")
    there = {"ANABRANCH_BOOTSTRAP_SERVER": node.bootstrap}
    assert completed(["topics", "describe", "--topic"], "compl", **there) == ["complete-me"]
    assert completed(["consume", "--topic"], "complete", **there) == ["complete-me"]
    assert completed(["cluster", "cordon", "--broker"], "", **there) == ["1"]
    assert completed(["groups", "describe", "--group"], "no-such", **there) == []
    elsewhere = ["topics", "describe", "--bootstrap-server", node.bootstrap, "--topic"]
    assert completed(elsewhere, "complete") == ["complete-me"]


def test_completion_is_silent_where_no_cluster_answers(verb):
    nowhere = {"ANABRANCH_BOOTSTRAP_SERVER": "127.0.0.1:1"}
    assert completed(["topics", "describe", "--topic"], "", **nowhere) == []
