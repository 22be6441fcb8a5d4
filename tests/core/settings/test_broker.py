"""The effective settings of a broker: precedence, dynamic changes, cheap look-ups."""

from __future__ import annotations

import pytest

from anabranch.core.diskless.layout import MOST_BYTES
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.catalogue import BROKER_SETTINGS
from anabranch.core.settings.setting import ConfigFault
from anabranch.core.settings.topic import topic_defaults


def test_every_setting_is_an_attribute_and_an_item():
    config = BrokerConfig.of()
    for name, setting in BROKER_SETTINGS.items():
        assert getattr(config, setting.attribute) == config[name]


def test_a_name_that_is_no_setting_is_no_item():
    with pytest.raises(KeyError):
        BrokerConfig.of({"foo": "1"})["foo"]


def test_static_goes_before_default():
    assert BrokerConfig.of().num_partitions == 1
    assert BrokerConfig.of({"num.partitions": "3"}).num_partitions == 3


def test_the_broker_s_dynamic_value_goes_before_the_cluster_s_and_the_file_s():
    config = BrokerConfig.of(
        {"message.max.bytes": "1"},
        dynamic_broker={"message.max.bytes": "3"},
        dynamic_default={"message.max.bytes": "2", "log.segment.bytes": "2000000"},
    )
    assert config.message_max_bytes == 3
    assert config.log_segment_bytes == 2_000_000
    assert config.with_dynamic({}, {"message.max.bytes": "2"}).message_max_bytes == 2
    assert config.with_dynamic({}, {}).message_max_bytes == 1


def test_a_static_value_that_is_wrong_is_refused():
    with pytest.raises(ConfigFault, match=r"num\.partitions"):
        BrokerConfig.of({"num.partitions": "0"})


@pytest.mark.parametrize("size", [(1 << 30) + 1, MOST_BYTES - 1])
def test_a_buffer_that_hardly_fits_into_an_object_is_refused(size):
    """An object has an index beside what was buffered; one that is too large has no answer."""
    name = "diskless.produce.buffer.max.bytes"
    assert BrokerConfig.of({name: str(1 << 30)}).diskless_produce_buffer_max_bytes < MOST_BYTES
    with pytest.raises(ConfigFault, match=name):
        BrokerConfig.of({name: str(size)})


def test_a_dynamic_value_that_cannot_be_taken_is_left_out_and_named():
    config = BrokerConfig.of(
        {"message.max.bytes": "7"},
        dynamic_broker={"message.max.bytes": "x", "node.id": "5"},
        dynamic_default={"listeners": "PLAINTEXT://h:1"},
    )
    assert config.message_max_bytes == 7
    assert config.node_id is None
    assert config.ignored == ("listeners", "message.max.bytes", "node.id")


def test_topics_without_settings_share_one_object():
    config = BrokerConfig.of()
    assert topic_defaults(config) is topic_defaults(config)
