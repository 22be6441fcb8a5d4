"""`anabranch remote`: what people see, the exit codes, and what Kafka's own tool decodes."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.core.log.support import KEY, TOPIC_ID
from tests.server.remote.test_round_performer import CLUSTER, Led, log_of

from anabranch.cli.main import main
from anabranch.core.diskless.rows import LogKey
from anabranch.core.remote.copy_pace import CopyPace
from anabranch.core.remote.rounds import Leading
from anabranch.core.remote.unfinished import Removals
from anabranch.core.wire.batch import walk
from anabranch.core.wire.records import decode_records
from anabranch.server import running_nodes
from anabranch.server.remote.remote_counts import RemoteCounts
from anabranch.server.remote.round_performer import World, perform_round
from anabranch.stores.coordinator.engines import open_coordinator
from anabranch.stores.coordinator.remote_front import RemoteFront
from anabranch.stores.objects.engines import open_objects
from anabranch.stores.objects.store_check import check_coordinator, claim_store

SEGMENTS = 4
IDS = [number.to_bytes(16) for number in range(1, 100)]


@pytest.fixture(autouse=True)
def short_watch(monkeypatch):
    """No broker writes here."""
    monkeypatch.setattr(running_nodes, "WATCH_S", 0.0)


async def copy(folder: Path) -> None:
    """A log with four closed segments, copied by a round of its leader."""
    (folder / "objects").mkdir()
    store = await open_objects(f"file://{folder}/objects")
    coordinator = await open_coordinator(f"sqlite://{folder}/coordinator.db", CLUSTER)
    await claim_store(store, coordinator, CLUSTER)
    await check_coordinator(store, CLUSTER, await coordinator.mark())
    ids = iter(IDS)
    world = World(
        RemoteFront(coordinator), store, CLUSTER, 1, CopyPace(), lambda: next(ids), lambda: 0,
        lambda: 1_700_000_000_000, RemoteCounts(),
    )  # fmt: skip
    log = log_of(f"{folder}/log/{KEY}", (2, 2, 3, 3, 3))
    key = LogKey(TOPIC_ID, KEY.partition)
    leading = Leading(CLUSTER, key, 3, Removals(), set())
    done = await perform_round(world, leading, Led(log, epoch=3))
    assert (done.copied, done.fault) == (SEGMENTS, None)
    log.close(clean=True)
    await coordinator.close()
    await store.close()


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copied")
    asyncio.run(copy(folder))
    return folder


@pytest.fixture
def place(copied, tmp_path):
    """A copy that a test may damage."""
    shutil.copytree(copied, tmp_path / "copy")
    return tmp_path / "copy"


def run(verb, folder, *words, coordinator="coordinator.db"):
    urls = (
        f"--storage-url=file://{folder}/objects",
        f"--coordinator-url=sqlite://{folder}/{coordinator}",
    )
    return CliRunner().invoke(main, ["remote", verb, *urls, *words])


def objects(folder, pattern):
    return sorted((folder / "objects").rglob(pattern))


def test_segments_are_listed(place):
    done = run("list", place)
    assert done.exit_code == 0, done.output
    assert f"{SEGMENTS} finished segments of 1 partition," in done.output
    assert "flights-" in done.output and "COPY_SEGMENT_FINISHED" in done.output
    told = json.loads(run("list", place, "--json", "--topic", "flights").stdout)
    [log] = told["partitions"]
    assert (log["topic"], log["leader_epoch"], log["log_start_offset"]) == ("flights", 3, 0)
    first, second, third, _ = log["segments"]
    assert (first["start_offset"], first["end_offset"], first["broker_id"]) == (0, 5, 1)
    assert second["start_offset"] == 5
    assert third["leader_epochs"] == [{"epoch": 3, "start_offset": 10}]
    assert {each["state"] for each in log["segments"]} == {"COPY_SEGMENT_FINISHED"}
    other = run("list", place, "--topic", "rivers")
    assert other.exit_code == 1 and "Topic rivers has no remote log." in other.output


@pytest.mark.parametrize("words", [(), ("--whole",)])
def test_what_is_sound_is_said_to_be_sound(place, words):
    done = run("verify", place, *words)
    assert done.exit_code == 0, done.output
    assert "no faults" in done.output and f"{SEGMENTS} finished segments" in done.output


def damage_log(path: Path) -> None:
    held = bytearray(path.read_bytes())
    held[-1] ^= 1
    path.write_bytes(held)


@pytest.mark.parametrize(
    ("pattern", "harm", "words", "kind"),
    [
        ("*5.log", Path.unlink, (), "segment missing"),
        ("*5.log", lambda path: path.write_bytes(path.read_bytes()[:-1]), (), "segment changed"),
        ("*5.log", damage_log, ("--whole",), "segment changed"),
        ("*5.index", lambda path: path.write_bytes(b"odd"), ("--whole",), "segment changed"),
        ("*10.snapshot", damage_log, ("--whole",), "segment changed"),
        ("*.json", lambda path: path.write_bytes(b"{"), (), "description damaged"),
    ],
)
def test_damage_is_named_with_its_place_and_ends_with_1(place, pattern, harm, words, kind):
    victim = next(each for each in objects(place, pattern) if each.name != "anabranch-cluster.json")
    harm(victim)
    done = run("verify", place, "--json", *words)
    assert done.exit_code == 1, done.output
    [damage] = json.loads(done.stdout)["findings"]
    assert (damage["kind"], damage["is_damage"]) == (kind, True)
    assert damage["place"].startswith("flights-") and " offsets " in damage["place"]
    assert victim.parent.name in damage["detail"] and victim.name in damage["detail"]
    said = run("verify", place, *words)
    assert said.exit_code == 1 and "1 fault. Put the named objects back" in said.output


def test_objects_without_facts_are_named_and_are_no_fault(place):
    with sqlite3.connect(place / "coordinator.db") as database:
        database.execute("DELETE FROM remote_segments WHERE start_offset = 5")
        database.execute("UPDATE remote_segments SET state = 2 WHERE start_offset = 0")
    done = run("verify", place, "--json")
    assert done.exit_code == 0, done.output
    kinds = [each["kind"] for each in json.loads(done.stdout)["findings"]]
    assert kinds == ["segment unfinished", "segment unknown"]


def test_a_lost_coordinator_is_restored(place):
    before = json.loads(run("list", place, "--json").stdout)
    objects(place, "*10.log")[0].unlink()
    done = run("restore", place, coordinator="new.db")
    assert done.exit_code == 1, done.output
    assert f"{SEGMENTS - 1} segments of 1 partition again" in done.output
    assert "00000000000000000010.log missing" in done.output
    after = json.loads(run("list", place, "--json", coordinator="new.db").stdout)
    [old], [new] = before["partitions"], after["partitions"]
    assert (new["topic"], new["topic_id"]) == ("flights", old["topic_id"])
    states = {each["start_offset"]: each["state"] for each in new["segments"]}
    assert states == {
        0: "COPY_SEGMENT_FINISHED", 5: "COPY_SEGMENT_FINISHED",
        15: "COPY_SEGMENT_FINISHED",
    }  # fmt: skip
    again = run("restore", place, coordinator="new.db")
    assert again.exit_code == 1 and "a restore needs an empty one" in again.output
    asyncio.run(begins_with(place, "new.db"))


async def begins_with(folder: Path, coordinator: str) -> None:
    """What a broker checks when it starts."""
    store = await open_objects(f"file://{folder}/objects")
    opened = await open_coordinator(f"sqlite://{folder}/{coordinator}", CLUSTER)
    await claim_store(store, opened, CLUSTER)
    await check_coordinator(store, CLUSTER, await opened.mark())
    await opened.close()
    await store.close()


def test_a_store_with_diskless_records_is_restored_in_order(place):
    wal = place / "objects" / CLUSTER / "wal" / "00"
    wal.mkdir(parents=True)
    (wal / "1").write_bytes(b"x")
    done = run("restore", place, coordinator="new.db")
    assert done.exit_code == 1 and "run `anabranch diskless restore` first" in done.output
    assert not json.loads(run("list", place, "--json", coordinator="new.db").stdout)["partitions"]


def test_what_is_known_is_exported_as_kafkas_records(place, tmp_path):
    target = tmp_path / "exported"
    done = run("export", place, str(target), "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["segments"] == SEGMENTS
    [file] = told["files"]
    encoded = Path(file).read_bytes()
    [(position, header)] = walk(encoded)
    assert header.record_count == 2 * SEGMENTS
    assert len(decode_records(encoded, position)) == 2 * SEGMENTS
    again = run("export", place, str(target))
    assert again.exit_code == 1 and "is not an empty folder" in again.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Give store and coordinator"),
        (("--storage-url", "ftp://x", "--coordinator-url", "x"), "names no known store"),
        (("--storage-url", "file:///no/such", "--coordinator-url", "x"), "mount its volume"),
        (("--config", "/no/such/file"), "does not exist"),
    ],
)
@pytest.mark.parametrize("verb", ["list", "verify", "restore", "export"])
def test_what_is_wrong_is_one_line(verb, words, said, tmp_path):
    target = [str(tmp_path / "out")] if verb == "export" else []
    done = CliRunner().invoke(main, ["remote", verb, *words, *target])
    assert done.exit_code != 0 and said in done.output and "Traceback" not in done.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("verb", ["list", "verify", "restore"])
def test_a_store_that_no_cluster_has_used_is_refused_and_no_database_is_made(verb, tmp_path):
    (tmp_path / "objects").mkdir()
    done = run(verb, tmp_path)
    assert done.exit_code == 1 and "no cluster has used this store" in done.output
    assert not (tmp_path / "coordinator.db").exists()


@pytest.mark.parametrize("verb", ["list", "verify"])
def test_a_coordinator_that_is_not_there_is_not_made(verb, place):
    done = run(verb, place, coordinator="none.db")
    assert done.exit_code == 1 and "Traceback" not in done.output
    assert not (place / "none.db").exists()


def test_the_coordinator_of_another_cluster_is_refused(place):
    with sqlite3.connect(place / "coordinator.db") as database:
        database.execute("UPDATE facts SET value = 'another' WHERE name = 'cluster.id'")
    done = run("verify", place)
    assert done.exit_code == 1 and "another" in done.output and "Traceback" not in done.output


def test_urls_come_from_a_brokers_file(place, tmp_path):
    file = tmp_path / "server.properties"
    file.write_text(
        f"node.id=1\nremote.storage.url=file://{place}/objects\n"
        f"diskless.coordinator.url=sqlite://{place}/coordinator.db\n"
    )
    done = CliRunner().invoke(main, ["remote", "verify", "--config", str(file)])
    assert done.exit_code == 0, done.output
