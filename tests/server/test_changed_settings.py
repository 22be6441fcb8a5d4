"""What a node does with changed settings of its listeners that were stored and cannot be used."""

from __future__ import annotations

import pytest
from tests.server.secure_kit import ADMIN, MODULE

from anabranch.core.errors import ClientFault
from anabranch.server.changed_settings import ChangedSettings
from anabranch.server.config import load_config
from anabranch.testing.certificates import Authority

INTERNAL, CONTROLLER, CLIENTS = "internal", "controller", "clients"
JAAS, KEYS = "plain.sasl.jaas.config", "ssl.keystore.location"
OWN = f'{MODULE} username="admin" password="{ADMIN}" user_admin="{ADMIN}";'
NEW = f'{MODULE} username="new" password="other" user_admin="{ADMIN}";'
NO_LOGIN = f'{MODULE} user_admin="{ADMIN}";'
"""It lets clients in, and a node cannot log in with it."""
UNUSABLE = [
    (INTERNAL, KEYS, "/not/there"), (INTERNAL, JAAS, f"{MODULE};"), (INTERNAL, JAAS, NO_LOGIN),
    (CONTROLLER, KEYS, "/not/there"), (CONTROLLER, JAAS, NO_LOGIN), (CLIENTS, KEYS, "/not/there"),
    (CLIENTS, JAAS, f"{MODULE};"), ("typo", KEYS, "/not/there"),
]  # fmt: skip


def of(listener, name):
    return f"listener.name.{listener}.{name}"


class Stage:
    """A broker's settings of listeners, without a broker."""

    def __init__(self, authority):
        protocols = ",".join(f"{each.upper()}:SASL_SSL" for each in (INTERNAL, CONTROLLER, CLIENTS))
        settings = {
            "node.id": "1", "process.roles": "broker",
            "listeners": "INTERNAL://127.0.0.1:19092,CLIENTS://127.0.0.1:19093",
            "inter.broker.listener.name": "INTERNAL", "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": protocols,
            "controller.quorum.bootstrap.servers": "127.0.0.1:19094",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN", "sasl.enabled.mechanisms": "PLAIN",
            "ssl.keystore.location": authority.issue("node").both,
            "ssl.truststore.location": authority.certificate,
            **{of(each, JAAS): OWN for each in (INTERNAL, CONTROLLER, CLIENTS)},
        }  # fmt: skip
        config = load_config(None, [f"{name}={text}" for name, text in settings.items()])
        self.config, self.changed = config.broker, ChangedSettings(config, config.secure_listeners)
        self.stored = {}

    def store(self, *changes):
        """These are stored, whoever judged them."""
        self.stored |= {of(listener, name): text for listener, name, text in changes}
        self.changed.take(self.config.with_dynamic(self.stored, {}))

    def refuses(self, *changes, default=()):
        """Whether it refuses to have these too; None takes one away."""
        wanted = self.stored | {of(listener, name): text for listener, name, text in changes}
        own = {name: text for name, text in wanted.items() if text is not None}
        try:
            self.changed.refuse(self.config.with_dynamic(own, dict(default)))
        except ClientFault:
            return True
        return False

    def logins(self):
        """With which users it speaks to brokers, and to controllers."""
        ways = self.changed.to_brokers, self.changed.to_controllers
        return [each.security.login.username for each in ways]


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def stage(authority):
    return Stage(authority)


@pytest.mark.parametrize("bad", UNUSABLE)
def test_only_what_changes_is_judged(stage, bad):
    """Something that a former version stored, or another node while this one was not there, hinders
    no change of anything else, and none that takes it away."""
    listener, name, _ = bad
    assert stage.refuses(bad)
    stage.store(bad)
    assert stage.changed.kept_back
    assert not stage.refuses(default={"log.retention.ms": "5000"})
    for other in {INTERNAL, CONTROLLER, CLIENTS} - {listener}:
        assert not stage.refuses((other, JAAS, NEW))
    assert not stage.refuses((listener, name, None))
    assert stage.refuses((listener, name, None), (CLIENTS, KEYS, "/nor/there"))
    stage.stored.clear()
    stage.store()
    assert not stage.changed.kept_back


@pytest.mark.parametrize(
    ("bad", "logins"),
    [(None, ["new", "new"]), (INTERNAL, ["admin", "new"]), (CONTROLLER, ["new", "admin"])],
)
def test_a_login_that_cannot_be_used_holds_back_no_other(stage, bad, logins, caplog):
    """Else one password that changed would lock the node out where the new one is asked for."""
    assert stage.logins() == ["admin", "admin"]
    stage.store(
        *((each, JAAS, NO_LOGIN if each == bad else NEW) for each in (INTERNAL, CONTROLLER))
    )
    for _ in range(2):
        stage.store()
        assert stage.logins() == logins
        assert stage.changed.kept_back == (bad is not None)
        assert len(caplog.messages) - sum("in use" in each for each in caplog.messages) == (
            bad is not None
        )
