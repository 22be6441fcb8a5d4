"""An mm2.properties as MirrorMaker 2 reads it: prefixes, precedence, mistakes and notes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.mirror.config import BadConfig, read_config
from anabranch.core.mirror.keys import FLOW_KEYS
from anabranch.core.mirror.policy import IDENTITY_POLICY

PLAIN = {
    "clusters": "A, B",
    "A.bootstrap.servers": "a:1",
    "B.bootstrap.servers": "b:1",
    "A->B.enabled": "true",
}


def only_flow(**more):
    """The flow of the plain file with more keys, `__` for a dot."""
    found = read_config({**PLAIN, **more})
    assert len(found.flows) == 1
    return found.flows[0]


def test_a_plain_file_has_one_flow_with_mirrormakers_defaults():
    flow = only_flow()
    assert flow.name == "A->B"
    assert flow.topics.takes("orders") and not flow.topics.takes("__consumer_offsets")
    assert not flow.groups.takes("connect-x")
    assert not flow.configs.takes("min.insync.replicas") and flow.configs.takes("retention.ms")
    assert flow.number("offset.lag.max") == 100 and not flow.is_exactly_once
    assert flow.source_client["bootstrap.servers"] == "a:1"
    assert not flow.from_latest and not flow.read_committed


def test_both_directions_get_heartbeats_unless_that_is_turned_off():
    pairs = read_config(PLAIN).pairs
    assert {(each.source, each.target) for each in pairs} == {("A", "B"), ("B", "A")}
    assert not read_config({**PLAIN, "emit.heartbeats.enabled": "false"}).pairs


def test_the_flows_own_key_wins():
    more = {"topics": "x", "A->B.topics": "y", "replication.factor": "1"}
    flow = only_flow(**more)
    assert flow.topics.takes("y") and not flow.topics.takes("x")
    assert flow.number("replication.factor") == 1


def test_clients_keys_by_their_precedence():
    places = [
        "A->B.consumer.fetch.min.bytes", "A.consumer.fetch.min.bytes",
        "A->B.source.consumer.fetch.min.bytes",
    ]  # fmt: skip
    more = {}
    for number, place in enumerate(places, 5):
        more[place] = str(number)
        assert only_flow(**more).source_client["fetch.min.bytes"] == str(number)
    more = {"security.protocol": "SSL", "B.security.protocol": "SASL_SSL"}
    flow = only_flow(**more)
    assert flow.source_client["security.protocol"] == "SSL"
    assert flow.target_client["security.protocol"] == "SASL_SSL"
    assert only_flow(**{"B.producer.compression.type": "lz4"}).target_client[
        "compression.type"
    ] == "lz4"  # fmt: skip


def test_the_identity_policy_and_another_separator():
    flow = only_flow(**{"replication.policy.class": IDENTITY_POLICY})
    assert flow.policy.remote_topic("t") == "t"
    flow = only_flow(**{"replication.policy.separator": "_"})
    assert flow.policy.remote_topic("t") == "A_t"


def test_exactly_once_is_the_targets_setting_and_needs_committed_reads():
    more = {"B.exactly.once.source.support": "enabled"}
    with pytest.raises(BadConfig, match=r"needs A\.consumer\.isolation\.level = read_committed"):
        read_config({**PLAIN, **more})
    flow = only_flow(**more, **{"A.consumer.isolation.level": "read_committed"})
    assert flow.is_exactly_once and flow.read_committed


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"clusters": ""}, "clusters is missing"),
        ({"clusters": "", "connector.class": "x"}, "the file of a connector"),
        ({"clusters": "", "bootstrap.servers": "x"}, "a Connect worker"),
        ({"A.bootstrap.servers": ""}, "A.bootstrap.servers is missing"),
        ({"A->B.enabled": "false"}, "No flow is enabled: write A->B.enabled = true"),
        ({"A->B.enabled": "yes"}, "A->B.enabled = yes: write true or false"),
        ({"A->C.enabled": "true"}, "'C' is not one of clusters"),
        ({"Aa->B.topics": "x"}, "did you mean A?"),
        ({"offset.lag.max": "many"}, "offset.lag.max = many: write a whole number"),
        ({"topics": "a,(b"}, "'(b' is not a regular expression"),
        ({"replication.policy.class": "my.Policy"}, "Java classes cannot be loaded"),
        ({"topic.filter.class": "my.Filter"}, "write topics and topics.exclude instead"),
        ({"A.consumer.isolation.level": "serial"}, "allowed: read_uncommitted, read_committed"),
        ({"B.producer.acks": "1"}, "allowed: all, -1"),
        ({"exactly.once.source.support": "on"}, "allowed: disabled, preparing, enabled"),
    ],
)
def test_mistakes_name_the_key_and_the_remedy(more, told):
    with pytest.raises(BadConfig) as caught:
        read_config({**PLAIN, **more})
    assert told in str(caught.value)


def test_all_mistakes_are_told_at_once():
    with pytest.raises(BadConfig) as caught:
        read_config({**PLAIN, "offset.lag.max": "x", "A.bootstrap.servers": "", "topics": "("})
    assert len(caught.value.faults) == 3


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("topcis", "topcis is not a key of a mirror and is ignored; did you mean topics?"),
        ("A->B.refresh.topic.interval.seconds", "did you mean refresh.topics.interval.seconds?"),
        ("plugin.path", "plugin.path has no effect: Java classes"),
        ("consumer.fetch.min.bytes", "belong to a cluster, as in A.consumer.fetch.min.bytes"),
        ("A.consumer.session.timeout.ms", "of a client's keys these have"),
        ("B.key.converter", "B.key.converter has no effect"),
    ],
)
def test_unknown_keys_and_those_without_effect_are_named(key, told):
    notes = read_config({**PLAIN, key: "1"}).notes
    assert len(notes) == 1 and told in notes[0]


def test_known_keys_are_not_named():
    keys = {f"A->B.{name}": key.default for name, key in FLOW_KEYS.items() if name != "enabled"}
    more = {
        "A.ssl.truststore.location": "x", "A.sasl.mechanism": "PLAIN", "A.client.id": "x",
        "config.providers": "file", "config.providers.file.class": "x",
        "A->B.source.consumer.fetch.min.bytes": "2", "B.producer.compression.type": "lz4",
    }  # fmt: skip
    assert read_config({**PLAIN, **keys, **more}).notes == ()


KEYS = st.sampled_from(
    [*PLAIN, *FLOW_KEYS, "A->B.topics", "B->A.enabled", "A.consumer.acks", "x->"]
)


@given(st.dictionaries(KEYS | st.text(max_size=10), st.text(max_size=10)))
def test_any_file_gives_flows_or_sentences(keys):
    faults = ["nothing"]
    try:
        read_config(keys)
    except BadConfig as fault:
        faults = fault.faults
    assert faults and all(faults)
