"""The properties file: Java's format, and values that providers have."""

from __future__ import annotations

import pytest

from anabranch.core.mirror.config import BadConfig
from anabranch.pipelines.mirror.properties import load_config, load_keys, resolved


def test_javas_format_is_read(tmp_path):
    path = tmp_path / "x.properties"
    path.write_text("# note\na : 1\nb=two \\\n  lines\nA->B.enabled = true\nc\\:d = \\u0041\n")
    assert load_keys(path) == {"a": "1", "b": "two lines", "A->B.enabled": "true", "c:d": "A"}


def test_variables_of_providers_are_replaced(tmp_path):
    (tmp_path / "secret").write_text("password = hunter2\n")
    (tmp_path / "whole").write_text("all of it")
    providers = {
        "config.providers": "file, env, directory",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "config.providers.env.class": "EnvVarConfigProvider",
        "config.providers.directory.class": "DirectoryConfigProvider",
    }
    keys = {
        "a": f"x${{file:{tmp_path}/secret:password}}y",
        "b": "${env:NAME}",
        "c": f"${{directory:{tmp_path}:whole}}",
        "d": "${other:x:y}",
    }
    found = resolved({**providers, **keys}, {"NAME": "value"})
    assert [found[each] for each in "abcd"] == ["xhunter2y", "value", "all of it", "${other:x:y}"]
    assert resolved(keys)["b"] == "${env:NAME}", "nothing is replaced without config.providers"


def test_what_is_missing_is_named_and_no_value_is_shown(tmp_path):
    (tmp_path / "secret").write_text("password = hunter2\n")
    keys = {
        "config.providers": "file,env,own",
        "config.providers.file.class": "FileConfigProvider",
        "config.providers.env.class": "EnvVarConfigProvider",
        "config.providers.own.class": "my.Provider",
        "a": f"${{file:{tmp_path}/secret:word}}",
        "b": "${env:NONE}",
        "c": "${own:x:y}",
        "e": "${file:/nowhere:x}",
    }
    with pytest.raises(BadConfig) as caught:
        resolved(keys, {})
    text = str(caught.value)
    assert "a: " in text and "has no key 'word'" in text and "hunter2" not in text
    assert "b: the environment has no variable 'NONE'; set it." in text
    assert "c: config.providers.own.class = Provider cannot be used; known: File" in text
    assert "e: /nowhere cannot be read" in text


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(BadConfig, match=r"none: cannot be read: No such file"):
        load_config(tmp_path / "none")
    (tmp_path / "x").write_text("a = \\uZZ")
    with pytest.raises(BadConfig, match="four hex digits"):
        load_config(tmp_path / "x")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("A.bootstrap.servers = http://a", "A.bootstrap.servers: 'http://a' is a URL"),
        ("A.security.protocol = SECRET", "A.security.protocol must be one of PLAINTEXT, SSL"),
        ("B.security.protocol = SASL_SSL", "B.sasl.mechanism must be one of"),
        (
            "B.security.protocol = SSL\nB.ssl.truststore.location = /nowhere",
            "/nowhere",
        ),
    ],
)
def test_addresses_and_security_that_cannot_be_are_told_with_their_keys(tmp_path, more, told):
    path = tmp_path / "x.properties"
    path.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n"
        f"A->B.enabled = true\n{more}\n"
    )
    with pytest.raises(BadConfig) as caught:
        load_config(path)
    assert str(path) in str(caught.value) and told in str(caught.value)


def test_a_login_is_read(tmp_path):
    path = tmp_path / "x.properties"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    path.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n"
        "A->B.enabled = true\nA.security.protocol = SASL_PLAINTEXT\n"
        "A.sasl.mechanism = SCRAM-SHA-256\n"
        f'A.sasl.jaas.config = {module} required username="u" password="p";\n'
    )
    flow = load_config(path).flows[0]
    assert flow.source_client["security.protocol"] == "SASL_PLAINTEXT"
    assert "sasl.mechanism" not in flow.target_client
