"""`consume` where a partition has no leader, loses it or gets it again: the others are read."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.cli import group_reader, record_reader
from anabranch.cli.cluster_command import Refused
from anabranch.client.cluster import Cluster
from anabranch.client.membership import Membership
from anabranch.testing import LocalCluster


@pytest.fixture(scope="module")
def pair():
    with LocalCluster(brokers=2) as running:
        yield running


async def texts(reader, *wanted):
    """Polls until these have come, and nothing else."""
    seen = []
    async with asyncio.timeout(20):
        while len(seen) < len(wanted):
            records = await reader.poll()
            seen += [bytes(record.value).decode() for _, record in records]
            reader.shown(records, len(records))
    assert sorted(seen) == sorted(wanted)


@pytest.mark.parametrize("in_group", [False, True], ids=["alone", "in a group"])
@pytest.mark.parametrize("begins", ["led", "leaderless"])
async def test_the_others_are_read_until_it_has_a_leader_again(
    pair, against, capsys, begins, in_group
):
    topic = f"t-{begins}-{in_group}"

    async def run(*words, lines=""):
        result = await asyncio.to_thread(against(pair.bootstrap_servers), *words, input=lines)
        assert result.exit_code == 0, result.output

    async def write(text):
        await run("produce", "--topic", topic, "--partition", text[1], lines=f"{text}\n")

    async def started(cluster):
        reader = record_reader.Reader(cluster, topic, 0)
        if in_group:
            membership = Membership(cluster, topic, ())
            return group_reader.Group(cluster, topic, membership).read(reader, "latest")
        await reader.begin("earliest", None)
        return reader

    await run("topics", "create", "--topic", topic, "--replica-assignment", "1,2")
    if in_group:  # it begins where this one stops, whatever "latest" is
        await run("consume", "--topic", topic, "--group", topic, "--timeout", "1")
        await asyncio.to_thread(pair.wait_in_sync, "__consumer_offsets")
    await write("a0")
    await write("a1")
    async with Cluster(pair.bootstrap_servers) as cluster:
        if begins == "led":
            reader = await started(cluster)
            await texts(reader, "a0", "a1")
            await asyncio.to_thread(pair.stop_broker, 2)
        else:
            await asyncio.to_thread(pair.stop_broker, 2)
            reader = await started(cluster)
            await texts(reader, "a0")
        await write("b0")
        await texts(reader, "b0")
        assert reader.waiting == [1]
        await asyncio.to_thread(pair.start_broker, 2)
        await write("b1")
        await texts(reader, *(["b1"] if begins == "led" else ["a1", "b1"]))
        assert reader.waiting == []
    assert capsys.readouterr().err.count(f"Not read until there is a leader: {topic}-1.") == 1


def test_what_is_not_read_is_named_at_the_end(pair, against):
    verb = against(pair.bootstrap_servers)
    made = verb("topics", "create", "--topic", "t", "--replica-assignment", "1,2,1")
    assert made.exit_code == 0, made.output
    with pair.stop_broker(2):
        for partition in ("0", "2"):
            sent = verb("produce", "--topic", "t", "--partition", partition, input="x\n")
            assert sent.exit_code == 0, sent.output
        words = ("consume", "--topic", "t", "--from-beginning")
        ended = verb(*words, "--timeout", "1")
        assert (ended.exit_code, ended.stdout) == (1, "x\nx\n")
        assert "No leader is ready for t-1: records may be missing. `anabranch cluster status`" in (
            ended.stderr
        )
        enough = verb(*words, "--max-messages", "2", "--timeout", "20")
        assert (enough.exit_code, enough.stdout) == (0, "x\nx\n")


def test_many_partitions_are_named_in_short():
    assert record_reader.named("t", range(3)) == "t-0, t-1, t-2"
    assert record_reader.named("t", range(11)).endswith("t-9, …")


async def test_a_leader_that_is_not_there_any_more_is_none(pair, against):
    """Whoever else asks for metadata may see first that a broker is gone."""
    words = ("topics", "create", "--topic", "gone", "--replica-assignment", "1,2")
    made = await asyncio.to_thread(against(pair.bootstrap_servers), *words)
    assert made.exit_code == 0, made.output
    async with Cluster(pair.bootstrap_servers) as cluster:
        reader = record_reader.Reader(cluster, "gone", 0)
        await reader.begin("earliest", None)
        del cluster.brokers[2]
        assert await reader.poll() == []


async def test_a_partition_that_the_topic_does_not_have_any_more_is_named(pair, capsys):
    """The topic was made again with fewer while one was read."""
    await asyncio.to_thread(pair.create_topic, "fewer", partitions=2)
    async with Cluster(pair.bootstrap_servers) as cluster:
        reader = record_reader.Reader(cluster, "fewer", 0)
        await reader.begin("earliest", 1)
        assert await reader.poll() == []
        await asyncio.to_thread(pair.delete_topic, "fewer")
        await asyncio.to_thread(pair.create_topic, "fewer", partitions=1)
        with pytest.raises(Refused, match="Topic fewer has no partition 1 any more: it has 1"):
            await texts(reader, "nothing comes")
    assert "was deleted and created again" in capsys.readouterr().err
