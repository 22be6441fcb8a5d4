"""`kafka-dump-log.sh`: Kafka's own reader of segments and indexes, on both servers' folders."""

from __future__ import annotations

import re
from pathlib import Path

from compat.families.console import CODECS, KEYED, consume, lines, produce
from compat.families.groups import commit
from compat.families.offsets import fill_at_times
from compat.families.topics import create
from compat.peer import Output, Peer
from compat.row import Failed, row

DUMP = "kafka.tools.DumpLogSegments"
BAD = ("isvalid: false", "Mismatches in", "Non-secutive", "Found timestamp mismatch", "is corrupt")
EMPTY_ENTRY = "timestamp: 0 "
"""Kafka makes room for an active segment's index ahead, and its reader takes that for an entry."""
METADATA = "__cluster_metadata-0"


def dump(peer: Peer, files: list[Path], *words: object) -> Output:
    """Dump these files; a word of rot in the output fails the row."""
    if not files:
        raise Failed("no file to dump")
    output = peer.tool(DUMP, *words, "--files", ",".join(map(str, files)))
    for line in output.lines:
        if any(bad in line for bad in BAD):
            raise Failed(line)
    return output


def files_of(peer: Peer, partition: str, ending: str) -> list[Path]:
    """Files of a partition's folder with this ending, in order."""
    return sorted((peer.log_dir / partition).glob(f"*{ending}"))


OF_THE_SENDING = re.compile(
    r"(producerId|CreateTime|LogAppendTime|crc|deleteHorizonMs|position|size): -?\w+"
)
"""Also sizes: times of records are compressed with them, and some take a byte more."""


def without_places(line: str) -> str:
    """A batch's line without what depends on when it was sent and on who sent it."""
    return OF_THE_SENDING.sub(r"\1: <n>", line)


@row("dump-records")
def dumps_records(peer: Peer) -> object:
    """Batches of every codec are read with deep iteration, each record with its sequence."""
    create(peer, "dumped")
    for number, codec in enumerate(CODECS):
        text = lines(number * 20, number * 20 + 20)
        produce(peer, "dumped", text, *KEYED, f"--compression-codec={codec}")
    segments = files_of(peer, "dumped-0", ".log")
    output = dump(peer, segments, "--deep-iteration", "--print-data-log")
    payloads = re.findall(r"payload: (\S+)", output.out)
    if payloads != [f"value-{number}" for number in range(100)]:
        raise Failed(f"{len(payloads)} payloads, or in another order")
    found = [line for line in output.lines if line.startswith(("baseOffset:", "| offset:"))]
    return [without_places(line) for line in found]


@row("dump-control-batches")
def dumps_control_batches(peer: Peer) -> object:
    """The markers that end a transaction are read."""
    create(peer, "dumped-markers")
    tool = "org.apache.kafka.tools.ProducerPerformance"
    words = ("--topic", "dumped-markers", "--record-size", 10, "--num-records", 50)
    servers = f"bootstrap.servers={peer.bootstrap}"
    peer.tool(
        tool, *words, "--throughput", -1, "--transactional-id", "d", "--producer-props", servers
    )

    def ends() -> list[str]:
        """What tells of markers; a commit is answered before they are written."""
        output = dump(peer, files_of(peer, "dumped-markers-0", ".log"), "--deep-iteration")
        return sorted(set(re.findall(r"isControl: true|endTxnMarker: \w+", output.out)))

    return peer.wait(ends, "a marker")


@row("dump-segments")
def dumps_rolled_segments(peer: Peer) -> object:
    """Segments, offset indexes and time indexes of a topic that rolls are sound."""
    create(peer, "rolled", segment_bytes=1_048_576, index_interval_bytes=100)
    tool = "org.apache.kafka.tools.ProducerPerformance"
    props = (f"bootstrap.servers={peer.bootstrap}", "batch.size=2000", "linger.ms=0")
    words = ("--topic", "rolled", "--record-size", 1000, "--num-records", 2500)
    peer.tool(tool, *words, "--throughput", -1, "--producer-props", *props)
    segments = files_of(peer, "rolled-0", ".log")
    indexes = files_of(peer, "rolled-0", ".index") + files_of(peer, "rolled-0", ".timeindex")
    closed = [file for file in indexes if file.stem != segments[-1].stem]
    batches = dump(peer, segments, "--deep-iteration", "--skip-record-metadata")
    counts = [int(count) for count in re.findall(r" count: (\d+)", batches.out)]
    for file in indexes:
        dump(peer, [file])
        dump(peer, [file], "--verify-index-only")
    sanity = dump(peer, closed, "--index-sanity-check").out.count("passed sanity check")
    return sum(counts), len(segments) > 1, sanity == len(closed)


@row("dump-time-index")
def dumps_a_time_index(peer: Peer) -> object:
    """The time index of records that came out of order agrees with them."""
    fill_at_times(peer, "dumped-times")
    output = dump(peer, files_of(peer, "dumped-times-0", ".timeindex"))
    found = [line for line in output.lines if line.startswith("timestamp:")]
    return [line for line in found if not line.startswith(EMPTY_ENTRY)]


@row("dump-producer-snapshot")
def dumps_a_producer_snapshot(peer: Peer) -> object:
    """The snapshot of producers that a rolled segment leaves is read."""
    create(peer, "snapshots", segment_bytes=1_048_576)
    for _ in range(3):
        produce(peer, "snapshots", "z" * 600_000 + "\n")
    found = peer.wait(lambda: files_of(peer, "snapshots-0", ".snapshot"), "a snapshot")
    return len(found) > 0, [line for line in dump(peer, found).lines if "producerId" in line] != []


@row("dump-offsets")
def dumps_committed_offsets(peer: Peer) -> object:
    """Committed offsets and a group's generations in __consumer_offsets are decoded.

    Kafka also writes the group before its first generation, when nothing is to be known of it.
    Anabranch also writes the topic's id, a field of Kafka's record that Kafka leaves out.
    """
    fill_at_times(peer, "dumped-group", 2)
    words = ("--topic", "dumped-group", "--group", "dumped-group", "--from-beginning")
    consume(peer, *words, "--max-messages", 8)
    commit(peer, "dumped-group", "dumped-group", 2)
    segments = sorted(peer.log_dir.glob("__consumer_offsets-*/*.log"))
    full = [file for file in segments if file.stat().st_size]
    output = dump(peer, full, "--offsets-decoder").out.replace(',"topicId":"<id>"', "")
    return sorted(
        {
            re.sub(r'"(subscription|assignment)":"[^"]*"', r'"\1":"<bytes>"', payload)
            for payload in re.findall(r"key: \{.*?dumped-group.*", output)
            if '"generation":0' not in payload
        }
    )


@row("dump-metadata")
def dumps_the_metadata_log(peer: Peer) -> object:
    """The metadata log is decoded: the broker, a topic and its partitions are in it."""
    create(peer, "named-in-metadata", 2)
    output = dump(peer, files_of(peer, METADATA, ".log"), "--cluster-metadata-decoder")
    kinds = set(re.findall(r'"type":"(\w+)"', output.out))
    wanted = {"REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "FEATURE_LEVEL_RECORD"}
    return sorted(kinds & wanted), output.out.count('"name":"named-in-metadata"')


@row("dump-metadata-snapshot")
def dumps_a_metadata_snapshot(peer: Peer) -> object:
    """A snapshot of the metadata is decoded: header, image, footer, and the offset it names."""
    for number in range(12):
        create(peer, f"snapshotted-{number}", 2)
    newest = peer.wait(lambda: files_of(peer, METADATA, ".checkpoint"), "a snapshot")[-1]
    output = dump(peer, [newest], "--cluster-metadata-decoder")
    end_offset, epoch = map(int, re.findall(r"\d+", newest.stem))
    kinds = re.findall(r'"type":"(\w+)"', output.out)
    features = sorted(set(re.findall(r'FEATURE_LEVEL_RECORD[^{]+{"name":"([a-z.]+)"', output.out)))
    if "metadata.version" not in features:
        raise Failed(f"no level of metadata.version in {newest.name}")
    return {
        "name": f"Snapshot end offset: {end_offset}, epoch: {epoch}" in output.out,
        "header": "SnapshotHeader" in output.out,
        "footer": "SnapshotFooter" in output.out,
        "features": [name for name in features if name != "share.version"],
        "kinds": sorted(set(kinds) & {"REGISTER_BROKER_RECORD", "FEATURE_LEVEL_RECORD"}),
    }
