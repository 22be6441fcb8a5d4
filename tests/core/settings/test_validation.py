"""Which changes of settings are refused, with Kafka's codes and words."""

from __future__ import annotations

import math

import kafka_facts
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.coordination.groups.offsets_topic import offsets_topic
from anabranch.core.coordination.transactions.topic import transaction_topic
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.catalogue import BROKER_SETTINGS, TOPIC_SETTINGS
from anabranch.core.settings.setting import ConfigFault, Type, parse
from anabranch.core.settings.validation import (
    LEAST,
    Operation,
    Resource,
    apply_operation,
    is_sensitive,
    limits_by_address,
    refuse_remote_contradictions,
    validate_broker_configs,
    validate_topic_configs,
)

VERDICTS = kafka_facts.rows("kafka_4_1_0_topic_verdicts.tsv")


@pytest.mark.parametrize("row", VERDICTS, ids=lambda row: " ".join(row[:-2]))
def test_topics_are_judged_as_kafka_judges_them(row):
    texts = dict(pair.split("=", 1) for pair in row[:-2])
    if row[-1] == "OK":
        validate_topic_configs(texts)
        return
    with pytest.raises(ApiError) as caught:
        validate_topic_configs(texts)
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    assert caught.value.message == row[-1]


def test_a_null_is_refused_by_name():
    with pytest.raises(ApiError, match="Null value not supported for topic configs: a,b"):
        validate_topic_configs({"b": None, "a": None, "retention.ms": "1"})


def test_a_topic_is_judged_over_the_broker_s_values():
    broker = BrokerConfig.of({"log.cleaner.max.compaction.lag.ms": "5"})
    with pytest.raises(ApiError, match=r"conflict topic config setting .* \(10\) > .* \(5\)"):
        validate_topic_configs({"min.compaction.lag.ms": "10"}, broker)


def test_a_remote_log_needs_a_broker_that_has_a_remote_store():
    with pytest.raises(ApiError, match="Tiered Storage functionality is disabled"):
        validate_topic_configs({"remote.storage.enable": "true"})
    validate_topic_configs({"remote.storage.enable": "true"}, TIERS)


TIERS = BrokerConfig.of({"remote.log.storage.system.enable": "true"})
ONLY_DELETE = "Remote log storage only supports topics with cleanup.policy=delete"
IDENTICAL = (
    "When `remote.log.copy.disable` is set to true, the `local.retention.{0}` and `retention.{0}` "
    "must be set to the identical value because there will be no more logs copied to the remote "
    "storage."
)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"cleanup.policy": "compact"}, ONLY_DELETE),
        ({"cleanup.policy": "compact,delete"}, ONLY_DELETE),
        (
            {"local.retention.ms": "604800001"},
            "Invalid value 604800001 for configuration local.retention.ms: Value must not be more "
            "than retention.ms property value: 604800000",
        ),
        (
            {"retention.bytes": "5", "local.retention.bytes": "-1"},
            "Invalid value -1 for configuration local.retention.bytes: Value must not be -1 as "
            "retention.bytes value is set as 5.",
        ),
        ({"remote.log.copy.disable": "true", "local.retention.ms": "5"}, IDENTICAL.format("ms")),
        (
            {"remote.log.copy.disable": "true", "local.retention.bytes": "5"},
            IDENTICAL.format("bytes"),
        ),
    ],
)
def test_a_remote_log_refuses_what_contradicts_it_in_kafkas_words(values, said):
    with pytest.raises(ApiError) as caught:
        validate_topic_configs({"remote.storage.enable": "true", **values}, TIERS)
    assert (caught.value.code, caught.value.message) == (ErrorCode.INVALID_CONFIG, said)
    validate_topic_configs({"remote.storage.enable": "false", **values}, TIERS)


AMOUNTS = st.sampled_from([-2, -1, 0, 1, 5, 6, 2**62])


@given(
    AMOUNTS.filter(lambda each: each != -2), AMOUNTS, AMOUNTS.filter(lambda each: each != -2),
    AMOUNTS, st.booleans(), st.sampled_from(["delete", "compact", "delete,compact"]),
)  # fmt: skip
def test_any_settings_of_a_remote_log(whole_ms, local_ms, whole_bytes, local_bytes, stops, policy):
    """What is left keeps no more on the brokers than in all."""
    values = {
        "retention.ms": whole_ms, "local.retention.ms": local_ms,
        "retention.bytes": whole_bytes, "local.retention.bytes": local_bytes,
        "remote.log.copy.disable": stops, "cleanup.policy": policy,
    }  # fmt: skip
    parsed = {
        name: parse(TOPIC_SETTINGS[name], str(value).lower()) for name, value in values.items()
    }

    def at_most(local: int, whole: int) -> float:
        found = whole if local == -2 else local
        return math.inf if found == -1 else found

    pairs = [(local_ms, whole_ms), (local_bytes, whole_bytes)]
    agrees = all(at_most(*pair) <= at_most(-2, pair[1]) for pair in pairs)
    same = all(local in (-2, whole) for local, whole in pairs)
    try:
        refuse_remote_contradictions(parsed, TIERS)
        is_taken = True
    except ConfigFault:
        is_taken = False
    assert is_taken == (agrees and policy == "delete" and (same or not stops))


@pytest.mark.parametrize(
    ("values", "per_broker", "message"),
    [
        ({"node.id": "5"}, True, "Cannot update these configs dynamically: Set(node.id)"),
        (
            {"process.roles": "broker", "node.id": "0"},
            False,
            "Cannot update these configs dynamically: Set(node.id, process.roles)",
        ),
        (
            {"listeners": "PLAINTEXT://h:1"},
            False,
            "Cannot update these configs at default cluster level, broker id must be specified: "
            "Set(listeners)",
        ),
        (
            {"log.retention.ms": "abc"},
            True,
            "Invalid value abc for configuration log.retention.ms: Not a number of type LONG",
        ),
        (
            {"log.retention.ms": " 0"},
            False,
            "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal "
            "to 1",
        ),
        (
            {"log.roll.ms": "0"},
            True,
            "requirement failed: log.roll.ms must be greater than or equal to 1",
        ),
        (
            {"log.roll.jitter.ms": "-1"},
            True,
            "requirement failed: log.roll.jitter.ms must be greater than or equal to 0",
        ),
        *(
            (
                {"max.connections.per.ip.overrides": text},
                False,
                "requirement failed: max.connections.per.ip.overrides must be addresses with the "
                "number of their connections, as in 10.0.0.1:5,10.0.0.2:9",
            )
            for text in ("10.0.0.1:x", "10.0.0.1", "10.0.0.1:-1", "10.0.0.1:5,:6", "10.0.0.1:")
        ),
        *(
            (
                {name: text},
                False,
                f"requirement failed: {name} must be greater than or equal to {least}",
            )
            for name, text, least in (
                ("num.replica.fetchers", "-3", 1),
                ("num.replica.fetchers", "0", 1),
                ("log.cleaner.threads", "0", 1),
                ("log.cleaner.dedupe.buffer.size", "1048576", 1048577),
                ("max.connections", "0", 1),
                ("max.connection.creation.rate", "0", 1),
            )
        ),
        (
            {"listener.name.plaintext.max.connections": "x"},
            True,
            "Invalid value x for configuration max.connections: Not a number of type INT",
        ),
    ],
)
def test_brokers_are_judged_as_kafka_judges_them(values, per_broker, message):
    with pytest.raises(ApiError) as caught:
        validate_broker_configs(values, per_broker=per_broker)
    assert (caught.value.code, caught.value.message) == (ErrorCode.INVALID_REQUEST, message)


@pytest.mark.parametrize("name", ["listeners", "listener.security.protocol.map"])
def test_addresses_are_bound_at_the_start(name):
    """Beyond Kafka: here a change would say done, and the node would listen where it did."""
    with pytest.raises(ApiError, match=rf"restart it.*Set\({name}\)"):
        validate_broker_configs({name: "PLAINTEXT://127.0.0.1:1"}, per_broker=True)


@pytest.mark.parametrize(
    "name", sorted(name for name, each in BROKER_SETTINGS.items() if each.type is Type.DOUBLE)
)
def test_no_number_is_infinite(name):
    """Beyond Kafka, whose Double.valueOf takes 1e400 as infinity, and NaN."""
    for text in ("1e400", "-1e400", "NaN", "Infinity"):
        with pytest.raises(ApiError, match="Not a number of type DOUBLE"):
            parse(BROKER_SETTINGS[name], text)


def test_key_stores_change_only_for_a_listener():
    with pytest.raises(ApiError, match=r"only per-listener .*Set\(ssl.keystore.type\)"):
        validate_broker_configs({"ssl.keystore.type": "JKS"}, per_broker=True)
    validate_broker_configs({"listener.name.a.ssl.keystore.type": "JKS"}, per_broker=True)


def test_what_a_listener_reads_at_its_start_does_not_change_later():
    for name in ("ssl.client.auth", "sasl.enabled.mechanisms", "ssl.enabled.protocols"):
        with pytest.raises(ApiError, match="restart"):
            validate_broker_configs({f"listener.name.a.{name}": "x"}, per_broker=True)


def test_a_broker_keeps_names_that_a_plug_in_may_know():
    validate_broker_configs({"foo": "5", "message.max.bytes": "9"}, per_broker=False)


def test_retention_of_all_topics_may_be_unlimited():
    validate_broker_configs({"log.retention.ms": "-1", "log.roll.ms": "1"}, per_broker=False)


def test_addresses_may_have_limits_of_their_own():
    texts = "", " 10.0.0.1 : 5 ,host:0,", "::1:7"
    for text in texts:
        validate_broker_configs({"max.connections.per.ip.overrides": text}, per_broker=False)
    assert list(map(limits_by_address, texts)) == [{}, {"10.0.0.1": 5, "host": 0}, {"::1": 7}]


def changed(operation, value, overrides=None, name="cleanup.policy"):
    result = apply_operation(Resource.TOPIC, overrides or {}, name, operation, value)
    return result.get(name)


def test_set_and_delete():
    assert changed(Operation.SET, "compact") == "compact"
    assert changed(Operation.DELETE, None, {"cleanup.policy": "compact"}) is None
    assert changed(Operation.DELETE, None) is None


def test_append_begins_from_what_is_in_effect_and_adds_once():
    assert changed(Operation.APPEND, "compact") == "delete,compact"
    assert changed(Operation.APPEND, "delete", {"cleanup.policy": "delete"}) == "delete"
    name = "leader.replication.throttled.replicas"
    assert changed(Operation.APPEND, "0:1,0:2", {name: "0:1"}, name) == "0:1,0:2"


def test_a_topic_s_list_begins_from_the_broker_s_value():
    """What was compacted alone would else be deleted by age."""
    broker = BrokerConfig.of({"log.cleanup.policy": "compact"})
    change = (Resource.TOPIC, {}, "cleanup.policy", Operation.APPEND, "delete", broker)
    assert apply_operation(*change) == {"cleanup.policy": "compact,delete"}


def test_blanks_around_entries_count_for_nothing():
    spaced = {"cleanup.policy": " compact, delete"}
    assert changed(Operation.SUBTRACT, "delete", spaced) == "compact"
    assert changed(Operation.SUBTRACT, " compact ", spaced) == "delete"
    assert changed(Operation.APPEND, " delete", spaced) == "compact,delete"


def test_subtract_takes_away_what_is_there():
    assert changed(Operation.SUBTRACT, "delete") == ""
    assert changed(Operation.SUBTRACT, "x", {"cleanup.policy": "compact"}) == "compact"


def test_a_broker_s_list_begins_from_the_broker_s_value():
    broker = BrokerConfig.of({"log.cleanup.policy": "compact"})
    result = apply_operation(
        Resource.BROKER, {}, "log.cleanup.policy", Operation.APPEND, "delete", broker
    )
    assert result == {"log.cleanup.policy": "compact,delete"}


def test_only_lists_are_appended_to():
    with pytest.raises(ApiError) as caught:
        changed(Operation.APPEND, "5", name="retention.ms")
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    assert caught.value.message == "Can't APPEND to key retention.ms because its type is not LIST."


def test_a_value_fits_into_a_record():
    with pytest.raises(ApiError, match="exceeds the maximum value size"):
        changed(Operation.SET, "x" * 32_768)


def test_the_given_settings_are_left_alone():
    before = {"cleanup.policy": "delete"}
    apply_operation(Resource.TOPIC, before, "cleanup.policy", Operation.SET, "compact")
    assert before == {"cleanup.policy": "delete"}


def test_passwords_and_unknown_names_are_never_shown():
    assert is_sensitive(Resource.BROKER, "ssl.key.password")
    assert is_sensitive(Resource.BROKER, "listener.name.a.ssl.key.password")
    assert is_sensitive(Resource.BROKER, "foo")
    assert not is_sensitive(Resource.TOPIC, "retention.ms")


@pytest.mark.parametrize(
    "create", [offsets_topic, transaction_topic], ids=lambda create: create.__name__
)
@pytest.mark.parametrize("edge", ["least", "most"])
def test_an_internal_topic_is_created_with_whatever_its_settings_may_be(create, edge):
    """Else every request for its coordinator fails, and the node had started as if all were well."""
    texts = {}
    for name, setting in BROKER_SETTINGS.items():
        if name.startswith(("offsets.topic.", "transaction.state.log.")) and setting.limits:
            least = max(setting.validator.minimum, LEAST.get(name, 0))
            most = (1 << 15) - 1 if setting.type is Type.SHORT else (1 << 31) - 1
            texts[name] = str(least if edge == "least" else most)
    topic = create(MetadataImage.empty(), BrokerConfig.of(texts))
    validate_topic_configs({each.name: each.value for each in topic.configs})
