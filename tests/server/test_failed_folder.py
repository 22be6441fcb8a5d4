"""One of several folders of a running broker fails: its leaderships move, the rest stays. KIP-858."""

from __future__ import annotations

import asyncio
import shutil
import signal

import confluent_kafka
import pytest
from click.testing import CliRunner
from confluent_kafka.admin import NewTopic
from tests.clients.members import until
from tests.server.node_kit import START_SECONDS
from tests.server.three_kit import (
    IDS,
    PARTITIONS,
    Acks,
    bootstrap_of,
    count_of,
    create_both,
    is_whole,
    partitions_of,
    running,
    three_processes,
)

from anabranch.cli.cluster import command
from anabranch.client.admin import describe_log_dirs
from anabranch.client.cluster import Cluster
from anabranch.client.overview import controller_of
from anabranch.core.log.checkpoints import HIGH_WATERMARKS

SOON = "200"
"""Checkpoints so often that a folder that is gone is noticed soon."""


@pytest.fixture
def processes(tmp_path):
    soon = {"replica_high_watermark_checkpoint_interval_ms": SOON}
    with running(three_processes(tmp_path, folders="a,b", **soon)) as started:
        yield started


def asked(bootstrap, work):
    async def ask():
        async with Cluster(bootstrap) as cluster:
            return await work(cluster)

    return asyncio.run(ask())


def places_in(bootstrap, broker_id, folder):
    """Partitions of `u` that a broker keeps in a folder."""

    async def look(cluster):
        folders = await describe_log_dirs(cluster, broker_id)
        (found,) = [each for each in folders if each.log_dir == str(folder)]
        return {
            part.partition_index
            for topic in found.topics
            if topic.name == "u"
            for part in topic.partitions
        }

    return asked(bootstrap, look)


def partitions(admin):
    return partitions_of(admin, "u", PARTITIONS)


def write_everywhere(bootstrap):
    """A record into every partition of `u`; none may fail."""
    failures = []
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for index in range(PARTITIONS):
        producer.produce(
            "u", b"x", partition=index,
            on_delivery=lambda error, _: error and failures.append(error),
        )  # fmt: skip
    assert producer.flush(30) == 0
    assert not failures


def two_folders(processes, tmp_path):
    """A cluster with topics: its address, an admin client, the second folder of the controller's
    broker, and which partitions of `u` lie there."""
    bootstrap = bootstrap_of(processes)
    admin = create_both(bootstrap)
    broker_id = asked(bootstrap, controller_of).controller_id
    folders = [tmp_path / str(broker_id) / name for name in "ab"]

    def hosted():
        held = [places_in(bootstrap, broker_id, each) for each in folders]
        return held if sum(map(len, held)) == PARTITIONS else None

    folder, there = folders[1], until(hosted, "all replicas of `u`")[1]
    assert there and set(partitions(admin)) - there, "replicas in both folders"
    return bootstrap, admin, folder, there


@pytest.mark.slow
def test_leaderships_leave_a_folder_that_is_gone_and_only_they(processes, tmp_path):
    bootstrap, admin, folder, there = two_folders(processes, tmp_path)
    broker_id = int(folder.parent.name)
    led = {index for index, each in partitions(admin).items() if each.leader == broker_id}
    assert there & led and led - there, "leaderships in both folders"
    acks = Acks(bootstrap)
    until(lambda: len(acks.times) > 100)

    folder.rename(folder.with_name("away"))
    write_everywhere(bootstrap)  # the broker finds out when it writes what it holds there
    until(lambda: all(partitions(admin)[each].leader != broker_id for each in there & led))
    until(lambda: all(broker_id not in partitions(admin)[each].isrs for each in there))
    now = partitions(admin)
    assert all(now[each].leader >= 0 for each in now)
    assert all(now[each].leader == broker_id for each in led - there)
    assert all(broker_id in now[each].isrs for each in set(now) - there)
    before = len(acks.times)
    until(lambda: len(acks.times) > before + 100)
    write_everywhere(bootstrap)
    acks.stop()
    assert not acks.failures
    assert count_of(bootstrap) == len(acks.times)

    node = processes[broker_id]
    node.process.send_signal(signal.SIGTERM)
    _, errors = node.process.communicate(timeout=START_SECONDS)
    assert "a log folder is offline" in errors
    folder.with_name("away").rename(folder)
    node.start().ready()
    until(lambda: is_whole(bootstrap))
    assert places_in(bootstrap, broker_id, folder) == there


def test_a_folder_that_is_gone_is_noticed_though_nobody_writes_there(processes, tmp_path):
    bootstrap, admin, folder, there = two_folders(processes, tmp_path)
    broker_id = int(folder.parent.name)
    checkpoint = folder / HIGH_WATERMARKS
    until(
        lambda: (
            checkpoint.exists() and all(f"u {each} 0\n" in checkpoint.read_text() for each in there)
        )
    )
    folder.rename(folder.with_name("away"))
    until(lambda: all((broker_id in now.isrs) != (at in there) for at, now in placed(admin)))
    assert all(now.leader >= 0 for _, now in placed(admin))
    write_everywhere(bootstrap)


@pytest.mark.slow
def test_a_broker_starts_without_a_folder_that_cannot_be_used(processes, tmp_path):
    bootstrap, admin, folder, there = two_folders(processes, tmp_path)
    broker_id = int(folder.parent.name)
    acks = Acks(bootstrap)
    until(lambda: len(acks.times) > 100)

    node = processes[broker_id]
    node.process.send_signal(signal.SIGTERM)
    node.ended()
    folder.rename(folder.with_name("away"))
    folder.write_text("no folder")
    node.start().ready()
    until(lambda: all((broker_id in now.isrs) != (at in there) for at, now in placed(admin)))
    assert offline_folders(bootstrap, broker_id) == {str(folder)}
    said = described(bootstrap).splitlines()[-1]
    assert said.startswith(f"Broker {broker_id} cannot use {folder}: see its log for the cause")
    write_everywhere(bootstrap)
    admin.create_topics([NewTopic("v", 2, 3)])["v"].result(20)
    until(lambda: all(len(each.isrs) == 3 for _, each in placed(admin, "v", 2)))
    for at, now in placed(admin):
        assert now.leader >= 0
        assert now.leader != broker_id or at not in there

    node.process.send_signal(signal.SIGTERM)
    _, errors = node.ended()
    assert f"{folder} is not a folder; correct log.dirs" in errors
    folder.unlink()
    folder.with_name("away").rename(folder)
    node.start().ready()
    until(lambda: is_whole(bootstrap))
    assert places_in(bootstrap, broker_id, folder) == there
    assert not offline_folders(bootstrap, broker_id)
    assert "cannot use" not in described(bootstrap)
    acks.stop()
    assert not acks.failures
    assert count_of(bootstrap) == len(acks.times)


def placed(admin, topic="u", count=PARTITIONS):
    """The partitions of a topic with their indexes, as the cluster tells of them."""
    return partitions_of(admin, topic, count).items()


def offline_folders(bootstrap, broker_id):
    """The folders that a broker says it cannot use."""

    async def look(cluster):
        return {
            each.log_dir for each in await describe_log_dirs(cluster, broker_id) if each.error_code
        }

    return asked(bootstrap, look)


def described(bootstrap):
    """What `anabranch cluster describe` prints."""
    done = CliRunner().invoke(command, ["describe", "--bootstrap-server", bootstrap])
    assert done.exit_code == 0, done.output
    return done.output


def first_of(bootstrap, topic, index):
    """The value of a partition's first record."""
    address = {"bootstrap.servers": bootstrap, "group.id": "g", "log_level": 0}
    reader = confluent_kafka.Consumer(address)
    reader.assign([confluent_kafka.TopicPartition(topic, index, 0)])
    found = []
    until(lambda: found.append(reader.poll(0.1)) or (found[-1] and not found[-1].error()), 20)
    reader.close()
    return found[-1].value()


def test_a_log_that_rots_under_its_leader_is_led_by_another_and_copied_anew(processes, tmp_path):
    """Bits of the disk turned; the other two have everything."""
    bootstrap = bootstrap_of(processes)
    admin = create_both(bootstrap)
    write_everywhere(bootstrap)
    leader = partitions(admin)[0].leader
    (path,) = (tmp_path / str(leader)).glob("?/u-0/*.log")
    with path.open("r+b") as file:
        file.seek(16)
        file.write(b"\xff")  # the magic of the first batch
    assert first_of(bootstrap, "u", 0) == b"x"
    until(lambda: partitions(admin)[0].leader not in (leader, -1))
    assert leader in {each.leader for each in partitions(admin).values()}, "it leads the others"
    write_everywhere(bootstrap)

    node = processes[leader]
    node.process.send_signal(signal.SIGTERM)
    node.ended()
    shutil.rmtree(path.parent)
    node.start().ready()
    until(lambda: is_whole(bootstrap))
    assert first_of(bootstrap, "u", 0) == b"x"


def test_when_no_folder_is_left_the_broker_stops(processes, tmp_path):
    bootstrap = bootstrap_of(processes)
    create_both(bootstrap)
    active = asked(bootstrap, controller_of).controller_id
    broker_id = next(each for each in IDS if each != active)
    for name in "ab":
        folder = tmp_path / str(broker_id) / name
        folder.rename(folder.with_name(f"away-{name}"))
    write_everywhere(bootstrap)
    code, errors = processes[broker_id].ended()
    assert code == 1
    said = errors.splitlines()[-1]
    assert said.startswith("Error: ") and str(tmp_path / str(broker_id)) in said
    assert "Traceback" not in errors
