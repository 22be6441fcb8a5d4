"""Whose a connection is, and what a listener offers, by its settings."""

from __future__ import annotations

from itertools import count

import pytest
from immutables import Map
from msgspec.structs import replace

from anabranch.client.scram import ScramClient
from anabranch.core.access.login import LoginRefused
from anabranch.core.access.principal import ANONYMOUS, Principal
from anabranch.core.access.scram_server import make_credential, salted
from anabranch.core.broker.gate import Session
from anabranch.core.broker.listener_logins import Chance, logins_of, session_of
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.listener_security import ListenerSettings
from anabranch.core.settings.listeners import Listener

SHA, SALT, PASSWORD = "SCRAM-SHA-256", b"salt" * 4, "secret"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
ALICE = {"subject": ((("commonName", "alice"),), (("organizationName", "people"),))}
NUMBERS = count()
CHANCE = Chance(lambda: f"nonce{next(NUMBERS)}", lambda: b"secret" * 5)


def settings(protocol, **texts):
    static = {name.replace("_", "."): text for name, text in texts.items()}
    return ListenerSettings(BrokerConfig.of(static), Listener("L", "127.0.0.1", 1, protocol))


def session(found, certificate):
    return session_of(found, found.mapping_rules(), certificate)


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("certificate", [None, ALICE])
def test_who_must_log_in_is_no_one_until_then(protocol, certificate):
    found = session(settings(protocol), certificate)
    assert isinstance(found, Session)
    assert found.is_restricted and found.principal == ANONYMOUS


def test_a_certificate_names_its_principal_and_none_is_anonymous():
    tls = settings("SSL")
    assert session(tls, None).principal == ANONYMOUS == session(tls, {}).principal
    assert session(tls, ALICE).principal == Principal("User", "O=people,CN=alice")
    named = settings("SSL", ssl_principal_mapping_rules="RULE:.*CN=([a-z]+).*/$1/")
    assert session(named, ALICE).principal == Principal("User", "alice")


def test_a_certificate_that_no_rule_names_lets_no_one_in():
    named = settings("SSL", ssl_principal_mapping_rules="RULE:CN=(bob)/$1/")
    assert isinstance(session(named, ALICE), str)


def test_a_listener_without_sasl_offers_nothing():
    assert logins_of(settings("SSL"), MetadataImage.empty, CHANCE) is None


def login(machine, user="alice", password=PASSWORD):
    client = ScramClient(SHA, user, password, "mine")
    return machine.respond(client.final(machine.respond(client.first(), 0).answer), 0).user


def test_scram_asks_the_image_as_it_is_with_each_login():
    """Also a user that was removed, or got another password, while a node ran."""
    images = [MetadataImage.empty()]
    offered = logins_of(
        settings("SASL_SSL", sasl_enabled_mechanisms=SHA), lambda: images[-1], CHANCE
    )
    begin = offered.mechanisms[SHA]
    with pytest.raises(LoginRefused):
        login(begin())
    for password in (PASSWORD, "another"):
        credential = make_credential(SHA, salted(SHA, password, SALT, 4096), SALT, 4096)
        images.append(replace(images[0], scram=Map({(1, "alice"): credential})))
        assert login(begin(), password=password) == "alice"
    with pytest.raises(LoginRefused):
        login(begin(), password=PASSWORD)
    images.append(images[0])
    with pytest.raises(LoginRefused):
        login(begin(), password="another")


def test_plain_has_the_users_of_the_settings():
    text = f'{MODULE} user_alice="{PASSWORD}";'
    offered = logins_of(
        settings("SASL_SSL", sasl_enabled_mechanisms="PLAIN", listener_name_l_plain_sasl_jaas_config=text),
        MetadataImage.empty, CHANCE,
    )  # fmt: skip
    machine = offered.mechanisms["PLAIN"]
    assert machine().respond(f"\0alice\0{PASSWORD}".encode(), 0).user == "alice"
    with pytest.raises(LoginRefused):
        machine().respond(b"\0alice\0guessed", 0)
