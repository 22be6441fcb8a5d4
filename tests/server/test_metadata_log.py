"""Following the active controller over a real connection: what is taken, and what stops a node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from controller_kit import FEW_BYTES, SECONDS, Follower, Host, eventually, topic

from anabranch.core.controller.controller import METADATA_KEY
from anabranch.core.metadata.batches import encode_batch
from anabranch.core.metadata.features import bootstrap_records
from anabranch.core.metadata.following.checkpoints import checkpoint_name, checkpoints
from anabranch.core.metadata.following.copy import MetadataCopy
from anabranch.core.metadata.following.own_snapshots import OwnSnapshots
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.types import TopicId
from anabranch.core.wire.metadata_records import RemoveTopicRecord
from anabranch.server.files import RealFiles


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    started = await Host(tmp_path / "store.db").start()
    yield started
    await started.stop()


async def test_every_commit_arrives_as_image_and_delta(host: Host, tmp_path: Path) -> None:
    follower = Follower(tmp_path / "copy", host.channel())
    await follower.loop.start()
    await host.commit(topic(1), topic(2))
    await follower.caught_up(host)
    await host.commit(RemoveTopicRecord(topic_id=TopicId((1).to_bytes(16))))
    await follower.caught_up(host)
    assert follower.image == host.image
    assert [each.name for each in follower.deltas[-1].deleted_topics] == ["t1"]
    await follower.loop.stop()


async def test_a_copy_goes_on_where_it_ended(host: Host, tmp_path: Path) -> None:
    first = Follower(tmp_path / "copy", host.channel())
    await first.loop.start()
    await host.commit(topic(1))
    await first.caught_up(host)
    await first.loop.stop()
    await host.commit(topic(2))
    again = Follower(tmp_path / "copy", host.channel())
    assert "t1" in again.copy.image.topic_ids_by_name
    await again.loop.start()
    await again.caught_up(host)
    assert again.image == host.image and again.sentences == []
    await again.loop.stop()


async def trimmed(host: Host) -> None:
    """Commit until the controller serves its first records in a snapshot only. Each snapshot is
    waited for: how many records that takes does not depend on how long one is being made."""
    number = end = 0
    while host.shell.controller.log.start_offset == 0:
        number += 1
        await host.commit(*(topic(number * 100 + each) for each in range(100)))
        async with asyncio.timeout(SECONDS):
            while (made := await host.store.load_snapshot()) is None or made.end_offset <= end:  # noqa: ASYNC110
                await asyncio.sleep(0.002)
        end = made.end_offset


async def test_who_is_far_behind_loads_the_snapshot_in_pieces(
    tmp_path: Path,
) -> None:
    host = await Host(tmp_path / "store.db", **{FEW_BYTES: "2000"}).start()
    await trimmed(host)
    follower = Follower(tmp_path / "copy", host.channel(), piece_bytes=1000)
    await follower.loop.start()
    await follower.caught_up(host)
    assert follower.image == host.image
    assert follower.copy.log.start_offset > 0
    snapshots = checkpoints(RealFiles(), str(tmp_path / "copy" / "__cluster_metadata-0"))
    assert snapshots[0][0] == follower.copy.log.start_offset
    await follower.loop.stop()
    reopened = MetadataCopy.open(RealFiles(), str(tmp_path / "copy"), 1)
    assert reopened.image == host.image
    reopened.close()
    await host.stop()


async def test_a_copy_is_snapshotted_and_trimmed_by_bytes(host: Host, tmp_path: Path) -> None:
    """`metadata.log.max.record.bytes.between.snapshots`; two snapshots are kept."""
    follower = Follower(tmp_path / "copy", host.channel(), **{FEW_BYTES: "3000"})
    await follower.loop.start()
    ends: set[int] = set()
    folder = follower.copy.folder

    def newer() -> bool:
        return any(each[0] not in ends for each in checkpoints(RealFiles(), folder))

    for number in range(1, 6):
        await host.commit(*(topic(number * 100 + each) for each in range(100)))
        await follower.caught_up(host)
        await eventually(newer)
        ends |= {each[0] for each in checkpoints(RealFiles(), folder)}
    # A new snapshot is there before the one that it makes superfluous goes.
    await eventually(lambda: len(checkpoints(RealFiles(), folder)) == 2)
    kept = checkpoints(RealFiles(), folder)
    assert len(ends) > 2
    await eventually(lambda: follower.copy.log.start_offset == kept[-1][0])
    await follower.loop.stop()
    reopened = MetadataCopy.open(RealFiles(), str(tmp_path / "copy"), 1)
    assert reopened.image == host.image
    reopened.close()


async def test_whole_segments_before_the_snapshots_go(host: Host, tmp_path: Path) -> None:
    follower = Follower(tmp_path / "copy", host.channel())
    await follower.loop.start()
    files = RealFiles()
    for number in range(1, 4):
        await host.commit(topic(number))
        await follower.caught_up(host)
        follower.copy.write_snapshot(follower.copy.image, number)
        follower.copy.log.roll(number)
    follower.copy.trim(10)
    segments = [name for name in files.list(follower.copy.folder) if name.endswith(".log")]
    oldest = checkpoints(files, follower.copy.folder)[-1][0]
    assert min(int(name.split(".")[0]) for name in segments) == oldest
    assert not [name for name in files.list(follower.copy.folder) if name.endswith(".deleted")]
    await follower.loop.stop()


def test_a_snapshot_is_due_by_bytes_or_by_time(tmp_path: Path) -> None:
    config = BrokerConfig.of({FEW_BYTES: "1000", "metadata.log.max.snapshot.interval.ms": "60000"})
    copy = MetadataCopy.open(RealFiles(), str(tmp_path), 1)
    own = OwnSnapshots(copy, config, 1)
    assert own.due(60_001) is None, "nothing new"
    copy.bytes_since_snapshot = 1
    assert own.due(60_000) is None
    assert own.due(60_001) is copy.image
    copy.bytes_since_snapshot = 1000
    assert own.due(60_002) is None, "one is under way"
    own.ended()
    copy.bytes_since_snapshot = 999
    assert own.due(120_000) is None
    copy.bytes_since_snapshot = 1000
    assert own.due(60_002) is copy.image
    assert copy.bytes_since_snapshot == 0
    copy.close()


def test_a_torn_snapshot_is_passed_over(tmp_path: Path) -> None:
    copy = MetadataCopy.open(RealFiles(), str(tmp_path), 1)
    copy.write_snapshot(copy.image, 1)
    Path(copy.folder, checkpoint_name(9, 1)).write_bytes(b"torn")
    copy.close()
    reopened = MetadataCopy.open(RealFiles(), str(tmp_path), 1)
    assert reopened.image.offset == -1
    reopened.close()


def test_a_snapshot_that_rotted_is_passed_over(tmp_path: Path) -> None:
    """Any bit of it may be another than what was written."""
    copy = MetadataCopy.open(RealFiles(), str(tmp_path), 1)
    records = bootstrap_records(2)
    copy.append(encode_batch(records, base_offset=0, epoch=1, now_ms=1), 1)
    copy.write_snapshot(copy.image, 1)
    image = copy.image
    copy.close()
    path = Path(copy.folder, checkpoint_name(image.next_offset, 1))
    sound = path.read_bytes()
    for position in range(len(sound)):
        rotten = bytearray(sound)
        rotten[position] ^= 0x10
        path.write_bytes(rotten)
        reopened = MetadataCopy.open(RealFiles(), str(tmp_path), 1)
        assert reopened.image == image, position
        reopened.close()


async def test_a_controller_of_another_cluster_stops_the_node(host: Host, tmp_path: Path) -> None:
    follower = Follower(tmp_path / "copy", host.channel(), "another")
    await follower.loop.start()
    await eventually(lambda: follower.sentences)
    assert "belongs to another cluster than another" in follower.sentences[0]
    assert follower.copy.image.offset == -1
    await follower.loop.stop()


async def copied(host: Host, folder: Path) -> None:
    """A copy of everything that the controller has committed."""
    follower = Follower(folder, host.channel())
    await follower.loop.start()
    await follower.caught_up(host)
    await follower.loop.stop()


async def test_a_store_that_went_back_stops_the_node(host: Host, tmp_path: Path) -> None:
    await host.commit(topic(1), topic(2), topic(3))
    await copied(host, tmp_path / "copy")
    other = await Host(tmp_path / "other.db").start()
    await other.commit()
    follower = Follower(tmp_path / "copy", other.channel())
    await follower.loop.start()
    await eventually(lambda: follower.sentences)
    assert "went back to offset" in follower.sentences[0]
    assert "anabranch metadata restore" in follower.sentences[0]
    assert "t3" in follower.copy.image.topic_ids_by_name, "nothing was unlearnt"
    await follower.loop.stop()
    await other.stop()


async def test_a_store_with_other_records_stops_the_node(host: Host, tmp_path: Path) -> None:
    await host.commit(topic(1))
    await copied(host, tmp_path / "copy")
    other = await Host(tmp_path / "other.db").start()
    for number in range(5, 9):
        await other.commit(topic(number))
    follower = Follower(tmp_path / "copy", other.channel())
    await follower.loop.start()
    await eventually(lambda: follower.sentences)
    assert "has other records at offset" in follower.sentences[0]
    await follower.loop.stop()
    await other.stop()


@pytest.mark.parametrize("passed", [False, True], ids=["behind the copy", "beyond the copy"])
async def test_a_snapshot_of_a_store_that_went_back_is_not_loaded(
    host: Host, tmp_path: Path, passed: bool
) -> None:
    """The copy's last batch lies before what is served, so that it cannot be compared: the snapshot
    in its place ends before the copy does, or is of an older epoch."""
    if passed:
        await host.shell.stop()
        for _ in range(3):  # some epochs more
            again = await Host(tmp_path / "store.db").start()
            await again.stop()
        host = await Host(tmp_path / "store.db").start()
    await host.commit(*(topic(each) for each in range(2 if passed else 2000)))
    await copied(host, tmp_path / "copy")
    other = await Host(tmp_path / "other.db", **{FEW_BYTES: "2000"}).start()
    await trimmed(other)
    while passed and other.shell.controller.log.start_offset <= host.image.next_offset:
        await other.commit(*(topic(9000 + each) for each in range(100)))
    follower = Follower(tmp_path / "copy", other.channel())
    before = follower.copy.image
    assert other.shell.controller.log.start_offset > follower.copy.end.last_base_offset
    assert (other.image.next_offset > before.next_offset) is passed
    await follower.loop.start()
    await eventually(lambda: follower.sentences)
    assert "went back" in follower.sentences[0]
    assert follower.copy.image == before and follower.copy.log.end_offset == before.next_offset
    await follower.loop.stop()
    await other.stop()
    if passed:
        await host.stop()


async def test_a_log_that_diverges_under_a_live_connection_stops_the_node(
    host: Host, tmp_path: Path
) -> None:
    """KIP-595's diverging epoch: for a follower of committed records it means a set-back store."""
    follower = Follower(tmp_path / "copy", host.channel())
    await follower.loop.start()
    await host.commit(topic(1))
    await follower.caught_up(host)
    generation = follower.loop._channel.generation
    host.shell.controller.log._batches.pop()
    host.shell.controller.log._firsts.pop()
    host.shell.on_changed((METADATA_KEY,))
    await eventually(lambda: follower.sentences)
    assert "went back to offset" in follower.sentences[0]
    assert "anabranch metadata restore" in follower.sentences[0]
    assert follower.loop._channel.generation == generation
    await follower.loop.stop()


async def test_a_node_that_fails_to_follow_stops(host: Host, tmp_path: Path) -> None:
    """Else it would go on with what it knew, and say nothing."""
    follower = Follower(tmp_path / "copy", host.channel())

    def fail(*_what: object) -> None:
        raise ValueError("a bug")

    follower.loop.on_image = fail
    await follower.loop.start()
    await host.commit(topic(1))
    await eventually(lambda: follower.sentences)
    assert follower.sentences == ["following the metadata failed: ValueError: a bug"]
    await follower.loop.stop()
