"""`anabranch diskless verify` and `restore`: what people see, and the exit codes."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.stores.objects.stored_kit import CLUSTER, DELTA, RIVER, new_writer

from anabranch.cli.main import main
from anabranch.server import running_nodes
from anabranch.stores.coordinator.engines import open_coordinator
from anabranch.stores.objects.engines import open_objects


@pytest.fixture(autouse=True)
def short_watch(monkeypatch):
    """Nobody writes here."""
    monkeypatch.setattr(running_nodes, "WATCH_S", 0.0)


async def write(folder: Path) -> list[str]:
    (folder / "objects").mkdir()
    store = await open_objects(f"file://{folder}/objects")
    coordinator = await open_coordinator(f"sqlite://{folder}/diskless.db", CLUSTER)
    writer = await new_writer(store, coordinator)
    keys = [await writer.write((RIVER, 3), (DELTA, 1))]
    await writer.manifests.stop()
    keys.append(await writer.write((RIVER, 2)))
    await coordinator.close()
    await store.close()
    return keys


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A store and a coordinator: one object in a manifest, a later one in none."""
    folder = tmp_path_factory.mktemp("written")
    return folder, asyncio.run(write(folder))


@pytest.fixture
def place(written, tmp_path):
    """A copy that a test may damage, and the keys of its objects."""
    shutil.copytree(written[0], tmp_path / "copy")
    return tmp_path / "copy", written[1]


def run(verb, folder, *words, coordinator="diskless.db"):
    urls = (
        f"--storage-url=file://{folder}/objects",
        f"--coordinator-url=sqlite://{folder}/{coordinator}",
    )
    return CliRunner().invoke(main, ["diskless", verb, *urls, *words])


def test_what_is_sound_is_said_to_be_sound(place):
    folder, keys = place
    done = run("verify", folder, "--whole")
    assert done.exit_code == 0, done.output
    assert "not in a manifest" in done.output and keys[1] in done.output
    assert "2 objects" in done.output and "no faults" in done.output


def test_damage_is_named_with_its_place_and_ends_with_1(place):
    folder, keys = place
    (folder / "objects" / keys[0]).unlink()
    done = run("verify", folder, "--json")
    assert done.exit_code == 1
    [damage] = [each for each in json.loads(done.stdout)["findings"] if each["is_damage"]]
    assert (damage["kind"], damage["place"]) == ("object missing", keys[0])
    assert "river-0, river-1" in damage["detail"]


def test_urls_come_from_a_broker_s_file(place, tmp_path):
    folder, _ = place
    file = tmp_path / "server.properties"
    file.write_text(
        f"node.id=1\ndiskless.storage.url=file://{folder}/objects\n"
        f"diskless.coordinator.url=sqlite://{folder}/diskless.db\n"
    )
    done = CliRunner().invoke(main, ["diskless", "verify", "--config", str(file)])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("verb", ["verify", "restore"])
def test_a_file_without_the_coordinator_names_what_its_node_uses(place, verb):
    """One that is broker and controller has a file in its first log folder."""
    folder, _ = place
    file = folder / "server.properties"
    file.write_text(f"log.dirs={folder},{folder}/b\ndiskless.storage.url=file://{folder}/objects\n")
    if verb == "restore":
        (folder / "diskless.db").unlink()
    done = CliRunner().invoke(main, ["diskless", verb, "--config", str(file)])
    assert done.exit_code == 0, done.output
    assert (folder / "diskless.db").exists()
    with file.open("a") as more:
        more.write("process.roles=broker\ncontroller.quorum.bootstrap.servers=127.0.0.1:9\n")
    done = CliRunner().invoke(main, ["diskless", verb, "--config", str(file)])
    assert done.exit_code == 2 and "Give store and coordinator" in done.output


def test_a_lost_coordinator_is_restored_and_later_objects_are_listed(place):
    folder, keys = place
    done = run("restore", folder, coordinator="new.db")
    assert done.exit_code == 0, done.output
    assert keys[1] in done.output and "--append-unknown" in done.output
    assert "2 partitions and 2 rows of 1 object again" in done.output
    again = run("restore", folder, coordinator="new.db")
    assert again.exit_code == 1 and "not empty" in again.output
    assert "Traceback" not in again.output


def test_later_objects_are_appended_when_asked_and_the_guess_is_named(place):
    folder, keys = place
    done = run("restore", folder, "--append-unknown", "--json", coordinator="new.db")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["later"] == [keys[1]] and told["is_appended"] is True
    assert [(each["place"], each["detail"]) for each in told["findings"]] == [
        ("river-0", "the order from offset 3 on is a guess")
    ]
    assert run("verify", folder, "--whole", coordinator="new.db").exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Give store and coordinator"),
        (("--storage-url", "ftp://x", "--coordinator-url", "x"), "names no known store"),
        (("--storage-url", "file:///no/such", "--coordinator-url", "x"), "mount its volume"),
    ],
)
@pytest.mark.parametrize("verb", ["verify", "restore"])
def test_what_is_wrong_is_one_line(verb, words, said):
    done = CliRunner().invoke(main, ["diskless", verb, *words])
    assert done.exit_code != 0 and said in done.output and "Traceback" not in done.output


def test_a_store_that_no_cluster_has_used_is_refused_and_no_database_is_made(tmp_path):
    (tmp_path / "objects").mkdir()
    done = run("restore", tmp_path)
    assert done.exit_code == 1 and "no cluster has used this store" in done.output
    assert not (tmp_path / "diskless.db").exists()
