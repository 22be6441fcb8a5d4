"""Stores, coordinators and requests that diskless topics must not get: an error with place, reason
and remedy; nothing is lost, created or left open."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from bad_kit import SECONDS, Raw, RunningNode, batch, code_of, eventually
from bench.s3_moto import s3_endpoint
from click.testing import CliRunner
from cluster_kit import refusal
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic
from node_kit import free_port

from anabranch.cli.main import main
from anabranch.core.diskless.garbage import GarbageRounds
from anabranch.core.errors import ErrorCode, StorageFault
from anabranch.core.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from anabranch.server.config import load_config
from anabranch.server.diskless.garbage_collector import Collector
from anabranch.server.diskless.stores import Stores
from anabranch.stores.coordinator.sqlite import SqliteCoordinator
from anabranch.stores.objects.engines import open_objects

ON = {"diskless.storage.system.enable": "true"}
DISKLESS = {"diskless.enable": "true"}


def opening(folder, *, cluster="first", **urls):
    """What a node's start says of its stores; they are closed again when it says nothing."""
    settings = {**ON, "diskless.storage.url": f"file://{folder}/objects"}
    settings |= {f"diskless.{name}.url": url for name, url in urls.items()}
    config = load_config(None, [
        f"log.dirs={folder}", *(f"{name}={value}" for name, value in settings.items()),
    ])  # fmt: skip

    async def open_and_close():
        stores = await Stores.open(config, cluster)
        await stores.close()

    asyncio.run(open_and_close())


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "objects").mkdir()
    return tmp_path


def files(folder):
    return sorted(each.name for each in folder.rglob("*") if each.is_file())


def refused(folder, said, **how):
    """The start is refused with these words, and nothing is there that was not before."""
    before, others = files(folder), set(threading.enumerate())
    with pytest.raises(StorageFault) as raised:
        opening(folder, **how)
    assert all(word in str(raised.value) for word in said), raised.value
    assert files(folder) == before
    eventually(
        lambda: (
            not any(
                each.name.startswith("diskless") for each in set(threading.enumerate()) - others
            )
        ),
        "no thread of a coordinator",
    )


# What a start finds.


def test_a_storage_url_that_names_nothing(folder):
    for url, said in (
        ("ftp://there", ("diskless.storage.url=ftp://there", "write file:///")),
        ("file://objects", ("must be absolute",)),
        ("file:///nowhere/at/all", ("/nowhere/at/all",)),
        ("s3://", ("names no bucket",)),
    ):
        refused(folder, said, storage=url)


def test_a_coordinator_url_that_names_nothing(folder):
    opening(folder)
    with closing(sqlite3.connect(folder / "other.db")) as other:
        other.execute("CREATE TABLE orders (id INTEGER)")
    for url, said in (
        ("mysql://x", ("diskless.coordinator.url=mysql://x", "write sqlite:///")),
        ("sqlite:///proc/none/order.db", ("/proc/none/order.db",)),
        (f"sqlite://{folder}/objects/anabranch-cluster.json", ("name another file",)),
        (f"sqlite:///{folder}/other.db", ("orders", "diskless.coordinator.url")),
    ):
        refused(folder, said, coordinator=url)


def url_of(endpoint, bucket="bucket"):
    keys = "region=us-east-1&access_key_id=i&secret_access_key=s"
    return f"s3://{bucket}/p?endpoint={endpoint}&{keys}"


def test_a_bucket_that_is_missing(folder):
    with s3_endpoint() as endpoint:
        refused(folder, ("there is no such bucket", "create it"), storage=url_of(endpoint, "none"))


class Forbidding(BaseHTTPRequestHandler):
    """A store whose keys may look, and not write."""

    def _answer(self, status, body=b""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self):
        self.send_response(404)
        self.end_headers()

    def do_PUT(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(403, b"<Error><Code>AccessDenied</Code></Error>")

    def log_message(self, *_words):
        pass


def test_keys_that_may_not_write(folder):
    with ThreadingHTTPServer(("127.0.0.1", 0), Forbidding) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        refused(folder, ("403 AccessDenied", "check the keys"), storage=url_of(endpoint))
        server.shutdown()


def test_a_store_of_another_cluster(folder):
    opening(folder)
    refused(folder, ("'first'", "'second'", "choose a folder or prefix"), cluster="second")


def test_one_coordinator_for_two_clusters(folder):
    opening(folder)
    (folder / "others").mkdir()
    said = ("belongs to cluster first", "name another database")
    refused(folder, said, cluster="second", storage=f"file://{folder}/others")


def test_a_store_that_is_not_the_coordinator_s(folder):
    """A prefix with a slip, or a volume that is not mounted: no other broker reads what is put
    there. Also before the first record, and where another coordinator was begun there."""
    opening(folder)
    others = {name: folder / name for name in ("empty", "taken", "moved")}
    for place in others.values():
        place.mkdir()
    opening(folder, storage=f"file://{others['taken']}", coordinator=f"sqlite://{folder}/b.db")
    for name in ("empty", "taken"):
        said = ("lie in another store", "correct diskless.storage.url", "mount the volume")
        refused(folder, said, storage=f"file://{others[name]}")
    shutil.copytree(folder / "objects", others["moved"], dirs_exist_ok=True)
    opening(folder, storage=f"file://{others['moved']}")


def test_a_coordinator_that_was_made_anew(folder):
    opening(folder)
    where = f"sqlite://{folder}/another.db"
    with pytest.raises(StorageFault, match="another database, which would assign offsets a second"):
        opening(folder, coordinator=where)


def test_a_coordinator_with_a_newer_schema(folder):
    opening(folder)
    with closing(sqlite3.connect(folder / "diskless.db")) as on:
        on.execute("UPDATE facts SET value = '99' WHERE name = 'schema.version'")
        on.commit()
    refused(folder, ("its schema has version 99", "a newer one"))


def test_a_store_whose_clock_is_wrong(folder):
    """Half an hour ahead or behind: what is prepared or committed stays, whatever its age."""
    for number, skew_s in enumerate((-1800, 1800)):
        place = folder / f"skewed-{number}"
        place.mkdir()
        assert asyncio.run(_kept(place, folder / f"{number}.db", skew_s)) == 3


async def _kept(place, path, skew_s):
    from tests.stores.objects.stored_kit import CLUSTER, RIVER, new_writer

    store = await open_objects(f"file://{place}")
    coordinator = await SqliteCoordinator.open(str(path), CLUSTER)
    writer = await new_writer(store, coordinator)
    committed, prepared = await writer.write((RIVER, 1)), await writer.put((RIVER, 1))
    forgotten = await writer.put((RIVER, 1))
    await coordinator.refuse([forgotten.object_id])
    await coordinator.deleted([forgotten.object_id])  # its put ends later than that
    for key in (committed, prepared.object_key, forgotten.object_key):
        held = os.stat(place / key)
        os.utime(place / key, (held.st_atime, held.st_mtime + skew_s))
    collector = Collector(coordinator, store, CLUSTER, GarbageRounds())
    await collector.collect()
    await collector.sweep()
    offsets = [each.base_offset for each in (await coordinator.commit(prepared)).verdicts]
    assert offsets == [1]
    found = [each.key async for page in store.list(f"{CLUSTER}/wal/") for each in page]
    await store.close()
    await coordinator.close()
    return len(found)


# One node whose stores are sound.


@pytest.fixture(scope="module")
def diskless(tmp_path_factory):
    folder = tmp_path_factory.mktemp("diskless")
    (folder / "objects").mkdir()
    urls = {"diskless.storage.url": f"file://{folder}/objects"}
    node = RunningNode(folder / "node", **ON, **urls, **{"auto.create.topics.enable": "false"})
    node.objects = folder / "objects"
    try:
        yield node.start().ready()
    finally:
        node.close()


def admin_of(node):
    return AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})


def create(node, name, *, config=DISKLESS, **how):
    admin = admin_of(node)
    admin.create_topics([NewTopic(name, **how, config=config)])[name].result(SECONDS)


def told(call):
    """Code and words of a refusal."""
    with pytest.raises(KafkaException) as raised:
        call()
    fault = raised.value.args[0]
    return fault.name(), fault.str()


def names(node):
    return set(admin_of(node).list_topics(timeout=SECONDS).topics)


def test_replicas_of_a_diskless_topic_that_are_chosen(diskless):
    before = names(diskless)
    factor = told(lambda: create(diskless, "three", num_partitions=1, replication_factor=3))
    assert factor[0] == "INVALID_REQUEST"
    assert "use replicationFactor=-1 or replicationFactor=1" in factor[1]
    manual = CreatableTopic(
        name="manual", num_partitions=-1, replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1])],
        configs=[CreatableTopicConfig(name="diskless.enable", value="true")],
    )  # fmt: skip
    with Raw(diskless) as client:
        answer = client.ask(CreateTopicsRequest(topics=[manual], timeout_ms=10_000), 7).topics[0]
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "placement is system-managed" in answer.error_message
    assert names(diskless) == before


@pytest.mark.parametrize(
    "setting",
    [
        {"remote.storage.enable": "true"},
        {"confluent.placement.constraints": "replicas=a:1"},
    ],
)
def test_a_setting_that_a_diskless_topic_cannot_have(diskless, setting):
    before = names(diskless)
    how = {"num_partitions": 1, "config": {**DISKLESS, **setting}}
    code, words = told(lambda: create(diskless, "forbidden", **how))
    assert code == "INVALID_CONFIG"
    (name,) = setting
    if name == "remote.storage.enable":
        assert "Tiered Storage functionality is disabled" in words
    else:
        assert name in words and "cannot be diskless" in words
    assert names(diskless) == before


def test_diskless_enable_on_a_topic_that_is_there(diskless):
    create(diskless, "classic", num_partitions=1, config={})
    entry = ConfigEntry("diskless.enable", "true", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "classic", incremental_configs=[entry])
    admin = admin_of(diskless)
    (altered,) = admin.incremental_alter_configs([resource]).values()
    code, words = told(lambda: altered.result(SECONDS))
    assert code == "INVALID_CONFIG"
    assert "Set it, and begin when its closed segments are copied" in words
    with Raw(diskless) as client:
        assert code_of(client, "classic", batch()) == 0


@pytest.mark.parametrize("text", ["TRUE", "True", " true"])
def test_diskless_enable_in_another_spelling(diskless, text):
    name = f"spelled-{text.strip()}-{len(text)}"
    create(diskless, name, num_partitions=1)
    entry = ConfigEntry("diskless.enable", text, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
    admin = admin_of(diskless)
    (altered,) = admin.incremental_alter_configs([resource]).values()
    altered.result(SECONDS)
    (described,) = admin.describe_configs([ConfigResource("topic", name)]).values()
    assert described.result(SECONDS)["diskless.enable"].value == "true"
    with Raw(diskless) as client:
        assert code_of(client, name, batch()) == 0


def test_a_transactional_batch_for_a_diskless_topic(diskless):
    create(diskless, "whole", num_partitions=1)
    producer = Producer({
        "bootstrap.servers": diskless.bootstrap, "transactional.id": "t", "log_level": 0,
    })  # fmt: skip
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    failures = []
    producer.produce(
        "whole", b"x", partition=0, on_delivery=lambda fault, _: failures.append(fault)
    )
    producer.flush(SECONDS)
    assert failures and failures[0] is not None
    with Raw(diskless) as client:
        assert diskless_end(diskless, "whole") == 0
        assert code_of(client, "whole", batch()) == 0


def diskless_end(node, topic):
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "none", "log_level": 0})
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=SECONDS)[1]
    finally:
        consumer.close()


def read(node, topic, seconds=SECONDS):
    """Values from the start; "" for each error of the partition."""
    consumer = Consumer({
        "bootstrap.servers": node.bootstrap, "group.id": "none", "log_level": 0,
        "enable.partition.eof": True, "check.crcs": True,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    try:
        messages = consumer.consume(1, seconds)
        return [message.value() for message in messages if not message.error()]
    finally:
        consumer.close()


def _cut(path):
    path.write_bytes(path.read_bytes()[:60])


def _overwrite(path):
    held = path.read_bytes()
    path.write_bytes(bytes(len(held)))


DAMAGES = {"cut": _cut, "overwritten": _overwrite, "gone": lambda path: path.unlink()}


def newest_object(node):
    found = [each for each in node.objects.rglob("wal/*/*") if each.is_file()]
    return max(found, key=lambda each: each.name)


def test_an_object_that_is_cut_overwritten_or_gone(diskless):
    damaged = {}
    for name in (*DAMAGES, "sound"):
        create(diskless, name, num_partitions=1)
        with Raw(diskless) as client:
            assert code_of(client, name, batch(value=b"kept")) == 0
        damaged[name] = newest_object(diskless)
    diskless.close()
    for name, damage in DAMAGES.items():
        damage(damaged[name])
    diskless.start().ready()
    assert read(diskless, "sound") == [b"kept"]
    for name in DAMAGES:
        diskless.lines.clear()
        assert read(diskless, name, seconds=1.0) == []
        assert damaged[name].name in diskless.says("an object cannot be read")
        assert diskless_end(diskless, name) == 1, "no offset is given back"
        with Raw(diskless) as client:
            assert code_of(client, name, batch(value=b"later")) == 0


def test_a_coordinator_restored_beside_a_running_node(diskless, tmp_path):
    new = tmp_path / "new.db"
    before = files(diskless.objects)
    done = CliRunner().invoke(main, [
        "diskless", "restore", "--storage-url", f"file://{diskless.objects}",
        "--coordinator-url", f"sqlite://{new}",
    ])  # fmt: skip
    assert done.exit_code == 1 and "Traceback" not in done.output
    for each in ("node 1 runs", str(diskless.folder), "twice", "stop all nodes", "--force"):
        assert each in done.output
    assert files(diskless.objects) == before and not new.exists()
    create(diskless, "beside", num_partitions=1)
    with Raw(diskless) as client:
        eventually(lambda: code_of(client, "beside", batch()) == 0, "a record")


@pytest.mark.slow
def test_an_older_copy_of_the_coordinator(diskless):
    """It stands last: the node does not start again before the newest copy is back."""
    place = diskless.folder / "diskless.db"
    diskless.close()
    older = diskless.folder / "older.db"
    shutil.copy(place, older)
    diskless.start().ready()
    create(diskless, "written", num_partitions=1)
    with Raw(diskless) as client:
        eventually(lambda: code_of(client, "written", batch()) == 0, "a record")
    diskless.close()
    newest = place.read_bytes()
    shutil.copy(older, place)
    before = files(diskless.objects)
    line = refusal(diskless)
    assert "it was replaced by an older copy" in line
    assert "anabranch diskless restore" in line
    assert files(diskless.objects) == before
    place.write_bytes(newest)
    diskless.start().ready()
    assert diskless_end(diskless, "written") == 1
    shutil.copy(older, place)  # while the node runs
    set_back = place.read_bytes()
    with Raw(diskless) as client:
        said = [code_of(client, "written", batch()), code_of(client, "written", batch())]
    assert said[-1] == ErrorCode.KAFKA_STORAGE_ERROR and ErrorCode.NONE not in said
    assert "anabranch diskless restore" in diskless.says("diskless records are refused")
    create(diskless, "another", num_partitions=1, config={})
    assert code_of_new(diskless, "another") == 0
    assert place.read_bytes() == set_back
    diskless.close()
    place.write_bytes(newest)
    diskless.start().ready()
    assert diskless_end(diskless, "written") == 1


# Stores that come later.


def test_a_store_that_is_away_at_the_start_refuses_no_classic_topic(tmp_path):
    port = free_port()
    url = {"diskless.storage.url": url_of(f"http://127.0.0.1:{port}")}
    quick = {"diskless.produce.commit.interval.ms": "0"}
    node = RunningNode(tmp_path / "node", **ON, **url, **quick)
    try:
        node.start().ready()
        create(node, "classic", num_partitions=1, config={})
        create(node, "diskless", num_partitions=1)
        with Raw(node) as client:
            assert code_of(client, "classic", batch()) == 0
            assert code_of(client, "diskless", batch()) == ErrorCode.KAFKA_STORAGE_ERROR
        assert "s3://bucket/p" in node.says("diskless topics wait for their stores")
        with s3_endpoint(port=port):
            eventually_taken(node, "diskless")
            assert read(node, "diskless") == [b"v"]
            assert code_of_new(node, "classic") == 0
            node.close()
    finally:
        node.close()


def code_of_new(node, topic):
    with Raw(node) as client:
        return code_of(client, topic, batch())


def eventually_taken(node, topic):
    eventually(lambda: code_of_new(node, topic) == 0, "a record that is taken")


@pytest.mark.slow
def test_a_coordinator_that_is_away_at_the_start_refuses_no_classic_topic(tmp_path):
    from tests.stores.postgres_kit import PostgresServer

    server = PostgresServer().start()
    url = server.new_database()
    server.stop()
    (tmp_path / "objects").mkdir()
    urls = {
        "diskless.storage.url": f"file://{tmp_path}/objects",
        "diskless.coordinator.url": url,
    }
    node = RunningNode(tmp_path / "node", **ON, **urls)
    try:
        node.start().ready()
        create(node, "classic", num_partitions=1, config={})
        create(node, "diskless", num_partitions=1)
        assert code_of_new(node, "classic") == 0
        assert code_of_new(node, "diskless") == ErrorCode.KAFKA_STORAGE_ERROR
        assert "coordinator" in node.says("diskless topics wait for their stores")
        server.start()
        eventually_taken(node, "diskless")
    finally:
        node.close()
        server.remove()
