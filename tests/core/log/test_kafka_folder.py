"""A folder that Kafka 4.1 wrote opens here to the same records, and our indexes are its bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.core.log.support import END, NOW_MS, read_batches

from anabranch.core.log.checkpoints import parse_meta_properties
from anabranch.core.log.config import LogConfig
from anabranch.core.log.indexes import decode_aborted
from anabranch.core.log.log import Log
from anabranch.core.log.logs import LogFolder
from anabranch.core.log.memory_files import MemoryFiles
from anabranch.core.log.producer_snapshot import decode_snapshot, encode_snapshot
from anabranch.core.types import TopicId, TopicPartition
from anabranch.core.wire.batch import read_header
from anabranch.core.wire.records import Record, decode_records

SOURCE = Path(__file__).parent / "data" / "kafka-4.1"
KEY = TopicPartition("written-by-kafka", 0)
NAME = f"kafka/{KEY}"
CONFIG = LogConfig(segment_ms=10_000, index_interval_bytes=1024)
FIRST_MS = 1_700_000_000_000


def kafka_files() -> MemoryFiles:
    files = MemoryFiles()
    files.make_dirs(NAME)
    for path in SOURCE.rglob("*"):
        if path.is_file():
            files.contents[f"kafka/{path.relative_to(SOURCE)}"] = bytearray(path.read_bytes())
    return files


def opened(files: MemoryFiles) -> tuple[LogFolder, Log]:
    folder = LogFolder(files, "kafka")
    (found,) = folder.partitions()
    assert found.topic_partition == KEY
    return folder, folder.open_log(KEY, found.topic_id or TopicId(b""), CONFIG, now_ms=NOW_MS)


def data_records(log: Log) -> list[Record]:
    records: list[Record] = []
    for batch in read_batches(log):
        if not read_header(batch).is_control:
            records += decode_records(batch)
    return records


@pytest.mark.parametrize("clean", [True, False])
def test_every_record_is_read(clean: bool) -> None:
    files = kafka_files()
    if not clean:
        del files.contents["kafka/.kafka_cleanshutdown"]
    folder, log = opened(files)
    assert (folder.clean, folder.broker_epoch) == (clean, 9 if clean else -1)
    meta = parse_meta_properties(files.read("kafka/meta.properties"))
    assert meta.cluster_id == "AAAAAAAAQACAAAAAAAAAAQ"
    assert (log.start_offset, log.end_offset, len(log.segments)) == (0, 623, 7)
    records = data_records(log)
    assert len(records) == 620
    for number, record in enumerate(records):
        assert record.timestamp == FIRST_MS + 100 * number
        assert record.key == (None if number % 7 == 0 else b"key-%d" % number)
        value = None if number % 11 == 0 else b"value-%d " % number + b"x" * 60
        assert record.value == value
        headers = (("n", str(number).encode()), ("empty", None)) if number % 5 == 0 else ()
        assert tuple(record.headers) == headers


def test_producers_epochs_and_aborted_ranges_are_kafkas() -> None:
    _, log = opened(kafka_files())
    assert log.end_offset_for_epoch(0) == (0, 623)
    aborted = log.aborted_transactions(0, END)
    assert len(aborted) == 1
    first = aborted[0].first_offset
    aborted_value = b"value-580 "
    (batch,) = [one for one in read_batches(log) if read_header(one).base_offset == first]
    assert (decode_records(batch)[0].value or b"").startswith(aborted_value)
    assert log.last_stable_offset(623) == 623
    assert len(log.producers) == 2


def test_lookup_by_timestamp() -> None:
    _, log = opened(kafka_files())
    for number in (0, 1, 109, 110, 333, 499):
        found = log.offset_for_timestamp(FIRST_MS + 100 * number - 50, upto=END)
        assert found == (FIRST_MS + 100 * number, number, 0)
    assert log.offset_for_timestamp(2 * FIRST_MS, upto=END) is None


def test_indexes_made_again_are_kafkas_bytes() -> None:
    files = kafka_files()
    del files.contents["kafka/.kafka_cleanshutdown"]
    del files.contents["kafka/recovery-point-offset-checkpoint"]
    _, log = opened(files)
    log.close(clean=True)
    for segment in log.segments:
        for suffix in (".index", ".timeindex"):
            path = segment.stem + suffix
            kept = (SOURCE / Path(path).relative_to("kafka")).read_bytes()
            assert bytes(files.contents[path]) == kept, path


def test_snapshots_and_transaction_indexes_made_again_are_kafkas() -> None:
    files = kafka_files()
    aborted = [path for path in sorted(files.contents) if path.endswith(".txnindex")]
    before = {path: bytes(files.contents.pop(path)) for path in aborted}
    _, log = opened(files)
    for path, encoded in before.items():
        log.aborted_transactions(0, END)
        log.close(clean=True)
        assert decode_aborted(encoded)
        assert bytes(files.contents[path]) == encoded
    for path in SOURCE.rglob("*.snapshot"):
        states = decode_snapshot(path.read_bytes())
        assert states is not None
        assert encode_snapshot(states) == path.read_bytes()
