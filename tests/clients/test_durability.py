"""R5: a node process keeps what it acknowledged: killed, stopped, damaged on disk.

The cuts run in the test's process on the log's own files, as the node opens them; a few of them run
on the real process. What was flushed must always be there, in order, and nothing may be made up.
"""

from __future__ import annotations

import shutil
import signal
import threading
import time

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.adapters import CODECS, SECONDS, Confluent, Sent

from anabranch.core.log.checkpoints import format_offsets
from anabranch.core.log.config import LogConfig
from anabranch.core.log.log import Log
from anabranch.core.types import ZERO_TOPIC_ID, TopicPartition
from anabranch.core.wire.batch import walk
from anabranch.core.wire.records import decode_records
from anabranch.server.files import RealFiles

SEGMENT = "00000000000000000000"
NEVER = str(2**63 - 1)


class Stream:
    """A producer that goes on until it is told to stop and notes what was acknowledged."""

    def __init__(self, bootstrap, first):
        self.acknowledged = []
        self._next = first
        self._stop = False
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 1, "batch.num.messages": 50,
             "enable.idempotence": True, "message.timeout.ms": 3000, "log_level": 0}
        )  # fmt: skip
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _note(self, fault, message):
        if fault is None:
            self.acknowledged.append((message.offset(), int(message.value())))

    def _run(self):
        while not self._stop:
            if len(self._producer) < 2000:
                self._producer.produce(
                    "t", b"%-1000d" % self._next, partition=0, on_delivery=self._note
                )
                self._next += 1
            self._producer.poll(0 if len(self._producer) < 2000 else 0.01)

    def until(self, count):
        end = time.monotonic() + SECONDS
        while len(self.acknowledged) < count:
            assert time.monotonic() < end, f"{len(self.acknowledged)} of {count} acknowledged"
            time.sleep(0.002)

    def end(self):
        """Stop; what is still unanswered is given up. Returns the first number never used."""
        self._stop = True
        self._thread.join(SECONDS)
        self._producer.purge()
        self._producer.flush(SECONDS)
        return self._next


def make_topic(bootstrap, **configs):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 1, 1, config=configs)])["t"].result(SECONDS)


def read_all(bootstrap):
    client = Confluent(bootstrap)
    first, end = client.ends("t")
    return client.consume("t", end - first, offset=first)


@pytest.mark.parametrize("flush", [NEVER, "1"], ids=["page-cache", "fsync"])
def test_r5_sigkill_while_acks_come_in_twice_in_a_row(start, flush):
    settings = {"log.flush.interval.messages": flush, "log.segment.bytes": "1048576"}
    node = start(**settings).ready()
    make_topic(node.bootstrap)
    expected, first = {}, 0
    for _ in range(2):
        stream = Stream(node.bootstrap, first)
        stream.until(1500)
        node.kill()
        first = stream.end()
        expected.update(stream.acknowledged)
        node = start(port=node.port, **settings).ready()
        seen = read_all(node.bootstrap)
        assert [each.offset for each in seen] == list(range(len(seen)))
        values = {each.offset: int(each.record.value) for each in seen}
        assert {offset: values.get(offset) for offset in expected} == expected
        assert list(values.values()) == sorted(set(values.values())), "once, and in order"


def test_sigterm_leaves_a_clean_folder_and_the_next_start_scans_nothing(start):
    node = start().ready()
    make_topic(node.bootstrap)
    stream = Stream(node.bootstrap, 0)
    stream.until(500)
    node.process.send_signal(signal.SIGTERM)
    code, errors = node.ended()
    stream.end()
    assert code == 0, errors
    assert (node.folder / ".kafka_cleanshutdown").exists()
    log = opened(node.folder / "t-0", clean=True)
    assert log.recovery.scanned_bytes == log.recovery.cut_bytes == 0
    assert log.flushed_offset == log.end_offset
    again = start().ready()
    values = {each.offset: int(each.record.value) for each in read_all(again.bootstrap)}
    assert {offset: values.get(offset) for offset, _ in stream.acknowledged} == dict(
        stream.acknowledged
    )


def opened(folder, *, recovery_point=0, clean=False):
    return Log.open(
        RealFiles(), str(folder), TopicPartition("t", 0), ZERO_TOPIC_ID, LogConfig(),
        now_ms=1, recovery_point=recovery_point, clean=clean,
    )  # fmt: skip


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The folder of a node that was killed with batches of every codec in its active segment."""
    from tests.server.node_kit import ProcessNode

    folder = tmp_path_factory.mktemp("killed")
    node = ProcessNode(folder, **{"log.index.interval.bytes": "256"}).start()
    try:
        node.ready()
        make_topic(node.bootstrap)
        for turn in range(3):
            for codec in CODECS:
                records = [Sent(b"%d" % n, b"%d " % turn * 20, (), 1000 + n) for n in range(12)]
                Confluent(node.bootstrap).produce("t", records, codec=codec)
    finally:
        node.close()
    return folder


def batches_of(folder):
    return list(walk((folder / "t-0" / f"{SEGMENT}.log").read_bytes()))


def test_a_cut_at_every_byte_of_the_last_three_batches(killed, tmp_path):
    shutil.copytree(killed, tmp_path / "node")
    segment = tmp_path / "node" / "t-0" / f"{SEGMENT}.log"
    whole, batches = segment.read_bytes(), batches_of(tmp_path / "node")
    flushed = batches[-3][1].base_offset
    for length in range(batches[-3][0], len(whole)):
        segment.write_bytes(whole[:length])
        log = opened(segment.parent, recovery_point=flushed)
        kept = [header for position, header in batches if position + header.size_bytes <= length]
        assert log.end_offset == kept[-1].next_offset >= flushed
        size = kept[-1].next_offset and sum(each.size_bytes for each in kept)
        assert log.recovery.cut_bytes == length - size
        assert segment.stat().st_size == size
        log.close(clean=False)


def test_a_zeroed_page_anywhere_after_the_recovery_point(killed, tmp_path):
    shutil.copytree(killed, tmp_path / "node")
    segment = tmp_path / "node" / "t-0" / f"{SEGMENT}.log"
    whole, batches = segment.read_bytes(), batches_of(tmp_path / "node")
    position, header = batches[4]
    for start_byte in range(position, len(whole), 97):
        end_byte = min(start_byte + 4096, len(whole))
        segment.write_bytes(whole[:start_byte] + bytes(end_byte - start_byte) + whole[end_byte:])
        log = opened(segment.parent, recovery_point=header.base_offset)
        kept = segment.read_bytes()
        assert log.end_offset >= header.base_offset
        assert kept == whole[: len(kept)], "a prefix, and nothing else"
        log.close(clean=False)


@pytest.mark.parametrize("batch", [-1, -2, -3])
@pytest.mark.parametrize("into", [5, 40, -1], ids=["prefix", "header", "last-byte"])
def test_the_process_starts_from_a_torn_segment(killed, start, tmp_path, batch, into):
    folder = copy_with_recovery_point(killed, tmp_path, batches_of(killed)[-3][1].base_offset)
    segment = folder / "t-0" / f"{SEGMENT}.log"
    position, header = batches_of(folder)[batch]
    length = position + (into if into > 0 else header.size_bytes - 1)
    with segment.open("r+b") as file:
        file.truncate(length)
    assert served(start(folder)) == first_records(killed, header.base_offset)


def test_the_process_starts_from_a_zeroed_page(killed, start, tmp_path):
    position, header = batches_of(killed)[-3]
    folder = copy_with_recovery_point(killed, tmp_path, header.base_offset)
    with (folder / "t-0" / f"{SEGMENT}.log").open("r+b") as file:
        file.seek(position + 70)
        file.write(bytes(4096))
    assert served(start(folder)) == first_records(killed, header.base_offset)


@pytest.mark.parametrize("suffix", [".index", ".timeindex", "all"])
def test_the_process_starts_without_an_index(killed, start, tmp_path, suffix):
    folder = copy_with_recovery_point(killed, tmp_path, 0)
    for path in (folder / "t-0").iterdir():
        if path.suffix == suffix or (suffix == "all" and path.suffix != ".log"):
            if path.name != "partition.metadata":
                path.unlink()
    assert served(start(folder)) == first_records(killed, batches_of(killed)[-1][1].next_offset)


def copy_with_recovery_point(killed, tmp_path, offset):
    folder = tmp_path / "node"
    shutil.copytree(killed, folder)
    point = folder / "recovery-point-offset-checkpoint"
    point.write_bytes(format_offsets({TopicPartition("t", 0): offset}))
    return folder


def served(node):
    node.ready()
    return [(each.offset, each.record.key, each.record.value) for each in read_all(node.bootstrap)]


def first_records(folder, end_offset):
    found = (folder / "t-0" / f"{SEGMENT}.log").read_bytes()
    return [
        (each.offset, each.key, each.value)
        for position, header in walk(found)
        if header.base_offset < end_offset
        for each in decode_records(found, position)
    ]
