"""A controller that lacks what topics need says so once it knows of them, and goes on."""

from __future__ import annotations

import logging

import msgspec
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.members import until
from tests.server.node_kit import ThreadNode, free_port

from anabranch.core.metadata.image import MetadataImage
from anabranch.core.settings.broker import BrokerConfig
from anabranch.server.unserved import Unserved

SYSTEM = "remote.log.storage.system.enable"


@pytest.fixture
def nodes(tmp_path):
    """A controller and a broker, both with a remote store."""
    (tmp_path / "objects").mkdir()
    port = free_port()
    remote = {
        "remote_log_storage_system_enable": "true",
        "remote_storage_url": f"file://{tmp_path}/objects",
        "diskless_coordinator_url": f"sqlite://{tmp_path}/coordinator.db",
        "controller_quorum_bootstrap_servers": f"127.0.0.1:{port}",
        "metadata_store_url": f"sqlite://{tmp_path}/metadata.db",
    }
    made = {
        "controller": ThreadNode(
            tmp_path / "101", node_id="101", process_roles="controller",
            listeners=f"CONTROLLER://127.0.0.1:{port}", **remote,
        ),
        "broker": ThreadNode(
            tmp_path / "1", node_id="1", process_roles="broker",
            listeners="PLAINTEXT://127.0.0.1:0", **remote,
        ),
    }  # fmt: skip
    for each in made.values():
        each.start()
    yield made
    for name in ("broker", "controller"):
        made[name].close()


def test_a_controller_without_the_switch_names_the_topics_that_need_it(nodes, caplog):
    admin = AdminClient({"bootstrap.servers": nodes["broker"].bootstrap, "log_level": 0})
    config = {"remote.storage.enable": "true"}
    admin.create_topics([NewTopic("t", 1, 1, config=config)])["t"].result(30)

    def said():
        texts = (str(vars(each)) for each in caplog.records)
        return [each for each in texts if "on this controller" in each]

    assert not said()
    nodes["controller"].stop()
    off = ThreadNode.again(nodes["controller"])
    texts = {**off.config.broker.static, SYSTEM: "false"}
    off.config = msgspec.structs.replace(off.config, broker=BrokerConfig(texts, {}, {}))
    with caplog.at_level(logging.ERROR):
        nodes["controller"] = off.start()
        until(said)
        with pytest.raises(KafkaException, match="Tiered Storage functionality is disabled"):
            admin.create_topics([NewTopic("u", 1, 1, config=config)])["u"].result(30)
        admin.create_topics([NewTopic("v", 1, 1)])["v"].result(30)
    [once] = said()
    assert "true for topic t, and remote.log.storage.system.enable is false" in once


def test_the_first_look_says_it_and_a_second_one_does_not(caplog):
    """The metadata of the first look may bring no change: it was there when the node started."""
    looks = []
    unserved = Unserved(lambda *_: looks.append(1) or "why", BrokerConfig({}, {}, {}))
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            unserved.look(MetadataImage.empty(), None)
    assert len(looks) == len(caplog.records) == 1
