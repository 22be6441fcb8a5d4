"""`diskless restore` and `metadata restore` beside nodes that run: refused before anything is
written, with who was seen, why, and what to do."""

from __future__ import annotations

import asyncio
import shutil
import socket
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.server.node_kit import ThreadNode, free_port
from tests.stores.objects.stored_kit import CLUSTER, RIVER, new_writer

from anabranch.cli.main import main
from anabranch.server import running_nodes
from anabranch.stores.coordinator.engines import open_coordinator
from anabranch.stores.objects.engines import open_objects

SECONDS = 30
LOCK = ".lock"


def run(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture(autouse=True)
def short_watch(monkeypatch):
    """Where nobody writes, there is nothing to wait for; who writes, writes all the time."""
    monkeypatch.setattr(running_nodes, "WATCH_S", 0.5)


class Cluster:
    """A node with its folder, and beside it the store and the coordinator of diskless topics."""

    def __init__(self, folder):
        self.folder = folder
        for name in ("node", "shared/objects"):
            (folder / name).mkdir(parents=True)
        self.urls = {
            "diskless.storage.url": f"file://{folder}/shared/objects",
            "diskless.coordinator.url": f"sqlite://{folder}/shared/diskless.db",
        }
        settings = {name.replace(".", "_"): url for name, url in self.urls.items()}
        self.clients, self.controllers = free_port(), free_port()
        self.node = ThreadNode(
            folder / "node", diskless_storage_system_enable="true", **settings,
            listeners=(
                f"PLAINTEXT://127.0.0.1:{self.clients},CONTROLLER://127.0.0.1:{self.controllers}"
            ),
        )  # fmt: skip

    def start(self):
        self.node.start()
        where = {"bootstrap.servers": self.node.bootstrap, "log_level": 0}
        topic = NewTopic("t", 1, config={"diskless.enable": "true"})
        admin = AdminClient(where)
        admin.create_topics([topic])["t"].result(SECONDS)
        producer = Producer(where)
        producer.produce("t", b"river")
        assert producer.flush(SECONDS) == 0
        return self

    def properties(self, log_dir, **more):
        """A file as it may be on another machine."""
        file = self.folder / "server.properties"
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{free_port()},CONTROLLER://127.0.0.1:0",
            **self.urls,
            "diskless.coordinator.url": f"sqlite://{self.new_coordinator}",
            "log.dirs": log_dir,
            **more,
        }
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return file

    @property
    def new_coordinator(self):
        return self.folder / "new" / "diskless.db"

    def another_machine(self):
        """The folder of a node that is stopped there: a copy, which nobody holds."""
        copy = self.folder / "copy"
        shutil.copytree(self.folder / "node", copy)
        (self.folder / "new").mkdir(exist_ok=True)
        return copy


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path)
    try:
        yield made.start()
    finally:
        made.node.close()


def files(folder):
    return sorted(str(each) for each in folder.rglob("*") if each.is_file())


def refused(done, *words):
    assert done.exit_code == 1, done.output
    assert "Traceback" not in done.output
    for each in (*words, "twice", "stop", "--force", "Nothing was changed"):
        assert each in done.output, (each, done.output)


def test_an_idle_node_of_this_machine_is_noticed_by_its_folder(cluster):
    (cluster.folder / "new").mkdir()
    before = files(cluster.folder / "shared")
    done = run("diskless", "restore", "--config", cluster.properties(cluster.folder / "node"))
    refused(done, "node 1", str(cluster.folder / "node"))
    assert not cluster.new_coordinator.exists()
    assert files(cluster.folder / "shared") == before


@pytest.mark.parametrize("place", ["", "broker-1", "node"])
def test_a_node_of_up_is_noticed_without_a_file_of_settings(tmp_path, place):
    """As `anabranch up` and small set-ups have them: folders of nodes beside the objects."""
    (tmp_path / "diskless-objects").mkdir()
    storage = f"file://{tmp_path}/diskless-objects"
    node = ThreadNode(
        tmp_path / place, free_port(), diskless_storage_system_enable="true",
        diskless_storage_url=storage, diskless_coordinator_url=f"sqlite://{tmp_path}/diskless.db",
    ).start()  # fmt: skip
    new = tmp_path / "new.db"
    words = (
        "diskless",
        "restore",
        "--storage-url",
        storage,
        "--coordinator-url",
        f"sqlite://{new}",
    )
    try:
        refused(run(*words), "node 1", str(tmp_path / place))
        assert not new.exists()
    finally:
        node.stop()
    done = run(*words)
    assert done.exit_code == 0, done.output
    assert new.exists()


def test_an_idle_node_of_another_machine_is_noticed_by_the_address_in_a_copy(cluster):
    file = cluster.properties(cluster.another_machine())
    refused(run("diskless", "restore", "--config", file), "node 1", cluster.node.bootstrap)
    assert not cluster.new_coordinator.exists()
    done = run("diskless", "restore", "--config", file, "--force")
    assert done.exit_code == 0, done.output
    assert cluster.new_coordinator.exists()


def test_an_idle_controller_is_noticed_by_the_address_in_the_settings(cluster):
    (cluster.folder / "new").mkdir()
    address = f"127.0.0.1:{cluster.controllers}"
    more = {"controller.quorum.bootstrap.servers": address}
    file = cluster.properties(cluster.folder / "nothing", **more)
    refused(run("diskless", "restore", "--config", file), address)
    assert not (cluster.folder / "nothing").exists()


def test_a_stopped_cluster_is_restored_and_its_copy_is_not_touched(cluster):
    copy = cluster.another_machine()
    cluster.node.stop()
    before = {each: Path(each).read_bytes() for each in files(copy)}
    done = run("diskless", "restore", "--config", cluster.properties(copy))
    assert done.exit_code == 0, done.output
    assert {each: Path(each).read_bytes() for each in files(copy)} == before


def test_who_does_not_answer_may_be_a_suspended_node(cluster, monkeypatch):
    monkeypatch.setattr(running_nodes, "ANSWER_S", 0.3)
    file = cluster.properties(cluster.another_machine())
    port = cluster.clients
    cluster.node.stop()
    with socket.create_server(("127.0.0.1", port)):
        done = run("diskless", "restore", "--config", file)
    refused(done, f"127.0.0.1:{port}", "does not answer")


def test_another_cluster_at_a_known_address_is_no_reason(cluster, tmp_path):
    file = cluster.properties(cluster.another_machine())
    port = cluster.clients
    cluster.node.stop()
    other = ThreadNode(tmp_path / "other", port).start()
    try:
        done = run("diskless", "restore", "--config", file)
    finally:
        other.stop()
    assert done.exit_code == 0, done.output


class Writing:
    """A broker of another machine: nothing of it is known here but what it stores."""

    def __init__(self, folder):
        self._folder = folder
        self._began, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._write()))

    async def _write(self):
        store = await open_objects(f"file://{self._folder}/objects")
        coordinator = await open_coordinator(f"sqlite://{self._folder}/old.db", CLUSTER)
        writer = await new_writer(store, coordinator)
        while not self._stop.is_set():
            await writer.write((RIVER, 1))
            self._began.set()
            await asyncio.sleep(0.05)
        await coordinator.close()
        await store.close()

    def __enter__(self):
        self._thread.start()
        assert self._began.wait(SECONDS)

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join(SECONDS)


def test_a_broker_of_another_machine_is_noticed_by_what_it_stores(tmp_path):
    place = tmp_path / "far" / "away"
    (place / "objects").mkdir(parents=True)
    new = tmp_path / "new.db"
    words = (
        "diskless", "restore", "--storage-url", f"file://{place}/objects",
        "--coordinator-url", f"sqlite://{new}",
    )  # fmt: skip
    with Writing(place):
        refused(run(*words), "broker 1 stored", "UTC", "/wal/")
        assert not new.exists()
    done = run(*words)
    assert done.exit_code == 0, done.output


def test_a_metadata_store_is_not_restored_beside_a_node_that_runs(cluster, tmp_path):
    copy = cluster.another_machine()
    new = tmp_path / "new.db"
    words = ("metadata", "restore", "--dir", copy, "--set", f"metadata.store.url=sqlite://{new}")
    refused(run(*words), "node 1", cluster.node.bootstrap)
    assert not new.exists()
    done = run(*words, "--force")
    assert done.exit_code == 0, done.output
    new.unlink()
    cluster.node.stop()
    done = run(*words)
    assert done.exit_code == 0, done.output
