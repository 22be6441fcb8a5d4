"""TLS and SASL as options of source and sink."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.client.security import PLAINTEXT
from anabranch.pipelines.faults import OptionError
from anabranch.pipelines.options import source_options
from anabranch.pipelines.security_options import (
    EFFECTIVE,
    REFUSED,
    REFUSED_PREFIXES,
    WITHOUT_EFFECT,
    security_of_options,
)
from anabranch.pipelines.sink_options import read_options

PAGE = Path(__file__).parents[2] / "docs/pipelines/security.md"
SERVERS = {"kafka.bootstrap.servers": "host:9092"}
SECRET = "hunter2"
LOGIN = {
    "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
    f'username="alice" password="{SECRET}";',
    "kafka.ssl.truststore.location": "/trust.p12", "kafka.ssl.truststore.password": SECRET,
}  # fmt: skip


def of_source(given):
    return source_options({**SERVERS, "subscribe": "orders", **given})


def of_sink(given):
    return read_options({**SERVERS, **given})


BOTH = pytest.mark.parametrize("read", [of_source, of_sink])


@BOTH
def test_a_login_over_tls_is_read_in_any_case_of_names(read):
    for options in (LOGIN, {name.upper(): text for name, text in LOGIN.items()}):
        found = read(options)
        assert (found.security.uses_tls, found.security.login.username) == (True, "alice")
        assert found.security.login.password == SECRET
        assert found.security.tls["ssl.truststore.password"] == SECRET
        assert pickle.loads(pickle.dumps(found)) == found
        assert SECRET not in repr(found)


@BOTH
def test_without_options_connections_are_plain(read):
    assert read({}).security == PLAINTEXT
    assert read({"kafka.security.protocol": "plaintext"}) == read({})


@BOTH
@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_options_of_javas_libraries_may_stay(read, name):
    assert read({f"kafka.{name}": "any"}) == read({})


@BOTH
@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"kafka.security.protocol": "TLS"}, "kafka.security.protocol must be one of"),
        ({"kafka.sasl.mechanism": "GSSAPI"}, "kafka.sasl.mechanism must be one of PLAIN"),
        ({"kafka.sasl.jaas.config": SECRET}, "kafka.sasl.jaas.config is missing or cannot"),
        ({"kafka.ssl.keystore.key": SECRET}, "name it in kafka.ssl.keystore.location"),
        ({"kafka.ssl.keystor.location": SECRET}, "kafka.ssl.keystor.location is unknown"),
        ({"kafka.security.providers": SECRET}, "Java classes are not supported: leave it out"),
        ({"kafka.sasl.oauthbearer.scope.claim.name": SECRET}, "Leave it out"),
        ({"kafka.sasl.login.callback.handler.class": SECRET}, ""),
    ],
)
def test_what_cannot_be_is_told_without_its_value(read, more, told):
    if not told:
        read({**LOGIN, **more})
        return
    with pytest.raises(OptionError) as refusal:
        read({**LOGIN, **more})
    assert told in str(refusal.value)
    assert SECRET not in str(refusal.value)


NAMES = st.sampled_from([*EFFECTIVE, *WITHOUT_EFFECT, *REFUSED, *REFUSED_PREFIXES, "ssl.new"])
TEXTS = st.text(max_size=6) | st.sampled_from([*LOGIN.values(), "PLAIN", "SASL_PLAINTEXT", "SSL"])


@given(st.dictionaries(NAMES, TEXTS), st.lists(st.sampled_from(sorted(LOGIN))))
def test_any_options_are_read_or_refused_with_a_name_and_no_secret(found, wanted):
    options = {f"kafka.{name}": f"{SECRET}{text}" for name, text in found.items()}
    options |= {name: LOGIN[name] for name in wanted}
    try:
        told = repr(security_of_options(options))
    except OptionError as refusal:
        told = str(refusal)
    assert SECRET not in told
    assert told.startswith(("Security(", "kafka."))


def test_the_page_lists_every_option():
    listed = set(re.findall(r"`(kafka\.[\w.*]+)`", PAGE.read_text()))
    families = {f"{each}*" for each in REFUSED_PREFIXES}
    known = {f"kafka.{each}" for each in (*EFFECTIVE, *WITHOUT_EFFECT, *REFUSED, *families)}
    assert known == listed
