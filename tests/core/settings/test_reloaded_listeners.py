"""Settings of listeners that change while a node runs: which ones, and how they are looked up."""

from __future__ import annotations

import pytest
from immutables import Map

from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.describe import Source, describe_broker
from anabranch.core.settings.listener_changes import changed_listeners, listener
from anabranch.core.settings.listener_security import ListenerSettings
from anabranch.core.settings.listeners import Listener
from anabranch.core.settings.validation import is_reloaded, validate_broker_configs

KEY, JAAS = "listener.name.l.ssl.keystore.location", "listener.name.l.plain.sasl.jaas.config"


def settings(dynamic, **static):
    texts = {name.replace("_", "."): text for name, text in static.items()}
    config = BrokerConfig.of(texts, dynamic_broker=dynamic)
    return ListenerSettings(config, Listener("L", "127.0.0.1", 1, "SASL_SSL"))


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        (KEY, True), (JAAS, True), ("listener.name.l.ssl.truststore.certificates", True),
        ("listener.name.l.ssl.key.password", True), ("listener.name.l.sasl.jaas.config", True),
        ("listener.name.l.scram-sha-256.sasl.jaas.config", True),
        ("ssl.keystore.location", False), ("plain.sasl.jaas.config", False),
        ("listener.name.l.ssl.client.auth", False),
        ("listener.name.l.sasl.enabled.mechanisms", False),
        ("listener.name.l.oauthbearer.sasl.jaas.config", False),
        ("listener.name.l.ssl.enabled.protocols", False), ("listener.name.l.listeners", False),
    ],
)  # fmt: skip
def test_keys_trust_and_logins_of_one_listener_are_reloaded(name, is_one):
    assert is_reloaded(name) is is_one
    if is_one:
        validate_broker_configs({name: "x"}, per_broker=True)
        with pytest.raises(ClientFault):
            validate_broker_configs({name: "x"}, per_broker=False)
    else:
        with pytest.raises(ClientFault) as refused:
            validate_broker_configs({name: "x"}, per_broker=True)
        assert refused.value.code == ErrorCode.INVALID_REQUEST


def test_what_was_changed_stands_before_the_nodes_own():
    static = {"ssl_keystore_location": "old", "listener_name_l_ssl_keystore_location": "own"}
    assert settings({}, **static).tls()["ssl.keystore.location"] == "own"
    assert settings({KEY: "new"}, **static).tls()["ssl.keystore.location"] == "new"
    assert settings({KEY: "new"}).under(BrokerConfig.of({})).tls() == {}


def test_what_was_changed_of_another_listener_or_at_the_start_only_does_not_count():
    other = {
        "listener.name.lx.ssl.keystore.location": "x",
        "listener.name.l.ssl.client.auth": "required",
    }
    found = settings(other, ssl_keystore_location="old")
    assert found.tls()["ssl.keystore.location"] == "old" and found.client_auth == "none"
    assert found.reloaded == {}


def test_a_login_is_looked_up_by_its_mechanism():
    text = 'org.x.PlainLoginModule required user_alice="secret";'
    assert settings({JAAS: text}).login_options("PLAIN") == {"user_alice": "secret"}
    assert settings({JAAS: text}).login_options("SCRAM-SHA-256") == {}


def test_passwords_are_described_without_their_values():
    config = BrokerConfig.of({}, dynamic_broker={KEY: "/a/file", JAAS: "secret"})
    found = {each.name: each for each in describe_broker(config, None)}
    assert found[KEY].value == "/a/file" and found[KEY].config_source == Source.DYNAMIC_BROKER
    assert found[JAAS].value is None and found[JAAS].is_sensitive
    assert "secret" not in repr(found[JAAS])


@pytest.mark.parametrize("kind", [dict, Map])
def test_listeners_with_changed_keys_are_told_of_any_mapping(kind):
    """The metadata have theirs as immutable maps."""
    before, wanted = kind({KEY: "/a/file", "x": "1"}), kind({KEY: "/b/file"})
    assert changed_listeners(before, wanted) == {listener(KEY)}
    assert changed_listeners(wanted, before) == {listener(KEY)}
    assert changed_listeners(before, before) == set()
