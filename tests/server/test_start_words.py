"""A node whose start takes long says what it waits for, and what would help."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.server.node_kit import ThreadNode, free_port, settings_of

from anabranch.core.metadata.store import StoreAway
from anabranch.server import logs, store_patience
from anabranch.server import node as nodes
from anabranch.server.config import load_config
from anabranch.stores.metadata.sqlite import SqliteStore


async def first_words(monkeypatch, *settings):
    """What a node that cannot become ready says first of why."""
    monkeypatch.setattr(nodes, "FIRST_WORD_S", 0.2)
    said = asyncio.get_running_loop().create_future()

    def heard(record):
        if "not ready yet" in record.getMessage() and not said.done():
            said.set_result(record.getMessage() + str(record.__dict__))

    monkeypatch.setattr(logs, "WATCHERS", [heard])
    node = nodes.Node(load_config(None, settings))
    starting = asyncio.get_running_loop().create_task(node.start())
    try:
        return await asyncio.wait_for(said, 30)
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)


async def test_a_quorum_list_that_lacks_the_active_controller(monkeypatch, tmp_path):
    store = {"metadata_store_url": f"sqlite://{tmp_path}/metadata.db", "node_id": "1"}
    active = ThreadNode(tmp_path / "1", **store).start()
    try:
        own = settings_of(tmp_path / "2", **{**store, "node_id": "2"})
        said = await first_words(monkeypatch, *own)
    finally:
        active.stop()
    assert "node 1 is the active controller and listens on 127.0.0.1:" in said
    assert "add that to controller.quorum.bootstrap.servers" in said


async def test_a_controller_that_is_not_there(monkeypatch, tmp_path):
    port = free_port()
    own = settings_of(
        tmp_path, node_id="3", process_roles="broker", listeners="PLAINTEXT://127.0.0.1:0",
        controller_quorum_bootstrap_servers=f"127.0.0.1:{port}",
    )  # fmt: skip
    said = await first_words(monkeypatch, *own)
    assert f"127.0.0.1:{port} cannot be reached: nothing listens there" in said


async def test_a_store_that_goes_away_once_it_was_opened(monkeypatch, tmp_path):
    """It is waited for, whatever it is asked."""
    said, ask, faults = [], SqliteStore.cluster_id, [StoreAway("store s: nobody answers")]

    async def cluster_id(store, proposed):
        if faults:
            raise faults.pop()
        return await ask(store, proposed)

    monkeypatch.setattr(SqliteStore, "cluster_id", cluster_id)
    monkeypatch.setattr(logs, "WATCHERS", [lambda record: said.append(str(record.__dict__))])
    node = nodes.Node(load_config(None, settings_of(tmp_path)))
    try:
        await node.start()
    finally:
        await node.stop()
    (waits,) = [each for each in said if "waiting for the metadata store" in each]
    assert "store s: nobody answers" in waits


async def test_a_store_that_goes_away_again_and_again_is_waited_for_once(monkeypatch, tmp_path):
    """The start has one time for it, whatever it asks."""
    asked = []

    def is_away_for(seconds, name):
        real, ends = getattr(SqliteStore, name), []

        async def call(*arguments):
            asked.append(name)
            ends.append(time.monotonic() + seconds)
            if time.monotonic() < ends[0]:
                raise StoreAway("store s: nobody answers")
            return await real(*arguments)

        monkeypatch.setattr(SqliteStore, name, call)

    for seconds, name in ((0.8, "open"), (0.8, "cluster_id"), (60, "lease")):
        is_away_for(seconds, name)
    monkeypatch.setattr(store_patience, "TRY_AGAIN_S", 0.01)
    monkeypatch.setattr(nodes, "FIRST_WORD_S", 60)
    time_out = {"initial_broker_registration_timeout_ms": "1200"}
    node = nodes.Node(load_config(None, settings_of(tmp_path, **time_out)))
    with pytest.raises(StoreAway):
        await node.start()
    assert "lease" not in asked
