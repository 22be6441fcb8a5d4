"""Nodes that were set up wrongly, logs of elsewhere, stores and clocks that fail (R17): one
clear line, and every acknowledged record is kept."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import time
from contextlib import suppress

import pytest
from bad_kit import SECONDS, RunningNode, eventually
from click.testing import CliRunner
from cluster_kit import IDS, TOPIC, ThreeNodes, refusal
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from tests.stores.postgres_kit import PostgresServer

from anabranch.cli.main import main
from anabranch.core.types import topic_id_text
from anabranch.core.wire.records import Record, build_batch

LOG = "00000000000000000000.log"


def running(folder, **settings):
    """A cluster for several tests, after each of which it is well."""
    made = ThreeNodes(folder, **settings)
    try:
        made.start().write()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    yield from running(tmp_path_factory.mktemp("cluster"))


@pytest.fixture
def cluster(shared):
    shared.in_sync()
    for each in shared.nodes.values():
        each.lines.clear()
    return shared


def follower_of(cluster):
    leader = cluster.partition().leader_id
    return next(each for each in reversed(IDS) if each not in (leader, cluster.active()))


def stopped(cluster, node_id):
    """Stop a node in order; it can be started again."""
    cluster.nodes[node_id].close()
    return cluster.folder / str(node_id) / f"{TOPIC}-0"


def started(cluster, node_id):
    node = cluster.nodes[node_id] = cluster.made(node_id)
    node.start().ready()
    return node


@pytest.fixture(scope="module")
def everywhere(tmp_path_factory):
    """Controllers that listen on every address of their machine, and say no other."""
    allowed = {"listener.plaintext.beyond.loopback.allow": "true"}
    yield from running(tmp_path_factory.mktemp("everywhere"), controller_host="0.0.0.0", **allowed)


@pytest.mark.slow
@pytest.mark.parametrize("listening", ["cluster", "everywhere"])
@pytest.mark.parametrize("of", [follower_of, ThreeNodes.active])
def test_a_second_node_with_an_id_that_is_taken(request, tmp_path, of, listening):
    """With a folder of its own, beside the one that serves, who may be the active controller."""
    cluster = request.getfixturevalue(listening)
    taken, active = of(cluster), cluster.active()
    wait = {"initial.broker.registration.timeout.ms": "5000"}
    twin = cluster.made(taken, tmp_path / "twin", **wait)
    try:
        line = refusal(twin)
    finally:
        twin.close()
    assert f"node.id={taken}" in line and "its own id" in line
    assert cluster.active() == active
    assert cluster.is_well()


@pytest.mark.slow
@pytest.mark.parametrize("of", [follower_of, ThreeNodes.active])
def test_a_second_node_from_a_copied_folder(cluster, tmp_path, of):
    """The one on the copy goes, and says so; the living one and its controller notice nothing."""
    taken, active = of(cluster), cluster.active()
    shutil.copytree(cluster.folder / str(taken), tmp_path / "twin")
    cluster.write()
    wait = {"initial.broker.registration.timeout.ms": "5000"}
    twin = cluster.made(taken, tmp_path / "twin", **wait)
    try:
        line = refusal(twin)
    finally:
        twin.close()
    assert f"node.id={taken}" in line and "copy of the other's folders" in line
    assert [each.process.poll() for each in cluster.nodes.values()] == [None] * len(IDS)
    assert cluster.active() == active
    assert not [each for each in cluster.nodes[taken].lines if "another process" in each]
    assert cluster.is_well()


def test_controllers_with_stores_of_their_own(tmp_path):
    """Three nodes that name one another and no store would be three clusters."""
    servers = "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"
    node = RunningNode(tmp_path / "a", **{"controller.quorum.bootstrap.servers": servers})
    line = refusal(node)
    assert "metadata.store.url: 3 controllers are listed" in line
    assert "each would form its own cluster" in line
    assert not (tmp_path / "a").exists()


def test_a_follower_with_the_log_of_another_topic(cluster):
    follower = follower_of(cluster)
    place = stopped(cluster, follower)
    metadata = place / "partition.metadata"
    cluster.partition(cluster.nodes[cluster.active()])
    text, own = metadata.read_text(), topic_id_text(cluster.topic_id)
    assert own in text
    metadata.write_text(text.replace(own, topic_id_text(b"another--topic--")))
    foreign = (place / LOG).read_bytes()
    node = started(cluster, follower)
    assert cluster.is_well()
    assert any(f"{TOPIC}-0" in line and " WARNING " in line for line in node.lines), node.lines
    kept = [each for each in place.parent.rglob(LOG) if each.parent != place]
    assert foreign in [each.read_bytes() for each in kept if TOPIC in each.parent.name]


def test_a_follower_with_a_log_that_diverged(cluster):
    """Records that a leader wrote alone before it died: they are cut off, and the cut is told."""
    known = cluster.partition()
    cluster.nodes[known.leader_id].kill()
    place = cluster.folder / str(known.leader_id) / f"{TOPIC}-0"
    end, now_ms = len(cluster.acked), int(time.time() * 1000)
    records = [Record(end + each, now_ms, b"k", b"alone") for each in range(3)]
    alone = build_batch(records, base_offset=end, leader_epoch=known.leader_epoch)
    with (place / LOG).open("ab") as log:
        log.write(alone)
    cluster.write()
    node = started(cluster, known.leader_id)
    cluster.in_sync()
    eventually(lambda: any("dropped records" in line for line in node.lines), "a line of the cut")
    assert cluster.is_well()
    assert b"alone" not in (place / LOG).read_bytes()


@pytest.fixture
def small_disk(tmp_path):
    """Does to a small volume, on which the store lies, what a test says."""
    place = tmp_path / "store"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "x", place]).returncode:
        pytest.skip("no volume can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@pytest.fixture
def cluster_on_it(small_disk, tmp_path):
    made = ThreeNodes(tmp_path, **{"delete.topic.enable": "true"})
    try:
        made.start().write()
        yield made
    finally:
        made.close()


def create(cluster, name):
    """Whether a topic can be created: whether the store takes an append."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    future = admin.create_topics([NewTopic(name, 1, 1)], request_timeout=5, operation_timeout=5)
    try:
        future[name].result(SECONDS)
    except KafkaException as fault:
        return fault.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    return True


def says(cluster, *words):
    """Whether some node has a line with all words."""
    lines = [line for node in cluster.nodes.values() for line in node.lines]
    return any(all(word in line for word in words) for line in lines)


def goes_on_after(cluster, name):
    """Nobody died of it; records were taken and are kept; with the cause gone, changes are too."""
    assert all(node.process.poll() is None for node in cluster.nodes.values())
    assert not says(cluster, "Traceback")
    eventually(lambda: create(cluster, name), "a change of the metadata", 60)
    assert cluster.is_well()


def test_a_metadata_store_on_a_full_disk(cluster_on_it, small_disk):
    """Records go on; changes of the metadata wait until there is room again."""
    cluster = cluster_on_it
    filler = small_disk / "filler"
    names = itertools.count()

    def is_full():
        """Also the room that a transaction under way gave back is taken."""
        with filler.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(512))
        return not create(cluster, f"refused-{next(names)}")

    eventually(is_full, "a change that is refused", 60)
    eventually(lambda: says(cluster, "full", str(cluster.store)), "a line that says why")
    cluster.write(idempotent=False)  # new producer ids are metadata
    filler.unlink()
    goes_on_after(cluster, "room")


@pytest.mark.slow
def test_a_metadata_store_on_a_read_only_disk(cluster_on_it, small_disk):
    """No node starts, each says why, and with the volume as it was all is there."""
    cluster = cluster_on_it
    cluster.close()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    for each in IDS:
        line = refusal(cluster.made(each))
        assert str(cluster.store) in line and "read-only" in line
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    for each in IDS:
        cluster.nodes[each] = cluster.made(each)
        cluster.nodes[each].start()
    for node in cluster.nodes.values():
        node.ready()
    cluster.in_sync()
    assert cluster.is_well()


def test_a_node_whose_metadata_store_cannot_be_opened(tmp_path, small_disk):
    """A read-only volume, a folder in its place, a file that is none of SQLite's."""
    (small_disk / "folder").mkdir()
    (small_disk / "text").write_text("no database " * 100)
    (small_disk / "empty").touch()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    for name in ("folder", "text", "empty", "missing"):
        url = f"sqlite://{small_disk / name}"
        node = RunningNode(tmp_path / name, **{"metadata.store.url": url})
        try:
            line = refusal(node)
        finally:
            node.close()
        assert str(small_disk / name) in line and "; " in line, "what and what to do"


def test_a_metadata_store_restored_beside_running_nodes(cluster, tmp_path):
    """From the folder of the one node that is stopped: its copy says where the others listen."""
    node_id = follower_of(cluster)
    stopped(cluster, node_id)
    new = tmp_path / "new.db"
    done = CliRunner().invoke(main, [
        "metadata", "restore", "--dir", str(cluster.folder / str(node_id)),
        "--set", f"metadata.store.url=sqlite://{new}",
    ])  # fmt: skip
    assert done.exit_code == 1 and "Traceback" not in done.output
    for other in set(IDS) - {node_id}:
        assert f"node {other} answers at" in done.output
    for each in ("twice", "stop all nodes", "--force"):
        assert each in done.output
    assert not new.exists()
    started(cluster, node_id)
    cluster.in_sync()
    assert cluster.is_well()


@pytest.fixture(scope="module")
def postgres():
    server = PostgresServer().start()
    yield server
    server.remove()


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0", "999"])
def test_a_postgres_store_with_another_schema(tmp_path, postgres, version):
    """Made by an older or a newer program: nothing in it is touched."""
    url = postgres.new_database()
    database = url.rpartition("/")[2]
    node = RunningNode(tmp_path / "a", **{"metadata.store.url": url})
    node.start().ready().close()
    where = "WHERE name = 'schema.version'"
    postgres.execute(database, f"UPDATE anabranch.facts SET value = '{version}' {where}")
    line = refusal(RunningNode(tmp_path / "a", **{"metadata.store.url": url}))
    assert (
        f"its schema has version {version}, but this version of Anabranch supports only 1" in line
    )
    assert "river" not in line, "no password is shown"
    postgres.execute(database, f"UPDATE anabranch.facts SET value = '1' {where}")
    again = RunningNode(tmp_path / "a", **{"metadata.store.url": url})
    again.start().ready().close()
