"""What a listener asks of tokens: names by listener and mechanism, defaults, and what cannot work."""

from __future__ import annotations

import pytest

from anabranch.core.access.bearer import TokenRules
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.listener_security import ListenerSettings
from anabranch.core.settings.listener_tokens import TokenSettings, token_settings
from anabranch.core.settings.listeners import Listener
from anabranch.core.settings.open_doors import open_doors
from anabranch.core.settings.setting import ConfigFault

OAUTH = "sasl.oauthbearer."
URL = f"{OAUTH}jwks.endpoint.url"
UNSECURED = f"{OAUTH}unsecured.tokens.allow"


def settings(host="10.0.0.1", protocol="SASL_SSL", **more):
    texts = {"node.id": "1", "sasl.enabled.mechanisms": "OAUTHBEARER", **more}
    return ListenerSettings(BrokerConfig.of(texts), Listener("CLIENTS", host, 9092, protocol))


def test_defaults_are_kafkas():
    found = token_settings(settings(**{URL: "https://idp/keys"}))
    assert found == TokenSettings(TokenRules(), "https://idp/keys", 3_600_000, 10_000, 10_000)


@pytest.mark.parametrize(
    "prefix", ["", "listener.name.clients.", "listener.name.clients.oauthbearer."]
)
def test_each_setting_is_read_for_a_listener_and_its_mechanism(prefix):
    texts = {
        f"{prefix}{name}": text
        for name, text in {
            URL: "file:///keys", f"{OAUTH}expected.audience": "a,b", f"{OAUTH}expected.issuer": "i",
            f"{OAUTH}scope.claim.name": "scp", f"{OAUTH}sub.claim.name": "azp",
            f"{OAUTH}clock.skew.seconds": "7", f"{OAUTH}jwks.endpoint.refresh.ms": "5",
            "sasl.login.connect.timeout.ms": "6", "sasl.login.read.timeout.ms": "8",
        }.items()
    }  # fmt: skip
    rules = TokenRules(("a", "b"), "i", "scp", "azp", 7)
    assert token_settings(settings(**texts)) == TokenSettings(rules, "file:///keys", 5, 6, 8)


def test_unsecured_tokens_need_no_time_of_issue_and_stay_on_this_machine():
    found = token_settings(settings("127.0.0.1", **{UNSECURED: "true"}))
    assert found.keys_url == "" and not found.rules.needs_time_of_issue


ADDRESSES = (
    "https://[x", "https://[x]/", "https://[::1", "https://::1/", "https://", "https:///keys",
    "https://?a", "https://idp:x/", "https://idp:99999/", "https://idp:0/", "https://i dp/",
    "https://idp/a b", "https://idp/\u00e9", "https://a@b@idp/", "file://", "file://keys",
)  # fmt: skip


@pytest.mark.parametrize("url", ADDRESSES)
def test_what_is_no_address_is_refused(url):
    with pytest.raises(ConfigFault, match=r"^is no address: write https://HOST:PORT/PATH") as fault:
        token_settings(settings(**{URL: url}))
    assert fault.value.name.endswith(URL)


@pytest.mark.parametrize(
    "url",
    [
        "https://idp", "http://idp:80", "https://[::1]:8443/keys?a=b#c", "https://a:b@idp:/",
        "https://my_idp.example.org?a", "file:///a b", "file://localhost/a",
    ],
)  # fmt: skip
def test_addresses_that_may_be(url):
    assert token_settings(settings(**{URL: url})).keys_url == url


@pytest.mark.parametrize(
    ("host", "texts", "place", "why"),
    [
        ("10.0.0.1", {}, URL, "needs the keys that sign them"),
        ("127.0.0.1", {UNSECURED: "false"}, URL, "tokens that anybody can make"),
        ("10.0.0.1", {UNSECURED: "true"}, UNSECURED, "bind it to 127.0.0.1"),
        ("", {UNSECURED: "true"}, UNSECURED, "bind it to 127.0.0.1"),
        ("127.0.0.1", {UNSECURED: "true", URL: "https://idp"}, UNSECURED, "contradicts"),
        ("10.0.0.1", {URL: "ftp://idp"}, URL, "must begin with https"),
        (
            "10.0.0.1",
            {URL: "https://i", f"{OAUTH}clock.skew.seconds": "-1"},
            f"{OAUTH}clock.skew.seconds",
            "below 0",
        ),
        *(
            (
                "10.0.0.1",
                {URL: "https://i", f"sasl.login.{each}.timeout.ms": "0"},
                f"sasl.login.{each}.timeout.ms",
                "below 1",
            )
            for each in ("connect", "read")
        ),
    ],
)
def test_what_cannot_work_is_refused(host, texts, place, why):
    with pytest.raises(ConfigFault, match=why) as fault:
        settings(host, "SASL_PLAINTEXT", **texts).check()
    assert fault.value.name.endswith(place)


def test_the_login_module_is_that_of_tokens():
    wrong = settings(
        **{URL: "https://i", "oauthbearer.sasl.jaas.config": "x.PlainLoginModule required;"}
    )
    with pytest.raises(ConfigFault, match="must name OAuthBearerLoginModule"):
        wrong.login_options("OAUTHBEARER")


@pytest.mark.parametrize(
    ("host", "texts", "why"),
    [
        ("127.0.0.1", {UNSECURED: "true"}, "tokens that anybody can make"),
        ("127.0.0.1", {URL: "http://idp:80/keys"}, "others on the way can change keys"),
        ("10.0.0.1", {URL: "https://idp/keys"}, "takes tokens without encryption"),
        ("127.0.0.1", {URL: "http://[::1]:80/keys"}, None),
        ("127.0.0.1", {URL: "http://user@127.0.0.1/keys"}, None),
        ("127.0.0.1", {URL: "file:///keys"}, None),
    ],
)
def test_open_doors_are_named(host, texts, why):
    found = settings(host, "SASL_PLAINTEXT", **texts)
    said = [
        each
        for each in open_doors(found._config, [found.listener], [])
        if "token" in each or "keys" in each
    ]
    assert (why is None and not said) or any(why in each for each in said if why)
