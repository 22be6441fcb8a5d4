"""Two nodes that were started as clusters of their own are never mistaken for one; what a node says
at its next start about how it stopped."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from node_kit import ProcessNode, ThreadNode, free_port, settings_of

from anabranch.core.errors import ApiError, StorageFault
from anabranch.core.log.checkpoints import CLEAN_SHUTDOWN
from anabranch.core.metadata.batches import decode_batches
from anabranch.core.metadata.image import RECOVERED, RECOVERING
from anabranch.core.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from anabranch.server.config import load_config
from anabranch.server.controller_channel import ControllerChannel
from anabranch.server.folders import FolderFault
from anabranch.server.node import Node

SECONDS = 20


@pytest.fixture
def running() -> Iterator[Any]:
    """Starts nodes in threads and stops them at the end."""
    nodes: list[ThreadNode] = []

    def start(folder: Path, **settings: str) -> ThreadNode:
        node = ThreadNode(folder, **settings).start()
        nodes.append(node)
        return node

    yield start
    for node in nodes:
        node.stop()


def controller_of(node: ThreadNode) -> str:
    assert node.node is not None and node.node.controller is not None
    return str(node.node.controller.tenure.candidacy.endpoint)


def create_topic(node: Any, name: str = "t") -> None:
    client = AdminClient({"bootstrap.servers": node.bootstrap})
    for future in client.create_topics([NewTopic(name, 1, 1)]).values():
        future.result(SECONDS)


def broker_only(folder: Path, controller: str, **settings: str) -> list[str]:
    return settings_of(
        folder,
        listeners="PLAINTEXT://127.0.0.1:0",
        **{
            "process.roles": "broker",
            "controller.quorum.bootstrap.servers": controller,
            "controller.listener.names": "CONTROLLER",
            **settings,
        },
    )


async def refusal(words: list[str]) -> BaseException:
    """What a node says that does not start; it holds nothing afterwards."""
    node = Node(load_config(None, words))
    with pytest.raises((ApiError, FolderFault, StorageFault)) as raised:
        await node.start()
    again = Node(load_config(None, words))
    with pytest.raises((ApiError, FolderFault, StorageFault)) as second:
        await again.start()
    assert str(second.value) == str(raised.value), "the first attempt changed something"
    return raised.value


async def test_a_broker_of_one_cluster_is_refused_by_the_controller_of_another(
    running: Any, tmp_path: Path
) -> None:
    first = running(tmp_path / "a")
    ThreadNode(tmp_path / "b").start().stop()
    before = first.node.controller.controller.image.brokers
    fault = await refusal(broker_only(tmp_path / "b", controller_of(first)))
    assert isinstance(fault, FolderFault)
    assert re.search(
        rf"b belongs to cluster \S+, and the controllers to cluster {first.node.cluster_id}; "
        r"correct log\.dirs or controller\.quorum\.bootstrap\.servers",
        str(fault),
    )
    assert first.node.controller.controller.image.brokers == before
    create_topic(first)


def content_of(folder: Path) -> dict[str, bytes]:
    paths = (each for each in folder.rglob("*") if each.is_file())
    return {str(each): each.read_bytes() for each in paths}


@pytest.mark.slow
@pytest.mark.parametrize("has_copy", [True, False])
async def test_a_folder_of_another_cluster_is_left_as_it_was(
    running: Any, tmp_path: Path, has_copy: bool
) -> None:
    """Its copy of the metadata was opened before anybody was asked, which recovered it."""
    first, folder = running(tmp_path / "a"), tmp_path / "b"
    ThreadNode(folder, **{"node.id": "2"}).start().stop()
    (segment,) = (folder / "__cluster_metadata-0").glob("*.log")
    if has_copy:
        segment.write_bytes(segment.read_bytes()[:-3])  # torn
    else:
        shutil.rmtree(segment.parent)
    before = content_of(folder)
    settings = {"node.id": "2", "initial.broker.registration.timeout.ms": "2000"}
    words = broker_only(folder, f"127.0.0.1:{free_port()},{controller_of(first)}", **settings)
    assert f"is of cluster {first.node.cluster_id}" in str(await refusal(words))
    assert content_of(folder) == before
    assert segment.exists() == has_copy


async def test_no_controller_of_another_cluster_is_asked(running: Any, tmp_path: Path) -> None:
    """The metadata still names one that is gone, and its address is another cluster's: a broker
    whose own controllers were away had topics created there, and stopped."""
    ours, other = running(tmp_path / "a"), running(tmp_path / "b")
    first, then = (each.node.controller.controller.endpoint for each in (other, ours))
    channel = ControllerChannel(
        lambda: [first, then], "test", cluster_id=lambda: str(ours.node.cluster_id)
    )
    topic = CreatableTopic(name="mine", num_partitions=1, replication_factor=1)
    answer = await channel.send(CreateTopicsRequest(topics=[topic]))
    assert [each.error_code for each in answer.topics] == [0]
    await channel.close()
    images = [each.node.controller.controller.image for each in (ours, other)]
    assert [image.topic("mine") is not None for image in images] == [True, False]


async def test_an_address_of_another_cluster_among_the_given_ones_is_named_and_skipped(
    running: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, other = running(tmp_path / "a"), running(tmp_path / "b")
    stale = controller_of(other)
    for given in (controller_of(ours), f"{stale},{controller_of(ours)}"):
        caplog.clear()
        node = Node(load_config(None, broker_only(tmp_path / "c", given, **{"node.id": "2"})))
        await node.start()
        assert node.cluster_id == ours.node.cluster_id
        await node.stop()
    (told,) = [each for each in caplog.records if "another cluster" in each.message]
    assert told.levelname == "WARNING"
    assert told.anabranch_fields == {"address": stale, "cluster": other.node.cluster_id}


async def test_a_broker_of_one_cluster_with_a_fresh_id_is_refused_too(
    running: Any, tmp_path: Path
) -> None:
    first = running(tmp_path / "a")
    ThreadNode(tmp_path / "b", **{"node.id": "2"}).start().stop()
    words = broker_only(tmp_path / "b", controller_of(first), **{"node.id": "2"})
    assert "and the controllers to cluster" in str(await refusal(words))
    assert list(first.node.controller.controller.image.brokers) == [1]


async def test_folders_of_one_cluster_and_the_store_of_another_are_refused(
    tmp_path: Path,
) -> None:
    for name in "ab":
        ThreadNode(tmp_path / name).start().stop()
    url = f"sqlite://{tmp_path}/a/metadata-store.db"
    assert (tmp_path / "a" / "metadata-store.db").exists()
    fault = await refusal(settings_of(tmp_path / "b", **{"metadata.store.url": url}))
    assert "belongs to cluster" in str(fault) and "metadata.store.url" in str(fault)


async def test_a_folder_of_another_cluster_beside_one_s_own_is_refused(tmp_path: Path) -> None:
    for name in "ab":
        ThreadNode(tmp_path / name).start().stop()
    both = f"{tmp_path}/a,{tmp_path}/b"
    assert "a node belongs to one cluster" in str(await refusal(settings_of(both)))


async def test_a_new_store_for_an_old_folder_is_noticed(tmp_path: Path) -> None:
    node = ThreadNode(tmp_path / "a").start()
    create_topic(node)
    node.stop()
    url = f"sqlite://{tmp_path}/new.db"
    fault = await refusal(settings_of(tmp_path / "a", **{"metadata.store.url": url}))
    assert "anabranch metadata restore" in str(fault)


async def test_a_store_from_a_backup_is_noticed(tmp_path: Path) -> None:
    ThreadNode(tmp_path / "a").start().stop()
    store = tmp_path / "a" / "metadata-store.db"
    shutil.copy(store, tmp_path / "backup.db")
    node = ThreadNode(tmp_path / "a").start()
    create_topic(node)
    node.stop()
    shutil.copy(tmp_path / "backup.db", store)
    assert "went back to offset" in str(await refusal(settings_of(tmp_path / "a")))


async def test_a_twin_from_a_copied_folder_cannot_share_the_store(
    running: Any, tmp_path: Path
) -> None:
    """The copy has the same ids. It goes its own way; what it wrote is refused at home."""
    ThreadNode(tmp_path / "a").start().stop()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for name in "ab":
        node = ThreadNode(tmp_path / name).start()
        create_topic(node, f"only-in-{name}")
        node.stop()
    url = f"sqlite://{tmp_path}/a/metadata-store.db"
    fault = await refusal(settings_of(tmp_path / "b", **{"metadata.store.url": url}))
    assert "it has other records at offset" in str(fault) or "went back" in str(fault)


def recovery_of(node: ThreadNode) -> tuple[int, int]:
    assert node.node is not None and node.node.controller is not None
    partition = node.node.controller.controller.image.partition("t", 0)
    assert partition is not None
    return partition.leader, partition.recovery_state


def led_uncleanly(node: ThreadNode) -> bool:
    """Whether the log has an election of a leader that may lack something; it recovers at once."""
    assert node.node is not None and node.node.controller is not None
    log = node.node.controller.controller.log
    records = (
        record
        for payload in log.read(log.start_offset, 1 << 30)
        for batch in decode_batches(payload)
        for record in batch.records
    )
    return any(getattr(each, "leader_recovery_state", RECOVERED) == RECOVERING for each in records)


def test_a_clean_restart_counts_as_clean(running: Any, tmp_path: Path) -> None:
    """KIP-966: the epoch in the clean marker keeps the replica eligible to lead."""
    first = ThreadNode(tmp_path / "a").start()
    create_topic(first)
    first.stop()
    for _ in range(2):
        again = ThreadNode(tmp_path / "a").start()
        assert recovery_of(again) == (1, RECOVERED)
        assert not led_uncleanly(again)
        again.stop()


async def test_a_start_that_failed_leaves_a_clean_stop_clean(running: Any, tmp_path: Path) -> None:
    """Nothing was served, so nothing was appended."""
    first = ThreadNode(tmp_path / "a").start()
    create_topic(first)
    first.stop()
    marker = (tmp_path / "a" / CLEAN_SHUTDOWN).read_bytes()
    timeout = {"initial.broker.registration.timeout.ms": "1000"}
    await refusal(broker_only(tmp_path / "a", f"127.0.0.1:{free_port()}", **timeout))
    assert (tmp_path / "a" / CLEAN_SHUTDOWN).read_bytes() == marker
    assert recovery_of(running(tmp_path / "a")) == (1, RECOVERED)


def test_a_crash_counts_as_unclean(running: Any, tmp_path: Path) -> None:
    process = ProcessNode(tmp_path / "a").start().ready()
    create_topic(process)
    process.kill()
    process.close()
    again = running(tmp_path / "a")
    assert led_uncleanly(again)
    assert recovery_of(again)[0] == 1


def test_a_node_gives_up_in_one_line_when_no_controller_answers(tmp_path: Path) -> None:
    port = free_port()
    node = ProcessNode(
        tmp_path / "b",
        **{
            "process.roles": "broker",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{port}",
            "initial.broker.registration.timeout.ms": "1500",
        },
    )
    node._words = [word.replace(",CONTROLLER://127.0.0.1:0", "") for word in node._words]
    code, errors = node.start().ended()
    lines = [line for line in errors.splitlines() if line.startswith("Error: ")]
    assert code == 1 and len(lines) == 1, errors
    assert "within 1500 ms (initial.broker.registration.timeout.ms)" in lines[0]
    assert f"127.0.0.1:{port} cannot be reached" in lines[0]
    assert "Traceback" not in errors
