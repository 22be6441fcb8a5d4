"""Scrubbing of tiers: planted damage of every kind is found and named, and nothing else is."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import shutil

import pytest
from confluent_kafka.admin import AdminClient
from tests.pipelines.tiering_kit import SECONDS, VALUES, make, store_folder, write

from anabranch.core.errors import StorageFault
from anabranch.pipelines import scrub as scrubbing
from anabranch.pipelines import tiering, tiers
from anabranch.pipelines.faults import PipelineFault
from anabranch.pipelines.scrub import scrub
from anabranch.pipelines.tiering import Where, tier
from anabranch.stores.objects.folder import FolderStore
from anabranch.testing import LocalCluster

FLIPS = 60
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiers")
    with LocalCluster(brokers=1, folder=folder) as started:
        started.own_folder = folder
        yield started


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Tasks run in this process, one after the other, without Spark."""

    def waves(_spark, items, work):
        for each in items:
            yield [(each, json.loads(json.dumps(work(each))))]

    for module in (tiering, scrubbing):
        monkeypatch.setattr(module, "waves", waves)


class Tier:
    """The tiered part of a topic of two partitions, and what a scrub says of it."""

    def __init__(self, cluster, name):
        self.cluster, self.name = cluster, name
        self.url = f"file://{store_folder(cluster)}"
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        make(self.admin, name)
        before = self.folders()
        write(cluster, name, **{"enable.idempotence": True})
        assert tier(None, Where(cluster.bootstrap_servers, self.url)).segments == 2
        self.segments = sorted(self.folders() - before, key=str)

    def folders(self):
        return {each.parent for each in store_folder(self.cluster).rglob("segment.json")}

    def segment(self, partition=0):
        (found,) = [each for each in self.segments if each.parent.name.endswith(f"-{partition}")]
        return found

    def scrubbed(self, **more):
        return scrub(
            None, self.cluster.bootstrap_servers, [self.name], storage_url=self.url, **more
        )

    def delete(self):
        self.admin.delete_topics([self.name])[self.name].result(SECONDS)


@pytest.fixture
def tiered(cluster):
    found = Tier(cluster, f"tiered-{next(NUMBERS)}")
    yield found
    found.delete()


def test_sound_tiers_are_counted_and_replicas_are_compared_as_before(cluster, tiered):
    cluster.create_topic("classic", partitions=1)
    write(cluster, tiered.name, 20, first=VALUES)  # not tiered
    report = scrub(
        None, cluster.bootstrap_servers, ["classic", tiered.name], storage_url=tiered.url
    )
    assert report.is_clean, report
    assert (report.partitions, report.replicas, report.segments) == (1, 1, 2)
    sizes = sum(each.stat().st_size for folder in tiered.segments for each in folder.glob("*.log"))
    assert report.bytes_read == sizes


def garble(path):
    held = bytearray(path.read_bytes())
    held[len(held) // 2] ^= 1
    path.write_bytes(held)


def cut(path):
    path.write_bytes(path.read_bytes()[:-5])


DAMAGES = [
    ("*.log", garble, "corrupt", "the checksum does not match"),
    ("*.log", cut, "corrupt", "5 bytes of 00000000000000000000.log missing"),
    ("*.log", lambda path: path.unlink(), "corrupt", "00000000000000000000.log missing"),
    ("*.index", cut, "corrupt", ".index of offsets 0 to 199: "),
    ("*.snapshot", garble, "corrupt", ".snapshot of offsets 0 to 199: its checksum"),
    ("leader-epoch-checkpoint", cut, "corrupt", "leader-epoch-checkpoint of offsets 0 to 199: "),
    ("segment.json", cut, "corrupt", "it is no segment's description"),
    ("segment.json", lambda path: path.unlink(), "missing", "tiered offsets 0 to 199"),
    ("", shutil.rmtree, "missing", "no segment in the store has the tiered offsets 0 to 199"),
]


@pytest.mark.parametrize(("pattern", "damage", "kind", "words"), DAMAGES)
def test_planted_damage_is_found_and_named(cluster, tiered, pattern, damage, kind, words):
    folder = tiered.segment()
    if not pattern:
        damage(folder)
    else:
        (path,) = folder.glob(pattern)
        damage(path)
    report = tiered.scrubbed()
    assert not report.is_clean
    assert {(each["topic"], each["partition"]) for each in report.differences} == {(tiered.name, 0)}
    first = next(each for each in report.differences if words in each["sentence"])
    assert first["kind"] == kind
    assert first["sentence"].startswith("the tier: ")
    if kind == "corrupt":
        assert folder.name in first["sentence"]


def test_any_bit_that_flips_in_a_segments_batches_is_found(cluster, tiered):
    """At random positions: of checksums, lengths, offsets, epochs and records."""
    (path,) = tiered.segment().glob("*.log")
    sound, chance = path.read_bytes(), random.Random(47)
    first_batch = list(range(61))  # each byte of a header
    for position in [*first_batch, *(chance.randrange(len(sound)) for _ in range(FLIPS))]:
        held = bytearray(sound)
        held[position] ^= 1 << chance.randrange(8)
        path.write_bytes(held)
        report = tiered.scrubbed()
        assert [each["kind"] for each in report.differences] == ["corrupt"], position
    path.write_bytes(sound)
    assert tiered.scrubbed().is_clean


def test_what_is_removed_while_it_is_checked_is_no_damage(cluster, tiered, monkeypatch):
    look = tiers.look_at_tiers

    async def looked(*args):
        found = await look(*args)
        shutil.rmtree(tiered.segment())
        return found

    monkeypatch.setattr(scrubbing, "look_at_tiers", looked)
    report = tiered.scrubbed()
    assert not report.differing
    assert [each["kind"] for each in report.not_compared] == ["expired"]
    assert "removed while it was checked" in report.not_compared[0]["sentence"]


def test_a_segment_that_is_being_put_is_no_damage(cluster, tiered, monkeypatch):
    """A listing has its description, and not yet the files that were put before."""
    listing, seen = FolderStore.list, []

    async def list_late(self, prefix):
        seen.append(prefix)
        async for page in listing(self, prefix):
            is_late = len(seen) == 1
            yield [each for each in page if not (is_late and each.key.endswith(".log"))]

    monkeypatch.setattr(FolderStore, "list", list_late)
    assert tiered.scrubbed().is_clean
    assert len(seen) == 2


def test_notes_tell_which_segments_were_checked(cluster, tiered, tmp_path):
    notes = tmp_path / "notes.jsonl"
    garble(next(tiered.segment(1).glob("*.log")))
    assert tiered.scrubbed(notes_path=notes).differing == 1
    names = [json.loads(each).get("name", "") for each in notes.read_text().splitlines()]
    assert [each.partition("/")[0] for each in names if each] == [
        f"{tiered.name}-0", f"{tiered.name}-1"
    ]  # fmt: skip


def test_a_store_that_is_not_the_clusters_is_refused(cluster, tiered, tmp_path):
    with pytest.raises(StorageFault, match="it is not the store of cluster"):
        asyncio.run(
            tiers.look_at_tiers(
                cluster.bootstrap_servers, f"file://{tmp_path}", {tiered.name: True}
            )
        )


def test_a_diskless_topic_without_a_store_is_refused_with_the_remedy(cluster, tiered):
    with pytest.raises(PipelineFault, match=r"is diskless: .* --storage-url"):
        scrub(None, cluster.bootstrap_servers, [tiered.name])
