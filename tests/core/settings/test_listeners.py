"""How listeners are written, which ones contradict each other, and what must be meant."""

from __future__ import annotations

import pytest

from anabranch.core.settings.listeners import (
    Listener,
    is_loopback,
    parse_listeners,
    parse_protocol_map,
    refuse_duplicate_ports,
    refuse_unmeant_plaintext,
)
from anabranch.core.settings.setting import ConfigFault

PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "TLS": "SSL"}


def parsed(text):
    return parse_listeners("listeners", text, PROTOCOLS)


def test_listeners_are_name_host_and_port():
    assert parsed("plaintext://:9092, TLS://[::1]:0") == (
        Listener("PLAINTEXT", "", 9092, "PLAINTEXT"),
        Listener("TLS", "::1", 0, "SSL"),
    )
    assert parsed("TLS://[::1]:0")[0].text == "TLS://[::1]:0"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("foo", "Unable to parse foo to a broker endpoint"),
        ("PLAINTEXT://h", "Unable to parse"),
        ("BLA://:1", "No security protocol defined for listener BLA"),
        ("PLAINTEXT://:99999", "the largest port is 65535"),
        ("PLAINTEXT://:1,plaintext://:2", "PLAINTEXT is there twice"),
    ],
)
def test_bad_listeners_are_named(text, message):
    with pytest.raises(ConfigFault, match=message):
        parsed(text)


def test_ports_are_shared_only_between_ipv4_and_ipv6():
    with pytest.raises(ConfigFault, match="9092 is there twice"):
        refuse_duplicate_ports("listeners", parsed("PLAINTEXT://:9092,TLS://:9092"))
    refuse_duplicate_ports("listeners", parsed("PLAINTEXT://127.0.0.1:9,TLS://[::1]:9"))
    refuse_duplicate_ports("listeners", parsed("PLAINTEXT://:0,TLS://:0"))


def test_the_protocol_map():
    assert parse_protocol_map("a:plaintext, B:SASL_SSL") == {"A": "PLAINTEXT", "B": "SASL_SSL"}
    for text, message in (
        ("A", "is not written as"),
        ("A:FOO", "Invalid security protocol `FOO`"),
        ("A:SSL,a:SSL", "twice"),
    ):
        with pytest.raises(ConfigFault, match=message):
            parse_protocol_map(text)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", "A.LOCALHOST"])
def test_loopback(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "10.0.0.1", "example.org", "127.0.0.1.nip"])
def test_not_loopback(host):
    assert not is_loopback(host)


def test_plaintext_beyond_loopback_must_be_meant():
    with pytest.raises(ConfigFault, match=r"listener\.plaintext\.beyond\.loopback\.allow=true"):
        refuse_unmeant_plaintext("listeners", parsed("PLAINTEXT://:9092"), allow=False)
    refuse_unmeant_plaintext("listeners", parsed("PLAINTEXT://:9092"), allow=True)
    refuse_unmeant_plaintext("listeners", parsed("PLAINTEXT://127.0.0.1:1,TLS://:2"), allow=False)
