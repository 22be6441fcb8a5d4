"""`--command-config`: how the command line's connections are secured, as with Kafka's tools."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import javaproperties
import pytest
from click.testing import CliRunner

from anabranch.cli.main import main
from anabranch.client.security import EFFECTIVE, is_about_security, security_of
from anabranch.pipelines.mirror.properties import load_config


def run(*words, **more):
    return CliRunner().invoke(main, ["topics", "list", *words], **more)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("security.protocol=TLS", "security.protocol must be one of PLAINTEXT, SSL"),
        ("sasl.mechansim=PLAIN", "sasl.mechansim is unknown. Correct its name"),
        ("security.protocol=SASL_SSL", "sasl.mechanism must be one of PLAIN"),
        ("security.protocol=SSL\nssl.truststore.location=/nowhere.pem", "/nowhere.pem"),
        ("a=\\u12", "is no properties file in UTF-8"),
    ],
)
def test_what_cannot_be_is_told_with_the_file_and_without_secrets(tmp_path, text, said):
    path = tmp_path / "client.properties"
    path.write_text(f"sasl.jaas.config=hunter2;\n{text}\n")
    done = run("--command-config", str(path))
    assert done.exit_code == 2
    told = " ".join(done.output.split())
    assert said in told
    assert str(path) in told.replace(" ", "")
    assert "hunter2" not in done.output


def test_a_missing_file_is_told(tmp_path):
    done = run("--command-config", str(tmp_path / "none"))
    assert (done.exit_code, "No such file or directory." in done.output) == (2, True)


def test_the_environment_may_name_the_file(tmp_path):
    path = tmp_path / "client.properties"
    path.write_text("security.protocol=SSH")
    done = run(env={"ANABRANCH_COMMAND_CONFIG": str(path)})
    assert "security.protocol must be one of" in " ".join(done.output.split())


PAGE = Path(__file__).resolve().parents[2] / "docs" / "operate" / "secure-connections.md"


def test_the_page_names_every_property_and_no_other():
    table = PAGE.read_text().split("## Properties")[1].split("The first bytes")[0]
    named = re.findall(r"`((?:security|sasl|ssl)\.[a-z.]+)`", table)
    assert sorted(named) == sorted(EFFECTIVE)


def test_the_examples_of_the_page_are_read(tmp_path):
    blocks = re.findall(r"```(properties|python)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (_, own), (_, mirrors), (kind, program), (_, tokens) = blocks
    assert security_of(javaproperties.loads(tokens)).login.tokens.client_id == "orders"
    assert security_of(javaproperties.loads(own)).login.mechanism == "SCRAM-SHA-512"
    secrets = tmp_path / "east.properties"
    login = javaproperties.loads(own)["sasl.jaas.config"].replace("\\", "")
    secrets.write_text(f"login = {login}")
    path = tmp_path / "mm2.properties"
    path.write_text(
        mirrors.replace("/etc/mirror/east.properties", str(secrets)).replace(
            "east.ssl.truststore.location = /etc/kafka/east-ca.pem", ""
        )
        + "clusters = east, west\neast.bootstrap.servers = e:1\nwest.bootstrap.servers = w:1\n"
        "east->west.enabled = true\n"
    )
    (flow,) = load_config(path).flows
    assert (
        security_of(
            {name: text for name, text in flow.source_client.items() if is_about_security(name)}
        ).login.username
        == "admin"
    )
    assert kind == "python"
    compile(f"async def program():\n{textwrap.indent(program, '    ')}", "page", "exec")
