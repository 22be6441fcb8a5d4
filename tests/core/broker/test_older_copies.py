"""A replica's folder is away, and another one has a copy of its log: every case of the metadata.

The copy may lack acknowledged records. It is opened only where the controller counts on nothing
that was here, or knows that the folder is gone."""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest
from immutables import Map
from msgspec.structs import replace
from tests.core.broker.hosting_kit import Stage

from anabranch.core.broker.hosting import effects as does
from anabranch.core.broker.hosting.states import HostedState
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.metadata.image import BrokerImage, MetadataImage
from anabranch.core.types import TopicPartition

PLACE = TopicPartition("t", 0)
IDS = {"/a": b"a" * 16, "/b": b"b" * 16}
NAMED = {
    "nothing is told": None,
    "unassigned": bytes(16),
    "lost": (1).to_bytes(16),
    "migrating": (2).to_bytes(16),
    "a": IDS["/a"],
    "b": IDS["/b"],
    "a folder of an older life": b"x" * 16,
}
FOLDER_A = ("has the log", "has none", "fails", "is not in log.dirs")
STATES = [
    (leader, isr, elr)
    for leader, isr, elr in product((-1, 1, 2), ((1,), (2,), (1, 2)), ((), (1,)))
    if leader in (-1, *isr) and not (1 in isr and elr)
]


class Broker(Stage):
    """One that is registered with these folders."""

    log_dirs: tuple[bytes, ...] = tuple(IDS.values())

    @property
    def image(self) -> MetadataImage:
        own = BrokerImage(1, 3, bytes(16), Map(), log_dirs=self.log_dirs)
        return replace(super().image, brokers=Map({1: own}))

    def tell(self, named: bytes | None, leader: int, isr: tuple, elr: tuple) -> None:
        """What the metadata says of the replicas of brokers 1 and 2."""
        topic = self.topics["t"]
        state = replace(
            topic.partitions[0],
            replicas=(1, 2),
            directories=() if named is None else (named, b"2" * 16),
            leader=leader,
            isr=isr,
            elr=elr,
            partition_epoch=topic.partitions[0].partition_epoch + 1,
        )
        self.topics["t"] = replace(topic, partitions=topic.partitions.set(0, state))


@cache
def written() -> tuple[dict[str, bytes], frozenset[str]]:
    """Folder a with two records, folder b with a copy that has one; both synced."""
    stage = Broker()
    stage.partitions.folders = ["/a"]
    stage.publish(stage.create("t"))
    for path in ("/b", "/a"):
        stage.append(PLACE)
        stage.sync()
        stage.hosting.folders.by_path["/a"].checkpoint()
        if path == "/b":
            for name in list(stage.files.contents):
                stage.files.contents["/b" + name[2:]] = bytearray(stage.files.contents[name])
            stage.files.folders |= {"/b", f"/b/{PLACE}"}
    contents = {name: bytes(held) for name, held in stage.files.contents.items()}
    return contents, frozenset(stage.files.folders)


def broker(folder_a: str, log_dirs: tuple[bytes, ...]) -> Broker:
    stage = Broker()
    stage.create("t")
    contents, folders = written()
    stage.files.contents = {name: bytearray(held) for name, held in contents.items()}
    stage.files.folders = set(folders)
    if folder_a == "has none":
        stage.files.remove_tree(f"/a/{PLACE}")
        for name in stage.files.list("/a"):
            stage.files.remove(f"/a/{name}")
    if folder_a == "fails":
        stage.failed.add("/a")
    ids = {"/b": IDS["/b"]} if folder_a == "is not in log.dirs" else IDS
    stage.partitions.folders = list(ids)
    stage.partitions.directory_ids = ids
    stage.log_dirs = log_dirs
    return stage


@pytest.mark.parametrize("folder_a", FOLDER_A)
@pytest.mark.parametrize("named", NAMED)
def test_a_copy_is_opened_in_place_of_what_is_away_only_where_nothing_can_be_lost(folder_a, named):
    directory, works = NAMED[named], folder_a.startswith("has")
    is_away = named == "a folder of an older life" or (named == "a" and not works)
    for state, log_dirs in product(STATES, (tuple(IDS.values()), (IDS["/b"],))):
        stage, (leader, isr, elr) = broker(folder_a, log_dirs), state
        stage.tell(directory, *state)
        stage.publish()
        is_counted = 1 in isr or 1 in elr
        is_safe = leader != 1 and (not is_counted or directory not in log_dirs)
        replica = stage.partitions.get(*PLACE)
        assert (replica is not None) is (is_safe or not is_away), (state, log_dirs)
        if replica is None:
            assert_it_waits(stage)
            stage.tell(directory, 2, (2,), ())
            stage.publish()
            replica = stage.partitions.get(*PLACE)
            assert replica is not None, "another leads: it copies what it lacks"
        best = "/a" if folder_a == "has the log" and named != "b" else "/b"
        assert (replica.folder, replica.log.end_offset) == (best, 2 if best == "/a" else 1)


def assert_it_waits(stage: Broker) -> None:
    """The copy stays where it is, clients hear of storage, operators of the folder."""
    assert stage.hosting.standing(PLACE) is HostedState.MISSING
    assert not stage.count(does.SetAside)
    assert not stage.count(does.OpenLog)
    with pytest.raises(ApiError) as refused:
        stage.partitions.find(stage.image, *PLACE)
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    (said,) = [each for each in stage.done if isinstance(each, does.Report) and each.place == PLACE]
    assert "repair" in str(said.why)


def test_a_copy_that_waits_goes_with_its_topic():
    stage = broker("fails", tuple(IDS.values()))
    stage.tell(IDS["/a"], -1, (1,), ())
    stage.publish()
    assert stage.partitions.older == {PLACE}
    stage.publish(stage.delete("t"))
    assert not stage.partitions.older
    assert not stage.hosting.logs.found
    assert str(PLACE) not in stage.files.list("/b")
