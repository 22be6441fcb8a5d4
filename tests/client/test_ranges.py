"""Reading ranges of offsets through changes of the leader, and telling what is gone."""

from __future__ import annotations

import asyncio
import time

import pytest

from anabranch.client import admin, ranges
from anabranch.client.cluster import Cluster
from anabranch.client.fetch import fetch, whole_batches
from anabranch.client.produce import produce
from anabranch.client.ranges import (
    RangeLost,
    ReadingStalled,
    ReadOptions,
    read_range,
)
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.wire.batch import walk
from anabranch.core.wire.records import Record, build_batch, decode_records
from anabranch.testing import LocalCluster

SMALL = ReadOptions(part_bytes=2000, wait_ms=50, patience_seconds=30)
HASTY = ReadOptions(part_bytes=2000, wait_ms=20, patience_seconds=0.5)


def batch(count=10):
    return build_batch([Record(each, 0, None, b"x" * 100) for each in range(count)])


async def filled(cluster, name, batches):
    kept = {"retention.ms": "-1"}  # the records are of 1970
    await admin.create_topic(cluster, name, partitions=1, configs=kept)
    for _ in range(batches):
        await produce(cluster, name, 0, batch())
    return await cluster.retrying(lambda: cluster.topic(name))


async def offsets_of(parts, each=None):
    """The offsets of all records that come; `each` is called after every part."""
    found = []
    async for part in parts:
        for position, _ in walk(part.records):
            found += [record.offset for record in decode_records(part.records, position)]
        if each is not None:
            each(part)
    return found


async def test_a_range_comes_whole_in_small_parts(anabranch_session_cluster):
    async with Cluster(anabranch_session_cluster.bootstrap_servers) as cluster:
        topic = await filled(cluster, "ranges-whole", 12)
        parts = []
        reading = read_range(
            cluster, "ranges-whole", 0, 25, 75, topic_id=topic.topic_id, reading=SMALL
        )
        found = await offsets_of(reading, parts.append)
        assert found == list(range(20, 80)), "whole batches, and none that the range does not need"
        assert len(parts) > 2


async def test_reading_goes_on_with_the_next_leader():
    with LocalCluster(brokers=3) as local:
        async with Cluster(local.bootstrap_servers) as cluster:
            topic = await filled(cluster, "ranges-led", 30)
            local.wait_in_sync("ranges-led")
            killed = []

            def kill_leader(_):
                if not killed:
                    killed.append(local.leader("ranges-led"))
                    local.kill(killed[0])

            parts = read_range(
                cluster, "ranges-led", 0, 0, 300, topic_id=topic.topic_id, reading=SMALL
            )
            loop = asyncio.get_running_loop()
            found = await offsets_of(parts, kill_leader)
            assert loop.is_running() and killed
            assert found == list(range(300))


@pytest.mark.slow
async def test_a_new_leader_that_does_not_know_yet_what_was_acknowledged_is_waited_for(monkeypatch):
    monkeypatch.setattr(ranges, "GONE_SECONDS", 0)
    with LocalCluster(brokers=3) as local:
        async with Cluster(local.bootstrap_servers) as cluster:
            topic = await filled(cluster, "ranges-late", 1)
            local.wait_in_sync("ranges-late")
            leader = local.leader("ranges-late")
            local.delay(leader, ms=400)  # followers learn late that the next batch is acknowledged
            await produce(cluster, "ranges-late", 0, batch())
            local.cut(leader)
            local.cut(*{1, 2, 3} - {leader}, links="replication")
            local.kill(leader)
            judge = ranges._Range.check_end

            def heal_and_judge(state, answer):
                local.heal()
                return judge(state, answer)

            monkeypatch.setattr(ranges._Range, "check_end", heal_and_judge)
            parts = read_range(
                cluster, "ranges-late", 0, 0, 20, topic_id=topic.topic_id, reading=SMALL
            )
            assert await offsets_of(parts) == list(range(20))


async def test_offsets_that_only_a_stale_broker_lacks_are_not_lost(
    anabranch_session_cluster, monkeypatch
):
    async with Cluster(anabranch_session_cluster.bootstrap_servers) as cluster:
        await filled(cluster, "ranges-stale", 2)
        stale = [ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)]

        async def fetch_from_stale(*given, **named):
            if stale:
                raise stale.pop()
            return await fetch(*given, **named)

        monkeypatch.setattr(ranges, "fetch", fetch_from_stale)
        found = await offsets_of(read_range(cluster, "ranges-stale", 0, 0, 20, reading=SMALL))
        assert found == list(range(20))


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
)
async def test_the_time_that_the_consumer_takes_is_not_one_without_an_answer(
    anabranch_session_cluster, monkeypatch, code
):
    async with Cluster(anabranch_session_cluster.bootstrap_servers) as cluster:
        name = f"ranges-slow-{code.value}"
        await filled(cluster, name, 20)
        faults = []

        async def fetch_with_faults(*given, **named):
            if faults:
                raise faults.pop()
            return await fetch(*given, **named)

        def take_long(_):
            if not faults:
                time.sleep(HASTY.patience_seconds * 1.5)  # as a full queue holds the loop
                faults.append(ApiError(code))

        monkeypatch.setattr(ranges, "fetch", fetch_with_faults)
        parts = read_range(cluster, name, 0, 0, 40, reading=HASTY)
        assert await offsets_of(parts, take_long) == list(range(40))


async def test_deleted_offsets_are_named_with_where_to_go_on(anabranch_session_cluster):
    async with Cluster(anabranch_session_cluster.bootstrap_servers) as cluster:
        await filled(cluster, "ranges-cut", 5)
        await admin.delete_records(cluster, "ranges-cut", {0: 20})
        with pytest.raises(RangeLost, match="ranges-cut-0: offsets 5 to 19 cannot be read") as lost:
            await offsets_of(read_range(cluster, "ranges-cut", 0, 5, 40, reading=SMALL))
        assert lost.value.resume_at == 20
        with pytest.raises(RangeLost, match="offsets 5 to 9 cannot") as lost:
            await offsets_of(read_range(cluster, "ranges-cut", 0, 5, 10, reading=SMALL))
        assert lost.value.resume_at is None


@pytest.mark.parametrize(("start", "until"), [(10, 20), (25, 30)])
async def test_offsets_behind_the_log_are_named(anabranch_session_cluster, start, until):
    async with Cluster(anabranch_session_cluster.bootstrap_servers) as cluster:
        name = f"ranges-short-{start}"
        await filled(cluster, name, 1)
        with pytest.raises(RangeLost, match=rf"offsets {start} to {until - 1} .* before offset 10"):
            await offsets_of(read_range(cluster, name, 0, start, until, reading=HASTY))


async def test_another_topic_of_the_same_name_is_not_read(anabranch_session_cluster):
    async with Cluster(anabranch_session_cluster.bootstrap_servers) as cluster:
        topic = await filled(cluster, "ranges-again", 1)
        await admin.delete_topic(cluster, "ranges-again")
        with pytest.raises(RangeLost, match="was deleted: no broker knows it"):
            await offsets_of(read_range(cluster, "ranges-again", 0, 0, 10, reading=HASTY))
        await filled(cluster, "ranges-again", 2)
        parts = read_range(
            cluster, "ranges-again", 0, 0, 10, topic_id=topic.topic_id, reading=SMALL
        )
        with pytest.raises(RangeLost, match="deleted and created again"):
            await offsets_of(parts)


async def test_a_topic_that_is_replaced_while_it_is_read_ends_the_reading(
    anabranch_session_cluster,
):
    async with Cluster(anabranch_session_cluster.bootstrap_servers) as cluster:
        topic = await filled(cluster, "ranges-replaced", 20)
        parts = read_range(
            cluster, "ranges-replaced", 0, 0, 200, topic_id=topic.topic_id, reading=SMALL
        )
        first = await anext(parts)
        await admin.delete_topic(cluster, "ranges-replaced")
        await cluster.retrying(lambda: filled(cluster, "ranges-replaced", 20))
        with pytest.raises(
            RangeLost, match=rf"offsets {first.next_offset} to 199 .* created again"
        ):
            await offsets_of(parts)


async def test_what_is_no_record_batch_is_told_at_once(anabranch_session_cluster, monkeypatch):
    async with Cluster(anabranch_session_cluster.bootstrap_servers) as cluster:
        await filled(cluster, "ranges-damaged", 1)
        monkeypatch.setattr("anabranch.client.ranges.whole_batches", lambda records: (0, -1))
        with pytest.raises(ReadingStalled, match="for offset 0 is not a complete record batch"):
            await offsets_of(read_range(cluster, "ranges-damaged", 0, 0, 5, reading=SMALL))


def test_whole_batches_end_before_a_part_or_an_impossible_length():
    one, two = bytes(batch(3)), bytearray(batch(4))
    two[0:8] = (3).to_bytes(8, "big")
    assert whole_batches(one + two) == (len(one) + len(two), 7)
    assert whole_batches(one + two[:-1]) == (len(one), 3)
    two[8:12] = (5).to_bytes(4, "big")
    assert whole_batches(one + two) == (len(one), 3)
    assert whole_batches(b"") == (0, -1)
