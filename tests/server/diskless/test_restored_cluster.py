"""Three real brokers lose their coordinator: what they stored gives it back, and they go on."""

from __future__ import annotations

import json
import sys
import threading
import traceback

import pytest
from click.testing import CliRunner
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from anabranch.cli.main import main
from anabranch.server import running_nodes
from anabranch.server.one_machine import COORDINATOR, OBJECTS
from anabranch.testing import ClusterError, LocalCluster

SECONDS = 30.0
PARTITIONS = 3


def anabranch(verb, folder, *words):
    urls = (
        f"--storage-url=file://{folder}/{OBJECTS}",
        f"--coordinator-url=sqlite://{folder}/{COORDINATOR}",
    )
    return CliRunner().invoke(main, ["diskless", verb, *urls, "--json", *words])


def damage_in(done):
    return [each for each in json.loads(done.stdout)["findings"] if each["is_damage"]]


def lose_coordinator(folder):
    for file in folder.glob(f"{COORDINATOR}*"):
        file.unlink()


def created(servers):
    """A client that has made a diskless topic."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    topic = NewTopic("t", PARTITIONS, config={"diskless.enable": "true"})
    admin.create_topics([topic])["t"].result(SECONDS)
    return admin


def write(servers, values):
    """Have values acknowledged, each through whichever broker; (partition, offset) -> value."""
    taken, failures = {}, []

    def told(error, message):
        if error:
            failures.append(error)
        else:
            taken[message.partition(), message.offset()] = message.value()

    writes = Producer({"bootstrap.servers": servers, "log_level": 0, "enable.idempotence": True})
    for number, value in enumerate(values):
        writes.produce("t", value, partition=number % PARTITIONS, on_delivery=told)
        if number % 50 == 0:
            writes.flush(SECONDS)
    assert writes.flush(SECONDS) == 0
    assert failures == []
    return taken


def read(servers, count):
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none", "log_level": 0})
    consumer.assign([TopicPartition("t", each, OFFSET_BEGINNING) for each in range(PARTITIONS)])
    found = {}
    try:
        for _ in range(int(SECONDS / 0.2)):
            for message in consumer.consume(count, 0.2):
                assert message.error() is None, message.error()
                found[message.partition(), message.offset()] = message.value()
            if len(found) >= count:
                break
    finally:
        consumer.close()
    return found


@pytest.fixture(autouse=True)
def short_watch(monkeypatch):
    """All brokers are stopped here; who would write is in `tests/cli/test_restore_beside_nodes`."""
    monkeypatch.setattr(running_nodes, "WATCH_S", 0.1)


@pytest.fixture
def folder(tmp_path):
    """The folder of a cluster; once it has stopped, each thread of its stores ends by itself."""
    yield tmp_path / "cluster"
    for each in threading.enumerate():
        if str(tmp_path) in each.name:
            each.join(SECONDS)
            if each.is_alive():
                frames = traceback.format_stack(sys._current_frames().get(each.ident))
                pytest.fail(f"{each.name} goes on, here:\n{''.join(frames)}")


def cluster(folder):
    folder.mkdir(exist_ok=True)
    return LocalCluster(brokers=3, racks=["a", "b", "c"], folder=folder)


def test_a_lost_coordinator_is_restored_and_the_cluster_goes_on(folder):
    with cluster(folder) as first:
        servers = first.bootstrap_servers
        admin = created(servers)
        taken = write(servers, [b"%d" % each for each in range(300)])
        (deleted,) = admin.delete_records([TopicPartition("t", 1, 20)]).values()
        assert deleted.result(SECONDS).low_watermark == 20
    kept = {at: value for at, value in taken.items() if at >= (1, 20) or at[0] == 0}

    sound = anabranch("verify", folder, "--whole")
    assert sound.exit_code == 0, sound.output
    assert json.loads(sound.stdout)["manifests"] >= 1
    lose_coordinator(folder)
    with pytest.raises(ClusterError, match="anabranch diskless restore"), cluster(folder):
        pass
    lose_coordinator(folder)
    done = anabranch("restore", folder)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["later"] == [] and told["findings"] == [] and told["partitions"] == PARTITIONS
    assert anabranch("restore", folder).exit_code == 1  # it is not empty any more

    with cluster(folder) as second:
        servers = second.bootstrap_servers
        assert read(servers, len(kept)) == kept
        more = write(servers, [b"more %d" % each for each in range(30)])
        assert sorted(more) == [(each, at) for each in range(PARTITIONS) for at in range(100, 110)]
        assert read(servers, len(kept) + 30) == kept | more
    again = anabranch("verify", folder, "--whole")
    assert again.exit_code == 0, again.output


def test_consumers_get_to_the_end_where_objects_are_gone(folder):
    """Each sixth object, and the last three: their offsets are passed, and not assigned again."""
    with cluster(folder) as first:
        servers = first.bootstrap_servers
        created(servers)
        taken = write(servers, [b"%d" % each for each in range(1500)])
    objects = sorted((folder / OBJECTS).glob("*/wal/*/*"), key=lambda path: path.name)
    for path in {*objects[5::6], *objects[-3:]}:
        path.unlink()
    lose_coordinator(folder)
    assert anabranch("restore", folder).exit_code == 1
    with cluster(folder) as second:
        servers = second.bootstrap_servers
        found = read_to_the_end(servers, 500)
        assert found and found.items() < taken.items()
        more = write(servers, [b"more %d" % each for each in range(PARTITIONS)])
        assert sorted(more) == [(each, 500) for each in range(PARTITIONS)]
        assert read_to_the_end(servers, 501) == found | more


def read_to_the_end(servers, end):
    """What is read until each partition has said that this is its end."""
    config = {"bootstrap.servers": servers, "group.id": "none", "log_level": 0}
    consumer = Consumer({**config, "enable.partition.eof": True})
    consumer.assign([TopicPartition("t", each, OFFSET_BEGINNING) for each in range(PARTITIONS)])
    found, ended = {}, {}
    try:
        for message in iter(lambda: consumer.poll(SECONDS), None):
            at = message.partition(), message.offset()
            if message.error() is None:
                found[at] = message.value()
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended[at[0]] = at[1]
            if ended == dict.fromkeys(range(PARTITIONS), end):
                return found
    finally:
        consumer.close()
    raise AssertionError(f"partitions ended at {ended}, not at {end}")


def test_brokers_that_were_killed_leave_later_objects_which_are_appended_when_asked(folder):
    with cluster(folder) as first:
        servers = first.bootstrap_servers
        created(servers)
        taken = write(servers, [b"%d" % each for each in range(300)])
        for broker in first.brokers:
            first.kill(broker.broker_id)
    lose_coordinator(folder)
    done = anabranch("restore", folder, "--append-unknown")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["later"] and told["is_appended"]
    assert {each["kind"] for each in told["findings"]} == {"offsets guessed"}
    with cluster(folder) as second:
        assert read(second.bootstrap_servers, len(taken)) == taken
    assert damage_in(anabranch("verify", folder, "--whole")) == []
